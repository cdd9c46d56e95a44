"""Detects tables of runtime limits, starters of processes, and grammars of options."""

import ast
import re
from collections.abc import Iterator

from sources import Source, walk

from .syntax import called, calls, keywords, mentions, numbers, texts
from .tree import Figure, Tree, place

LIMITS = {71, 127, 216, 4095, 32767, 50_176, 65_536, 576_000}
"""Published numbers of the runtimes that read MSCCL XML: chunks of a step, thread block that a
wait can name, thread blocks, XML elements, chunk offset, LL128 bytes on ROCm, iterations, LL128
bytes on CUDA. 65536 and 127 alone say little, so three different ones are asked for."""

_BRACES = re.compile(r"\\\{.*\\\}")
_PAIRS = re.compile(r"\\w\+\s*\)?(?:\\s\*)?=")


def limit_tables(source: Source) -> Iterator[str]:
    """Files in which at least three different published limits stand as numbers."""
    found = {value: node for value, node in numbers(source.tree) if value in LIMITS}
    if len(found) >= 3:
        first = min(found.values(), key=lambda node: getattr(node, "lineno", 0))
        yield place(source, first, f"{', '.join(map(str, sorted(found)))}")


def starters(source: Source) -> Iterator[str]:
    """Calls `Popen(…, start_new_session=…)`: a process with a group of its own."""
    for call in calls(source.tree) if mentions(source, "Popen") else ():
        if called(call) == "Popen" and "start_new_session" in keywords(call):
            yield place(source, call, "Popen")


STARTING = {"run", "Popen", "call", "check_call", "check_output"}


def bare_starts(source: Source) -> Iterator[str]:
    """Starts that `processes.start` does not guard from modules in the working folder.

    Names of this Python (`sys.executable`) as a word to start, calls of `subprocess`, and what
    else `os` and `multiprocessing` start.
    """
    if not any(mentions(source, word) for word in ("executable", "subprocess", "os.", "multipro")):
        return
    for node in walk(source.tree):
        match node:
            case ast.Import() | ast.ImportFrom() if "multiprocessing" in ast.unparse(node):
                yield place(source, node, "multiprocessing")
            case ast.Tuple() | ast.List() if "sys.executable" in map(ast.unparse, node.elts):
                yield place(source, node, "sys.executable")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="subprocess"), attr=name)):
                if name in STARTING:
                    yield place(source, node, name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)):
                if name.startswith(("exec", "spawn", "posix_spawn")) or name in ("system", "popen"):
                    yield place(source, node, name)


def option_grammars(source: Source) -> Iterator[str]:
    """Files that take a name with options apart by hand; one line per way that a file has.

    Patterns: a regular expression with `{…}` or `word=` in it (literal text of a call of `re`);
    the text cut at `"{"` with its rest kept (`head, brace, rest = text.partition("{")`); items cut
    at `"="` (partition or split) in a file that cuts at `","` as well.
    """
    if not mentions(source, "partition(") and not mentions(source, "re."):
        return
    commas = any(_cuts(call, ",") for call in calls(source.tree))
    for node in walk(source.tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=elts)], value=ast.Call() as call):
                kept = not elts[-1:] or ast.unparse(elts[-1]) != "_"
                if kept and called(call) == "partition" and _cuts(call, "{"):
                    yield place(source, node, ast.unparse(call))
                if called(call) == "partition" and _cuts(call, "=") and commas:
                    yield place(source, node, ast.unparse(call))
            case ast.Call() if ast.unparse(node.func).startswith("re."):
                pattern = next(texts(node), None)
                if pattern is not None and _is_option_pattern(str(pattern.value)):
                    yield place(source, node, ast.unparse(node))


def _cuts(call: ast.Call, at: str) -> bool:
    """A call that is given the separator as a literal: `split(",")`, `_split(span, ",")`."""
    by = called(call).lstrip("_")
    given = any(isinstance(a, ast.Constant) and a.value == at for a in call.args)
    return by in ("split", "partition", "rpartition") and given


def _is_option_pattern(text: str) -> bool:
    return bool(_BRACES.search(text) or _PAIRS.search(text))


def measured(tree: Tree) -> Iterator[Figure]:
    """Limits, starters, grammars."""
    for key, label, pattern in (
        ("limit_tables", "tables of runtime limits", limit_tables),
        ("starters", "starters of processes", starters),
        ("bare_starts", "starts of programs, in all", bare_starts),
        ("option_grammars", "places that parse a name with options", option_grammars),
    ):
        found = tuple(at for source in tree.code for at in pattern(source))
        yield Figure(key, label, len(found), found)
        if key == "option_grammars":
            files = tuple(sorted({at.partition(":")[0] for at in found}))
            yield Figure("option_grammar_files", "… files with such places", len(files), files)
