"""``make bench``: from a topology to a verified schedule on disk, at scale.

Every line runs in a process of its own, so that its peak memory is its own; the clock starts when
imports and compiled kernels are warm (a first call on a small machine) and stops when the file is
written. The second table repeats that over growing machines of four families and fits time ~
ranks^e; the third shows what few or low trees cost.

Seconds are given twice: on the wall, and of the processor, threads added up. Other work on the
machine lengthens the first, threads the second: limits are judged by the smaller one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

if TYPE_CHECKING:
    from weft.dsl.nouns.topology import Topology

GB = 10**9
IRREGULAR = "dgx-a100:nodes=16,nics=8,8,4,2,8,8,4,2,8,4,4,2,8,8,1,2"
BROKEN = "torus:16x16,dead=0-1,77-78,100-116"
HURT = "torus:16x8,dead=0-1,37-38,60-61,90-106"


@dataclass(frozen=True)
class Line:
    """One measurement: what is solved, by whom, within how many seconds and GiB.

    ``engine`` is an engine's text; or ``bound``: the lower bounds, and by how much a flow that is
    known to exist misses them; or ``pack``: the optimum and its trees, no schedule; or
    ``stream``: the greedy matcher's transfers, judged and written as they come; or ``front``: how
    few and low trees may be. ``compared``: afterwards the time is simulated, beside its bound.
    """

    topology: str
    collective: str
    limit_s: float
    limit_gib: float = 24.0
    size: int = GB
    engine: str = "packing"
    compared: bool = True


LINES = (
    Line("dgx-a100:nodes=2", "allgather", 1),
    Line("dgx-a100:nodes=4", "allgather", 1),
    Line("dgx-a100:nodes=4", "allreduce", 1),
    Line("dgx-a100:nodes=16", "allgather", 2),
    Line("dgx-a100:nodes=128", "allgather", 2, engine="pack"),
    Line("dgx-a100:nodes=128", "allgather", 20, 4),
    Line("mi250:nodes=64", "allgather", 60),
    Line("mi250:nodes=64", "allreduce", 60),
    Line("dgx-h100:nodes=64", "allgather", 15),
    Line("dgx-h100:nodes=64", "allreduce", 15),
    Line("torus:8x8x8", "alltoall", 30),
    Line("dgx-a100:nodes=64", "alltoall", 30),
    Line(IRREGULAR, "allgather", 5),
    Line(IRREGULAR, "alltoall", 20),
    Line(HURT, "alltoall", 20),
    Line("mi250:nodes=64", "alltoall", 60),
    Line("random:128", "alltoall", 20, 1),
    Line("torus:32x32", "alltoall", 30, 2, compared=False),
    Line("torus:64x64", "alltoall", 10, engine="bound"),
    Line("dgx-a100:nodes=512", "alltoall", 10, engine="bound"),
    Line("dgx-a100:nodes=512", "allgather", 10, engine="bound"),
    Line(BROKEN, "allgather", 60),
    Line("torus:32x32", "allgather", 6, engine="greedy{chunks=1}"),
    Line("torus:10x10x10", "allgather", 2, engine="greedy{chunks=1}"),
    Line("torus:100x100", "allgather", 60, engine="stream"),
)

LONG = (Line("torus:200x200", "allgather", 900, 8, engine="stream"),)
"""Lines that take many minutes: with ``--long`` only."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "A100 boxes on rails": tuple(f"dgx-a100:nodes={k}" for k in (2, 8, 32, 128)),
    "MI250 boxes": tuple(f"mi250:nodes={k}" for k in (1, 4, 16, 64)),
    "square tori": tuple(f"torus:{k}x{k}" for k in (4, 8, 16, 32)),
    "square tori, a dead link": tuple(f"torus:{k}x{k},dead=0-1" for k in (4, 6, 8, 12)),
}

FRONTS: dict[str, str] = {
    "dgx-a100:nodes=2": "342.9 (k=1), 346.7 (k=13, 9 hops)",
    "dgx-a100:nodes=4": "266.7 (k=1, 19 hops)",
    "dgx-a100:nodes=8": "228.6 (k=1, 36 hops)",
    "dgx-a100:nodes=16": "213.3 (k=1, no trees in an hour)",
    "mi250:nodes=1": "266.7 (k=1, 10 hops), 320 (k=2), 342.9 (k=3, 14 hops)",
    "mi250:nodes=2": "320 (k=1, 12 hops), 341.3 (k=2), 354.1 (k=83, 19 hops)",
    "mi250:nodes=4": "320 (k=1, 37 hops), 341.3 (k=8, 34 hops)",
}
"""ForestColl's rates in GB/s, trees per root k and heights, published or of its public program."""


class Clock:
    """Wall and processor seconds by stage; an observer, so that whoever is timed says where it is.

    Attributes:
        wall, cpu: seconds of each stage, by its name.
    """

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._name = ""
        self._since = (0.0, 0.0)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a block; what it announces within is counted there."""
        self._name, self._since = name, (time.perf_counter(), time.process_time())
        yield
        self._close()

    def stage(self, name: str) -> None:
        """A new stage begins."""
        self._close()
        self._name = name

    def incumbent(self, point: object) -> None:
        """Nothing to do."""

    def cancelled(self) -> bool:
        """Never."""
        return False

    def _close(self) -> None:
        now = (time.perf_counter(), time.process_time())
        for kept, end, begin in zip((self.wall, self.cpu), now, self._since, strict=True):
            kept[self._name] = kept.get(self._name, 0.0) + end - begin
        self._since = now


@dataclass
class Row:
    """What came of a line; ``gib`` is known to who started the process."""

    ranks: int
    wall: dict[str, float]
    cpu: dict[str, float]
    transfers: int = 0
    segments: int = 1
    of_bound: float = 0.0
    rate: float = 0.0
    front: list[tuple[int, int, float]] = field(default_factory=list)
    gib: float = 0.0

    @property
    def wall_s(self) -> float:
        """All stages, on the wall."""
        return sum(self.wall.values())

    @property
    def cpu_s(self) -> float:
        """All stages, of the processor."""
        return sum(self.cpu.values())

    @property
    def seconds(self) -> float:
        """What is judged."""
        return min(self.wall_s, self.cpu_s)


def machine_of(name: str) -> Topology:
    """A machine of the catalogue; ``random:N``: N GPUs with four cables of 12, 25 or 50 GB/s each,
    laid at random, which no symmetry moves."""
    from weft.dsl.catalogue import topology
    from weft.dsl.nouns.topology import Topology, both_ways, gpu

    kind, _, ranks = name.partition(":")
    if kind != "random":
        return topology(name)
    rng, count = random.Random(1), int(ranks)
    cables: set[tuple[int, int]] = set()
    while len(cables) < 2 * count:  # again until no cable is a loop or lies twice
        ends = [rank for rank in range(count) for _ in range(4)]
        rng.shuffle(ends)
        cables = {(min(p), max(p)) for p in zip(ends[::2], ends[1::2], strict=True) if p[0] != p[1]}
    links = [x for a, b in sorted(cables) for x in both_ways(a, b, rng.choice((12, 25, 50)), "0.7")]
    return Topology(name, tuple(map(gpu, range(count))), tuple(links))


def solved(line: Line) -> Row:
    """A schedule by an engine, verified, on disk."""
    from weft.dsl.catalogue import topology
    from weft.dsl.nouns.collective import make
    from weft.dsl.nouns.problem import Objective, Problem
    from weft.dsl.nouns.schedule import write
    from weft.synth.api import synthesize
    from weft.synth.base.engine import Budget
    from weft.synth.bounds import bounds, lower_bound_us
    from weft.synth.time.schedule_time import simulate

    for small in ("ring:4", "dgx-a100:nodes=2"):
        warm = topology(small)
        what = make(line.collective, warm.ranks)
        synthesize(Problem(warm, what, None, Objective.TIME, 1 << 20), line.engine, Budget(5))
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        with clock.timed("topology"):
            machine = machine_of(line.topology)
            collective = make(line.collective, machine.ranks)
            problem = Problem(machine, collective, None, Objective.TIME, line.size)
        with clock.timed("solve"):
            outcome = synthesize(problem, line.engine, Budget(line.limit_s * 2), clock)
        with clock.timed("write"):
            schedule = outcome.points[0].schedule
            write(Path(folder) / "schedule.json", schedule)
    point, of_bound = outcome.points[0], 0.0
    if line.compared:
        least = float(lower_bound_us(bounds(machine, collective), line.size))
        of_bound = least / simulate(schedule, line.size).time_us
    return Row(
        machine.ranks,
        clock.wall,
        clock.cpu,
        len(schedule),
        schedule.segments,
        of_bound,
        float(point.bound / point.rounds_per_chunk),
    )


def packed(line: Line) -> Row:
    """The optimum and its trees alone, or the front of few and low trees."""
    from packings import front

    from weft.dsl.catalogue import topology
    from weft.dsl.nouns.collective import make
    from weft.synth.base.meter import STEPS, Meter
    from weft.synth.engines.packing.trees.trees import pack

    pack(topology("dgx-a100:nodes=2"), make(line.collective, 16))
    clock = Clock()
    with clock.timed("topology"):
        machine = topology(line.topology)
        collective = make(line.collective, machine.ranks)
    with clock.timed("trees"):
        if line.engine == "front":
            found = front(machine, collective, effort=line.limit_s)
        else:
            packings = pack(machine, collective, meter=Meter(round(2 * line.limit_s * STEPS)))
    if line.engine == "pack":
        rate = float(packings[0].bound / packings[0].us_per_byte)
        hops = sum(map(len, packings[0].trees)) * len(packings[0].images)
        return Row(machine.ranks, clock.wall, clock.cpu, hops, rate=rate)
    best = float(1 / (pack(machine, collective)[0].bound * 1000))
    entries = [(trees, height, float(part) * best) for trees, height, part in found]
    return Row(machine.ranks, clock.wall, clock.cpu, front=entries)


def bounded(line: Line) -> Row:
    """The lower bounds alone."""
    from weft.dsl.catalogue import topology
    from weft.dsl.nouns.collective import make
    from weft.synth.bounds import bounds

    bounds(topology("ring:4"), make(line.collective, 4))
    clock = Clock()
    with clock.timed("topology"):
        machine = topology(line.topology)
        collective = make(line.collective, machine.ranks)
    with clock.timed("bound"):
        found = bounds(machine, collective)
    rate = 0.0 if found.attainable is None else float(found.us_per_byte / found.attainable)
    return Row(machine.ranks, clock.wall, clock.cpu, rate=rate)


def streamed(line: Line) -> Row:
    """A stream: made, judged and written in blocks."""
    from weft.dsl.catalogue import topology
    from weft.synth.engines.greedy.stream import run, stream

    run(stream(topology("torus:4x4"), GB))
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        with clock.timed("topology"):
            machine = topology(line.topology)
        with clock.timed("match, judge, write"):
            report = run(stream(machine, line.size), Path(folder) / "stream")
    if not report.verified:
        raise AssertionError(report.problem)
    return Row(
        machine.ranks,
        clock.wall,
        clock.cpu,
        report.transfers,
        of_bound=1 / report.of_bound,
        rate=1 / report.of_bound,
    )


KINDS: dict[str, Callable[[Line], Row]] = {
    "bound": bounded,
    "pack": packed,
    "front": packed,
    "stream": streamed,
}


def in_child(line: Line) -> Row | None:
    """Run one line in a fresh process; None if it fails."""
    command = [sys.executable, __file__, "--child", json.dumps(asdict(line))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return None
    return Row(**{**json.loads(output), "gib": usage.ru_maxrss / 2**20})


def scale_table(console: Console, lines: tuple[Line, ...]) -> bool:
    """One line per machine; whether all limits hold."""
    table = Table(
        "machine",
        "collective",
        "engine",
        "ranks",
        "transfers",
        "n",
        "rate/bound",
        "time/bound",
        "wall s",
        "CPU s",
        "limit s",
        "GiB",
        "",
    )
    good = True
    for line in lines:
        row = in_child(line)
        what = (line.topology, line.collective, line.engine)
        if row is None:
            table.add_row(*what, *[""] * 9, "FAIL")
            good = False
            continue
        ok = row.seconds <= line.limit_s and row.gib <= line.limit_gib
        good = good and ok
        table.add_row(
            *what,
            str(row.ranks),
            f"{row.transfers:,}",
            str(row.segments),
            f"{row.rate:.4f}",
            f"{row.of_bound:.4f}" if row.of_bound else "",
            f"{row.wall_s:.2f}",
            f"{row.cpu_s:.2f}",
            f"{line.limit_s:g}",
            f"{row.gib:.2f}",
            "ok" if ok else "OVER",
        )
    console.print(table)
    return good


def growth_table(console: Console) -> None:
    """CPU seconds over ranks, the fitted exponent, and where they go at the largest size."""
    table = Table("family (allgather)", "CPU seconds at ranks", "exponent", "where they go")
    for family, machines in FAMILIES.items():
        tried = [in_child(Line(machine, "allgather", 60, compared=False)) for machine in machines]
        rows = [row for row in tried if row is not None]
        last = rows[-1]
        parts = ", ".join(f"{k} {s / last.cpu_s:.0%}" for k, s in last.cpu.items())
        table.add_row(
            family,
            "  ".join(f"{r.ranks}: {r.cpu_s:.2f}" for r in rows),
            f"{_slope(rows):.2f}",
            parts,
        )
    console.print(table)


def _slope(rows: list[Row]) -> float:
    """Least squares of log time on log ranks."""
    x = [math.log(r.ranks) for r in rows]
    y = [math.log(r.cpu_s) for r in rows]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def trees_table(console: Console) -> None:
    """How fast k trees of some height per root can be, beside what ForestColl does."""
    table = Table("machine", "trees per root × height: GB/s", "ForestColl: GB/s", "CPU s")
    for machine, published in FRONTS.items():
        row = in_child(Line(machine, "allgather", 20, engine="front"))
        if row is None:
            table.add_row(machine, "FAIL", published, "")
            continue
        entries = "  ".join(f"{k}×{height}: {rate:.1f}" for k, height, rate in row.front)
        table.add_row(machine, entries, published, f"{row.cpu_s:.2f}")
    console.print(table)


def main() -> int:
    """Print the hardware and the tables; exit 1 if a limit of the first one is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=["scale", "growth", "trees"])
    parser.add_argument("--long", action="store_true", help="also what takes many minutes")
    args = parser.parse_args()
    if args.child:
        line = Line(**json.loads(args.child))
        json.dump(asdict(KINDS.get(line.engine, solved)(line)), sys.stdout)
        return 0
    console = Console(width=160)
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()}"
    )
    good = True
    if args.only in (None, "scale"):
        good = scale_table(console, LINES + (LONG if args.long else ()))
    if args.only in (None, "growth"):
        growth_table(console)
    if args.only in (None, "trees"):
        trees_table(console)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
