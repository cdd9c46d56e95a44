"""The kernels that Python calls, and the types of their arguments."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

from weft.dsl.base import assignment
from weft.synth.base import heaps
from weft.synth.engines.greedy import check_kernel, lists_kernel
from weft.synth.engines.greedy import kernels as greedy
from weft.synth.engines.packing.hosts import kernels as hosts
from weft.synth.engines.packing.order import plan_kernel
from weft.synth.engines.packing.paths import kernels as paths
from weft.synth.engines.packing.paths import matching_kernel
from weft.synth.engines.packing.trees import branchings, peers_kernel
from weft.synth.engines.packing.trees import kernels as trees
from weft.synth.engines.sketched import place_kernel, search_kernel, timeline_kernel
from weft.synth.time import program_kernel, queue_kernel, schedule_kernel

from ..compile.analyses import list_scheduling
from ..execute import kernel as execution

MODULES: tuple[ModuleType, ...] = (
    queue_kernel,
    schedule_kernel,
    program_kernel,
    heaps,
    trees,
    branchings,
    peers_kernel,
    plan_kernel,
    paths,
    matching_kernel,
    hosts,
    list_scheduling,
    execution,
    assignment,
    greedy,
    lists_kernel,
    check_kernel,
    timeline_kernel,
    place_kernel,
    search_kernel,
)
"""All modules with kernels, those that most commands need first."""


@cache
def declared() -> dict[str, dict[str, list[str]]]:
    """By module and kernel, lists of types: ``int64``, ``float64[2]`` (dimensions), tuples."""
    text = files(__package__).joinpath("types.toml").read_text(encoding="utf-8")
    table: dict[str, dict[str, list[str]]] = tomllib.loads(text)
    return table


def types_of(module: ModuleType, text: str) -> tuple[Any, ...]:
    """Return the numba types that a list in ``types.toml`` means; loads numba.

    Raises:
        KeyError: a name that is neither a type nor a named tuple of the module.
    """
    return tuple(_type(module, part) for part in parts_of(text))


def parts_of(text: str) -> list[ast.expr]:
    """Return the types in a list, as expressions."""
    body = ast.parse(f"({text},)", mode="eval").body
    assert isinstance(body, ast.Tuple)
    return body.elts


def _type(module: ModuleType, part: ast.expr) -> Any:
    from numba import types as found

    types: Any = found
    match part:
        case ast.Name(name) if name in vars(module):
            made = vars(module)[name]
            fields = types_of(module, declared()["tuples"][name][0])
            return types.BaseTuple.from_types(fields, made)
        case ast.Name(name):
            return {"bool": types.boolean}.get(name) or getattr(types, name)
        case ast.Subscript(item, ast.Constant(int(dimensions))):
            return types.Array(_type(module, item), dimensions, "C")
        case ast.Tuple(items):
            return types.BaseTuple.from_types([_type(module, item) for item in items])
        case _:
            raise ValueError(f"not a type of an argument: {ast.unparse(part)}")
