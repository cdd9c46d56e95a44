"""``make gaps``: known gaps of programs and schedules over their bounds, and what limits them.

    python tests/grade/gaps.py [NAME …]

Each gap is searched, compiled in a few forms and timed by data sheets, as the bounds are: times
over the bound. *Before* is what the gap was when it was found. *Without limits* is the same
schedule in one more form that the runtime has no room for (steps of a block, blocks, channels):
what it gains is the runtime's share of the gap; the rest up to the schedule is that a thread block
serves its chunks in one order.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from damaged import damaged
from rich.console import Console
from rich.table import Table

from weft.backends.compile.analyses.planned import Order
from weft.backends.compile.compile import lower_schedule
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.compile.source import fitted
from weft.backends.compile.variants import LANES, Variant
from weft.backends.formats.msccl.emit import require_fit
from weft.backends.tune.work import on_binary_grid
from weft.dsl.base.errors import UserError
from weft.dsl.base.units import format_bytes
from weft.dsl.catalogue import topology
from weft.dsl.importers.recognized import read_any
from weft.dsl.machines.failures import degraded, find
from weft.dsl.machines.spec import parse_spec
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.runtime import UNLIMITED, Target, target
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.repair.mend import REPAIR_EFFORT, repairs
from weft.synth.time.program_time import ProgramClock
from weft.synth.time.runtime_model import model_of
from weft.synth.time.schedule_time import simulate

MIB = 1 << 20
FORMAT = "msccl-xml"
WITHOUT = " without "
REPAIRED = "repair"
"""In place of an engine: the whole machine's schedule, repaired."""


def form(instances: int, segments: int, lanes: int = 0, order: Order = Order.BANDWIDTH) -> Variant:
    """One way to compile, by default with blocks in the order of links' bandwidths."""
    return Variant(instances, pairing=Pairing.NONE, segments=segments, lanes=lanes, order=order)


@dataclass(frozen=True, slots=True)
class Gap:
    """A problem, how it is searched and compiled, and the gaps that are known.

    ``made_for``: bytes that the schedule is searched for; one for all sizes. ``before``: of each
    size, time over bound. ``beyond``: the form that the runtime has no room for.
    """

    name: str
    machine: str
    kind: str
    before: dict[int, float]
    engine: str = "portfolio"
    runtime: str = "msccl"
    forms: tuple[Variant, ...] = ()
    beyond: Variant | None = None
    made_for: int = 64 * MIB
    effort: float = 3.0


MI250 = {"machine": "mi250:nodes=2", "kind": "allreduce", "runtime": "rccl"}
H100 = ("damaged 4", "damaged 12", "damaged 20")
GAPS = (
    Gap(
        "mi250 order",
        **MI250,
        before={64 * MIB: 2.96},
        engine="packing{trees=1,segments=8}",
        forms=(form(1, 8), form(2, 8)),
        beyond=form(1, 32, LANES),
    ),
    Gap(
        "mi250 allreduce",
        **MI250,
        before={16 * MIB: 1.594, 64 * MIB: 1.478, 1024 * MIB: 1.415},
        engine="packing{trees=1,segments=16}",
        forms=(form(2, 4), form(2, 8)),
        beyond=form(1, 32, LANES),
    ),
    *(
        Gap(
            "128 ranks",
            "dgx-a100:nodes=16 without host0.nic3",
            "allgather",
            {MIB: 1.65, 4 * MIB: 1.686, 8 * MIB: 1.64},
            engine=engine,
            forms=(form(1, 1), form(2, 1), form(1, 1, LANES), form(1, 2, 2 * LANES)),
            beyond=form(1, 2, 2 * LANES),
            made_for=4 * MIB,
        )
        for engine in ("packing", REPAIRED)
    ),
    *(Gap("h100 mirror", one, "allgather", {64 * MIB: 1.03}) for one in H100),
    *(Gap("h100 mirror", one, "reduce_scatter", {64 * MIB: 1.57}) for one in H100),
    *(Gap("h100 mirror", one, "allreduce", {64 * MIB: 1.57}, effort=20.0) for one in H100),
    Gap(
        "pcie",
        "pcie",
        "allgather",
        {64 * MIB: 1.28},
        # Steps of exact schedules are an order that the links can keep.
        forms=(form(1, 1), form(4, 8), form(2, 8, 0, Order.STEPS), form(1, 32, 0, Order.STEPS)),
        beyond=form(8, 32, LANES, Order.STEPS),
    ),
    Gap(
        "pcie",
        "pcie",
        "allgather",
        {64 * MIB: 1.28},
        engine="classic{algorithm=blueconnect}",
        forms=(form(4, 8), form(4, 16), form(8, 32)),
    ),
)


def pcie_box() -> Topology:
    """Eight GPUs behind PCIe switches and two CPUs, as ``nvidia-smi topo -m`` tells them."""

    def cell(a: int, b: int) -> str:
        near = ((1, " X "), (2, "PIX"), (4, "NODE"))
        return next((word for size, word in near if a // size == b // size), "SYS")

    ranks = range(8)
    lines = ["\t".join(["", *(f"GPU{a}" for a in ranks), "CPU Affinity"])]
    lines += ["\t".join([f"GPU{a}", *(cell(a, b) for b in ranks), "0-15"]) for a in ranks]
    return read_any("\n".join(lines) + "\n", "pcie.txt", parse_spec("pcie.txt"))


def machine_of(text: str) -> Topology:
    """A machine of the catalogue, or without a part, a damaged one by its seed, or the PCIe box."""
    if text == "pcie":
        return pcie_box()
    if text.startswith("damaged "):
        return damaged(int(text.split()[1]))
    name, _, down = text.partition(WITHOUT)
    whole = topology(name)
    return degraded(whole, [find(whole, down)]).topology if down else whole


def searched(gap: Gap) -> Schedule:
    """The quickest schedule at the size that it is made for; or that of the whole machine, mended
    and balanced for what is left, as ``weft resynth`` does."""
    machine = machine_of(gap.machine)
    if gap.engine != REPAIRED:
        return _found(gap, machine, gap.engine)
    whole = machine_of(gap.machine.partition(WITHOUT)[0])
    left = degraded(whole, [find(whole, gap.machine.partition(WITHOUT)[2])])
    return dict(repairs(_found(gap, whole, "packing"), left, REPAIR_EFFORT))["balanced"]


def _found(gap: Gap, machine: Topology, engine: str) -> Schedule:
    problem = Problem(machine, make(gap.kind, machine.ranks), None, Objective.TIME, gap.made_for)
    points = synthesize(problem, engine, Budget(gap.effort)).points
    return min((p.schedule for p in points), key=lambda s: simulate(s, gap.made_for).time_us)


def clocks(
    gap: Gap, schedule: Schedule, forms: Sequence[Variant], limits: Target
) -> Iterator[tuple[str, ProgramClock]]:
    """The programs of some forms, where the limits have room."""
    grid = on_binary_grid(fitted(schedule, FORMAT, 1)[0])
    for one in forms:
        try:
            cut = fitted(grid, FORMAT, one.segments)[0]
            program = lower_schedule(cut, one.options(limits))
            require_fit(program, limits)
        except UserError as error:
            print(f"{gap.name}: {one.words}: {error.message}", file=sys.stderr)
            continue
        yield one.words, ProgramClock(program, schedule.topology, model_of(gap.runtime))


def rows(gap: Gap) -> Iterator[tuple[str, ...]]:
    """The rows of a gap, one for each size."""
    began = time.process_time()
    schedule = searched(gap)
    machine = schedule.topology
    least = bounds(machine, schedule.collective)
    limits = target(gap.runtime)
    free = replace(
        limits,
        max_steps=UNLIMITED,
        max_blocks=UNLIMITED,
        max_channels=UNLIMITED,
        max_nodes=UNLIMITED,
        max_children=UNLIMITED,
    )
    programs = list(clocks(gap, schedule, gap.forms, limits))
    beyond = list(clocks(gap, schedule, [gap.beyond] if gap.beyond else [], free))
    for size, before in gap.before.items():
        bound = float(lower_bound_us(least, size))
        us, how = min(((c.time_us(size), words) for words, c in programs), default=(None, ""))
        without = min((c.time_us(size) for _, c in beyond), default=None)
        yield (
            gap.name,
            f"{gap.kind}, {gap.machine}, {gap.engine}",
            format_bytes(size),
            f"{bound:.1f}",
            f"{simulate(schedule, size).time_us / bound:.3f}",
            f"{before:.2f}",
            "-" if us is None else f"{us / bound:.3f}",
            how,
            "-" if without is None else f"{without / bound:.3f}",
            f"{time.process_time() - began:.0f}",
        )


HEAD = (
    "gap",
    "problem",
    "size",
    "bound µs",
    "schedule",
    "before",
    "program",
    "form",
    "without limits",
    "CPU s",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = tuple(dict.fromkeys(gap.name for gap in GAPS))
    parser.add_argument("names", nargs="*", help=", ".join(known))
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(known)}")
    table = Table(*HEAD, title="times over the bound, by data sheets")
    for gap in GAPS:
        if not args.names or gap.name in args.names:
            for row in rows(gap):
                table.add_row(*row)
                print(" | ".join(row), file=sys.stderr, flush=True)
    Console(width=170).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
