"""Path flows for one message size: trade spare bandwidth for lower latency.

A transfer over a row (a link or a shared resource) has α before and behind it, at least ``wait``;
so T >= wait + load in every row. The least T of that linear program, over all paths and all splits
of the pairs among them, bounds every schedule from below; its dual prices prove it, in rationals.
Then, for T and some times above it, the flow of least α that fits is computed: small messages get
short paths, large ones the best rate, and sizes between them a compromise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ...base.engine import Certificate
from ...base.meter import Meter
from ...bounds import Bounds, Composite, binding, bounds
from ...bounds.composite import always, waiting
from ...bounds.distance import Lengths
from ...bounds.flow import priced
from ...fabric.fabric import fabric_of
from ...lp.certified import common_denominator
from ..packing.paths.columns import SplitTask, figures, generate, split, trees_of
from ..packing.paths.net import PathNet, PathPool, net_of
from ..packing.paths.route import PathJob, Routing, Split, get_ready
from ..packing.trees.demands import PairDemand, pairs_of, symmetric
from ..packing.trees.model import Packing
from .effort import FLOW_EFFORT, FlowEffort

_ERRORS = (1e-9, 1e-7, 1e-6)
_GRID = 1 << 24  # denominators of prices that are no simple fractions


@dataclass(frozen=True, eq=False)
class PathFlows:
    """Flows at one message size as packings, and what no schedule of that size beats.

    ``bound_us`` is a rational in µs, ``certificate`` says why; ``program_us`` is the optimum of
    the linear program in floats, which the rational bound may miss by rounding.
    """

    packings: tuple[Packing, ...]
    bound_us: Fraction
    certificate: Certificate
    program_us: float


def pairs_to_solve(topology: Topology, collective: Collective) -> int:
    """Return the number of pairs in the linear program: those of one source per orbit."""
    pairs = pairs_of(collective)
    if symmetric(collective):
        pairs = pairs.of_sources(net_of(topology, symmetric=True).sources)
    return len(pairs)


def path_flows(
    topology: Topology,
    collective: Collective,
    message_bytes: int,
    *,
    meter: Meter,
    seed: int,
    effort: FlowEffort = FLOW_EFFORT,
) -> PathFlows:
    """The flows of a plain collective from one rank to one other for a message of M bytes.

    Raises:
        UserError: chunks that several ranks hold, want or add to.
        BadTopology: a rank that cannot be reached by what it needs.
    """
    get_ready()
    found = bounds(topology, collective)
    net = net_of(topology, symmetric=symmetric(collective))
    everything = pairs_of(collective)
    part = everything.of_sources(net.sources) if net.orbits.order > 1 else everything
    us = Fraction(message_bytes, collective.message_chunks) / BYTES_PER_US_PER_GBPS
    programs = _Programs(
        net, part, us, _waits(net, found.latency_us), PathPool.empty(net), seed, meter, effort
    )
    least, prices = programs.least()
    bound, certificate = binding(found, message_bytes)
    mine = _proven_bound(topology, collective, everything, prices, found, message_bytes)
    if mine is not None and mine.at(message_bytes) > bound:
        bound, certificate = mine.at(message_bytes), mine.certificate
    roof = bound / us if float(bound / us) > least * (1 - 1e-6) else Fraction(least * (1 + 1e-6))
    ways = programs.ways(roof, found.us_per_byte * message_bytes / us)
    packings = tuple(_packing(net, collective, part, way, found) for way in ways)
    return PathFlows(packings, bound, certificate, max(least * float(us), float(found.latency_us)))


@dataclass(frozen=True, eq=False)
class _Programs:
    """The programs of one size; times in chunks per GB/s, of which one is ``us`` µs."""

    net: PathNet
    pairs: PairDemand
    us: Fraction
    waits: tuple[Fraction, ...]
    pool: PathPool
    seed: int
    meter: Meter
    effort: FlowEffort

    def task(self, roof: Fraction, grid: Fraction | None = None) -> SplitTask:
        """Pairs in the room that a time leaves: after the α, in every row orbit; with ``grid`` in
        whole steps of that, so that the shares are simple."""
        left = [roof - wait / self.us for wait in self.waits]
        if grid is not None:
            left = [math.floor(x / grid) * grid for x in left]
        room = [x * w for x, w in zip(left, self.net.width, strict=True)]
        return SplitTask(self.job, room, self.quick.time(self.net))

    @cached_property
    def job(self) -> PathJob:
        """The pairs and the paths found so far."""
        pairs = self.pairs
        return PathJob(
            self.net, pairs.src, pairs.dst, pairs.count, self.pool, self.seed, self.meter
        )

    @cached_property
    def quick(self) -> Routing:
        """Every pair on a path of least α."""
        return self.job.shortest(Fraction(1 << 40))

    def least(self) -> tuple[float, Floats]:
        """The least T, and the price of every row orbit that proves it, up to rounding."""
        quick = self.quick
        self.pool.add(quick.pair, quick.links, quick.length)
        task = self.task(Fraction(0))
        answer = generate(task, None, self.effort.rounds)
        if answer is None:
            return 0.0, np.zeros(self.net.resource_orbits)
        return answer.excess * float(task.scale), answer.resource_price / task.capacity()

    def ways(self, least: Fraction, rate: Fraction) -> list[Split]:
        """Flows of least α for some times, split and whole, and every pair on its quickest path.

        ``rate``: the time of the best rate, of which simple parts are tried first.
        """
        quick = self.quick
        found = [quick.split()]
        for factor in self.effort.roofs:
            if self.meter.over():
                break
            roof = least * factor
            whole, fits = self._whole(quick, roof)
            if fits:
                found.append(whole.split())
            solved = self._split(self.task(roof, rate / self.effort.steps)) or self._split(
                self.task(roof)
            )
            found += [] if solved is None else [solved]
            if quick.time(self.net) <= roof - max(self.waits) / self.us:
                break
        return _distinct(found)

    def _split(self, task: SplitTask) -> Split | None:
        """Shares of least α in the room of a task, where there is room."""
        if min(task.room or (0,)) < 0 or not len(self.pairs):
            return None
        found = split(task)
        return None if found is None else found[0]

    def _whole(self, quick: Routing, roof: Fraction) -> tuple[Routing, bool]:
        """One path for every pair; a detour costs as much as its α matters at this size."""
        target = max(roof - min(self.waits) / self.us, Fraction(0))
        mean = float(np.mean([float(x.latency) for x in self.net.topology.links]))
        weight = max(0.01, mean / float(roof * self.us))
        return self.job.negotiate(quick, target, weight)


def _waits(net: PathNet, latency: Fraction) -> tuple[Fraction, ...]:
    """The least α of a transfer over each row orbit, in µs."""
    topology = net.topology
    lengths = Lengths.of(topology)
    each = always(topology, lengths, range(fabric_of(topology).resources), latency)
    least = [Fraction(0)] * net.resource_orbits
    for row, orbit in enumerate(net.orbits.row_orbit.tolist()):
        least[orbit] = int(each[row]) * lengths.unit
    return tuple(least)


def _proven_bound(
    topology: Topology,
    collective: Collective,
    pairs: PairDemand,
    prices: Floats,
    found: Bounds,
    message_bytes: int,
) -> Composite | None:
    """Return the bound T >= a + b·M that the prices prove, in rationals, on the whole machine."""
    largest = float(prices.max(initial=0.0))
    lengths, best = Lengths.of(topology), None
    orbit = net_of(topology, symmetric=symmetric(collective)).orbits.row_orbit
    for error in _ERRORS if largest > 0 else ():
        scaled = np.maximum(prices / largest, 0.0)
        common = min(common_denominator(scaled, error) or _GRID, _GRID)
        rows = np.rint(scaled * common).astype(np.int64)[orbit]
        proof = priced(topology, pairs.table(topology.ranks), rows)
        if proof is None:
            continue
        rate = proof.bound(topology, collective.message_chunks)
        line = waiting(topology, lengths, rate.certificate, found.latency_us, rate.us_per_byte)
        if best is None or line.at(message_bytes) > best.at(message_bytes):
            best = line
    return best


def _packing(
    net: PathNet, collective: Collective, pairs: PairDemand, way: Split, found: Bounds
) -> Packing:
    rate = figures(net, way)[0] / (BYTES_PER_US_PER_GBPS * collective.message_chunks)
    return Packing(
        net.topology,
        collective,
        trees_of(net, pairs, way),
        net.orbits.images,
        net.orbits.link_images,
        rate,
        found.us_per_byte,
        found.certificate,
    )


def _distinct(ways: list[Split]) -> list[Split]:
    """Each once."""
    seen: dict[tuple[bytes, bytes, tuple[Fraction, ...]], Split] = {}
    for way in ways:
        seen.setdefault((way.pair.tobytes(), way.links.tobytes(), way.weight), way)
    return list(seen.values())
