"""Counts what should become fewer: small parts, knobs, near-doubles, words of the dialect."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from sources import Source, walk

from .graph import file_graph, mutual, own_imports
from .names import numeric_constants
from .syntax import called, calls, mentions
from .tree import Figure, Function, Tree, functions, place

Files = tuple[Source, ...]

DIALECT = re.compile(
    r"\b(?:is|are|has) no\b(?! longer| more)|\bso many\b|\b(?:no|some)body\b|\bwho(?:m)?ever\b",
    re.IGNORECASE,
)
_NAMED_IN_TEXT = re.compile(r"[\w.]+:(\w+)$")
_SHORT = 2
"""Most statements of a function that could as well stand where it is used."""


def single_users(files: Files) -> Iterator[str]:
    """Modules, no packages, that exactly one other file imports."""
    users: dict[str, set[str]] = defaultdict(set)
    for name, targets in file_graph(files).items():
        for target in targets:
            users[target].add(name)
    for source in files:
        if not source.is_package and len(users[source.module]) == 1:
            yield f"{source}: {users[source.module].pop()}"


def named_in_texts(files: Files) -> set[str]:
    """Names of functions in texts such as ``module:name``, which registries and jobs load."""
    return {
        found[1]
        for source in files
        for node in (walk(source.tree) if mentions(source, ":") else ())
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (found := _NAMED_IN_TEXT.fullmatch(node.value))
    }


def mentioned(files: Files) -> Counter[str]:
    """How often each name is used, as a name or the last word of an attribute; imports are not."""
    found: Counter[str] = Counter()
    for source in files:
        for node in walk(source.tree):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    found[name] += 1
                case ast.alias(name=name, asname=str()):
                    found[name.rpartition(".")[2]] += 2  # under another name: count it out
    return found


def lone_functions(files: Files) -> Iterator[tuple[Source, Function]]:
    """Functions on the level of a module whose name no other function has, and no text names."""
    known = Counter(function.name for source in files for function in functions(source))
    texts = named_in_texts(files)
    for source in files:
        for node in source.tree.body:
            if isinstance(node, Function) and known[node.name] == 1 and node.name not in texts:
                yield source, node


def one_use_functions(files: Files) -> Iterator[str]:
    """Such functions, not decorated, of at most two statements, whose name is used once."""
    uses = mentioned(files)
    for source, function in lone_functions(files):
        size = len(function.body) - (ast.get_docstring(function) is not None)
        if uses[function.name] == 1 and size <= _SHORT and not function.decorator_list:
            yield place(source, function, function.name)


def unused_defaults(files: Files) -> Iterator[str]:
    """Parameters whose default no call overrides, of such functions that are only called.

    Calls with ``*`` or ``**`` may override anything. A function that is handed on as a value, or
    shares its name with another one or a variable, is left out.
    """
    every: dict[str, list[ast.Call]] = defaultdict(list)
    for source in files:
        for call in calls(source.tree):
            every[called(call)].append(call)
    uses = mentioned(files)
    for source, function in lone_functions(files):
        given = every[function.name]
        if given and uses[function.name] == len(given):
            for name in _never_given(function, given):
                yield place(source, function, f"{function.name}({name})")


def _never_given(function: Function, given: list[ast.Call]) -> Iterator[str]:
    """The parameters with a default that none of the calls gives."""
    keys = {one.arg for call in given for one in call.keywords}
    if None in keys or any(isinstance(a, ast.Starred) for call in given for a in call.args):
        return
    most = max(len(call.args) for call in given)
    own = function.args
    places = [*own.posonlyargs, *own.args]
    first = len(places) - len(own.defaults)
    yield from (one.arg for one in places[max(first, most) :] if one.arg not in keys)
    for one, default in zip(own.kwonlyargs, own.kw_defaults, strict=True):
        if default is not None and one.arg not in keys:
            yield one.arg


def cheapest_paths(source: Source) -> Iterator[str]:
    """Functions that take from a heap, or call `dijkstra` of SciPy; heaps of events are counted."""
    if any(mentions(source, word) for word in ("heappop", "dijkstra")):
        for function in functions(source):
            if any(called(call) in ("heappop", "dijkstra") for call in calls(function)):
                yield place(source, function, function.name)


def folder_pairs(files: Files) -> tuple[str, ...]:
    """Folders of the first level, `synth/judge` and the like, that name each other."""
    home = {s.module: ".".join(["weft", *s.path.parent.parts[:2]]) for s in files}
    found: dict[str, set[str]] = defaultdict(set)
    for name, targets in file_graph(files).items():
        found[home[name]] |= {home[target] for target in targets} - {home[name]}
    return mutual(found)


def tested_modules(code: Files, tests: Files) -> set[str]:
    """Modules of the product that tests import by their names."""
    known = {source.module for source in code}
    named = ((one.module, f"{one.module}.{one.name}") for s in tests for one in own_imports(s))
    return {full if full in known else module for module, full in named} & known


def dialect(source: Source) -> Iterator[str]:
    """Words of the dialect in all lines of a file: `is no`, `so many`, `nobody` and the like."""
    for number, line in enumerate(source.text.splitlines(), 1):
        for found in DIALECT.finditer(line):
            yield f"{source}:{number}: {found[0]}"


def measured(tree: Tree) -> Iterator[Figure]:
    """All of these counts."""
    code = tree.code
    paths = (at for source in code for at in cheapest_paths(source))
    constants = (at for s in code if s.folder == "backends" for at in numeric_constants(s))
    words = (at for source in code for at in dialect(source))
    for key, label, found in (
        ("single_user_modules", "modules with one user", single_users(code)),
        ("one_use_functions", "functions of two statements, used once", one_use_functions(code)),
        ("unused_defaults", "defaults that no call overrides", unused_defaults(code)),
        ("cheapest_paths", "routines of cheapest paths, heaps of events as well", paths),
        ("constants_backends", "numeric constants of backends", constants),
        ("folder_pairs", "first-level folders that name each other", folder_pairs(code)),
        ("tested_modules", "modules that tests import", sorted(tested_modules(code, tree.tests))),
        ("dialect", "words of the dialect", words),
    ):
        places = tuple(found)
        yield Figure(key, label, len(places), places)
