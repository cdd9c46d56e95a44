"""``weft simulate``: what a schedule or a program takes in the documented cost model, against
the bound."""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import microseconds, number, table
from weft.dsl.base.units import SizeRange, format_bytes, parse_bandwidth, parse_microseconds

from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_problem, size_flag, valued
from ..subjects import read_subject

if TYPE_CHECKING:
    from weft.synth.time.schedule_time import Timing

EXAMPLES = """examples:
  weft simulate allgather.json --size 1KiB:1GiB
  weft simulate allgather.json -t measured.json --size 1MiB --alpha-occupies
  weft simulate allgather.xml -t dgx1 --size 1KiB:1GiB --protocol LL"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file", metavar="FILE", help="a schedule, an algorithm, a program or MSCCL XML, or -"
    )
    add_problem(parser, required=False)
    parser.add_argument("--size", **size_flag())
    parser.add_argument(
        "--overhead",
        metavar="TIME",
        default=Fraction(0),
        type=valued("--overhead", parse_microseconds),
        help="of every message: added to its occupancy; of every operation "
        "of a program: added to its block's time (default: 0us)",
    )
    rule = parser.add_argument_group(
        "rule for schedules (default: cut-through, α occupies nothing)"
    )
    rule.add_argument(
        "--alpha-occupies",
        action="store_true",
        help="α holds the links too, as TACCL and TACOS count",
    )
    rule.add_argument(
        "--store-and-forward",
        action="store_true",
        help="switches send on what they have received whole",
    )
    rule.add_argument(
        "--barrier", action="store_true", help="a step waits for all earlier ones, as SCCL counts"
    )
    runtime = parser.add_argument_group("runtime of programs")
    runtime.add_argument(
        "--protocol", choices=("Simple", "LL", "LL128"), help="instead of the program's own"
    )
    runtime.add_argument(
        "--target",
        choices=("msccl", "rccl", "executor"),
        help="whose payloads are reckoned with (default: msccl)",
    )
    runtime.add_argument(
        "--local-bandwidth",
        metavar="BW",
        type=valued("--local-bandwidth", parse_bandwidth),
        help="of copies and sums inside a GPU (default: no time)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one line per size."""
    from weft.synth.bounds import bounds, lower_bound_us

    subject = read_subject(args.file)
    timed = subject.noun.timed(subject, args)
    size: SizeRange = args.size or timed.sizes
    bound = bounds(timed.topology, timed.collective)
    found = [timed.evaluate(n, float(lower_bound_us(bound, n))) for n in size.powers()]
    for told in filter(None, map(timed.explain, found)):
        console.detail(told)
    rough = [format_bytes(x.message_bytes) for x in found if not x.exact]
    if rough:
        console.warn(f"extrapolated from shorter runs, as nothing repeats: {', '.join(rough)}")
    sizes = list(map(_entry, found))
    rows = [
        (
            format_bytes(s["bytes"]),
            microseconds(s["us"]),
            s["algbw_GBps"],
            s["busbw_GBps"],
            "-" if s["of_bound"] is None else f"{s['of_bound']:.1%}",
        )
        for s in sizes
    ]
    text = table(("size", "µs", "algbw GB/s", "busbw GB/s", "of bound"), rows)
    console.result(
        text,
        {
            "status": "ok",
            "topology": timed.topology.name,
            "collective": timed.collective.name or str(timed.collective.kind),
            "ranks": timed.collective.ranks,
            **timed.facts,
            "bound": bound.to_json(),
            "sizes": sizes,
        },
    )
    return Exit.DONE


def _entry(found: Timing) -> dict[str, Any]:
    """One entry of ``sizes``."""
    moves = found.time_us > 0
    return {
        "bytes": found.message_bytes,
        "us": number(found.time_us),
        "algbw_GBps": number(found.algbw_GBps) if moves else None,
        "busbw_GBps": number(found.busbw_GBps) if moves else None,
        "of_bound": number(found.of_bound),
    }
