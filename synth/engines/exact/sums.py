"""The space of allreduces with casts: each chunk is summed at one place and spread from there.

The place is a rank, at the boundary between two steps, or a cast that a switch turns round. Towards
it every rank sends once what it holds, over a hop or as a member of a sum in a switch; from there
every rank gets the whole once, over a hop or by a multicast. Sums are the offers of the reversed
machine (:mod:`.casts`). A symmetry of the machine that fixes no rank may be demanded: then a piece
stands for one chunk with each image of its ways.

:func:`sum_bound` is the least rounds per chunk of S steps in this space, whatever the number of
chunks, by a linear program. Every place has a share of the message: of a rank one for each boundary
between steps, of a turn one for each step. What each other rank has goes to the place as a flow,
and from the place a flow goes to each; flows to one place share what they use, for sums carry them
together:

    flow over a hop in a step <= what goes over that hop to (or from) this place in this step,
    flow of a branch of a cast <= its copies <= the casts issued

and all of these load links and shared resources, at most capacity · rounds of the step. Every
schedule of the space is a point of this program, so its optimum is a lower bound for all of them.
Of places that a symmetry maps to each other there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.nouns.casts import PUSHED, Cast
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of, without_symmetry

from ...base.meter import Meter
from ...bounds.steps.demands import CopyDemand, HopDistances, reach
from ...bounds.steps.flow_bound import FlowBound, readable
from ...judge.casts import cast_problems
from ...lp.certified import LinearProgram, certified_minimum
from ...steiner.switch_trees import NodeTree, SwitchRoutes
from .casts import CastOffer, CastSpace, cast_space, copies_on, offer_images, offers_of
from .instance import Space, build_space


@dataclass(frozen=True, slots=True)
class TurnOffer:
    """A cast that a switch turns round: the sum of all members goes to all of them."""

    members: tuple[int, ...]
    links: tuple[int, ...]

    def cast(self, chunk: int, step: int) -> Cast:
        """Return it for a chunk in a step."""
        return Cast(chunk, self.members, self.members, self.links, step, False, PUSHED)


@dataclass(frozen=True, kw_only=True)
class SumSpace(Space):
    """The space of one collective sum; hops, resources and ``casts`` are those of its way down."""

    up: CastSpace  # sums, as multicasts on the reversed machine
    # turns, turning: casts that are turned round, and copies on each resource by each of them
    turns: tuple[TurnOffer, ...]
    turning: Ints
    # The symmetries that are demanded; resources are one for each orbit, and their loads count all
    # images
    orbits: Orbits
    roots: tuple[int, ...]  # the ranks at which a piece may be summed, one of each orbit

    @property
    def order(self) -> int:
        """Return the number of chunks that a piece stands for."""
        return self.orbits.order

    @property
    def conclusive(self) -> bool:
        """An allreduce may also sum a chunk at several places: NO proves nothing about it."""
        return False


@kept(most=4)
def sum_spaces(topology: Topology) -> tuple[SumSpace, ...]:
    """Return the spaces of a machine: under its symmetries, if it has any, then without."""
    plain = _sum_space(topology, reach(topology))
    orbits = orbits_of(topology)
    usable = orbits.order > 1 and _maps_offers(plain, orbits)
    return (_folded(plain, orbits), plain) if usable else (plain,)


def _sum_space(topology: Topology, near: HopDistances) -> SumSpace:
    every = tuple(range(topology.ranks))
    anywhere = CopyDemand(every, every, (0,))  # a place may be at any rank
    hops, offers = find_hops(topology), offers_of(topology)
    base = build_space(topology, hops, [anywhere], near, 1, offers, idle=True)
    usage = topology.usage().astype(np.int64)
    turns = tuple(_turns(topology))
    return SumSpace(
        **{name: getattr(base, name) for name in base.__dataclass_fields__},
        up=cast_space(offers_of(topology.reversed()), usage, 1),
        turns=turns,
        turning=copies_on(usage, [one.links for one in turns]),
        orbits=without_symmetry(topology),
        roots=every,
    )


def _turns(topology: Topology) -> Iterator[TurnOffer]:
    """Yield a turn of each switch over all ranks next to it, and of trees of several switches."""
    if not any(node.turns and node.multicast for node in topology.nodes):
        return
    routes = SwitchRoutes(topology)
    (inward, up), (outward, down) = routes.ways
    ranks = range(topology.ranks)
    for v in sorted(set(inward.switches) & set(outward.switches)):
        rise, fall = (g.ranks + g.switches.index(v) for g in (inward, outward))
        ways = {
            r: (up.route(rise, r)[::-1], down.route(fall, r))
            for r in ranks
            if np.isfinite(up.cost[rise, r]) and np.isfinite(down.cost[fall, r])
        }
        links = (
            *(i for way, _ in ways.values() for i in way),
            *(i for _, way in ways.values() for i in way),
        )
        yield from _possible_turn(topology, TurnOffer(tuple(ways), links))
    for tree in routes.fabric_trees(ranks):
        if sum(v >= topology.ranks for _, v in tree.pairs):
            yield from _possible_turn(topology, _tree_turn(routes, tree))


def _tree_turn(routes: SwitchRoutes, tree: NodeTree) -> TurnOffer:
    forth, back = (routes.tree(tree, inward=inward) for inward in (True, False))
    rising = [i for arc in reversed(forth.arcs) for i in arc.links]
    falling = [i for arc in back.arcs for i in arc.links]
    return TurnOffer(tuple(range(routes.topology.ranks)), (*rising, *falling))


def _possible_turn(topology: Topology, one: TurnOffer) -> Iterator[TurnOffer]:
    """Yield it if it keeps to the capabilities of its switches."""
    if len(one.members) < 2:
        return
    collective = make(Kind.ALLREDUCE, topology.ranks)
    made = Schedule.of(topology, collective, (), casts=[one.cast(0, 0)])
    if not any(cast_problems(made)):
        yield one


# --- symmetry -------------------------------------------------------------------------------------


def _maps_offers(space: SumSpace, orbits: Orbits) -> bool:
    """Return True if every image of a cast is one that may be used, too."""
    turns = {(frozenset(one.members), frozenset(one.links)) for one in space.turns}
    for nodes, links in zip(orbits.images, orbits.link_images, strict=True):
        if offer_images(space.casts.offers, nodes, links) is None:
            return False
        if offer_images(space.up.offers, nodes, links) is None:
            return False
        moved = {(frozenset(nodes[list(a)]), frozenset(links[list(b)])) for a, b in turns}
        if moved != turns:
            return False
    return True


def _folded(space: SumSpace, orbits: Orbits) -> SumSpace:
    """Return the space of schedules that symmetries map to themselves."""
    row = orbits.row_orbit
    size = np.bincount(row)
    first = np.unique(row, return_index=True)[1]

    def fold(loads: Ints) -> Ints:
        total = np.zeros((len(size), loads.shape[1]), np.int64)
        np.add.at(total, row, loads)
        return total * (orbits.order // size)[:, None]

    def folded(casts: CastSpace) -> CastSpace:
        return replace(casts, always=fold(casts.always), own=fold(casts.own))

    return replace(
        space,
        capacity=space.capacity[first],
        loads=fold(space.loads),
        casts=folded(space.casts),
        up=folded(space.up),
        turning=fold(space.turning),
        orbits=orbits,
        roots=tuple(orbits.representatives.tolist()),
    )


def moved(cast: Cast, nodes: Ints, links: Ints) -> Cast:
    """Return the image of a cast."""

    def of(image: Ints, places: Sequence[int]) -> tuple[int, ...]:
        return tuple(image[list(places)].tolist())

    return replace(
        cast,
        sources=of(nodes, cast.sources),
        destinations=of(nodes, cast.destinations),
        links=of(links, cast.links),
        issuer=PUSHED if cast.issuer == PUSHED else int(nodes[cast.issuer]),
    )


def summed(offer: CastOffer, chunk: int, members: Sequence[int], step: int) -> Cast:
    """Return the sum that an offer of the reversed machine is: from members to its issuer."""
    return offer.cast(chunk, members, step).turned(step)


# --- sums_bound ----------------------------------------------------------------------------------


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
    """Data summed at one place at one time: the boundaries to be there by, and to start at."""

    column: int
    there: int
    start: int


@dataclass(slots=True)
class _Rows:
    count: int = 0
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def add(self, terms: Sequence[tuple[int, int]]) -> None:
        for column, factor in terms:
            self.rows.append(self.count)
            self.columns.append(column)
            self.values.append(factor)
        self.count += 1

    def matrix(self, width: int) -> SparseMatrix | None:
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
        """One place: flows to it and from it."""
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
        """Yield the arcs of all flows to, or from, a place; new columns are their common load."""
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
        """One commodity: the rows of ranks at boundaries, where inflow equals outflow.

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
