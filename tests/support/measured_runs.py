"""Tables of measured runs, the machines they were measured on, and what may have run there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

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
from weft.dsl.catalogue import topology as catalogue
from weft.dsl.importers.gpu_names import family_of
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.topology import (
    MachineTiming,
    Medium,
    Node,
    NodeKind,
    Resource,
    Topology,
    both_ways,
    gpu,
)
from weft.synth.engines.classic.catalog import classic_algorithm
from weft.synth.time.calibrated import MSCCLPP, NCCL, calibrated_model
from weft.synth.time.program_time import ProgramClock

LAUNCH_OF_SEVERAL = "one process"
"""``launch`` of a run in which one process has all GPUs of a host."""

PCIE_GEN5, PCIE_GEN4 = Fraction(63), Fraction("31.5")

THROUGH_HOST = Fraction(6, 10)
"""Share of a GPU's PCIe bandwidth where messages go through host memory, twice over its bus.
Fitted to 8 RTX 4090, whose p2pBandwidthLatencyTest has 21 GB/s both ways together."""


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """One table: its name, what is told about the run, and (bytes, µs) rows."""

    name: str
    facts: Mapping[str, Any]
    rows: tuple[tuple[int, float], ...]

    def text(self, key: str) -> str:
        """A fact as text; empty where it is not told."""
        return str(self.facts.get(key) or "")

    @property
    def why_apart(self) -> str:
        """Why no program of ours can be what ran; empty where one can."""
        if "sharp" in (self.text("library") + self.text("chosen")).lower():
            return "SHARP: switches of the network sum"
        if self.text("chosen").startswith("NVLS"):
            return "NVLS: switches sum"
        if "outlier" in self.text("note").lower():
            return f"told to be an outlier: {self.text('note')}"
        kind = self.text("collective").split(" ")[0]
        if kind not in {*map(str, Kind), "sendrecv"}:
            return f"no collective of that name: {self.text('collective')}"
        return "" if kind != "sendrecv" else "sendrecv: ranks pass on in a circle, no collective"


def read_tables(path: Path) -> list[MeasuredTable]:
    """The tables of a file.

    Raises:
        ValueError: not such a file.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    tables = data.get("tables") if isinstance(data, dict) else None
    if not isinstance(tables, list):
        raise ValueError(f"{path}: no list `tables`")
    found = []
    for number, one in enumerate(tables):
        try:
            rows = tuple((int(size), float(us)) for size, us in one["rows_bytes_us"])
            found.append(MeasuredTable(str(one["id"]), one, rows))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: table {number}: {error!r}") from None
    return found


# --- machines -------------------------------------------------------------------------------------


def machine_of(table: MeasuredTable) -> Topology:
    """The machine of a table: of the catalogue, or hosts of GPUs on PCIe."""
    name, ranks = table.text("topology"), int(table.facts["ranks"])
    nodes = int(table.facts.get("nodes") or 1)
    share, nics = _network(table)
    if name.startswith("pcie"):
        return _pcie_hosts(table, ranks // nodes, nodes, nics)
    base, _, options = name.partition(":")
    given = [x for x in options.split(",") if x]
    if nodes > 1 and "nodes=" not in options:
        given.append(f"nodes={nodes}")
    if (nodes > 1 or "nodes=" in options) and nics and "nic_bw" not in options:
        one = nics * share / Fraction(_nics_of(base, options))
        given.append(f"nic_bw={float(one)}GB/s")
    if family := family_of([table.text("gpu")]):  # else the catalogue's
        given.append(f"family={family}")
    made = catalogue(f"{base}:{','.join(given)}" if given else base)
    return made if made.ranks == ranks else made.restricted_to(range(ranks))


def _nics_of(base: str, options: str) -> int:
    if found := re.search(r"nics=(\d+)", options):
        return int(found[1])
    return {"dgx1": 4, "ndv2": 1, "gb200-nvl72": 72}.get(base, 8)


def _network(table: MeasuredTable) -> tuple[Fraction, Fraction]:
    """The share of the network that was reached, and GB/s of all NICs of a host (0: not told)."""
    told = table.text("network")
    found = re.search(r"(\d+) x (?:[A-Z]+ )?(\d+) ?Gb/s", told)
    if slow := re.findall(r"([\d.]+) GB/s", told.partition("perftest")[2]):
        reached = min(map(Fraction, slow)) / Fraction("0.96")
        count = int(found[1]) if found else 8
        return Fraction(1), reached * count
    half = "half" in f"{told} {table.text('note')}"
    total = Fraction(int(found[1]) * int(found[2]), 8) if found else Fraction(0)
    return Fraction(1, 2) if half else Fraction(1), total


def _pcie_hosts(table: MeasuredTable, gpus: int, nodes: int, nics: Fraction) -> Topology:
    """Hosts whose GPUs have one PCIe link each, for messages in the host and out of it."""
    told = table.text("gpu")
    width = PCIE_GEN5 if "PCIe 5" in told or "6000" in told else PCIE_GEN4
    if "host memory" in told:
        width *= THROUGH_HOST
    ranks = gpus * nodes
    members = [gpu(b * gpus + g, b) for b in range(nodes) for g in range(gpus)]
    bridges = [Node(f"bridge{b}", NodeKind.SWITCH, b) for b in range(nodes)]
    fabric = [Node("fabric", NodeKind.SWITCH)] if nodes > 1 else []
    links, shared = [], []
    for r in range(ranks):
        inner = both_ways(r, ranks + r // gpus, width, "0.3")
        outer = both_ways(r, ranks + nodes, nics / gpus or 25, "1.25") if fabric else ()
        first = len(links)
        links += [replace(x, medium=Medium.PCIE) for x in inner]
        links += [replace(x, medium=Medium.NETWORK) for x in outer]
        if outer:
            shared.append(Resource(f"gpu{r} out", (first, first + 2), width))
            shared.append(Resource(f"gpu{r} in", (first + 1, first + 3), width))
    nodes_of = (*members, *bridges, *fabric)
    timing = MachineTiming(family_of([table.text("gpu")]) or "pcie")
    return Topology(table.text("topology"), nodes_of, tuple(links), tuple(shared), timing=timing)


# --- programs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ranged:
    """A program that a library takes from a size to another."""

    baseline: Baseline
    low: int
    high: int

    def time(self, message_bytes: int) -> BaselineTime:
        """The time in its range; infinite elsewhere."""
        if self.low <= message_bytes <= self.high:
            return self.baseline.time(message_bytes)
        return BaselineTime(float("inf"), "")


Options = list[Baseline | SwitchSums | Ranged]


def baselines_of(table: MeasuredTable) -> Options:
    """What may have run; empty where no program of ours can."""
    if table.why_apart:
        return []
    machine = machine_of(table)
    together = table.text("launch") == LAUNCH_OF_SEVERAL
    gpus = int(table.facts["ranks"]) // machine.hosts if together else 1
    library, chosen = table.text("library").lower(), table.text("chosen").lower()
    kind = Kind(table.text("collective").split(" ")[0])
    if "mscclpp" in library or "msccl++" in library:
        return [*_packets(machine, kind)]
    runtime = "rccl" if "rccl" in library else NCCL
    found: Options = list(nccl_baselines(machine, kind, runtime, gpus))
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
