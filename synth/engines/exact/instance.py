"""Instance of the decision problem: a schedule of S steps and R rounds, C chunks per unit, under a
sketch's rules.

The arrays of a solver: the hops that each chunk may take (with the sketch's rules applied), the
earliest and latest steps, the resources (links, then shared ones) that each hop loads, and the
(chunk, hop) pairs that a symmetry makes equal. Every rule narrows the space in its own way, so any
subset of them can be applied: that is how the smallest conflicting set is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.hops import Hops
from weft.dsl.nouns.sketch import (
    Chunks,
    FixedSend,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    OwnFirst,
    Peers,
    Phases,
    Relay,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry import symmetry

from ...base.engine import Observer
from ...bounds.steps.demands import CopyDemand, HopDistances, classes_under
from ...fabric.allowed import chunk_images, hop_lengths, passing
from ...judge.allowed_pairs import off_relays
from ...judge.paths import longest_paths
from .casts import CastOffer, CastSpace, cast_space, invariant_casts
from .effort import EXACT_EFFORT, ExactEffort


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
    """All that does not depend on chunks, steps and rounds."""

    topology: Topology
    hops: Hops
    # Plain chunk index of every *item*; items are the plain chunks of all demands
    chunk_of: tuple[int, ...]
    # sources, targets: ranks per item
    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    allowed: Bools  # shape (items, hops)
    # capacity, loads: units per round of every resource, and which of them each hop loads (with
    # multiplicity one), shape (resources,) and (resources, hops); a chunk takes per_chunk units
    capacity: Ints
    loads: Ints
    # item_orbit, pair_class: orbits of items, and of (item, hop) pairs (flat)
    item_orbit: Ints
    pair_class: Ints
    # tail, head: per item, steps before a rank can send it, and steps needed after receiving
    tail: Ints
    head: Ints
    casts: CastSpace  # multicasts that may be used, and their loads on the same resources
    per_chunk: int = 1
    given: int = 1  # chunks per unit of the collective as given; items are those chunks
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

    def ends(self) -> tuple[Ints, Ints]:
        """Source and destination rank of every hop."""
        table = np.array([(h.src, h.dst) for h in self.hops.hops], np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def representatives(self) -> list[int]:
        """The first item of every orbit."""
        return [int(i) for i in np.unique(self.item_orbit, return_index=True)[1]]


@dataclass(frozen=True, slots=True)
class ExactRun:
    """Settings that all questions of one search share: seed, observer and limits."""

    seed: int
    observer: Observer
    effort: ExactEffort = EXACT_EFFORT


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
    count, ranks = len(space.hops.hops), np.arange(space.topology.ranks)
    holds, wants = (
        np.array([np.isin(ranks, ends) for ends in side]).reshape(-1, len(ranks))
        for side in (space.sources, space.targets)
    )
    item_images, pair_images = [], []
    for nodes, links in images:
        hop_image = [hop_at.get(tuple(links[i] for i in h.route), -1) for h in space.hops.hops]
        item_image = chunk_images(holds, wants, np.array(nodes[: len(ranks)]))
        if item_image is None or min(hop_image) < 0:
            raise ValueError("the permutation does not map the problem to itself")
        item_images.append(item_image.tolist())
        pair = item_image[:, None] * count + np.asarray(hop_image)[None, :]
        pair_images.append(pair.ravel().tolist())
    pair_class = classes_under(space.items * count, pair_images)
    return replace(
        space,
        item_orbit=classes_under(space.items, item_images),
        pair_class=pair_class,
        # A send forbidden for one member of a class is forbidden for all.
        allowed=~np.isin(pair_class, pair_class[~space.allowed.ravel()]).reshape(
            space.allowed.shape
        ),
        casts=invariant_casts(space.casts, item_images, images),
    )


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


# --- rules ---------------------------------------------------------------------------------------


NOT_IN_THE_PAPER = (FixedSend, MaxDetour, MaxHops, SwitchPolicy, Symmetry)


def refusal(sketch: Sketch, solver: str) -> str | None:
    """Return the reason why the engine cannot obey a sketch; None if it can."""
    for rule in sketch.rules:
        if isinstance(rule, OwnFirst) or (isinstance(rule, Relay) and rule.own_first):
            return f"exact cannot order the sends of a step, as {rule.label!r} asks (own first)"
        if isinstance(rule, Phases):
            return f"exact plans steps, not phases: it cannot obey {rule.label!r}"
        if solver == "z3" and isinstance(rule, NOT_IN_THE_PAPER):
            return f"the paper's encoding cannot express {rule.label!r}; solver=cp-sat can"
    return None


def fixed_factor(rules: Sequence[Rule]) -> int | None:
    """The number of chunks that a rule demands, if any; the first such rule counts."""
    return next((r.count for r in rules if isinstance(r, Chunks)), None)


def step_limit(rules: Sequence[Rule]) -> int | None:
    """The least number of steps that a rule allows at most."""
    return min((r.count for r in rules if isinstance(r, MaxSteps)), default=None)


def last_named_step(rules: Sequence[Rule]) -> int:
    """The last step that a fixed send names; a schedule needs at least that many."""
    return max((r.step or 0 for r in rules if isinstance(r, FixedSend) and r.must), default=0)


def apply_rules(space: Space, rules: Sequence[Rule]) -> Space:
    """Return the space restricted to schedules that obey all of ``rules``."""
    sketch, (src, dst) = Sketch("", tuple(rules)), space.ends()
    allowed = space.allowed & [sketch.allows(hop) for hop in space.hops.hops]
    for item, sources in enumerate(space.sources if sketch.of(Relay) else ()):
        starts = np.isin(np.arange(space.topology.ranks), sources)
        allowed[item] &= ~off_relays(space.topology, sketch, starts)[src, dst]
    narrowed = replace(
        space,
        allowed=allowed,
        pinned=tuple(_pin(space, r) for r in rules if isinstance(r, FixedSend)),
        peers=tuple(p for r in rules if isinstance(r, SwitchPolicy) for p in _peers(space, r)),
        limits=tuple(_path_limit(space, r) for r in rules if isinstance(r, MaxHops | MaxDetour)),
    )
    images = [_images(space, r) for r in rules if isinstance(r, Symmetry)]
    return with_symmetry(narrowed, images) if images else narrowed


def unused_links(space: Space) -> tuple[int, ...]:
    """Return the links that no chunk may use."""
    open_hops = np.flatnonzero(space.allowed.any(axis=0)).tolist()
    used = {i for hop in open_hops for i in space.hops.hops[hop].route}
    return tuple(i for i in range(len(space.topology.links)) if i not in used)


def _path_limit(space: Space, rule: MaxHops | MaxDetour) -> PathLimit:
    if isinstance(rule, MaxHops):
        most = np.full((space.topology.ranks, space.topology.ranks), rule.count, np.int64)
    else:
        most = longest_paths(space.topology, rule)
    measure = rule.measure if isinstance(rule, MaxDetour) else Measure.HOPS
    routes = [hop.route for hop in space.hops.hops]
    # Of several copies the nearest counts.
    nearest = [most[list(sources)].min(axis=0) for sources in space.sources]
    return PathLimit(hop_lengths(space.topology, routes, measure), np.array(nearest, np.int64))


def _pin(space: Space, rule: FixedSend) -> Pinned:
    chunks = tuple(
        chunk
        for chunk, sources, targets in zip(
            space.chunk_of, space.sources, space.targets, strict=True
        )
        if rule.owner in sources and (rule.target is None or rule.target in targets)
    )
    hops = tuple(i for i, h in enumerate(space.hops.hops) if (h.src, h.dst) == rule.pair)
    return Pinned(chunks, rule.piece, hops, rule.step, rule.must)


def _peers(space: Space, rule: SwitchPolicy) -> list[PeerLimit]:
    through = passing(space.topology, [hop.route for hop in space.hops.hops], rule.switch)
    hops = tuple(np.flatnonzero(through).tolist())
    if rule.limit is not None:
        return [PeerLimit(hops, rule.limit)]
    return [PeerLimit(hops, None)] if rule.peers is Peers.FEW else []


def _images(space: Space, rule: Symmetry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    image = symmetry.extend(space.topology, rule.image)
    if image is None:
        raise ValueError(f"{rule.label}: no symmetry of {space.topology.name}")
    return image, symmetry.link_image(space.topology, image)
