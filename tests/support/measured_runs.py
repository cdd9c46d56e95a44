"""Programs that may have run where a published table was measured."""

import math
import re
from dataclasses import dataclass, replace
from functools import cache

from measured_machines import machine_of
from measured_tables import MeasuredTable
from rccl_files import allpairs

from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.backends.tune.baselines import (
    Baseline,
    BaselineTime,
    HostTime,
    SwitchSums,
    host_time,
    nccl_baselines,
)
from weft.backends.tune.compared import library_of
from weft.backends.tune.nccl_settings import NcclSettings
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import ROOTED, Collective, Kind, make
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.timing import TimingNumber
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import runtime_bound
from weft.synth.engines.classic.flat import classic_algorithm
from weft.synth.time.calibrated import NCCL, calibrated_model
from weft.synth.time.program_time import ProgramClock

MSCCLPP, RCCL = "mscclpp", "rccl"
"""Runtimes: MSCCL++'s own kernels, and RCCL with its files."""


@dataclass(frozen=True, slots=True)
class Ranged:
    """A program that a library takes from a size to another."""

    baseline: Baseline
    low: int
    high: int

    def time(self, message_bytes: int, limit: float = math.inf) -> BaselineTime:
        """The time in its range; infinite elsewhere."""
        if self.low <= message_bytes <= self.high:
            return self.baseline.time(message_bytes, limit)
        return BaselineTime(float("inf"), "")


Options = list[Baseline | SwitchSums | Ranged]

LAUNCH_OF_SEVERAL = "one process"
"""``launch`` of a run in which one process has all GPUs of a host."""


def gpus_per_process(table: MeasuredTable, gpus: int) -> int:
    """GPUs that a process had, of hosts with so many: all, as ``-g 8`` says, or one."""
    launch = table.text("launch").lower()
    if found := re.search(r"-g ?(\d+)", launch):
        return int(found[1])
    return gpus if launch == LAUNCH_OF_SEVERAL else 1


def runtime_of(table: MeasuredTable, machine: Topology) -> str:
    """The runtime whose kernels ran; that of the machine's maker where no library is named.

    Raises:
        UserError: another library, of which there is no model.
    """
    library = table.text("library").lower()
    if "mscclpp" in library or "msccl++" in library:
        return MSCCLPP
    if not library:
        return library_of(machine, NCCL)
    if found := re.search(r"\b(nccl|rccl)", library):
        return found[1]
    raise UserError(f"there is no model of the library {table.text('library')!r}")


def settings_of(table: MeasuredTable) -> NcclSettings:
    """The settings that the facts of a table name (``NCCL_PROTO=LL``)."""
    told = " ".join(table.text(key) for key in ("chosen", "launch", "library", "note"))
    return NcclSettings.of(
        {name.upper(): value for name, value in re.findall(r"(NCCL_\w+)=(\S+)", told, re.I)}
    )


def least_us(table: MeasuredTable, machine: Topology, message_bytes: int) -> float:
    """The least µs of any program of a table's library, each number at the most that was seen."""
    assert table.kind is not None  # else it is apart
    root = [0] if table.kind in ROOTED else []
    collective = _collective(table.kind, machine.ranks, *root)
    runtime = runtime_of(table, machine)
    files = runtime == RCCL and "msccl" in table.text("chosen").lower()
    names = [MSCCLPP] if runtime == MSCCLPP else [NCCL, *([RCCL] if files else [])]
    found = (runtime_bound(machine, collective, message_bytes, x, best=True) for x in names)
    return min(one.us for one in found)


@cache
def _collective(kind: Kind, ranks: int, *roots: int) -> Collective:
    return make(kind, ranks, roots=list(roots))


def baselines_of(table: MeasuredTable, given: tuple[TimingNumber, ...] = ()) -> Options:
    """What may have run; empty where no program of ours can. ``given``: replaces defaults.

    Raises:
        UserError: no machine or no library of the model is told.
    """
    if table.why_apart:
        return []
    machine = machine_of(table)
    settings = settings_of(table)
    machine = replace(machine, timing=machine.timing.with_numbers(given))
    machine = settings.on(machine)
    gpus = gpus_per_process(table, machine.ranks // machine.hosts)
    chosen, runtime = table.text("chosen").lower(), runtime_of(table, machine)
    kind = table.kind
    assert kind is not None  # else it is apart
    if runtime == MSCCLPP:
        return [*_packets(machine, kind)]
    found: Options = [*settings.allowed(nccl_baselines(machine, kind, runtime, gpus))]
    if runtime == "rccl" and "msccl" in chosen and machine.ranks == 8:
        files = _rccl_files(machine, host_time(machine, gpus))
        ranges = [(one.low, one.high) for one in files]
        outside = [
            Ranged(one, low, high)
            for one in found
            if isinstance(one, Baseline)
            for low, high in ((0, min(a for a, _ in ranges) - 1), (ranges[-1][1] + 1, 1 << 60))
        ]
        return [*outside, *files]
    return found


def _rccl_files(machine: Topology, host: HostTime) -> list[Ranged]:
    """RCCL's files for allreduce on eight MI300X, with their sizes."""
    found = []
    for channels, protocol, low, high in (
        (4, Protocol.LL, 1 << 10, 64 << 10),
        (8, Protocol.LL, (64 << 10) + 1, (512 << 10) - 1),
        (8, Protocol.SIMPLE, 512 << 10, 16 << 20),
    ):
        clock = ProgramClock(
            allpairs(8, channels, protocol), machine, calibrated_model(machine, "rccl")
        )
        name = f"MSCCL file allpairs x{channels}"
        found.append(Ranged(Baseline(name, clock, (protocol,), host), low, high))
    return found


def _packets(machine: Topology, kind: Kind) -> list[Baseline]:
    """MSCCL++'s packets: all pairs in one step, or in two; several blocks for each peer."""
    model = calibrated_model(machine, MSCCLPP)
    found = []
    for name in ("one_shot", "two_shot"):
        program = lower_algorithm(
            classic_algorithm(name, kind, machine.ranks, instances=4), CompileOptions()
        )
        clock = ProgramClock(program, machine, model)
        found.append(Baseline(f"packets {name}", clock, (Protocol.LL,)))
    return found
