"""``weft simulate``: what a schedule takes in the documented cost model, against the bound."""

from __future__ import annotations

import argparse
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from weft.dsl.errors import UserError
from weft.dsl.units import format_bytes, parse_microseconds, parse_size_range

from ..report.layout import number, table
from .console import Console
from .exit_codes import Exit
from .inputs import read_topology, size_flag, valued
from .subjects import Kind, read_subject

if TYPE_CHECKING:
    from weft.dsl.schedule import Schedule
    from weft.synth.bounds import Bounds
    from weft.synth.simulate import CostModel

EXAMPLES = """examples:
  weft simulate allgather.json --size 1KiB:1GiB
  weft simulate allgather.json -t measured.json --size 1MiB --alpha-occupies"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a schedule, or -")
    parser.add_argument("-t", "--topology", metavar="TOPO",
                        help="costs of this machine instead of the schedule's own")  # fmt: skip
    parser.add_argument("--size", **size_flag())
    rule = parser.add_argument_group("cost rule (default: cut-through, α occupies nothing)")
    rule.add_argument("--alpha-occupies", action="store_true",
                      help="α holds the links too, as TACCL and TACOS count")  # fmt: skip
    rule.add_argument("--store-and-forward", action="store_true",
                      help="switches send on what they have received whole")  # fmt: skip
    rule.add_argument("--barrier", action="store_true",
                      help="a step waits for all earlier ones, as SCCL counts")  # fmt: skip
    rule.add_argument("--overhead", metavar="TIME", default=Fraction(0),
                      type=valued("--overhead", parse_microseconds),
                      help="added to the occupancy of every message (default: 0us)")  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one line per size."""
    from weft.synth.bounds import bounds
    from weft.synth.simulate import CostModel
    from weft.synth.verify import require_valid

    subject = read_subject(args.file)
    if subject.kind is not Kind.SCHEDULE:
        raise UserError(f"a schedule is needed, not a {subject.kind}", where=subject.where)
    schedule: Schedule = subject.schedule()
    if args.topology:
        schedule = _on(schedule, args.topology)
    require_valid(schedule)
    size = args.size or parse_size_range("1KiB:1GiB")
    model = CostModel(args.alpha_occupies, args.store_and_forward, args.overhead, args.barrier)
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


def evaluate(
    schedule: Schedule, message_bytes: int, model: CostModel, bound: Bounds
) -> dict[str, Any]:
    """One entry of ``sizes``."""
    from weft.synth.bounds import lower_bound_us
    from weft.synth.simulate import simulate

    least = float(lower_bound_us(bound, message_bytes))
    found = simulate(schedule, message_bytes, model, bound_us=least)
    moves = found.time_us > 0
    return {
        "bytes": message_bytes,
        "us": number(found.time_us),
        "algbw_GBps": number(found.algbw_GBps) if moves else None,
        "busbw_GBps": number(found.busbw_GBps) if moves else None,
        "of_bound": number(found.of_bound),
    }


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
