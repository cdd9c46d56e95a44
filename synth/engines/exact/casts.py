"""The multicasts that the exact engine may use: one offer for each rank and switch.

An *offer* is a rank that issues and a switch that copies, or a tree of such switches. Of one switch
any set of the ranks next to it may get the copy, so a schedule chooses among all member sets; where
the switch keeps a limited number of groups there is one of them, the ranks next to it with their
issuer, for all. Trees of several switches (the flattest ones that lead to every rank) are used
whole. Ranks reach a switch, and it them, over their quickest way through nodes that pass one copy
on.

Sums need no offers of their own: they are multicasts on the reversed machine, turned round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import Collective, Kind, make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ...bounds.steps.demands import classes_under
from ...judge.casts import cast_problems
from ...steiner.graph import Arcs, SteinerGraph
from ...steiner.switch_trees import SwitchRoutes

KINDS = (Kind.ALLGATHER, Kind.BROADCAST)
"""Copying collectives in which every rank takes part in every chunk: turned round, each of them
has something to add, as a switch with its issuer in the group demands."""


@dataclass(frozen=True, slots=True)
class CastOffer:
    """A multicast that may be issued, with its links."""

    issuer: int  # the rank that sends
    trunk: tuple[int, ...]  # links that are used whichever ranks get the copy
    # Of each rank that may get it, the rank and the links of its own
    branches: tuple[tuple[int, tuple[int, ...]], ...]
    back: tuple[int, ...] = ()  # links of the issuer's own copy; none where it needs none
    least: int = 2  # ranks that must get it, without the issuer
    whole: bool = False  # all get it, or none

    @property
    def always(self) -> tuple[int, ...]:
        """Return the links that carry a copy whichever ranks get it."""
        return (*self.trunk, *self.back)

    def cast(self, chunk: int, reached: Sequence[int], step: int) -> Cast:
        """Return the cast of a chunk to some of the ranks of the branches."""
        down = [links for rank, links in self.branches if rank in reached]
        links = (*self.trunk, *(i for one in down for i in one), *self.back)
        ends = (*reached, self.issuer) if self.back else tuple(reached)
        return Cast(chunk, (self.issuer,), ends, links, step, False, self.issuer)


def offers_for(topology: Topology, collective: Collective) -> tuple[CastOffer, ...]:
    """Return the offers for a copying collective; none where no switch copies, or for others."""
    copies = any(node.multicast and not node.stores for node in topology.nodes)
    return offers_of(topology) if copies and collective.kind in KINDS else ()


def offers_of(topology: Topology) -> tuple[CastOffer, ...]:
    """Return the offers of a machine, in the order of their switches."""
    routes = SwitchRoutes(topology)
    graph, arcs = routes.ways[1]
    found = [one for k in range(len(graph.switches)) for one in _stars(graph, arcs, k)]
    return tuple(one for one in (*found, *_trees(routes)) if _may_be_cast(topology, one))


def _may_be_cast(topology: Topology, one: CastOffer) -> bool:
    """Return True if the cast to all ranks of an offer keeps to its switches' capabilities."""
    every = one.cast(0, [v for v, _ in one.branches], 0)
    collective = make(Kind.BROADCAST, topology.ranks, roots=(one.issuer,))
    return not any(cast_problems(Schedule.of(topology, collective, (), casts=[every])))


def _stars(graph: SteinerGraph, arcs: Arcs, k: int) -> Iterator[CastOffer]:
    vertex, node = graph.ranks + k, graph.topology.nodes[graph.switches[k]]
    limited = node.limits.groups is not None
    reached = np.isfinite(arcs.cost[vertex, : graph.ranks])
    below = {v: arcs.route(vertex, v) for v in np.flatnonzero(reached).tolist()}
    for u in range(graph.ranks):
        if not np.isfinite(arcs.cost[u, vertex]):
            continue
        back: tuple[int, ...] = ()
        if node.issuer_in_group:
            back = (int(arcs.back[k, u]),)
        elif limited:  # so that one group is enough for all issuers
            back = below.get(u, ())
        if limited and not back:
            continue
        others = tuple((v, links) for v, links in below.items() if v != u)
        least = max(2, node.limits.least) - (1 if back else 0)
        if len(others) >= least:
            yield CastOffer(u, arcs.route(u, vertex), others, back, least, limited)


def _trees(routes: SwitchRoutes) -> Iterator[CastOffer]:
    topology, ranks = routes.topology, range(routes.topology.ranks)
    for tree in routes.fabric_trees(ranks):
        switches = [v for v in (tree.root, *(v for _, v in tree.pairs)) if v >= topology.ranks]
        if len(switches) < 2 or any(topology.nodes[v].limits.groups is not None for v in switches):
            continue
        for u in ranks:
            try:
                routed = routes.tree(tree.rooted_at(u), inward=False)
            except UserError:  # a switch of it passes on one copy, or is met twice
                continue
            trunk = tuple(i for arc in routed.arcs for i in arc.links)
            others = tuple((v, ()) for v in ranks if v != u)
            yield CastOffer(u, trunk, others, (), len(others), True)


def offer_images(
    offers: Sequence[CastOffer], nodes: Sequence[int], links: Sequence[int]
) -> list[int] | None:
    """Return the image of each offer under a symmetry; None if one is not an offer."""
    place = {_key(one.issuer, one.always, one.branches): i for i, one in enumerate(offers)}
    images = []
    for one in offers:
        branches = [(nodes[v], [links[i] for i in way]) for v, way in one.branches]
        key = _key(nodes[one.issuer], [links[i] for i in one.always], branches)
        images.append(place.get(key, -1))
    return None if -1 in images else images


def _key(
    issuer: int, always: Sequence[int], branches: Sequence[tuple[int, Sequence[int]]]
) -> tuple[object, ...]:
    ends = frozenset((v, frozenset(way)) for v, way in branches)
    return issuer, frozenset(always), ends


# --- in the space of a search ---------------------------------------------------------------------


@dataclass(frozen=True)
class CastSpace:
    """The offers for the items of a search, as arrays."""

    offers: tuple[CastOffer, ...]  # all of them
    # Of each offer that is not whole, the ranks that may get a copy: (offer, rank)
    branches: tuple[tuple[int, int], ...]
    always: Ints  # copies on each resource whichever ranks get them, shape (resources, offers)
    own: Ints  # copies on it for a branch, shape (resources, branches)
    # issued, reached: classes under symmetries, of (item, offer) and of (item, branch)
    issued: Ints
    reached: Ints

    def branches_of(self, offer: int) -> list[int]:
        """Return the numbers of the branches of an offer."""
        return [j for j, (i, _) in enumerate(self.branches) if i == offer]


def cast_space(offers: Sequence[CastOffer], usage: Ints, items: int) -> CastSpace:
    """Return the space of some offers; ``usage`` are resources by links."""
    branches = [(i, v) for i, one in enumerate(offers) if not one.whole for v, _ in one.branches]
    ways = [links for one in offers if not one.whole for _, links in one.branches]
    always = [
        (*one.always, *(k for _, links in one.branches for k in links if one.whole))
        for one in offers
    ]
    return CastSpace(
        tuple(offers),
        tuple(branches),
        copies_on(usage, always),
        copies_on(usage, ways),
        np.arange(items * len(offers), dtype=np.int64).reshape(items, len(offers)),
        np.arange(items * len(branches), dtype=np.int64).reshape(items, len(branches)),
    )


def copies_on(usage: Ints, ways: Sequence[Sequence[int]]) -> Ints:
    """Return how many copies each resource carries, shape (resources, ways)."""
    found = np.zeros((len(usage), len(ways)), np.int64)
    for i, links in enumerate(ways):
        found[:, i] = usage[:, list(links)].sum(axis=1)
    return found


def invariant_casts(
    space: CastSpace,
    item_images: Sequence[Sequence[int]],
    images: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> CastSpace:
    """Return the space in which casts that symmetries map to each other are one decision.

    Raises:
        ValueError: the image of an offer is not an offer.
    """
    if not space.offers:
        return space
    place = {branch: j for j, branch in enumerate(space.branches)}
    issued, reached = [], []
    for items, (nodes, links) in zip(item_images, images, strict=True):
        moved = offer_images(space.offers, nodes, links)
        if moved is None:
            raise ValueError("the permutation does not map the casts to casts")
        ways = [place[moved[i], nodes[v]] for i, v in space.branches]
        issued.append(_pairs(items, moved))
        reached.append(_pairs(items, ways))
    return replace(
        space,
        issued=classes_under(space.issued.size, issued).reshape(space.issued.shape),
        reached=classes_under(space.reached.size, reached).reshape(space.reached.shape),
    )


def _pairs(items: Sequence[int], others: Sequence[int]) -> list[int]:
    found = np.asarray(items)[:, None] * len(others) + np.asarray(others, np.int64)[None, :]
    return found.ravel().tolist()
