"""The list of kernels that are compiled ahead: complete, and as they are called."""

import ast
import inspect
import re

from guards import valid

from sources import ROOT, Source, sources
from weft.backends.kernels import LINKED, MODULES, declared, types_of
from weft.dsl.base import jit

BY_NAME = {module.__name__: module for module in MODULES}


def test_every_module_with_kernels_is_listed() -> None:
    found = {
        "weft." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in ("dsl", "synth", "backends")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^@(compiled|kernel)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == set(BY_NAME)


def test_declared_kernels_exist_and_take_as_many_arguments() -> None:
    for name, kernels in declared().items():
        if name == "tuples":
            continue
        module = BY_NAME[name]
        assert set(kernels) <= set(jit.marked(module))
        for kernel, lists in kernels.items():
            wanted = len(inspect.signature(getattr(module, kernel)).parameters)
            assert [len(types_of(module, text)) for text in lists] == [wanted] * len(lists), kernel


def test_kernels_that_other_modules_import_are_declared() -> None:
    """Only kernels that kernels alone call are a part of their callers' machine code."""
    for source in sources("dsl", "synth", "backends"):
        for node in ast.walk(source.tree) if source.module not in BY_NAME else ():
            if (
                isinstance(node, ast.ImportFrom)
                and (home := imported_from(source, node)) in BY_NAME
            ):
                kernels = {alias.name for alias in node.names} & set(jit.marked(BY_NAME[home]))
                assert kernels <= set(declared().get(home, {})), source.module


def test_kernels_that_are_called_by_fast_are_declared() -> None:
    """``fast(module).name(…)``, and names of what such a call was assigned to."""
    asked = {name for source in sources("dsl", "synth", "backends") for name in fast_names(source)}
    assert ("weft.synth.time.program_kernel", "in_order") in asked
    assert {x for x in asked if x[1] not in declared().get(x[0], {})} == set()


def fast_names(source: Source) -> set[tuple[str, str]]:
    """The kernels that a file calls by :func:`.jit.fast`, each with its module."""
    homes = {"sys.modules[__name__]": source.module}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            above = imported_from(source, node)
            homes |= {x.asname or x.name: f"{above}.{x.name}" for x in node.names}
    found: dict[str, str] = {}  # what stands for the compiled module, and which it is
    for node in ast.walk(source.tree):
        for inner in (
            ast.walk(node) if isinstance(node, ast.Assign | ast.AnnAssign | ast.Call) else ()
        ):
            if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "fast":
                home = homes.get(ast.unparse(inner.args[0]), "")
                places = [inner] if isinstance(node, ast.Call) else targets(node)
                found |= {ast.unparse(place): home for place in places if home in BY_NAME}
    return {
        (found[ast.unparse(node.value)], node.attr)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in found
        if node.attr in jit.marked(BY_NAME[found[ast.unparse(node.value)]])
    }


def targets(node: ast.Assign | ast.AnnAssign | ast.Call) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def imported_from(source: Source, node: ast.ImportFrom) -> str:
    """Return the full name of the module that a statement imports from."""
    above = source.package.split(".")[: 1 - node.level or None] if node.level else []
    return ".".join([*above, *filter(None, [node.module])])


def test_named_tuples_have_their_fields() -> None:
    owner = {name: module for module in MODULES for name in vars(module)}
    for name, (text,) in declared()["tuples"].items():
        module = owner[name]
        assert len(types_of(module, text)) == len(vars(module)[name]._fields)


def test_a_declared_type_is_that_of_a_value() -> None:
    """Of a named tuple whose fields are all of one type, too: else a call compiles once more."""
    jit.load_numba()
    from numba import typeof

    for module in LINKED:
        for lists in declared()[module.__name__].values():
            for text in lists:
                assert types_of(module, text) == tuple(map(typeof, valid(module, text)))
