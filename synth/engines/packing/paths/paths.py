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

from weft.dsl.base.arrays import Bools
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ....base.engine import Certificate
from ....base.meter import STEPS, Meter
from ....bounds import bounds
from ....bounds.demand import copying_demand
from ....bounds.flow import TreeFlow, orbit_prices, priced
from ....lp.certified import common_denominator
from ..trees.demands import PairDemand, pairs_of, symmetric
from ..trees.model import Packing
from .columns import SplitTask, figures, split, trees_of
from .net import PATH_EFFORT, PathEffort, PathNet, PathPool, net_of
from .route import (
    PathJob,
    PathPrices,
    Routing,
    Split,
    get_ready,
    prices_by_weights,
    room_of,
    rounded,
)

_GRID, _FINEST = 1 << 24, 1 << 29  # denominators of prices that are not simple fractions


@dataclass(frozen=True, eq=False)
class _PathTask:
    """The job of the representative sources, and a flow that proves the best rate, if known."""

    job: PathJob
    flow: TreeFlow | None = None

    @property
    def small(self) -> bool:
        """True if a linear program takes all pairs at once."""
        return len(self.job.src) <= self.job.effort.small

    def negotiate(
        self, begin: Routing, target: Fraction, *, strictly: bool = True
    ) -> tuple[Routing, bool]:
        """Re-route within ``target``: with ``strictly`` first among paths of least α, then with
        detours."""
        found, fits = begin, False
        for weight in (None, self.job.effort.latency_weight)[0 if strictly else 1 :]:
            if not fits:
                found, fits = self.job.negotiate(begin, target, weight)
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
        BadTopology: a rank that its chunks cannot reach.
    """
    if collective.factor != 1 or collective.sizes:
        raise UserError(f"{collective}: paths are packed for chunks that are not cut yet")
    everything = pairs_of(collective)
    found = bounds(topology, collective)
    get_ready()
    meter = Meter(30 * STEPS) if meter is None else meter
    net = net_of(topology, symmetric=symmetric(collective))
    part = everything.of_sources(net.sources) if net.orbits.order > 1 else everything
    pool = PathPool.empty(net)
    job = PathJob(net, part.src, part.dst, part.count, pool, seed, meter, effort)
    task = _PathTask(job)
    if found.attainable is not None and net.orbits.order == 1 and not task.small:
        demand = copying_demand(collective)  # the flow that proves the rate, without symmetry
        forwards = demand is not None and not demand.backwards and demand.unicast
        proved = orbit_prices(topology, demand) if demand is not None and forwards else None
        if proved is not None and len(proved.flow.machine.width) == len(topology.capacities()):
            task = _PathTask(job, proved.flow)
    per_byte = BYTES_PER_US_PER_GBPS * collective.message_chunks
    known = found.attainable is not None
    target = (found.attainable if found.attainable is not None else found.us_per_byte) * per_byte
    proof = found.us_per_byte, found.certificate
    ways: list[tuple[Split, str]] = []
    if len(part):
        quick = job.shortest(target)
        pool.add(quick.pair, quick.links, quick.length)
        best, prices = _optimum(task, quick, target, known)
        time_found = min(figures(net, way)[0] for way in best)
        ways = [(way, "") for way in best]
        # Slower ways with less α.
        most = effort.compromise * time_found
        some, fits = task.negotiate(quick, most) if quick.time(net) > most else (quick, False)
        if fits:
            less = f"paths of less α, within {effort.compromise} of the best rate"
            ways.append((some.split(), less))
        ways.append((quick.split(), "every pair on a path of least α"))
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


def _optimum(
    task: _PathTask, quick: Routing, target: Fraction, known: bool
) -> tuple[list[Split], PathPrices | None]:
    job, prices = task.job, None
    solvable = len(job.src) <= job.effort.large
    if not known and not task.small and quick.time(job.net) > target:
        prices = prices_by_weights(replace(job, meter=job.meter.part(0.5)), kept=solvable)
        known = prices.time <= target  # then nothing speaks against the bound
    if known or quick.time(job.net) <= target:
        ways = _at_rate(task, quick, target)
        if ways:
            return ways, prices
    if prices is not None:
        target = max(target, Fraction(prices.time) * job.effort.nearly)
    whole = quick if task.small else task.negotiate(quick, target)[0]
    # The best rate by linear program, where no bound gives it.
    found = split(SplitTask(job, None, whole.time(job.net))) if solvable else None
    if found is not None and found[1] is not None:
        return [found[0], *_at_rate(task, quick, found[1])], found[2]
    best = [whole.split()]  # equal parts of every pair, loads as even as possible
    for parts in job.effort.parts[:3]:
        if not job.meter.over():
            goal = whole.time(job.net) * job.effort.better
            best.append(task.negotiate(quick.in_parts(parts), goal)[0].split())
    return best, prices


def _at_rate(task: _PathTask, quick: Routing, target: Fraction) -> list[Split]:
    """Return splits within a target time: whole paths, else as few split pairs as possible."""
    job = task.job
    if task.flow is not None:
        trial = Meter(job.meter.left // 4, job.meter.stopped, job.meter, trial=True)
        whole, fits = _PathTask(replace(job, meter=trial)).negotiate(quick, target)
        return [(whole if fits else _near_flow(task, task.flow, target)).split()]
    whole, fits = task.negotiate(quick, target)
    ways = [whole.split()] if fits else []
    most, mended = job.effort.large, None
    if not fits and not task.small and (near := _nearly(task, whole, target)) is not None:
        ways, most = [near.split()], job.effort.small
    if not fits or task.small:
        mended = _split_crowded(task, whole, target, most)
    if mended is not None:
        ways.append(mended)
        ways += [] if fits else _coarser(task, quick, target, mended)
    return ways


def _near_flow(task: _PathTask, flow: TreeFlow, target: Fraction) -> Routing:
    net, best = task.job.net, rounded(task.job, flow)
    most = target * task.job.effort.missed
    if best.time(net) <= most or task.job.meter.over():
        return best
    found, _ = task.negotiate(best, most, strictly=False)
    return min(best, found, key=lambda x: x.time(net))


def _nearly(task: _PathTask, whole: Routing, target: Fraction) -> Routing | None:
    """Return whole paths that miss a target time by as little as possible, if that is little."""
    for miss in task.job.effort.misses:
        if task.job.meter.over():
            return None
        whole, fits = task.negotiate(whole, target * miss, strictly=False)
        if fits:
            return whole
    return None


def _split_crowded(task: _PathTask, whole: Routing, target: Fraction, most: int) -> Split | None:
    """Keep whole paths on uncrowded resources, split at most ``most`` others; the split set
    grows."""
    job, net, tried = task.job, task.job.net, 0
    for free in _free_pairs(task, whole, target, most):
        if int(free.sum()) == tried:
            continue
        tried = int(free.sum())
        fixed: Bools = ~free[whole.pair]
        pool = PathPool(net, whole.pair[fixed], whole.links[fixed], whole.length[fixed])
        load = pool.uses() @ np.ones(len(pool.pair), np.int64)
        room = [target * w - n for w, n in zip(net.width, load.tolist(), strict=True)]
        if min(room) < 0:
            continue
        solved = split(SplitTask(job.among(free), room, target))
        if solved is not None:
            some = solved[0]
            return Split(
                np.concatenate([whole.pair[fixed], np.flatnonzero(free)[some.pair]]),
                np.concatenate([whole.links[fixed], some.links]),
                np.concatenate([whole.length[fixed], some.length]),
                (*(Fraction(1, whole.parts),) * int(fixed.sum()), *some.weight),
            )
        if job.meter.over():
            break
    return None


def _free_pairs(task: _PathTask, whole: Routing, target: Fraction, most: int) -> Iterator[Bools]:
    """Sets of pairs to split, growing: over overloaded resources, over crowded ones, all."""
    net, pairs, effort = task.job.net, len(task.job.src), task.job.effort
    if not task.small:
        room = room_of(net, target, 1)
        for crowded in (whole.load > room, whole.load > effort.crowded * room):
            free = np.zeros(pairs, bool)
            # Paths that load one of these resource orbits.
            full = np.add.reduceat(crowded[net.graph[4]].astype(np.int64), net.graph[3][:-1]) > 0
            inside = np.arange(whole.links.shape[1]) < whole.length[:, None]
            free[whole.pair[(full[whole.links] & inside).any(axis=1)]] = True
            if 0 < free.sum() <= most:
                yield free
    if pairs <= most:
        yield np.ones(pairs, bool)


def _coarser(task: _PathTask, quick: Routing, target: Fraction, mended: Split) -> list[Split]:
    """Equal parts of a smaller common denominator, where the program's is large."""
    common = math.lcm(*(w.denominator for w in mended.weight))
    if common <= task.job.effort.few_parts or not task.small:
        return []
    for parts in task.job.effort.parts:
        if parts < common:
            found, fits = task.negotiate(quick.in_parts(parts), target)
            if fits:
                return [found.split()]
    return []


def _front(net: PathNet, ways: list[tuple[Split, str]]) -> list[tuple[Split, str, Fraction]]:
    known = [figures(net, way) for way, _ in ways]
    order = [(t, len(way.weight), a) for (t, a), (way, _) in zip(known, ways, strict=True)]
    kept: list[int] = []
    for i in sorted(range(len(ways)), key=order.__getitem__):
        _, paths, alpha = order[i]
        if not any(order[k][1] <= paths and order[k][2] <= alpha for k in kept):
            kept.append(i)
    return [(*ways[i], known[i][0]) for i in kept]


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
