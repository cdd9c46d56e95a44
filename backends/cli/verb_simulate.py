"""``weft simulate``: what a schedule takes in the documented cost model, against the bound."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.dsl.errors import UserError
from weft.dsl.units import format_bytes, parse_size_range

from ..report.layout import number, table
from .console import Console
from .exit_codes import Exit
from .inputs import read_topology, size_flag
from .subjects import Kind, read_subject

if TYPE_CHECKING:
    from weft.dsl.schedule import Schedule
    from weft.synth.bounds import Bounds
    from weft.synth.simulate import CostModel

EXAMPLES = """examples:
  weft simulate allgather.json --size 1KiB:1GiB
  weft simulate allgather.json -t measured.json --size 1MiB --model tacos"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a schedule, or -")
    parser.add_argument("-t", "--topology", metavar="TOPO",
                        help="costs of this machine instead of the schedule's own")  # fmt: skip
    parser.add_argument("--size", **size_flag())
    parser.add_argument("--model", choices=("weft", "taccl", "tacos"), default="weft",
                        help="whose cost rule (default: weft)")  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one line per size."""
    from weft.synth.bounds import bounds
    from weft.synth.verify import require_valid

    subject = read_subject(args.file)
    if subject.kind is not Kind.SCHEDULE:
        raise UserError(f"a schedule is needed, not a {subject.kind}", where=subject.where)
    schedule: Schedule = subject.schedule()
    if args.topology:
        schedule = _on(schedule, args.topology)
    require_valid(schedule)
    size = args.size or parse_size_range("1KiB:1GiB")
    model = cost_model(args.model)
    bound = bounds(schedule.topology, schedule.collective)
    sizes = [evaluate(schedule, bytes_, model, bound) for bytes_ in size.powers()]
    rows = [
        (format_bytes(s["bytes"]), float(s["us"]), s["algbw_GBps"], s["busbw_GBps"],
         "-" if s["of_bound"] is None else f"{s['of_bound']:.1%}")
        for s in sizes
    ]  # fmt: skip
    text = table(("size", "µs", "algbw GB/s", "busbw GB/s", "of bound"), rows)
    console.result(text, {
        "status": "ok",
        "topology": schedule.topology.name,
        "collective": schedule.collective.name or str(schedule.collective.kind),
        "ranks": schedule.collective.ranks,
        "bound": bound.to_json(),
        "sizes": sizes,
    })  # fmt: skip
    return Exit.DONE


def cost_model(name: str) -> CostModel:
    """The cost rule of a name."""
    from weft.synth import simulate

    return {"weft": simulate.WEFT, "taccl": simulate.TACCL, "tacos": simulate.TACOS}[name]


def evaluate(
    schedule: Schedule, message_bytes: int, model: CostModel, bound: Bounds
) -> dict[str, Any]:
    """One entry of ``sizes``."""
    from weft.synth.bounds import lower_bound_us
    from weft.synth.simulate import simulate

    took = float(simulate(schedule, message_bytes, model).time_us)
    least = float(lower_bound_us(bound, message_bytes))
    algbw = message_bytes / took / 1000 if took else None
    factor = bus_factor(schedule)
    return {
        "bytes": message_bytes,
        "us": number(took),
        "algbw_GBps": number(algbw),
        "busbw_GBps": number(algbw * factor) if algbw and factor else None,
        "of_bound": number(least / took) if took else None,
    }


def bus_factor(schedule: Schedule) -> float | None:
    """What nccl-tests multiply algbw with, so that numbers compare across ranks."""
    n, kind = schedule.collective.ranks, str(schedule.collective.kind)
    if kind == "allreduce":
        return 2 * (n - 1) / n
    if kind in ("allgather", "reduce_scatter", "alltoall", "gather", "scatter"):
        return (n - 1) / n
    return 1.0 if kind in ("broadcast", "reduce", "alltonext") else None


def _on(schedule: Schedule, text: str) -> Schedule:
    """The schedule with the costs of another machine of the same shape."""
    machine = read_topology(text)
    own = schedule.topology
    shape = [(x.src, x.dst) for x in machine.links]
    if len(machine.nodes) != len(own.nodes) or shape != [(x.src, x.dst) for x in own.links]:
        raise UserError(
            f"{machine.name} has other links than {own.name}, which the schedule is for",
            where=text, hint="only α and bandwidths may differ",
        )  # fmt: skip
    return replace(schedule, topology=machine)
