"""Guards of linked kernels: Python source that passes on only what a kernel was compiled for."""

from __future__ import annotations

import ast
from types import ModuleType

from .declared import declared, parts_of

_HEAD = """\
import numpy as np
INTS = frozenset((int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32))
FLOATS = INTS | {float, np.float32, np.float64}
BOOLS = frozenset((bool, np.bool_))
"""

SCALARS = {"int64": "INTS", "float64": "FLOATS", "bool": "BOOLS"}
"""Types of numbers, and the set of classes of Python's and NumPy's that are taken for each."""

ARRAYS = ("bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint64")
"""Types of the items of arrays."""


def guards_of(module: ModuleType) -> str:
    """Return the source of the guards of a module's kernels, for :func:`.linked.guarded`.

    Arrays are taken that are of the type and dimensions, C-contiguous, aligned and writable, for a
    kernel may write; tuples of the length and the class; whole numbers as floats, too.

    Raises:
        ValueError: a type in ``types.toml`` that has no guard.
    """
    kernels = declared()[module.__name__]
    lines = [_HEAD, *(f'{name}_items = np.dtype("{name}")' for name in ARRAYS)]
    tuples = _named_tuples(module, [text for lists in kernels.values() for text in lists])
    for name in reversed(tuples):
        fields = parts_of(declared()["tuples"][name][0])
        tests = [f"type(x) is module.{name}", *_tests(fields, "x", tuples)]
        lines.append(f"def is_{name}(x):\n    return {_all(tests)}")
    for name, lists in kernels.items():
        lines.append(f"def {name}(*a):")
        for place, text in enumerate(lists):
            tests = _tests(parts_of(text), "a", tuples)
            lines.append(f"    if {_all(tests)}:\n        return library.{symbol(name, place)}(*a)")
        lines.append(f"    raise refuse({name!r}, {' or '.join(lists)!r}, a)")
    lines.append(f"KERNELS = {{{', '.join(f'{name!r}: {name}' for name in kernels)}}}")
    return "\n".join(lines) + "\n"


def symbol(name: str, place: int) -> str:
    """Return the name in a library of a kernel, compiled for one of its lists of types."""
    return f"{name}_{place}"


def _all(tests: list[str]) -> str:
    return " and ".join(tests)


def _named_tuples(module: ModuleType, texts: list[str]) -> list[str]:
    """Return the named tuples in lists of types, those that others hold after these."""
    found: list[str] = []
    for text in texts:
        for node in ast.walk(ast.parse(f"({text},)", mode="eval")):
            if isinstance(node, ast.Name) and node.id in vars(module):
                inner = _named_tuples(module, declared()["tuples"][node.id])
                found = [x for x in found if x not in (node.id, *inner)] + [node.id, *inner]
    return found


def _tests(parts: list[ast.expr], place: str, tuples: list[str]) -> list[str]:
    each = [_test(part, f"{place}[{i}]", tuples) for i, part in enumerate(parts)]
    return [f"len({place}) == {len(parts)}", *each]


def _test(part: ast.expr, place: str, tuples: list[str]) -> str:
    """Return the condition that a value is of a type."""
    match part:
        case ast.Name(name) if name in tuples:
            return f"is_{name}({place})"
        case ast.Name(name) if name in SCALARS:
            return f"type({place}) in {SCALARS[name]}"
        case ast.Subscript(ast.Name(name), ast.Constant(int(dimensions))) if name in ARRAYS:
            form = f"{place}.ndim == {dimensions} and {place}.flags.carray"
            return f"type({place}) is np.ndarray and {place}.dtype == {name}_items and {form}"
        case ast.Tuple(items):
            return _all([f"type({place}) is tuple", *_tests(items, place, tuples)])
        case _:
            raise ValueError(f"not a type of an argument: {ast.unparse(part)}")
