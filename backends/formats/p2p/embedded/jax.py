"""JAX: one program for all ranks, whose tables are indexed by the number of the rank."""

from __future__ import annotations

# --- in every file for JAX from here on ---
import re
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

COMBINE = {"sum": jnp.add, "prod": jnp.multiply, "max": jnp.maximum, "min": jnp.minimum}

Table = Any
"""Rows of memory: an array of integers of shape (ranks, rows)."""


def bases(shape: SimpleNamespace, rank: int) -> dict[str, int]:
    """The row of a rank's memory at which each buffer begins; in place i and o share rows."""
    shift = -shape.input if shape.shift is None else shape.shift[rank]
    given, result = max(shift, 0), max(-shift, 0)
    return {"i": given, "o": result, "s": max(given + shape.input, result + shape.output)}


def rows(shape: SimpleNamespace, text: str, rank: int) -> list[int]:
    """The rows that chunks such as ``o[3] s[0:2]`` are on a rank."""
    first = bases(shape, rank)
    found = re.findall(r"([ios])\[(\d+):?(\d*)\]", text)
    return [
        first[name] + row for name, a, b in found for row in range(int(a), int(b or int(a) + 1))
    ]


def table(shape: SimpleNamespace, some: dict[int, list[int]]) -> Table:
    """The rows of every rank, padded to one length with the row behind the last."""
    made = np.full((shape.ranks, max(map(len, some.values()))), size_of(shape), np.int32)
    for rank, own in some.items():
        made[rank, : len(own)] = own
    return made


def size_of(shape: SimpleNamespace) -> int:
    """Rows of memory; the next one is none: what is written there goes nowhere."""
    return max(bases(shape, rank)["s"] + int(n) for rank, n in enumerate(shape.scratch))


def permutation(shape: SimpleNamespace, text: str) -> tuple[list[tuple[int, int]], Table, Table]:
    """Of ``0 > 1, 1 > 2: o[4] -> s[0]; …``: pairs of ranks, rows sent, rows written."""
    pairs, sent, got = [], {}, {}
    for group in text.split("; "):
        ends, chunks = group.split(": ")
        source, target = chunks.split(" -> ")
        for a, b in re.findall(r"(\d+) > (\d+)", ends):
            pairs.append((int(a), int(b)))
            sent[int(a)] = rows(shape, source, int(a))
            got[int(b)] = rows(shape, target, int(b))
    return pairs, table(shape, sent), table(shape, got)


def operations(shape: SimpleNamespace, text: str) -> list[list[Table]]:
    """Of ``0, 1: o[4] = o[4] + s[0]; …``: rows written, and those of one term (a copy) or two."""
    every: list[list[dict[int, list[int]]]] = [[{}, {}], [{}, {}, {}]]
    for group in text.split("; "):
        ranks, work = group.split(": ")
        for rank in map(int, ranks.split(", ")):
            for one in work.split(", "):
                parts = re.split(" [=+] ", one)
                for column, part in zip(every[len(parts) - 2], parts, strict=True):
                    column.setdefault(rank, []).extend(rows(shape, part, rank))
    return [[table(shape, column) for column in columns] for columns in every if columns[0]]


def carried_out(
    shape: SimpleNamespace, rounds: Sequence[Any], x: Any, axis: Any, op: str | None
) -> Any:
    """The collective of every rank's ``x`` over a mesh axis (or several, the last one fastest).

    ``op``: None where no result is a sum.

    Raises:
        ValueError, TypeError: the axis has another size, or ``x`` another shape or type.
    """
    x = jnp.asarray(x)
    given, result = shape.input // shape.unit, shape.output // shape.unit
    require(shape, x, axis, op, given)
    length = x.size // given
    size = -(-length // shape.unit)  # elements of a row; the last of a unit are padding
    start = np.array([list(bases(shape, rank).values()) for rank in range(shape.ranks)], np.int32)
    me = lax.axis_index(axis)
    units = jnp.pad(x.reshape(given, length), ((0, 0), (0, shape.unit * size - length)))
    memory = placed(shape, units.reshape(shape.input, size), start[:, 0], me)
    for permutations, waves in rounds:
        before = memory  # what all messages of a round read
        for text in permutations:
            pairs, sent, got = permutation(shape, text)
            came = lax.ppermute(taken(before, sent, me), axis, pairs)
            memory = written(memory, got, came, me)
        for text in waves:
            before = memory
            for into, *terms in operations(shape, text):
                values = [taken(before, term, me) for term in terms]
                value = COMBINE[op or "sum"](*values) if len(values) > 1 else values[0]
                memory = written(memory, into, value, me)
    same = len(set(start[:, 1].tolist())) == 1
    first = int(start[0, 1]) if same else jnp.asarray(start[:, 1])[me]
    out = lax.dynamic_slice_in_dim(memory, first, shape.output).reshape(result, shape.unit * size)
    out = out[:, :length]
    if given == result:
        return out.reshape(x.shape)
    return out.reshape(x.shape[0] * result // given if x.ndim else result, *x.shape[1:])


def placed(shape: SimpleNamespace, chunks: Any, start: Any, me: Any) -> Any:
    """Memory in which the input is; all other rows are 0."""
    more = size_of(shape) - shape.input
    if not start.any():  # at the beginning of every rank's: memory itself, if there is no more
        return jnp.pad(chunks, ((0, more), (0, 0))) if more else chunks
    # Zeros made of the input vary among ranks as it does, which check_vma wants.
    empty = jnp.pad(jnp.zeros_like(chunks[:1]), ((0, more + shape.input - 1), (0, 0)))
    return lax.dynamic_update_slice_in_dim(empty, chunks, jnp.asarray(start)[me], 0)


def runs(table: Table, rows: int) -> list[tuple[int, int]]:
    """First and end of columns in which rows follow each other, on every rank that has any.

    ``rows``: of the memory; a rank that has no row in one column of a run has none in all of them.
    """
    follows = np.diff(table, axis=1) == 1
    follows &= (table[:, :-1] < rows) & (table[:, 1:] < rows)
    neither = (table[:, :-1] >= rows) & (table[:, 1:] >= rows)
    cuts = np.flatnonzero(~(follows | neither).all(axis=0)) + 1
    return list(pairwise([0, *cuts.tolist(), table.shape[1]]))


MOST_RUNS = 4
"""Slices that stand for a gather or a scatter, which take longer than so many."""


def taken(memory: Any, table: Table, me: Any) -> Any:
    """This rank's rows of memory; of padding, any."""
    several = runs(table, len(memory))
    if len(several) > MOST_RUNS:
        return memory.at[jnp.asarray(table)[me]].get(mode="clip")
    parts = [
        lax.dynamic_slice_in_dim(memory, jnp.asarray(table[:, a])[me], b - a) for a, b in several
    ]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def written(memory: Any, table: Table, values: Any, me: Any) -> Any:
    """Memory with other values in this rank's rows; padding is not written."""
    several = runs(table, len(memory))
    if len(several) > MOST_RUNS:
        return memory.at[jnp.asarray(table)[me]].set(values, mode="drop")
    for a, b in several:
        first, part = jnp.asarray(table[:, a])[me], values[a:b]
        if (table[:, a] >= len(memory)).any():  # a slice that begins behind the end is moved up
            held = lax.dynamic_slice_in_dim(memory, first, b - a)
            part = jnp.where(first < len(memory), part, held)
        memory = lax.dynamic_update_slice_in_dim(memory, part, first, 0)
    return memory


def require(shape: SimpleNamespace, x: Any, axis: Any, op: str | None, units: int) -> None:
    """Refuse an axis, an array or an operation that does not fit."""
    ranks = lax.psum(1, axis)
    if ranks != shape.ranks:
        raise ValueError(f"the program is for {shape.ranks} ranks; mesh axis {axis!r} has {ranks}")
    if units > 1 and (not x.ndim or x.shape[0] % units):
        raise ValueError(f"axis 0 of x must be a multiple of {units}; its shape is {x.shape}")
    if op is None:
        return
    if op not in COMBINE:
        raise ValueError(f"op is {op!r}; there are {', '.join(COMBINE)}")
    number = jnp.issubdtype(x.dtype, jnp.number)
    ordered = number and not jnp.issubdtype(x.dtype, jnp.complexfloating)
    if not (ordered if op in ("max", "min") else number):
        raise TypeError(f"{x.dtype} has no {op}")
