"""Collective made by a sequence of phases.

Accepted sequences, with one collective per phase in groups that hold every rank once:

* *reduce_scatter*, *alltoall* or *allreduce* only, in nested groups: the same on all ranks;
* *allgather* only, nested from the last phase to the first: allgather;
* reduce_scatter, then perhaps allreduce, in nested groups, then allgather in the groups of the
  reduce_scatters, the last ones first: allreduce.

*Nested*: merge the groups of all later phases into blocks (a rank in no later group is a block by
itself). Each group of a phase has one rank in each block that it touches, and touches all blocks
that it is merged with. Then exactly one path leads from every rank to every other, so that each
contribution counts once, and the rank of a group that receives a part is in the block that
continues with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..base.errors import UserError
from .collective import Kind
from .sketch import Phase

Group = tuple[int, ...]

PHASE_KINDS = (Kind.REDUCE_SCATTER, Kind.ALLREDUCE, Kind.ALLGATHER, Kind.ALLTOALL)
"""Collectives allowed in a phase."""

_DOWN_AND_UP = (
    (Kind.REDUCE_SCATTER, Kind.ALLGATHER),
    (Kind.REDUCE_SCATTER, Kind.ALLREDUCE, Kind.ALLGATHER),
)


class NoComposition(UserError):
    """The phases make no known collective; ``phase`` is the index of the offending one."""

    def __init__(self, message: str, phase: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.phase = phase


def composed(phases: Sequence[Phase]) -> Kind:
    """Return the collective that the phases make together, on all ranks of their groups.

    Raises:
        NoComposition: they make none of the known ones.
    """
    runs = tuple(kind for kind, _ in groupby(p.kind for p in phases))
    if len(runs) == 1:
        _require_nested(phases, backwards=runs[0] is Kind.ALLGATHER)
        return runs[0]
    if runs in _DOWN_AND_UP:
        up = sum(p.kind is Kind.ALLGATHER for p in phases)
        _require_nested(phases[: len(phases) - up])
        _require_mirrored(phases)
        return Kind.ALLREDUCE
    place = _first_stray(phases)
    before = f" after {phases[place - 1].kind}" if place else ""
    raise NoComposition(
        f"no collective consists of these phases: {phases[place].kind}{before}",
        place,
        hint="allreduce is reduce_scatter, allreduce, allgather; the others are one kind of phase",
    )


def _first_stray(phases: Sequence[Phase]) -> int:
    """Return the index of the first phase that no accepted sequence contains at that point."""
    for end in range(1, len(phases) + 1):
        runs = tuple(kind for kind, _ in groupby(p.kind for p in phases[:end]))
        if len(runs) > 1 and all(runs != accepted[: len(runs)] for accepted in _DOWN_AND_UP):
            return end - 1
    return len(phases) - 1  # a proper prefix of an accepted sequence


def _require_mirrored(phases: Sequence[Phase]) -> None:
    """Check that allgathers mirror the reduce_scatters: the last groups first."""
    scattered = [p for p in phases if p.kind is Kind.REDUCE_SCATTER]
    first = next(i for i, p in enumerate(phases) if p.kind is Kind.ALLGATHER)
    gathered = phases[first:]
    for i, (down, up) in enumerate(zip(reversed(scattered), gathered, strict=False), first):
        if set(map(frozenset, down.groups)) != set(map(frozenset, up.groups)):
            raise NoComposition(
                "this allgather is in other groups than the reduce_scatter it undoes",
                i,
                hint="gather in the groups of the reduce_scatters, the last one first",
            )
    if len(scattered) != len(gathered):
        raise NoComposition(
            f"{len(scattered)} phases reduce_scatter, {len(gathered)} allgather",
            len(phases) - 1,
            hint="each allgather undoes one reduce_scatter",
        )


def _require_nested(phases: Sequence[Phase], *, backwards: bool = False) -> None:
    order = list(range(len(phases)))
    block = {rank: rank for group in phases[0].groups for rank in group}
    for place in order if backwards else reversed(order):
        joined = _joined(phases[place].groups, block, place)
        block = {rank: joined[b] for rank, b in block.items()}
    first = next(iter(block))
    apart = next((rank for rank in block if block[rank] != block[first]), None)
    if apart is not None:
        raise NoComposition(
            f"these phases never bring together ranks {first} and {apart}",
            len(phases) - 1 if backwards else 0,
            hint="the groups of all phases together must join all ranks",
        )


def _joined(groups: Sequence[Group], block: dict[int, int], place: int) -> dict[int, int]:
    new = {b: b for b in block.values()}

    def find(b: int) -> int:
        while new[b] != b:
            b = new[b]
        return b

    for group in groups:
        seen: dict[int, int] = {}
        for rank in group:
            other = seen.setdefault(block[rank], rank)
            if other != rank:
                raise NoComposition(
                    f"ranks {other} and {rank} are in one group here and come together in "
                    "another phase again",
                    place,
                    hint="data of a rank must reach each other rank by one path",
                )
            new[find(block[rank])] = find(block[group[0]])
    result = {b: find(b) for b in new}
    members: dict[int, int] = {}
    for b in result.values():
        members[b] = members.get(b, 0) + 1
    for group in groups:
        if len(group) != members[result[block[group[0]]]]:
            raise NoComposition(
                f"the group of rank {group[0]} has {len(group)} ranks, where the phases join "
                f"{members[result[block[group[0]]]]} blocks",
                place,
                hint="the groups of a phase must be equally large and cross those of the others",
            )
    return result
