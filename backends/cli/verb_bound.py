"""``weft bound``: lower bounds on any schedule, each with its certificate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..report.layout import facts, number, table
from .console import Console
from .exit_codes import Exit
from .inputs import add_problem, read_problem, size_flag

if TYPE_CHECKING:
    from weft.synth.bounds import Bounds

EXAMPLES = """examples:
  weft bound -t dgx1 -c allgather
  weft bound -t dgx-a100:nodes=2 -c allreduce --size 1KiB:1GiB"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_problem(parser)
    parser.add_argument("--size", **size_flag())


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the bounds and why they hold."""
    from weft.dsl.problem import check_connected
    from weft.synth.bounds import bounds

    topology, collective = read_problem(args)
    check_connected(topology, collective)
    bound = bounds(topology, collective)
    name = collective.name or str(collective.kind)
    sizes = [_at(bound, size) for size in args.size.powers()] if args.size else []
    console.result(_text(f"{name} on {topology.name}", bound, sizes), {
        "status": "ok", "topology": topology.name, "collective": name,
        "ranks": collective.ranks, "bound": bound.to_json(), "sizes": sizes,
    })  # fmt: skip
    return Exit.DONE


def _at(bound: Bounds, size: int) -> dict[str, Any]:
    least = float(bound.time_us(size))
    return {
        "bytes": size,
        "us": number(least),
        "algbw_GBps": number(size / least / 1000) if least else None,
    }


def _text(title: str, bound: Bounds, sizes: list[dict[str, Any]]) -> str:
    data = bound.to_json()
    head = facts([
        ("problem", title),
        ("latency", f"at least {data['latency_us']} µs and {data['steps']} steps"),
        ("bandwidth", f"at most {data['algbw_GBps']:.6g} GB/s algbw" if data["algbw_GBps"] else "no limit"),
        ("rounds/chunk", data["rounds_per_chunk"]),
        ("seconds/byte", data["seconds_per_byte"]),
    ])  # fmt: skip
    parts = [head, *bound.explain()]
    if sizes:
        rows = [(s["bytes"], float(s["us"]), s["algbw_GBps"]) for s in sizes]
        parts.append(table(("bytes", "at least µs", "at most GB/s"), rows))
    return "\n\n".join(parts)
