"""Least rounds per chunk of S-step allreduces with casts, whatever their number of chunks: an LP.

Every place (:mod:`.sums`) has a share of the message: of a rank one for each boundary between
steps, of a turn one for each step. What each other rank has goes to the place as a flow, and from
the place a flow goes to each; flows to one place share what they use, for sums carry them together:

    flow over a hop in a step <= what goes over that hop to (or from) this place in this step,
    flow of a branch of a cast <= its copies <= the casts issued

and all of these load links and shared resources, at most capacity · rounds of the step. Every
schedule of the space is a point of this program, so its optimum is a lower bound for all of them.
Of places that a symmetry maps to each other there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix

from ...base.meter import Meter
from ...bounds.steps.flow_bound import FlowBound, readable
from ...lp.certified import LinearProgram, certified_minimum
from .casts import CastSpace
from .sums import SumSpace


def sum_bound(space: SumSpace, steps: int, meter: Meter | None = None) -> FlowBound:
    """Solve the program of S steps and certify it; its prices are not kept.

    Raises:
        Infeasible: S steps are too few. NothingFound: no answer before the end of ``meter``.
    """
    program = _SumProgram(space, steps).program()
    answer = certified_minimum(program, meter=meter)
    nothing = np.zeros((0, steps), np.int64)
    return FlowBound(
        steps, readable(answer.lower), answer.exact, answer.value, nothing, 1, program.columns
    )


def columns_of(space: SumSpace, steps: int) -> int:
    """Return about how many columns the program has."""
    ranks, places = space.topology.ranks, len(space.roots) + len(space.turns)
    ways = 2 * len(space.hops.hops) + len(space.up.branches) + len(space.casts.branches)
    return places * (ranks + 1) * steps * ways


@dataclass(frozen=True, slots=True)
class _Share:
    """What is summed at one place at one time: the boundaries to be there by, and to start at."""

    column: int
    there: int
    start: int


@dataclass(slots=True)
class _Rows:
    """Rows of a matrix under construction."""

    count: int = 0
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def add(self, terms: Sequence[tuple[int, int]]) -> None:
        """Add a row of (column, factor)."""
        for column, factor in terms:
            self.rows.append(self.count)
            self.columns.append(column)
            self.values.append(factor)
        self.count += 1

    def matrix(self, width: int) -> SparseMatrix | None:
        """Return the matrix; None without rows."""
        if not self.count:
            return None
        return SparseMatrix.of((self.count, width), self.rows, self.columns, self.values)


Arc = tuple[int, int, int, int]
"""Tail, head, step, and the column that bounds flows over it."""


class _SumProgram:
    """Collects columns and rows place by place; column t - 1 is the rounds of step t."""

    def __init__(self, space: SumSpace, steps: int) -> None:
        self.space, self.steps, self.columns = space, steps, steps
        self.below, self.equal = _Rows(), _Rows()
        self.used: list[tuple[int, int, Ints]] = []  # column, step, copies on each resource
        self.src, self.dst = (column.tolist() for column in space.ends())
        self.shares: list[int] = []
        for root in space.roots:
            self._place((root,), [_Share(self._column(), s, s) for s in range(1, steps)])
        for k, turn in enumerate(space.turns):
            shares = [_Share(self._column(), t - 1, t) for t in range(1, steps + 1)]
            for share in shares:
                self.used.append((share.column, share.start, space.turning[:, k]))
            self._place(turn.members, shares)

    def _column(self) -> int:
        self.columns += 1
        return self.columns - 1

    def _place(self, members: tuple[int, ...], shares: Sequence[_Share]) -> None:
        """One place: what goes to it and what comes from it."""
        self.shares += [share.column for share in shares]
        others = [v for v in range(self.space.topology.ranks) if v not in members]
        if not others or not shares:
            return
        up = list(self._arcs(self.space.up, inward=True))
        down = list(self._arcs(self.space.casts, inward=False))
        for v in others:
            ends = [(share.column, share.there) for share in shares]
            self._flow(up, {(v, 0): 1}, members, ends, -1)
            ends = [(share.column, share.start) for share in shares]
            self._flow(down, {(v, self.steps): -1}, members, ends, 1)

    def _arcs(self, casts: CastSpace, *, inward: bool) -> Iterator[Arc]:
        """Yield the arcs of all flows to, or from, a place; new columns are what they share."""
        for t in range(1, self.steps + 1):
            for h, (u, v) in enumerate(zip(self.src, self.dst, strict=True)):
                yield u, v, t, self._loading(t, self.space.loads[:, h])
            for i, offer in enumerate(casts.offers):
                issued = self._loading(t, casts.always[:, i])
                branches = [(v, issued) for v, _ in offer.branches]
                if not offer.whole:
                    branches = []
                    for j in casts.branches_of(i):
                        copies = self._loading(t, casts.own[:, j])
                        self.below.add([(copies, 1), (issued, -1)])
                        branches.append((casts.branches[j][1], copies))
                for v, column in branches:
                    ends = (v, offer.issuer) if inward else (offer.issuer, v)
                    yield *ends, t, column

    def _loading(self, step: int, copies: Ints) -> int:
        column = self._column()
        self.used.append((column, step, copies))
        return column

    def _flow(
        self,
        arcs: Sequence[Arc],
        end: dict[tuple[int, int], int],
        members: tuple[int, ...],
        shares: Sequence[tuple[int, int]],
        sign: int,
    ) -> None:
        """One commodity: the rows of ranks at boundaries, where what comes in goes out.

        ``end``: where the rank's own end is, and its sign; ``shares``: the column of each share and
        the boundary at which it is at some of the members, with the other ``sign``.
        """
        rows: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for at, factor in end.items():
            rows[at] += [(column, factor) for column, _ in shares]
        for column, boundary in shares:
            if len(members) == 1:
                rows[members[0], boundary].append((column, sign))
                continue
            parts = [self._column() for _ in members]
            self.equal.add([*((part, 1) for part in parts), (column, -1)])
            for g, part in zip(members, parts, strict=True):
                rows[g, boundary].append((part, sign))
        for u, v, t, shared in arcs:
            flow = self._column()
            self.below.add([(flow, 1), (shared, -1)])
            rows[u, t - 1].append((flow, -1))
            rows[v, t].append((flow, 1))
        for v in range(self.space.topology.ranks):
            for t in range(self.steps):
                stays = self._column()
                rows[v, t].append((stays, -1))
                rows[v, t + 1].append((stays, 1))
        for terms in rows.values():
            self.equal.add(terms)

    def program(self) -> LinearProgram:
        """The whole program; its shares, with all their images, are the message."""
        space, equalities = self.space, self.equal.count
        load: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for column, t, copies in self.used:
            for resource in np.flatnonzero(copies).tolist():
                load[resource, t].append((column, int(copies[resource]) * space.per_chunk))
        most = 1
        for (resource, t), terms in load.items():
            most = max(most, sum(factor for _, factor in terms))
            self.below.add([*terms, (t - 1, -int(space.capacity[resource]))])
        self.equal.add([(column, space.order) for column in self.shares])
        right = np.zeros(equalities + 1, np.int64)
        right[-1] = 1
        cost = np.zeros(self.columns, np.int64)
        cost[: self.steps] = 1
        upper = np.ones(self.columns, np.int64)
        upper[: self.steps] = most
        return LinearProgram(
            cost,
            self.below.matrix(self.columns),
            np.zeros(self.below.count, np.int64),
            self.equal.matrix(self.columns),
            right,
            upper,
        )
