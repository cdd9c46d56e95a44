"""Baselines of plans: the algorithms of NCCL and RCCL as programs on a machine, with their times.

NCCL takes the least time by its tuner of a ring or tree, a protocol and a number of channels; so
does a baseline, by simulation under the calibrated model. Channels that follow one ring do so in
step, and are one block here (:meth:`.RuntimeModel.in_lockstep`). Small messages have fewer
channels, which a process with several GPUs launches one after the other. What switches sum (NVLS)
is not a program: its time is known, and reported as such.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import BadTopology, WeftError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import ROOTED, Kind, make
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import FEWEST_CHANNELS, MSCCL, UNLIMITED
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.synth.engines.classic import lanes
from weft.synth.engines.classic.flat import spread_out
from weft.synth.engines.classic.place import Site
from weft.synth.time.calibrated import (
    NCCL,
    NCCL_TREE,
    calibrated_model,
    channels_of,
    family_line,
    host_us,
    inner_medium,
    model_number,
)
from weft.synth.time.program_time import ProgramClock
from weft.synth.time.schedule_time import bus_factor

from ..compile.compile import CompileOptions, lower_algorithm
from .effort import EFFORT

VERSIONS = {NCCL: "NCCL 2.23 to 2.30", "rccl": "RCCL of 2024-10"}
"""The versions whose tuner's constants the baselines have."""

PIECES, TREE_PIECES = (1, 8, 64, 256), (1, 8)
"""Pieces of a pipeline that are tried for chains and trees."""

KERNELS = replace(
    MSCCL, name="kernels", max_steps=UNLIMITED, max_blocks=UNLIMITED, max_nodes=UNLIMITED
)
"""NCCL's own kernels are not files, and lack the limits of files."""

PAIRS = 12
"""Peers that NCCL's channels are shared among in an alltoall: two channels for each."""


THREADS = 512
"""Threads of a channel's block."""

THREAD_BYTES = {Protocol.LL: 8, Protocol.LL128: 8, Protocol.SIMPLE: 64}
"""Bytes of the message for each thread, and under LL for each rank, that another channel needs
(NCCL 2.8 to 2.10, src/enqueue.cc and src/graph/tuning.cc)."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """µs of a process with several GPUs for a call, and for each channel of it after the first."""

    call_us: float = 0.0
    channel_us: float = 0.0
    channels: int = 1
    ranks: int = 1

    def us(self, message_bytes: int, protocol: Protocol) -> float:
        """The time of a call: a channel has as many bytes as keep its threads busy, at least."""
        least = THREADS * THREAD_BYTES[protocol] * (self.ranks if protocol is Protocol.LL else 1)
        channels = min(self.channels, max(1, message_bytes // least))
        return self.call_us + (channels - 1) * self.channel_us


NO_HOST = HostTime()
"""Of a process with one GPU."""


def host_time(topology: Topology, gpus_per_process: int) -> HostTime:
    """The host's time for calls on a machine."""
    if gpus_per_process < 2:
        return NO_HOST
    each = gpus_per_process * (model_number(topology, "host.per_channel") or 0.0)
    call = float(host_us(topology, gpus_per_process))
    return HostTime(call, each, channels_of(topology), topology.ranks)


@dataclass(frozen=True, slots=True)
class BaselineTime:
    """A time in µs, and its name; ``apart``: the reason why that is not a program.

    ``start_us``: of it before the first operation.
    """

    us: float
    how: str
    apart: str = ""
    start_us: float = 0.0


@dataclass(frozen=True, slots=True)
class LongerRings:
    """Rings through more hosts than those whose program is simulated.

    Every step of a ring is alike, so that chunks of one size take as many times longer as there are
    more steps; only the start is once. ``part``: of the ranks that are simulated; ``steps``: those
    of the ring for each that is simulated.
    """

    part: Fraction
    steps: float

    def us(
        self, clock: ProgramClock, message_bytes: int, protocol: Protocol, start: float
    ) -> float:
        """The time of a message on all hosts; ``start``: of it before the first operation."""
        us = clock.time_us(max(1, round(message_bytes * self.part)), protocol)
        return start + (us - start) * self.steps


@dataclass(frozen=True, slots=True)
class Baseline:
    """A program that a library may run: its clock and the protocols that it comes in.

    ``ceilings``: GB/s of the message that the library's kernels reach at most under a protocol,
    beside the time of an empty message. ``more_us``: of a call, beside the program. ``start_us``:
    of a call before the first operation, by protocol. ``longer``: the program is of rings on a part
    of the hosts. ``empty_us``: kept times of an empty message.
    """

    name: str
    clock: ProgramClock
    protocols: tuple[Protocol, ...]
    host: HostTime = NO_HOST
    ceilings: Mapping[Protocol, float] = field(default_factory=dict)
    more_us: float = 0.0
    start_us: Mapping[Protocol, float] = field(default_factory=dict)
    longer: LongerRings | None = None
    empty_us: dict[Protocol, float] = field(default_factory=dict, compare=False, repr=False)

    def time(self, message_bytes: int, limit: float = math.inf) -> BaselineTime:
        """The least time of its protocols; one beyond ``limit`` may be infinite."""
        us, best = math.inf, self.protocols[0]
        for one in self.protocols:
            if (found := self._us(message_bytes, one, min(us, limit))) < us:
                us, best = found, one
        host = self.host.us(message_bytes, best)
        start = self.start_us.get(best, 0.0)
        return BaselineTime(max(us, host), f"{self.name} {best}", start_us=start)

    def _us(self, message_bytes: int, protocol: Protocol, limit: float) -> float:
        least = 0.0
        if ceiling := self.ceilings.get(protocol):
            if protocol not in self.empty_us:
                self.empty_us[protocol] = self.run_us(1, protocol)
            carried = message_bytes / (ceiling * BYTES_PER_US_PER_GBPS)
            least = self.empty_us[protocol] + carried
        if least > limit:
            return math.inf
        return max(least, self.run_us(message_bytes, protocol, limit) + self.more_us)

    def run_us(self, message_bytes: int, protocol: Protocol, limit: float = math.inf) -> float:
        """The program's time alone; infinite beyond ``limit``."""
        if self.longer is None:
            return self.clock.time_us(message_bytes, protocol, limit=limit)
        start = self.start_us.get(protocol, 0.0)
        return self.longer.us(self.clock, message_bytes, protocol, start)


@dataclass(frozen=True, slots=True)
class SwitchSums:
    """NVLS: the switches of a host sum and multicast; a line fitted to published times.

    ``start_us``, ``GBps``: of the message, whatever the number of ranks.
    """

    start_us: float
    GBps: float
    host: HostTime = NO_HOST

    def time(self, message_bytes: int, limit: float = math.inf) -> BaselineTime:
        """The time of the line, without the limit."""
        us = self.start_us + message_bytes / (self.GBps * BYTES_PER_US_PER_GBPS)
        told = "NVLS: switches sum, a time only"
        return BaselineTime(max(us, self.host.call_us), "NVLS", told, self.start_us)


def nccl_baselines(
    topology: Topology, kind: Kind, runtime: str = NCCL, gpus_per_process: int = 1
) -> tuple[Baseline | SwitchSums, ...]:
    """Return the algorithms that NCCL (or RCCL, by ``runtime``) has for a collective on a machine.

    Empty for collectives that they do not have. A process with several GPUs is the slower one of
    host and GPUs; of one with one GPU the host is not seen, as calls follow each other.
    """
    return _baselines(topology, Kind(kind), runtime, gpus_per_process)


@kept()
def _baselines(
    topology: Topology, kind: Kind, runtime: str, gpus_per_process: int
) -> tuple[Baseline | SwitchSums, ...]:
    host = host_time(topology, gpus_per_process)
    site = _BaselineSite(topology, kind, runtime, host)
    rings = tuple(site.rings())
    found = (*rings, *site.trees(rings), *site.pairs())
    return (*found, *_switch_sums(topology, kind, runtime, host))


@dataclass(frozen=True, slots=True)
class _BaselineSite:
    """The baselines of a library for a collective on a machine, by algorithm."""

    topology: Topology
    kind: Kind
    runtime: str
    host: HostTime

    def rings(self) -> Iterator[Baseline]:
        """NCCL's rings; rooted collectives in pieces."""
        if self.kind not in ROOTED and (fewer := fewer_hosts(self.topology)):
            part = Fraction(fewer.ranks, self.topology.ranks)
            steps = (self.topology.ranks - 1) / (fewer.ranks - 1)
            for one in replace(self, topology=fewer).rings():
                longer = LongerRings(part, steps)
                yield replace(one, longer=longer, ceilings=self._ring_ceilings())
            return
        rings = _few(Site(self.topology).rings, self.topology.ranks)
        if self.kind not in RING_WRITERS:
            return
        name = f"{len(rings)} ring{'s' if len(rings) > 1 else ''}"
        parts = self.topology.ranks if self.kind is Kind.ALLREDUCE else 1
        ceilings = self._ring_ceilings()
        for pieces in PIECES if self.kind in ROOTED else (1,):
            if len(rings) * self.topology.ranks * pieces <= EFFORT.baseline_messages:
                chunks = parts * len(rings) * pieces
                program = _ring_program(self.kind, self.topology.ranks, rings, chunks)
                yield from self._baseline(name, program, len(rings), ceilings=ceilings)

    def trees(self, rings: Sequence[Baseline]) -> Iterator[Baseline]:
        """NCCL's trees, between hosts: for allreduce; ``rings``: for their bandwidth."""
        if self.kind is not Kind.ALLREDUCE or self.topology.hosts < 2:
            return
        site = Site(self.topology)
        try:
            grid = site.two_levels
        except WeftError:
            return
        count = 2 * grid.shape[0]
        if count > FEWEST_CHANNELS // 2:
            return

        def write(p: Builder) -> None:
            lanes.rail_tree(p, grid, site.host_paths)

        ceilings = self._tree_ceilings(rings[0]) if rings and self.runtime == NCCL else {}
        for pieces in TREE_PIECES:
            if pieces == 1 or 2 * self.topology.ranks * count * pieces <= EFFORT.tree_messages:
                program = _program(self.kind, self.topology.ranks, count * pieces, write)
                yield from self._baseline("tree", program, count, ceilings=ceilings, tree=True)

    def pairs(self) -> Iterator[Baseline]:
        """Alltoall: all messages at once; LL only in a host."""
        if self.kind is not Kind.ALLTOALL:
            return

        def write(p: Builder) -> None:
            spread_out(p, range(self.topology.ranks))

        inside = self.topology.hosts == 1  # between hosts it is the NIC's cost of a message
        peer = (inside and model_number(self.topology, "peer", self.runtime)) or 0.0
        program = _program(self.kind, self.topology.ranks, 1, write)
        for one in self._baseline("pairs", program, PAIRS):
            protocols = one.protocols if inside else (Protocol.SIMPLE,)
            yield replace(one, protocols=protocols, more_us=peer * (self.topology.ranks - 1))

    def _baseline(
        self,
        name: str,
        program: Program,
        together: int,
        *,
        ceilings: Mapping[Protocol, float] | None = None,
        tree: bool = False,
    ) -> Iterator[Baseline]:
        """A program of which ``together`` lanes of channels share a rank's ports.

        None where ranks of a connection are not joined: the library would go through the host's
        memory there, which is not a link of the machine.
        """
        runtime = NCCL_TREE if tree and self.runtime == NCCL else self.runtime
        model = calibrated_model(self.topology, runtime)
        model = model.in_lockstep(max(1, channels_of(self.topology) // together))
        protocols = protocols_of(self.topology, self.runtime)
        clock = ProgramClock(program, self.topology, model)
        if not _joined(clock):
            return
        starts = {one: float(model.protocol(one).start_us) for one in protocols}
        yield Baseline(name, clock, protocols, self.host, ceilings or {}, start_us=starts)

    def _ring_ceilings(self) -> dict[Protocol, float]:
        """GB/s of the message at most."""
        if self.topology.hosts > 1 and (bus := self._bus_of_ll()):
            return {Protocol.LL: bus / bus_factor(make(self.kind, self.topology.ranks))}
        return {}

    def _bus_of_ll(self) -> float | None:
        which = "pair" if self.topology.hosts == 2 else "many"
        return model_number(self.topology, f"ring.{which}", self.runtime)

    def _tree_ceilings(self, rings: Baseline) -> dict[Protocol, float]:
        """GB/s of the message, twice of which cross the bus: a part of the rate of rings."""
        large = EFFORT.ring_bytes
        half, whole = (rings.run_us(n, Protocol.SIMPLE) for n in (large // 2, large))
        bus = bus_factor(make(self.kind, self.topology.ranks)) * large / 2 / (whole - half)
        bus /= BYTES_PER_US_PER_GBPS
        found = {}
        for protocol in rings.protocols:
            share = model_number(self.topology, f"tree.{protocol}") or 1.0
            found[protocol] = share * bus / 2
        if most := self._bus_of_ll():
            found[Protocol.LL] = min(found[Protocol.LL], most / 2)
        return found


def _few(rings: tuple[lanes.Ring, ...], ranks: int) -> tuple[lanes.Ring, ...]:
    """As many of the rings as a program has room for."""
    each = 2 * ranks * ranks
    if len(rings) <= FEWEST_CHANNELS and len(rings) * each <= EFFORT.baseline_messages:
        return rings
    return rings[: max(1, min(FEWEST_CHANNELS, EFFORT.partial_ring_messages // each))]


def _program(kind: Kind, ranks: int, chunks: int, write: Callable[[Builder], None]) -> Program:
    roots = (0,) if kind in ROOTED else ()
    builder = Builder(make(kind, ranks, chunks=chunks, roots=roots), name=str(kind))
    write(builder)
    return lower_algorithm(builder.algorithm(), CompileOptions(target=KERNELS))


@kept(most=8)
def _ring_program(kind: Kind, ranks: int, rings: tuple[lanes.Ring, ...], chunks: int) -> Program:
    """Return the program of rings: one for all numbers of a machine, which a fit changes often."""
    return _program(kind, ranks, chunks, lambda p: RING_WRITERS[kind](p, rings))


RING_WRITERS = {
    Kind.ALLREDUCE: lanes.allreduce,
    Kind.ALLGATHER: lanes.allgather,
    Kind.REDUCE_SCATTER: lanes.reduce_scatter,
    Kind.BROADCAST: lanes.broadcast,
    Kind.REDUCE: lanes.reduce,
}
"""Collectives that NCCL does by rings, each with the writer of their program."""


@kept()
def _joined(clock: ProgramClock) -> bool:
    """Return True if a link or switch joins the ranks of every connection."""
    try:
        clock.time_us(1, limit=0.0)  # finds the routes, and runs nothing
    except BadTopology:
        return False
    return True


def fewer_hosts(topology: Topology) -> Topology | None:
    """The machine with an even number of hosts whose rings have few messages; None: all have."""
    if topology.hosts < 3:
        return None
    rings, each = len(Site(topology).rings), topology.ranks // topology.hosts
    hosts = math.isqrt(EFFORT.ring_messages // (2 * rings)) // each // 2 * 2
    if not 2 <= hosts < topology.hosts or topology.ranks % topology.hosts:
        return None
    numbers = sorted(
        {node.host for node in topology.nodes[: topology.ranks] if node.host is not None}
    )
    gone = set(numbers[hosts:])
    kept = tuple(i for i, node in enumerate(topology.nodes) if node.host not in gone)
    return topology.on_nodes(kept, f"{hosts} hosts of {topology.name}")


def protocols_of(topology: Topology, runtime: str) -> tuple[Protocol, ...]:
    """Protocols that a library's own kernels have on a machine: LL128 needs NVLink."""
    if runtime == NCCL and inner_medium(topology) is Medium.NVLINK:
        return (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)
    return (Protocol.LL, Protocol.SIMPLE)


_NVLS = {"h100": (50.0, 252.0), "b200": (60.0, 425.0)}
"""Start in µs and GB/s of the message of an allreduce in a host, by family."""

_NVLS_START, _NVLS_LEVEL = 33.4, 41.8
"""µs of NVLSTree, and for each doubling of the hosts: NCCL 2.28, src/graph/tuning.cc."""

_NVLS_BETWEEN = {"h100": 190.0, "b200": 300.0}
"""GB/s of the message between hosts."""


def _switch_sums(
    topology: Topology, kind: Kind, runtime: str, host: HostTime
) -> tuple[SwitchSums, ...]:
    line = [family for family in _NVLS if family in family_line(topology)]
    if kind is not Kind.ALLREDUCE or runtime != NCCL or not line or topology.ranks < 3:
        return ()
    if not _all_switched(topology):
        return ()
    start, width = _NVLS[line[0]]
    if topology.hosts > 1:
        start = _NVLS_START + _NVLS_LEVEL * (topology.hosts.bit_length() - 1)
        width = _NVLS_BETWEEN[line[0]]
    return (SwitchSums(start, width, host),)


def _all_switched(topology: Topology) -> bool:
    """Return True if all GPUs of each host are on a switch, and not by PCIe or the network."""
    near: dict[int, set[int]] = {}
    for one in topology.links:
        node = topology.nodes[one.dst]
        within = one.medium is Medium.NVLINK or (
            one.medium is None and node.host == topology.nodes[one.src].host
        )
        if one.src < topology.ranks and node.kind is NodeKind.SWITCH and within:
            near.setdefault(one.dst, set()).add(one.src)
    hosts: dict[int | None, set[int]] = {}
    for rank, node in enumerate(topology.nodes[: topology.ranks]):
        hosts.setdefault(node.host, set()).add(rank)
    return all(any(ranks <= found for found in near.values()) for ranks in hosts.values())


class TimedOption(typing.Protocol):
    """Something that may run, with its time."""

    def time(self, message_bytes: int, limit: float = math.inf) -> BaselineTime:
        """The time of a message; one beyond ``limit`` may be infinite."""


def best_of(options: Sequence[TimedOption], message_bytes: int) -> BaselineTime | None:
    """The least time at a size; None where there is nothing to run."""
    best: BaselineTime | None = None
    for one in options:
        found = one.time(message_bytes, math.inf if best is None else best.us)
        if best is None or found.us < best.us:
            best = found
    return best
