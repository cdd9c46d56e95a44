"""Whole paths: every pair in K equal parts, each on one path, by rip-up and re-route.

Where the demand fits the target in whole parts, this finds it without a linear program, with
short paths and the least common denominator. What does not fit is left to :mod:`.columns`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass

from ....base.meter import Meter
from .effort import PATH_EFFORT, PathEffort
from .net import PathNet
from .pool import PathPool


@dataclass(frozen=True, eq=False)
class Routing:
    """One path for every part of every pair, as links.

    ``pair`` (paths,) ascends; each path carries ``1 / parts`` of a chunk. ``links`` is
    (paths, longest), of which the first ``length`` count. ``load`` (resource orbits,) counts uses.
    """

    parts: int
    pair: Ints
    links: Ints32
    length: Ints
    load: Ints

    def time(self, net: PathNet) -> Fraction:
        """Time of the busiest resource in chunks per GB/s."""
        return max(
            (
                Fraction(x, self.parts) / w
                for x, w in zip(self.load.tolist(), net.width, strict=True)
            ),
            default=Fraction(0),
        )


def get_ready() -> None:
    """Load the compiled kernels (the first time on a machine: compile them, some seconds)."""
    from .kernels import ready

    ready()


def room_of(net: PathNet, target: Fraction, parts: int) -> Ints:
    """Uses that fit into every resource orbit within ``target`` chunks per GB/s."""
    return np.array([min(math.floor(target * w * parts), 1 << 52) for w in net.width], np.int64)


def shortest(
    net: PathNet, src: Ints, dst: Ints, count: Ints, target: Fraction, meter: Meter
) -> Routing:
    """Route every chunk on a path of least α; loads are balanced among equal ones."""
    pair = np.repeat(np.arange(len(src)), count)
    empty = Routing(
        1,
        pair,
        np.zeros((len(pair), net.longest), np.int32),
        np.zeros(len(pair), np.int64),
        np.zeros(net.resource_orbits, np.int64),
    )
    nothing = np.zeros(len(net.tail), np.int64)
    return _round(
        net, src, dst, empty, net.delay, nothing, room_of(net, target, 1), None, 4.0, meter
    )


def negotiate(
    net: PathNet,
    src: Ints,
    dst: Ints,
    begin: Routing,
    target: Fraction,
    pool: PathPool,
    *,
    latency_weight: float | None,
    seed: int,
    meter: Meter,
    effort: PathEffort = PATH_EFFORT,
) -> tuple[Routing, bool]:
    """Re-route paths over overloaded resources until all fit within ``target``, or progress stops.

    ``latency_weight`` is what mean α costs in terms of a full resource; None: nothing is worth a
    longer path. All paths that are tried come into the pool. Returns the routing with the least
    overload, and whether it fits.
    """
    room = room_of(net, target, begin.parts)
    free = np.zeros(len(net.tail), np.int64)
    strict, soft = net.delay, free
    if latency_weight is not None:
        strict, soft = free, soft_delay(net, begin, latency_weight)
    past = np.zeros(net.resource_orbits)
    rng = np.random.default_rng(seed)
    now = best = begin
    least, since = _overload(begin, room), 0
    for _ in range(effort.reroutes):
        if not least or since == effort.stale or meter.over():
            break
        over = np.maximum(now.load - room, 0)
        past += np.where(over > 0, 0.5 + over / np.maximum(room, 1), 0.0)
        before = now
        now = _round(net, src, dst, now, strict, soft, room, past, 12.0, meter, rng)
        new = (now.links != before.links).any(axis=1)
        pool.add(now.pair[new], now.links[new], now.length[new])
        overload = _overload(now, room)
        since = 0 if overload < least else since + 1
        if overload < least:
            least, best = overload, now
    return best, not least


def soft_delay(net: PathNet, routing: Routing, weight: float) -> Ints:
    """α as an integer price: a path of mean α costs ``weight`` times a full resource."""
    from .kernels import ONE

    each = np.where(np.arange(routing.links.shape[1]) < routing.length[:, None], 1, 0)
    total = float((net.delay[routing.links] * each).sum())
    mean = max(1.0, total / max(1, len(routing.pair)))
    price: Ints = np.maximum(1, np.rint(net.delay * (weight * ONE / mean))).astype(np.int64)
    return price


def in_parts(routing: Routing, parts: int) -> Routing:
    """The same paths, each in so many equal parts."""
    return Routing(
        routing.parts * parts,
        np.repeat(routing.pair, parts),
        np.repeat(routing.links, parts, axis=0),
        np.repeat(routing.length, parts),
        routing.load * parts,
    )


def _overload(routing: Routing, room: Ints) -> int:
    return int(np.maximum(routing.load - room, 0).sum())


def _round(
    net: PathNet,
    src: Ints,
    dst: Ints,
    now: Routing,
    strict: Ints,
    soft: Ints,
    room: Ints,
    past: Floats | None,
    eta: float,
    meter: Meter,
    rng: np.random.Generator | None = None,
) -> Routing:
    """Return a copy of a routing after one round; without ``past`` all paths are searched."""
    from .kernels import reroute, search_steps

    links, length, load = now.links.copy(), now.length.copy(), now.load.copy()
    order = np.arange(len(now.pair)) if rng is None else rng.permutation(len(now.pair))
    memory = np.zeros(net.resource_orbits) if past is None else past
    work = reroute(
        net.graph,
        net.tail,
        strict,
        soft,
        src[now.pair],
        dst[now.pair],
        links,
        length,
        load,
        room.astype(np.float64),
        memory,
        order,
        eta,
        past is None,
    )
    meter.spend(search_steps(work) + len(order) // 4)
    return Routing(now.parts, now.pair, links, length, load)
