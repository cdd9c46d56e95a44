"""Instance of the decision problem: a schedule of S steps and R rounds, C chunks per unit.

The arrays of a solver: the hops that each chunk may take (with the sketch's rules applied), the
earliest and latest steps, the resources (links, then shared ones) that each hop loads, and the
(chunk, hop) pairs that a symmetry makes equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.hops import Hops
from weft.dsl.nouns.topology import Topology

from ...bounds.steps.demands import CopyDemand, HopDistances
from ...bounds.steps.orbits import classes_under
from .casts import CastOffer, CastSpace, cast_space, invariant_casts


@dataclass(frozen=True, slots=True)
class Pinned:
    """A rule on single sends: some of ``chunks`` (plain ones), this piece or any, one hop pair."""

    chunks: tuple[int, ...]
    piece: int | None
    hops: tuple[int, ...]
    step: int | None
    must: bool


@dataclass(frozen=True, slots=True)
class PeerLimit:
    """At most ``limit`` peers per GPU each way over these hops; None: as few as can be."""

    hops: tuple[int, ...]
    limit: int | None


@dataclass(frozen=True)
class PathLimit:
    """Limit on the path length of each item at each rank: ``longest``, shape (items, ranks).

    ``lengths``: the length of each hop.
    """

    lengths: Ints
    longest: Ints


@dataclass(frozen=True)
class Space:
    """All that does not depend on chunks, steps and rounds.

    Attributes:
        chunk_of: plain chunk index of every *item*; items are the plain chunks of all demands.
        sources, targets: ranks per item.
        allowed: shape (items, hops).
        capacity, loads: units per round of every resource, and which of them each hop loads (with
            multiplicity one), shape (resources,) and (resources, hops); a chunk takes
            ``per_chunk`` units.
        item_orbit, pair_class: orbits of items, and of (item, hop) pairs (flat).
        casts: multicasts that may be used, and their loads on the same resources.
        given: chunks per unit of the collective as given; items are those chunks.
        tail, head: per item, steps before a rank can send it, and steps needed after receiving.
    """

    topology: Topology
    hops: Hops
    chunk_of: tuple[int, ...]
    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    allowed: Bools
    capacity: Ints
    loads: Ints
    item_orbit: Ints
    pair_class: Ints
    tail: Ints
    head: Ints
    casts: CastSpace
    per_chunk: int = 1
    given: int = 1
    pinned: tuple[Pinned, ...] = ()
    peers: tuple[PeerLimit, ...] = ()
    limits: tuple[PathLimit, ...] = ()

    @property
    def items(self) -> int:
        """Number of plain chunks that must move."""
        return len(self.chunk_of)

    @property
    def conclusive(self) -> bool:
        """True if the answer NO is a proof: no hop is missing, and symmetry fixes no choice.

        Where a pair has several hops, the instance demands invariance of the routes too, which is
        stricter than the rule: NO then proves nothing.
        """
        pairs = {(h.src, h.dst) for h in self.hops.hops}
        free = len(distinct_values(self.pair_class)) == self.pair_class.size
        return self.hops.complete and (free or len(pairs) == len(self.hops.hops))

    @property
    def refutes(self) -> bool:
        """True if NO, where it is a proof, is one for schedules with casts of any kind too."""
        return not any(node.multicast for node in self.topology.nodes)

    @property
    def names_steps(self) -> bool:
        """True if a rule names a step: steps must then keep their numbers."""
        return any(rule.step is not None for rule in self.pinned)

    @property
    def demands_sends(self) -> bool:
        """True if a rule demands sends, which may be redundant otherwise."""
        return any(rule.must for rule in self.pinned)

    def ends(self) -> tuple[Ints, Ints]:
        """Source and destination rank of every hop."""
        table = np.array([(h.src, h.dst) for h in self.hops.hops], np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def representatives(self) -> list[int]:
        """The first item of every orbit."""
        return [int(i) for i in np.unique(self.item_orbit, return_index=True)[1]]


@dataclass(frozen=True, slots=True)
class ExactQuestion:
    """C chunks per unit, S steps, R rounds (None: they do not matter).

    ``fewest``: not R but as few rounds as can be found in the time, R at most.
    """

    factor: int
    steps: int
    rounds: int | None
    fewest: bool = False


def build_space(
    topology: Topology,
    hops: Hops,
    wanted: Sequence[CopyDemand],
    near: HopDistances,
    given: int = 1,
    offers: Sequence[CastOffer] = (),
    *,
    idle: bool = False,
) -> Space:
    """The space without any rules or symmetry; ``idle``: with resources that nothing loads, too."""
    items = [(c, d) for d in wanted for c in d.chunks]
    grain, per_chunk = topology.round_units()
    capacity = np.array([int(b / grain) for b in topology.capacities()], np.int64)
    usage = topology.usage()
    loads = np.zeros((len(capacity), len(hops.hops)), np.int64)
    for i, hop in enumerate(hops.hops):
        loads[:, i] = usage[:, list(hop.route)].sum(axis=1)
    casts = cast_space(offers, usage.astype(np.int64), len(items))
    used = idle | loads.any(axis=1) | casts.always.any(axis=1) | casts.own.any(axis=1)
    is_gpu = np.array([n.stores for n in topology.nodes])
    n = topology.ranks
    tail = np.array([near.tail_depth(d.sources)[:n] for _, d in items])
    head = np.array(
        [np.min([near.head_depth(t, is_gpu) for t in d.targets], axis=0)[:n] for _, d in items]
    )
    pairs = len(items) * len(hops.hops)
    return Space(
        topology,
        hops,
        tuple(c for c, _ in items),
        tuple(d.sources for _, d in items),
        tuple(d.targets for _, d in items),
        np.ones((len(items), len(hops.hops)), bool),
        capacity[used],
        loads[used],
        np.arange(len(items), dtype=np.int64),
        np.arange(pairs, dtype=np.int64),
        tail,
        head,
        replace(casts, always=casts.always[used], own=casts.own[used]),
        per_chunk,
        given,
    )


def with_symmetry(space: Space, images: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> Space:
    """Only schedules that each (node image, link image) maps to themselves.

    Items of one demand are matched in order. A hop goes to the hop over the images of its links.

    Raises:
        ValueError: an image takes a demand or a hop nowhere (not an automorphism of the problem).
    """
    hop_at = {h.route: i for i, h in enumerate(space.hops.hops)}
    queue: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for i in range(space.items):
        queue.setdefault((space.sources[i], space.targets[i]), []).append(i)
    count = len(space.hops.hops)
    item_images, pair_images = [], []
    for nodes, links in images:
        hop_image = [hop_at.get(tuple(links[i] for i in h.route), -1) for h in space.hops.hops]
        item_image = [-1] * space.items
        for (sources, targets), members in queue.items():
            moved = (
                tuple(sorted(nodes[r] for r in sources)),
                tuple(sorted(nodes[r] for r in targets)),
            )
            for a, b in zip(members, queue.get(moved, ()), strict=False):
                item_image[a] = b
        if min(item_image) < 0 or min(hop_image) < 0:
            raise ValueError("the permutation does not map the problem to itself")
        item_images.append(item_image)
        pair = np.asarray(item_image)[:, None] * count + np.asarray(hop_image)[None, :]
        pair_images.append(pair.ravel().tolist())
    pair_class = classes_under(space.items * count, pair_images)
    return replace(
        space,
        item_orbit=classes_under(space.items, item_images),
        pair_class=pair_class,
        # What is forbidden for one member of a class is forbidden for all.
        allowed=_whole_classes(space.allowed, pair_class),
        casts=invariant_casts(space.casts, item_images, images),
    )


def _whole_classes(allowed: Bools, classes: Ints) -> Bools:
    bad = np.zeros(int(classes.max(initial=-1)) + 1, bool)
    bad[classes[~allowed.ravel()]] = True
    return ~bad[classes].reshape(allowed.shape)


def possible(space: Space, item: int, step: int, steps: int) -> Ints:
    """Hops that one item can usefully take in a step (from 1) of S steps."""
    src, dst = space.ends()
    late = space.head[item][dst] <= steps - step
    for rule in space.pinned:
        # A send that must be may be useless.
        if rule.must and space.chunk_of[item] in rule.chunks and rule.step in (None, step):
            late[list(rule.hops)] = True
    early = space.tail[item][src] <= step - 1
    new = ~np.isin(dst, space.sources[item])
    return np.flatnonzero(space.allowed[item] & early & late & new)
