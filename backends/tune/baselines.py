"""What NCCL and RCCL run themselves, as programs on a machine: the baselines of plans.

NCCL takes the least time by its tuner of a ring or tree, a protocol and a number of channels; so
does a baseline, by simulation under the calibrated model. Channels that follow one ring do so in
step, and are one block here (:meth:`.RuntimeModel.in_lockstep`). What switches sum (NVLS) is no
program: its time is known, and told as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import WeftError
from weft.dsl.base.kept import kept
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import ROOTED, Kind, make
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import FEWEST_CHANNELS
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.classic import lanes, pairwise
from weft.synth.engines.classic.place import Site
from weft.synth.time.calibrated import (
    NCCL,
    calibrated_model,
    channels_of,
    family_line,
    inner_medium,
)
from weft.synth.time.program_time import ProgramClock
from weft.synth.time.runtime_model import RuntimeModel

from ..compile.compile import CompileOptions, lower_algorithm

PIECES = (1, 8, 64)
"""Pieces of a pipeline that are tried for chains and trees."""

MOST_MOVES = 300_000
"""Messages of a program beyond which it is not tried."""

FEW_MOVES = 60_000
"""Messages of a program that has not all of a machine's rings."""

LANE_STEPS = 20_000
"""Hops that a search for rings on direct cables may try."""


@dataclass(frozen=True, slots=True)
class BaselineTime:
    """A time in µs, of what; ``apart``: why that is no program."""

    us: float
    how: str
    apart: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A program that a library may run: its clock and the protocols that it comes in."""

    name: str
    clock: ProgramClock
    protocols: tuple[Protocol, ...]
    host_us: float = 0.0

    def time(self, message_bytes: int) -> BaselineTime:
        """The least time of its protocols."""
        times = [(self.clock.time_us(message_bytes, one), one) for one in self.protocols]
        us, protocol = min(times)
        return BaselineTime(max(us, self.host_us), f"{self.name} {protocol}")


@dataclass(frozen=True, slots=True)
class SwitchSums:
    """NVLS: the switches of a host sum and multicast; a line fitted to published times.

    ``start_us``, ``GBps``: of the message, whatever the number of ranks.
    """

    start_us: float
    GBps: float
    host_us: float = 0.0

    def time(self, message_bytes: int) -> BaselineTime:
        """The time of the line."""
        us = self.start_us + message_bytes / (self.GBps * BYTES_PER_US_PER_GBPS)
        return BaselineTime(max(us, self.host_us), "NVLS", "NVLS: switches sum, a time only")


def nccl_baselines(
    topology: Topology, kind: Kind, runtime: str = NCCL, host_us: float = 0.0
) -> tuple[Baseline | SwitchSums, ...]:
    """What NCCL (or RCCL, by ``runtime``) may run for a collective on a machine.

    Empty for collectives that they do not have.
    """
    return _baselines(topology, Kind(kind), runtime, float(host_us))


@kept()
def _baselines(
    topology: Topology, kind: Kind, runtime: str, host_us: float
) -> tuple[Baseline | SwitchSums, ...]:
    model, protocols = calibrated_model(topology, runtime), protocols_of(topology, runtime)
    found: list[Baseline | SwitchSums] = []

    def add(name: str, program: Program, timed: RuntimeModel) -> None:
        found.append(Baseline(name, ProgramClock(program, topology, timed), protocols, host_us))

    rings = _few(machine_rings(topology), topology.ranks)
    ringed = model.in_lockstep(max(1, channels_of(topology) // len(rings)))
    for pieces in PIECES if kind in ROOTED else (1,):
        if write := _ring_writer(kind, rings):
            parts = topology.ranks if kind is Kind.ALLREDUCE else 1
            name = f"{len(rings)} ring{'s' if len(rings) > 1 else ''}"
            add(name, _program(topology, kind, parts * len(rings) * pieces, write), ringed)
    if kind is Kind.ALLREDUCE and topology.hosts > 1:
        grid = Site(topology).two_levels
        lanes_of_tree = 2 * grid.shape[0]
        treed = model.in_lockstep(max(1, channels_of(topology) // lanes_of_tree))
        for pieces in PIECES:
            if 2 * topology.ranks * lanes_of_tree * pieces <= MOST_MOVES:
                write = lambda p: lanes.rail_tree(p, grid)  # noqa: E731
                add("tree", _program(topology, kind, lanes_of_tree * pieces, write), treed)
    if kind is Kind.ALLTOALL:
        order = list(range(topology.ranks))
        write = lambda p: pairwise.spread_out(p, order)  # noqa: E731
        add("pairs", _program(topology, kind, 1, write), model.in_lockstep(2))
    return (*found, *_switch_sums(topology, kind, runtime, host_us))


def _few(rings: tuple[lanes.Ring, ...], ranks: int) -> tuple[lanes.Ring, ...]:
    """As many of the rings as a program has room for."""
    each = 2 * ranks * ranks
    if len(rings) <= FEWEST_CHANNELS and len(rings) * each <= MOST_MOVES:
        return rings
    return rings[: max(1, min(FEWEST_CHANNELS, FEW_MOVES // each))]


def _program(
    topology: Topology, kind: Kind, chunks: int, write: Callable[[Builder], None]
) -> Program:
    roots = (0,) if kind in ROOTED else ()
    builder = Builder(make(kind, topology.ranks, chunks=chunks, roots=roots), name=str(kind))
    write(builder)
    return lower_algorithm(builder.algorithm(), CompileOptions())


def _ring_writer(kind: Kind, rings: Sequence[lanes.Ring]) -> Callable[[Builder], None] | None:
    writers = {
        Kind.ALLREDUCE: lanes.allreduce,
        Kind.ALLGATHER: lanes.allgather,
        Kind.REDUCE_SCATTER: lanes.reduce_scatter,
        Kind.BROADCAST: lanes.broadcast,
        Kind.REDUCE: lanes.reduce,
    }
    return (lambda p: writers[kind](p, rings)) if kind in writers else None


@kept()
def machine_rings(topology: Topology) -> tuple[lanes.Ring, ...]:
    """NCCL's rings: one for each rail between hosts, as many as share no cable in one, else one."""
    site = Site(topology)
    if topology.hosts > 1:
        try:
            return lanes.rail_rings(site.two_levels)
        except WeftError:
            return (site.ring,)
    return lanes.lane_rings(topology, LANE_STEPS) or (site.ring,)


def protocols_of(topology: Topology, runtime: str) -> tuple[Protocol, ...]:
    """Protocols that a library's own kernels have on a machine: LL128 needs NVLink."""
    if runtime == NCCL and inner_medium(topology)[0] is Medium.NVLINK:
        return (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)
    return (Protocol.LL, Protocol.SIMPLE)


_NVLS = {"h100": (50.0, 252.0), "b200": (50.0, 290.0)}
"""Start in µs and GB/s of the message of an allreduce in a host, by family."""

_NVLS_BETWEEN = (50.0, 200.0)
"""The same between hosts; published runs reach 150 to 250 GB/s."""


def _switch_sums(
    topology: Topology, kind: Kind, runtime: str, host_us: float
) -> tuple[SwitchSums, ...]:
    line = [family for family in _NVLS if family in family_line(topology)]
    if kind is not Kind.ALLREDUCE or runtime != NCCL or not line or topology.ranks < 3:
        return ()
    start, width = _NVLS[line[0]] if topology.hosts == 1 else _NVLS_BETWEEN
    return (SwitchSums(start, width, host_us),)


def best_of(options: Sequence[Baseline | SwitchSums], message_bytes: int) -> BaselineTime | None:
    """The least time at a size; None where there is nothing to run."""
    times = [one.time(message_bytes) for one in options]
    return min(times, key=lambda x: x.us if not math.isnan(x.us) else math.inf, default=None)
