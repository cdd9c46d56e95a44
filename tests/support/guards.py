"""Calls of linked kernels with right and wrong arguments; the library is replaced by a record."""

import random
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from weft.backends.kernels import LINKED as MODULES
from weft.backends.kernels import declared, guards_of, parts_of
from weft.dsl.base.linked import Kernels, guarded

ITEMS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float16")
ITEMS += ("float32", "float64", "complex64", "complex128", "<U4", "datetime64[s]", "object", ">i8")


class Names:
    """A library whose kernels return their own names."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: name


@cache
def guards(module: ModuleType) -> Kernels:
    """The guards of a module, in front of no machine code."""
    return guarded(module, Names(), guards_of(module))


def valid(module: ModuleType, text: str) -> list[Any]:
    """Arguments of the types in a list."""
    return [_valid(module, part) for part in parts_of(text)]


def _valid(module: ModuleType, part: Any) -> Any:
    if hasattr(part, "elts"):
        return tuple(_valid(module, x) for x in part.elts)
    if hasattr(part, "slice"):
        return np.zeros((2,) * part.slice.value, part.value.id)
    if part.id in declared()["tuples"]:
        return vars(module)[part.id](*valid(module, declared()["tuples"][part.id][0]))
    return {"int64": 1, "float64": 1.5, "bool": True}[part.id]


def fuzz(
    calls: int, seed: int, kernels: Callable[[ModuleType], Kernels] = guards
) -> tuple[int, list[str]]:
    """Call kernels with one argument each replaced by something wrong; (calls, those accepted)."""
    chance, accepted = random.Random(seed), []
    every = [
        (module, name, text)
        for module in MODULES
        for name, lists in declared()[module.__name__].items()
        for text in lists
    ]
    for _ in range(calls):
        module, name, text = chance.choice(every)
        given = valid(module, text)
        lists = declared()[module.__name__][name]
        right = [_kinds(valid(module, text)) for text in lists]
        wrong, told = given, ""
        while _kinds(wrong) in right:  # one tuple less may be another list
            wrong, told = _spoiled(given, chance, lists)
        try:
            kernels(module)[name](*wrong)
            accepted.append(f"{module.__name__}.{name}: {told}")
        except TypeError:
            pass
    return calls, accepted


def _kinds(value: Any) -> Any:
    """The class of a value, with all that a kernel depends on."""
    if isinstance(value, tuple | list):
        return type(value), [_kinds(x) for x in value]
    if isinstance(value, np.ndarray):
        return type(value), value.dtype.str, value.ndim, value.flags.carray
    return type(value)


def _spoiled(given: list[Any], chance: random.Random, lists: list[str]) -> tuple[list[Any], str]:
    """Arguments of which one is wrong, at any depth, and how."""
    at = chance.randrange(len(given) + 1)
    if at == len(given):  # a wrong number of arguments
        return (given[:-1], "too few") if chance.random() < 0.5 else ([*given, 1], "too many")
    value = given[at]
    if isinstance(value, tuple) and chance.random() < 0.8:
        inner, told = _spoiled(list(value), chance, lists)
        kept = type(value) if hasattr(value, "_fields") and len(inner) == len(value) else tuple
        made = kept(*inner) if kept is not tuple else tuple(inner)
    else:
        made, told = _wrong(value, chance, lists)
    return [*given[:at], made, *given[at + 1 :]], f"{at}: {told}"


def _wrong(value: Any, chance: random.Random, lists: list[str]) -> tuple[Any, str]:
    if isinstance(value, np.ndarray):
        return _wrong_array(value, chance, lists)
    others: list[Any] = [None, "1", b"1", [1], {}, (), 1j, np.zeros(1, np.int64), object()]
    if isinstance(value, tuple):
        others += [list(value), value[:-1], 1, 1.5, True]
        others += [tuple(value)] if hasattr(value, "_fields") else []
    elif isinstance(value, bool):
        others += [1, 0, 1.5, np.int64(1)]
    elif isinstance(value, int):
        others += [1.5, True, np.float64(1), np.bool_(True), np.uint64(1)]
    else:
        others += [True, np.bool_(True), np.complex128(1)]
    made = chance.choice(others)
    return made, repr(made)


def _wrong_array(array: Any, chance: random.Random, lists: list[str]) -> tuple[Any, str]:
    n, text = array.ndim, f"{array.dtype}[{array.ndim}]"
    big = np.zeros((4,) * n, array.dtype)
    read_only = array.copy()
    read_only.flags.writeable = False
    apart = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    kinds = [k for k in ITEMS if np.dtype(k) != array.dtype]
    kinds = [k for k in kinds if f"{k}[{n}]" not in "".join(lists)]
    kind = chance.choice(kinds)
    made: dict[str, Any] = {
        f"{kind} for {text}": np.zeros(array.shape, kind),
        "one dimension more": array[None].copy(),
        "strided": big[(slice(None, None, 2),) * n],
        "backwards": np.zeros((3,) * n, array.dtype)[(slice(None, None, -1),) * n],
        "read-only": read_only,
        "a list": array.tolist(),
        "a number": 1,
        "None": None,
        "a subclass": np.ma.masked_array(array),
    }
    if n > 1:
        made["one dimension less"] = array[0].copy()
        made["Fortran's order"] = np.asfortranarray(np.zeros((3,) * n, array.dtype))
        made["transposed"] = np.zeros((3,) * n, array.dtype).T
    else:
        made["no dimension"] = np.array(1, array.dtype)
    if array.itemsize > 1:
        made["not aligned"] = apart
        made["another byte order"] = array.astype(array.dtype.newbyteorder())
    told = chance.choice(sorted(made))
    return made[told], told
