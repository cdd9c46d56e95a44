"""Detects columnar forms of programs, arrays of machines, and linear programs."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from sources import Source, walk

from .syntax import annotated, attributes, called, calls, classes, keywords, loops, mentions, names
from .tree import Figure, Function, Tree, functions, place

COLUMN = re.compile(r"Ints|Column|Flags|Floats|Bools|IntArray|Array|NDArray|list\[|\[int|Any$")
_CODE = {"op", "ops", "form", "forms", "instr", "instrs", "instructions", "opcode"}
_SOLVER = {"linprog", "_Highs"}
_MAKERS = {"array", "zeros", "full", "empty", "concatenate", "fromiter"}


def column_fields(owner: ast.ClassDef) -> set[str]:
    """The fields of a class that are annotated as arrays or lists."""
    return {name for name, kind in annotated(owner).items() if COLUMN.search(kind)}


def program_forms(source: Source) -> Iterator[str]:
    """Classes that hold a program as columns.

    Pattern: at least five fields are arrays or lists; one of them is the operation of every
    instruction (op, form, instrs …), one says where a block begins (its name has `first` or
    `start`), and one names blocks.
    """
    for owner in classes(source):
        fields = column_fields(owner)
        begins = any(re.search(r"first|start", field) for field in fields)
        if len(fields) >= 5 and fields & _CODE and begins and any("block" in f for f in fields):
            yield place(source, owner, owner.name)


def flattenings(source: Source) -> Iterator[str]:
    """Functions that string the instructions of all blocks of all ranks together.

    Pattern: the function names `.ranks`, and either reads `.code` as the inner of two loops of one
    list (``[x for b in blocks for x in b.code]``), or extends a list by it (``all += block.code``).
    """
    for function in functions(source) if mentions(source, ".ranks", ".code") else ():
        if "ranks" in attributes(function) and any(map(_strings, walk(function))):
            yield place(source, function, function.name)


def _strings(node: ast.AST) -> bool:
    match node:
        case ast.ListComp(generators=[_, *rest]):
            return any("code" in attributes(generator.iter) for generator in rest)
        case ast.AugAssign(op=ast.Add(), value=ast.Attribute(attr="code")):
            return True
    return False


def numbered_rows(source: Source) -> Iterator[str]:
    """Loops that number the shared resources of a topology: `enumerate(….resources, …)`."""
    for loop in loops(source.tree) if mentions(source, "enumerate(", ".resources") else ():
        for call in calls(loop.iter):
            if called(call) == "enumerate" and "resources" in attributes(call):
                yield place(source, loop.iter, ast.unparse(loop.iter))


def machine_arrays(source: Source) -> Iterator[str]:
    """Classes that hold a machine as arrays of their own.

    Pattern: at least two fields are arrays or lists, and one function that makes it (a method or
    function of the file that calls its name, `__init__`, or one whose answer is annotated with
    it) names both the links of a machine (`.links`, `.link_ends()`) and what they share or carry
    (`.resources`, `.capacities()`). A class that takes such arrays from another one
    (`LinkTable.of(topology)`) names neither and does not count.
    """
    for owner in classes(source) if mentions(source, "links") else ():
        if len(column_fields(owner)) + len(_own_lists(owner)) >= 2:
            makers = [f for f in functions(source) if _makes(f, owner)]
            if any(map(_names_machine, makers)):
                yield place(source, owner, owner.name)


def _own_lists(owner: ast.ClassDef) -> set[str]:
    """Attributes that `__init__` sets to arrays or lists."""
    return {
        ast.unparse(target)
        for node in walk(owner)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        for one in walk(node)
        if isinstance(one, ast.Assign) and _is_list(one.value)
        for target in one.targets
        if ast.unparse(target).startswith("self.")
    }


def _is_list(value: ast.AST) -> bool:
    return isinstance(value, ast.List | ast.ListComp | ast.BinOp) or called(value) in _MAKERS


def _makes(function: Function, owner: ast.ClassDef) -> bool:
    if function in owner.body and function.name == "__init__":
        return True
    if function.returns is not None and ast.unparse(function.returns).strip("'\"") == owner.name:
        return True
    return any(called(call) == owner.name for call in calls(function))


def _names_machine(function: Function) -> bool:
    named = {
        node.attr
        for node in walk(function)
        if isinstance(node, ast.Attribute) and "fabric" not in ast.unparse(node.value)
    }
    return bool(named & {"links", "link_ends"}) and bool(named & {"resources", "capacities"})


def linear_calls(source: Source) -> Iterator[str]:
    """Calls that start a linear solver: SciPy's `linprog`, or HiGHS' own class `_Highs`.

    Under that name, or one bound to it in the same function.
    """
    asked = any(mentions(source, name) for name in _SOLVER)
    for function in functions(source) if asked else ():
        bound = set(_SOLVER)
        for node in walk(function):
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    if names(value) & _SOLVER:
                        bound.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr=attr)):
                    bound |= {name} if attr in _SOLVER else set()
        for call in calls(function):
            if called(call) in bound:
                yield place(source, call, f"{called(call)} in {function.name}")


def congestion_masters(source: Source) -> Iterator[str]:
    """Functions that solve a linear program of least congestion: min U, loads · x <= width · U.

    Pattern: a function hands both `A_ub` and `A_eq` (in any case) to a call, and it, its callers in
    the file, or what they call there puts the column of U beside the loads with `hstack`.
    """
    if not mentions(source, "hstack"):
        return
    inside = {f.name: f for f in functions(source)}
    for function in inside.values():
        if not any({"a_ub", "a_eq"} <= keywords(call) for call in calls(function)):
            continue
        near = [f for f in inside.values() if function.name in map(called, calls(f))]
        group = {
            name for f in (function, *near) for name in (f.name, *map(called, calls(f)))
        } & inside.keys()
        if any(called(call) == "hstack" for name in group for call in calls(inside[name])):
            yield place(source, function, function.name)


def _gathered(
    files: Iterable[Source], pattern: Callable[[Source], Iterator[str]]
) -> tuple[str, ...]:
    return tuple(at for source in files for at in pattern(source))


def measured(tree: Tree) -> Iterator[Figure]:
    """Columnar forms, machine arrays and linear programs."""
    for key, label, pattern in (
        ("program_forms", "columnar forms of a program (classes)", program_forms),
        ("flattenings", "functions that flatten ranks, blocks, code", flattenings),
        ("machine_arrays", "classes that are arrays of a machine", machine_arrays),
        ("numbered_rows", "loops that number topology.resources", numbered_rows),
        ("masters", "masters of least congestion", congestion_masters),
        ("solver_calls", "calls that start a linear solver", linear_calls),
    ):
        found = _gathered(tree.code, pattern)
        yield Figure(key, label, len(found), found)
    found = _gathered(tree.code, linear_calls)
    files = tuple(sorted({at.partition(":")[0] for at in found}))
    yield Figure("solver_files", "… files with such calls", len(files), files)
