"""Elaboration of ``phases:``: groups of ranks, and the collective that the phases make."""

from __future__ import annotations

from collections import Counter

from ..base.errors import BadSketch
from ..nouns.collective import Kind
from ..nouns.composition import NoComposition, composed
from ..nouns.sketch import Phase
from . import ast
from .evaluate import Meaning
from .moves import lines_along

Groups = tuple[tuple[int, ...], ...]


def phases_of(line: ast.PhasesRule, meaning: Meaning) -> tuple[tuple[Phase, ...], Kind]:
    """Return the phases with their groups, and the collective that they make.

    Raises:
        BadSketch: a rank in two groups, blocks that do not divide the ranks, no such dimension, or
            phases that make no collective (see ``weft.dsl.nouns.composition``).
    """
    phases = tuple(Phase(Kind(one.kind), groups_of(one.place, meaning)) for one in line.phases)
    try:
        return phases, composed(phases)
    except NoComposition as error:
        where = line.phases[error.phase].span
        raise BadSketch(error.message, where=where, hint=error.hint) from None


def groups_of(place: ast.Place, meaning: Meaning) -> Groups:
    """Return the groups of ranks of a phase; unnamed ranks are groups of one."""
    machine = meaning.machine
    match place:
        case ast.WithinNode():
            return machine.hosts
        case ast.ByLocalRank():
            size = max(map(len, machine.hosts))
            return tuple(tuple(b[i] for b in machine.hosts if i < len(b)) for i in range(size))
        case ast.InBlocks(size=size):
            count = meaning.block_size(size)
            return tuple(
                tuple(range(start, start + count)) for start in range(0, machine.ranks, count)
            )
        case ast.AcrossBlocks(size=size):
            count = meaning.block_size(size)
            return tuple(tuple(range(i, machine.ranks, count)) for i in range(count))
        case ast.Along(axis=axis):
            return lines_along(axis, meaning)
        case ast.InGroups(groups=groups):
            return _written_out(place, groups, meaning)


def _written_out(
    place: ast.InGroups, groups: tuple[tuple[ast.Expression, ...], ...], meaning: Meaning
) -> Groups:
    named = tuple(tuple(meaning.rank(e) for e in group) for group in groups)
    count = Counter(rank for group in named for rank in group)
    twice = next((rank for rank, n in count.items() if n > 1), None)
    if twice is not None:
        raise BadSketch(f"rank {twice} is listed twice in the groups", where=place.span)
    return (*named, *((r,) for r in range(meaning.machine.ranks) if r not in count))
