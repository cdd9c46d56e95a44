"""What each group does in each phase of a sketch, on cells: the parts of the data that no phase
divides further.

Of an allreduce there is one cell for each rank or set of ranks that works on a part of the sum of
its own (its blocks after all reduce_scatters); of the others the units are the cells. Which
member of a group takes a cell follows from the nesting of the groups (:mod:`.composition`): the
one whose block works on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.sketch import Phase


@dataclass(frozen=True, eq=False)
class Part:
    """The collective of one group in one phase.

    Attributes:
        phase: its number.
        kind: what the group does.
        ranks: its members, in order; member i is rank i of the part's own problem.
        cells: shape (units of the plain collective, copies): the group does the same with as many
            cells of every unit at once.
    """

    phase: int
    kind: Kind
    ranks: tuple[int, ...]
    cells: Ints


def cells_of(phases: Sequence[Phase], kind: Kind, ranks: int) -> int:
    """How many cells a unit of the whole collective has."""
    return len(set(_cell_labels(phases, ranks).tolist())) if kind is Kind.ALLREDUCE else 1


def parts_of(phases: Sequence[Phase], kind: Kind, ranks: int) -> list[Part]:
    """What all groups of more than one rank do, phase by phase."""
    if kind is Kind.ALLTOALL:
        return list(_handed_on(phases, ranks))
    cell = _cell_labels(phases, ranks) if kind is Kind.ALLREDUCE else np.arange(ranks)
    stands_for = np.unique(cell, return_index=True)[1]  # a rank of each cell's block
    found = []
    for number, phase in enumerate(phases):
        inner = _inner(phases, number, kind, ranks)
        for group in _moving(phase):
            members = list(group)
            if phase.kind is Kind.ALLREDUCE:
                cells = np.flatnonzero(cell[stands_for] == cell[members[0]])[None, :]
            else:
                rows = [np.flatnonzero(inner[stands_for] == inner[m]) for m in members]
                cells = np.array(rows, np.int64)
            found.append(Part(number, phase.kind, group, cells))
    return found


def _moving(phase: Phase) -> Iterator[tuple[int, ...]]:
    return (group for group in phase.groups if len(group) > 1)


def _joined(phases: Sequence[Phase], ranks: int) -> Ints:
    """The block of every rank: ranks that the groups of some phases join are of one."""
    pairs = [(g[0], r) for phase in phases for g in phase.groups for r in g]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(ranks, ranks))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _cell_labels(phases: Sequence[Phase], ranks: int) -> Ints:
    """The ranks that work on a part of a sum together: those that allreduces join."""
    return _joined([p for p in phases if p.kind is Kind.ALLREDUCE], ranks)


def _inner(phases: Sequence[Phase], number: int, kind: Kind, ranks: int) -> Ints:
    """The blocks that a phase joins: of the phases after it; of an allgather, before it."""
    if phases[number].kind is not Kind.ALLGATHER:
        after = phases[number + 1 :]
        return _joined([p for p in after if p.kind is not Kind.ALLGATHER], ranks)
    if kind is Kind.ALLGATHER:
        return _joined(phases[:number], ranks)
    # It undoes a reduce_scatter: the last one of them first.
    scatters = [i for i, p in enumerate(phases) if p.kind is Kind.REDUCE_SCATTER]
    first = next(i for i, p in enumerate(phases) if p.kind is Kind.ALLGATHER)
    return _inner(phases, scatters[first - 1 - number], kind, ranks)


def _handed_on(phases: Sequence[Phase], ranks: int) -> Iterator[Part]:
    """An alltoall: each cell goes to the member in whose block it will be wanted."""
    cell = np.arange(ranks * ranks)
    at, wanted = cell // ranks, cell % ranks
    for number, phase in enumerate(phases):
        inner = _joined(phases[number + 1 :], ranks)
        for group in _moving(phase):
            here = np.flatnonzero(np.isin(at, group))
            column = {int(inner[m]): i for i, m in enumerate(group)}
            place = {m: i for i, m in enumerate(group)}
            source = np.array([place[r] for r in at[here].tolist()], np.int64)
            target = np.array([column[b] for b in inner[wanted[here]].tolist()], np.int64)
            order = np.lexsort((here, target, source))
            yield Part(number, phase.kind, group, here[order].reshape(len(group) ** 2, -1))
            at[here] = np.array(group)[target]
