"""The space of allreduces with casts: each chunk is summed at one place and spread from there.

The place is a rank, at the boundary between two steps, or a cast that a switch turns round. Towards
it every rank sends once what it holds, over a hop or as a member of a sum in a switch; from there
every rank gets the whole once, over a hop or by a multicast. Sums are the offers of the reversed
machine (:mod:`.casts`). A symmetry of the machine that fixes no rank may be demanded: then a piece
stands for one chunk with each image of its ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import PUSHED, Cast
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of, without_symmetry

from ...bounds.steps.demands import CopyDemand, HopDistances, reach
from ...judge.casts import cast_problems
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
    """The space of one collective sum; hops, resources and ``casts`` are those of its way down.

    Attributes:
        up: sums, as multicasts on the reversed machine.
        turns, turning: casts that are turned round, and copies on each resource by each of them.
        orbits: the symmetries that are demanded; resources are one for each orbit, and their loads
            count all images.
        roots: the ranks at which a piece may be summed, one of each orbit.
    """

    up: CastSpace
    turns: tuple[TurnOffer, ...]
    turning: Ints
    orbits: Orbits
    roots: tuple[int, ...]

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
    """Yield it if it keeps to what its switches can do."""
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
