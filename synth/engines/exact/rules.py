"""The sketch's rules, applied to the space of the exact engine.

Every rule narrows the space in its own way, so any subset of them can be applied: that is how
the smallest conflicting set is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Bools
from weft.dsl.nouns.hops import latency_units
from weft.dsl.nouns.sketch import (
    Chunks,
    FixedSend,
    Forbid,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    Only,
    OwnFirst,
    Peers,
    Phases,
    Relay,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)
from weft.dsl.symmetry import symmetry

from ...judge.paths import longest_paths
from .instance import PathLimit, PeerLimit, Pinned, Space, with_symmetry

NOT_IN_THE_PAPER = (FixedSend, MaxDetour, MaxHops, SwitchPolicy, Symmetry)


def refusal(sketch: Sketch, solver: str) -> str | None:
    """Return the reason why the engine cannot obey a sketch; None if it can."""
    for rule in sketch.rules:
        if isinstance(rule, OwnFirst) or (isinstance(rule, Relay) and rule.own_first):
            return f"exact has no order inside a step: it cannot obey {rule.label!r} (own first)"
        if isinstance(rule, Phases):
            return f"exact knows steps and no phases: it cannot obey {rule.label!r}"
        if solver == "z3" and isinstance(rule, NOT_IN_THE_PAPER):
            return f"the paper's encoding has no words for {rule.label!r}; solver=cp-sat has"
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
    allowed = space.allowed.copy()
    only = [r for r in rules if isinstance(r, Only)]
    if only:
        allowed &= np.logical_or.reduce([_named_by(space, r) for r in only])[None, :]
    for rule in rules:
        if isinstance(rule, Forbid):
            allowed &= ~_forbidden_by(space, rule)[None, :]
        elif isinstance(rule, Relay):
            allowed &= _relay_mask(space, rule)
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


def _named_by(space: Space, rule: Only) -> Bools:
    return np.array(
        [
            (h.src, h.dst) in rule.pairs or bool(rule.links and rule.links.issuperset(h.route))
            for h in space.hops.hops
        ]
    )


def _forbidden_by(space: Space, rule: Forbid) -> Bools:
    return np.array(
        [
            (h.src, h.dst) in rule.pairs or not rule.links.isdisjoint(h.route)
            for h in space.hops.hops
        ]
    )


def _relay_mask(space: Space, rule: Relay) -> Bools:
    """Which (item, hop) a relay rule allows: chunks of its sources leave home through it only."""
    host = space.topology.host_of
    through = set(rule.through)
    allowed = np.ones_like(space.allowed)
    for item, sources in enumerate(space.sources):
        if rule.sources.isdisjoint(sources):
            continue
        home = {host[r] for r in sources}
        for i, hop in enumerate(space.hops.hops):
            leaves = host[hop.src] in home and host[hop.dst] != host[hop.src]
            allowed[item, i] = not leaves or (hop.src, hop.dst) in through
    return allowed


def _path_limit(space: Space, rule: MaxHops | MaxDetour) -> PathLimit:
    hops, ranks = space.hops.hops, space.topology.ranks
    lengths = np.ones(len(hops), np.int64)
    if isinstance(rule, MaxHops):
        return PathLimit(lengths, np.full((space.items, ranks), rule.count, np.int64))
    if rule.measure is Measure.ALPHA:
        alpha, _ = latency_units(space.topology)
        lengths = np.array([alpha[list(h.route)].sum() for h in hops], np.int64)
    most = longest_paths(space.topology, rule)
    # Of several copies the nearest is what counts.
    nearest = [most[list(sources)].min(axis=0) for sources in space.sources]
    return PathLimit(lengths, np.array(nearest, np.int64))


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
    links = space.topology.links
    hops = tuple(
        i
        for i, h in enumerate(space.hops.hops)
        if any(links[e].dst == rule.switch for e in h.route)
    )
    if rule.limit is not None:
        return [PeerLimit(hops, rule.limit)]
    return [PeerLimit(hops, None)] if rule.peers is Peers.FEW else []


def _images(space: Space, rule: Symmetry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    image = symmetry.extend(space.topology, rule.image)
    if image is None:
        raise ValueError(f"{rule.label}: no symmetry of {space.topology.name}")
    return image, symmetry.link_image(space.topology, image)
