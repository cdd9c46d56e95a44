"""Path packings: alltoall, scatter, gather and every other demand from one rank to one other.

Whole paths first (:mod:`.route`): rip-up and re-route against the exact optimum rate, from
the paths of least α. Where whole paths do not fit, a linear program splits some pairs
(:mod:`.columns`), with rational weights (:mod:`weft.synth.lp.exact_finish`). On symmetric machines
only the pairs of one source per orbit are routed. All figures are recomputed here from the paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ....base.engine import Certificate
from ....base.meter import STEPS, Meter
from ....bounds import bounds
from ....bounds.demand import copying_demand
from ....bounds.flow import priced
from ....bounds.orbit_prices import TreeFlow, orbit_prices
from ....lp.certified import common_denominator
from ..trees.demands import PairDemand, pairs_of, symmetric
from ..trees.model import Packing
from .columns import Split, SplitTask, figures, split, trees_of
from .effort import PATH_EFFORT, PathEffort
from .net import PathNet, PathPool, net_of
from .route import (
    PathPrices,
    Routing,
    get_ready,
    in_parts,
    negotiate,
    prices_by_weights,
    room_of,
    rounded,
    shortest,
)

_GRID, _FINEST = 1 << 24, 1 << 29  # denominators of prices that are no simple fractions


@dataclass(frozen=True, eq=False)
class _PathTask:
    """Problem per orbit: pairs of the representative sources, and the pool of paths so far."""

    net: PathNet
    pairs: PairDemand
    pool: PathPool
    seed: int
    meter: Meter
    effort: PathEffort = PATH_EFFORT
    flow: TreeFlow | None = None

    def negotiate_routes(
        self, begin: Routing, target: Fraction, *, strictly: bool = True
    ) -> tuple[Routing, bool]:
        """Re-route within ``target``: with ``strictly`` first among paths of least α, then with
        detours."""
        found, fits = begin, False
        for weight in (
            (None, self.effort.latency_weight) if strictly else (self.effort.latency_weight,)
        ):
            if not fits:
                found, fits = negotiate(
                    self.net,
                    self.pairs.src,
                    self.pairs.dst,
                    begin,
                    target,
                    self.pool,
                    latency_weight=weight,
                    seed=self.seed,
                    meter=self.meter,
                    effort=self.effort,
                )
        return found, fits


def pack_paths(
    topology: Topology,
    collective: Collective,
    *,
    meter: Meter | None = None,
    seed: int = 0,
    effort: PathEffort = PATH_EFFORT,
) -> list[Packing]:
    """Return path packings of a plain collective, by rate, then number of paths, then α.

    At the best rate: whole paths where they fit, and the split ones of least α; then slower ones
    whose paths have less α, down to every pair on its quickest path. ``meter`` limits and counts
    the work; by default it is that of half a minute.

    Raises:
        UserError: chunks that several ranks hold, want or add to; chunks that are cut already.
        BadTopology: a rank that cannot be reached by what it needs.
    """
    if collective.factor != 1 or collective.sizes:
        raise UserError(f"{collective}: paths are packed for chunks that are not cut yet")
    everything = pairs_of(collective)
    found = bounds(topology, collective)
    get_ready()
    meter = Meter(30 * STEPS) if meter is None else meter
    net = net_of(topology, symmetric=symmetric(collective))
    part = everything.of_sources(net.sources) if net.orbits.order > 1 else everything
    job = _PathTask(net, part, PathPool.empty(net), seed, meter, effort)
    if found.attainable is not None and net.orbits.order == 1 and len(part) > effort.small:
        job = replace(job, flow=_flow_of(topology, collective))
    per_byte = BYTES_PER_US_PER_GBPS * collective.message_chunks
    known = found.attainable is not None
    target = (found.attainable if found.attainable is not None else found.us_per_byte) * per_byte
    proof = found.us_per_byte, found.certificate
    ways: list[tuple[Split, str]] = []
    if len(part):
        quick = shortest(net, part.src, part.dst, part.count, target, meter)
        job.pool.add(quick.pair, quick.links, quick.length)
        best, prices = _optimum(job, quick, target, known)
        time_found = min(figures(net, way).time for way in best)
        ways = [(way, "") for way in best]
        ways += _quicker(job, quick, time_found)
        if prices is not None:
            mine = _proven_bound(net, collective, everything, prices, time_found)
            proof = max(proof, mine, key=lambda x: x[0])
    else:
        ways = [(Split(part.src, np.zeros((0, 1), np.int32), part.src, ()), "")]
    return [
        Packing(
            topology,
            collective,
            trees_of(net, part, way),
            net.orbits.images,
            net.orbits.link_images,
            value / per_byte,
            *proof,
            remark or ("no packing at the bound was found" if value > proof[0] * per_byte else ""),
        )
        for way, remark, value in _front(net, ways)
    ]


def _flow_of(topology: Topology, collective: Collective) -> TreeFlow | None:
    """Return the flow that proves the best rate; None where it is not known without symmetry."""
    demand = copying_demand(collective)
    if demand is None or demand.backwards or not demand.unicast:
        return None
    found = orbit_prices(topology, demand)
    if found is None or len(found.flow.machine.width) < len(topology.capacities()):
        return None
    return found.flow


def _optimum(
    job: _PathTask, quick: Routing, target: Fraction, known: bool
) -> tuple[list[Split], PathPrices | None]:
    """Return splits at the best rate found, and prices if the optimum was not known."""
    pairs, prices = job.pairs, None
    effort = job.effort
    small = len(pairs) <= effort.large
    if not known and len(pairs) > effort.small and quick.time(job.net) > target:
        prices = prices_by_weights(
            job.net,
            pairs.src,
            pairs.dst,
            pairs.count,
            job.pool if small else None,
            meter=job.meter.part(0.5),
            effort=effort,
        )
        known = prices.time <= target  # then nothing speaks against the bound
    if known or quick.time(job.net) <= target:
        ways = _at_rate(job, quick, target)
        if ways:
            return ways, prices
    if prices is not None:
        target = max(target, Fraction(prices.time) * effort.nearly)
    whole = quick if len(pairs) <= effort.small else job.negotiate_routes(quick, target)[0]
    found = _sought(job, whole) if small else None
    if found is None:
        return _any_parts(job, quick, whole), prices
    return [found[0], *_at_rate(job, quick, found[1])], found[2]


def _at_rate(job: _PathTask, quick: Routing, target: Fraction) -> list[Split]:
    """Return splits within a target time: whole paths, else as few split pairs as possible."""
    if job.flow is not None:
        trial = Meter(job.meter.left // 4, job.meter.stopped, job.meter, trial=True)
        whole, fits = replace(job, meter=trial).negotiate_routes(quick, target)
        return [_as_split(whole if fits else _near_flow(job, job.flow, target))]
    whole, fits = job.negotiate_routes(quick, target)
    ways, few = [_as_split(whole)] if fits else [], len(job.pairs) <= job.effort.small
    most, mended = job.effort.large, None
    if not fits and not few and (near := _nearly(job, whole, target)) is not None:
        ways, most = [_as_split(near)], job.effort.small
    if not fits or few:
        mended = _split_crowded(job, whole, target, most)
    if mended is not None:
        ways.append(mended)
        ways += [] if fits else _coarser(job, quick, target, mended)
    return ways


def _near_flow(job: _PathTask, flow: TreeFlow, target: Fraction) -> Routing:
    """Return whole paths of very many pairs that miss the time of a flow by little."""
    net, pairs = job.net, job.pairs
    best = rounded(
        net,
        pairs.src,
        pairs.dst,
        pairs.count,
        flow,
        seed=job.seed,
        meter=job.meter,
        effort=job.effort,
    )
    most = target * job.effort.missed
    if best.time(net) <= most or job.meter.over():
        return best
    found, _ = job.negotiate_routes(best, most, strictly=False)
    return min(best, found, key=lambda x: x.time(net))


def _nearly(job: _PathTask, whole: Routing, target: Fraction) -> Routing | None:
    """Return whole paths that miss a target time by as little as possible, if that is little."""
    for miss in job.effort.misses:
        if job.meter.over():
            return None
        whole, fits = job.negotiate_routes(whole, target * miss, strictly=False)
        if fits:
            return whole
    return None


def _any_parts(job: _PathTask, quick: Routing, whole: Routing) -> list[Split]:
    """Return equal parts of every pair, loads as even as possible: the last resort."""
    best = [_as_split(whole)]
    for parts in job.effort.parts[:3]:
        if not job.meter.over():
            goal = whole.time(job.net) * job.effort.better
            best.append(_as_split(job.negotiate_routes(in_parts(quick, parts), goal)[0]))
    return best


def _sought(job: _PathTask, whole: Routing) -> tuple[Split, Fraction, PathPrices] | None:
    """Return the best rate by linear program, where no bound gives it."""
    pairs, scale = job.pairs, whole.time(job.net)
    task = SplitTask(job.net, pairs.src, pairs.dst, pairs.count, None, scale, job.effort)
    found = split(task, job.pool, seed=job.seed, meter=job.meter)
    return None if found is None or found[1] is None else (found[0], found[1], found[2])


def _split_crowded(job: _PathTask, whole: Routing, target: Fraction, most: int) -> Split | None:
    """Keep whole paths on uncrowded resources, split at most so many others; the split set
    grows."""
    net, pairs, tried = job.net, job.pairs, 0
    for free in _free_pairs(job, whole, target, most):
        if int(free.sum()) == tried:
            continue
        tried = int(free.sum())
        fixed: Bools = ~free[whole.pair]
        load = _load_of(net, whole, fixed)
        room = [target * w - n for w, n in zip(net.width, load.tolist(), strict=True)]
        if min(room) < 0:
            continue
        at = np.flatnonzero(free)
        task = SplitTask(
            net, pairs.src[at], pairs.dst[at], pairs.count[at], room, target, job.effort
        )
        solved = split(task, job.pool.among(free), seed=job.seed, meter=job.meter)
        if solved is not None:
            return _combine(whole, fixed, solved[0], at)
        if job.meter.over():
            break
    return None


def _free_pairs(job: _PathTask, whole: Routing, target: Fraction, most: int) -> Iterator[Bools]:
    """Sets of pairs to split, growing: over overloaded resources, over crowded ones, all."""
    net, pairs, effort = job.net, len(job.pairs), job.effort
    if pairs > effort.small:
        room = room_of(net, target, 1)
        for crowded in (whole.load > room, whole.load > effort.crowded * room):
            free = np.zeros(pairs, bool)
            free[whole.pair[_crossing(net, whole, crowded)]] = True
            if 0 < free.sum() <= most:
                yield free
    if pairs <= most:
        yield np.ones(pairs, bool)


def _crossing(net: PathNet, routing: Routing, resources: Bools) -> Bools:
    """Return a mask of the paths that load one of these resource orbits."""
    resource_start, resource = net.graph[3], net.graph[4]
    links = np.add.reduceat(resources[resource].astype(np.int64), resource_start[:-1]) > 0
    inside = np.arange(routing.links.shape[1]) < routing.length[:, None]
    return np.asarray((links[routing.links] & inside).any(axis=1))


def _load_of(net: PathNet, routing: Routing, kept: Bools) -> Ints:
    pool = PathPool(net, routing.pair[kept], routing.links[kept], routing.length[kept])
    return np.asarray(pool.uses().sum(axis=1)).ravel().astype(np.int64)


def _combine(whole: Routing, fixed: Bools, some: Split, at: Ints) -> Split:
    """Combine whole paths of the fixed pairs with split ones of the others."""
    return Split(
        np.concatenate([whole.pair[fixed], at[some.pair]]),
        np.concatenate([whole.links[fixed], some.links]),
        np.concatenate([whole.length[fixed], some.length]),
        (*(Fraction(1, whole.parts),) * int(fixed.sum()), *some.weight),
    )


def _coarser(job: _PathTask, quick: Routing, target: Fraction, mended: Split) -> list[Split]:
    """Equal parts of a smaller common denominator, where the program's is large."""
    common = math.lcm(*(w.denominator for w in mended.weight))
    if common <= job.effort.few_parts or len(job.pairs) > job.effort.small:
        return []
    for parts in job.effort.parts:
        if parts < common:
            found, fits = job.negotiate_routes(in_parts(quick, parts), target)
            if fits:
                return [_as_split(found)]
    return []


def _quicker(job: _PathTask, quick: Routing, rate: Fraction) -> list[tuple[Split, str]]:
    """Slower ways with less α: within 5/4 of the best rate, and every pair on its quickest path."""
    ways, most = [], job.effort.compromise
    if quick.time(job.net) > most * rate:
        some, fits = job.negotiate_routes(quick, most * rate)
        if fits:
            ways.append((_as_split(some), f"paths of less α, within {most} of the best rate"))
    ways.append((_as_split(quick), "every pair on a path of least α"))
    return ways


def _as_split(routing: Routing) -> Split:
    weight = (Fraction(1, routing.parts),) * len(routing.pair)
    return Split(routing.pair, routing.links, routing.length, weight)


def _front(net: PathNet, ways: list[tuple[Split, str]]) -> list[tuple[Split, str, Fraction]]:
    """Return the Pareto front in time, paths and α, the best time first."""
    known = [figures(net, way) for way, _ in ways]
    order = [(x.time, len(way.weight), x.alpha) for x, (way, _) in zip(known, ways, strict=True)]
    kept: list[int] = []
    for i in sorted(range(len(ways)), key=order.__getitem__):
        _, paths, alpha = order[i]
        if not any(order[k][1] <= paths and order[k][2] <= alpha for k in kept):
            kept.append(i)
    return [(*ways[i], known[i].time) for i in kept]


def _proven_bound(
    net: PathNet, collective: Collective, pairs: PairDemand, prices: PathPrices, hoped: Fraction
) -> tuple[Fraction, Certificate]:
    """Return the bound (µs per byte) that the prices prove as rationals, on the whole machine.

    The first rounding that proves ``hoped`` chunks per GB/s ends the search.
    """
    best = Fraction(0), Certificate("prices", "nothing is proved")
    topology = net.topology
    largest = float(prices.resources.max(initial=0.0))
    for error in (1e-9, 1e-7, 1e-6) if largest > 0 else ():
        scaled = np.maximum(prices.resources / largest, 0.0)
        common = min(common_denominator(scaled, error) or _GRID, _FINEST)
        resources = np.rint(scaled * common).astype(np.int64)[net.orbits.row_orbit]
        found = priced(topology, pairs.table(topology.ranks), resources)
        if found is None:
            continue
        rate = found.bound(topology, collective.message_chunks)
        best = max(best, (rate.us_per_byte, rate.certificate), key=lambda x: x[0])
        if found.time >= hoped:
            break
    return best
