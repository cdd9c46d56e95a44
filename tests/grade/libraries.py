"""Tune libraries for machines of the catalogue, and judge them from their files alone.

    python tests/grade/libraries.py [MACHINE …] [-c COLL …] [--keep DIR] [--effort N]
    python tests/grade/libraries.py --gains LIBRARY …

For each machine and collective, from 1 KiB to 1 GiB: how long it took on this machine; every file
proved, sizes without gaps (``weft check``); then 200 sizes that tuning has not seen: what the XML
files take by program simulation, against the bound max(α, bandwidth and composed ones), and against
the best of the library's baselines, compiled again. A second table tells what the plans gain over
the programs that NCCL or RCCL runs by itself, in µs, a third how far they are above the least time
of any program of their runtime; ``--gains`` prints both for libraries that are there. NCCL's rings
and trees as files are among the baselines: a plan that takes 2 % longer than the quickest form of
any of them at one of the 200 sizes is wrong (exit 1).
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from weft.backends.cli import main as weft
from weft.backends.compile.analyses.planned import Order
from weft.backends.compile.descent import PARTS, FormSpace
from weft.backends.compile.variants import Variant
from weft.backends.formats.msccl.read import program_of, read_msccl_xml
from weft.backends.formats.msccl.read.collective import collective_of
from weft.backends.tune.asks import asks
from weft.backends.tune.library_model import library_model
from weft.backends.tune.work import clock, solve
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.nouns.library import Library, Tuned, read
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.time.calibrated import DATASHEET
from weft.synth.time.program_time import ProgramClock

MACHINES = "dgx1 ndv2:nodes=2 dgx-a100:nodes=4 mi250:nodes=2 torus:8x8 dgx-h100:nodes=8".split()
COLLECTIVES = ("allreduce", "allgather", "alltoall", "reduce_scatter")
SIZES = 200
LOW, HIGH = 1 << 10, 1 << 30
NEAR = 1.10

SLOWER = 1.001
"""Least ratio of times from which on a plan counts as slower."""

WRONG = 1.02
"""Least such ratio that is wrong: forms of one baseline take turns by a percent every few KiB, and
a plan for each such stretch would be dozens."""


def unseen() -> list[int]:
    """Sizes evenly spread on a logarithmic scale, between those of any grid of tuning."""
    return [round(LOW * (HIGH / LOW) ** ((i + 0.37) / SIZES)) for i in range(SIZES)]


def times_of_files(library: Library, one: Tuned, folder: Path, sizes: list[int]) -> np.ndarray:
    """µs of the files that a runtime would pick."""
    clocks: dict[str, ProgramClock] = {}
    found = []
    for size in sizes:
        file = next(a.file for a in one.pick(size).artefacts if not a.in_place)
        if file not in clocks:
            algo = read_msccl_xml((folder / file).read_text(), file)
            program = program_of(algo, collective_of(algo))
            clocks[file] = ProgramClock(program, library.topology, library_model(library))
        found.append(clocks[file].time_us(size))
    return np.array(found)


def times_of_baselines(library: Library, one: Tuned, sizes: list[int]) -> np.ndarray:
    """The least µs at each size of the library's baselines, found and compiled again."""
    named = {c.name for c in one.candidates if c.baseline}
    target = one.plans[0].artefacts[0].target  # rccl executes no fused steps
    found = np.full(len(sizes), np.inf)
    given = {
        "topology": library.topology.to_json(),
        "bytes": None,
        "sketch": None,
        "collective": one.collective.to_json(),
        "one_shot": False,
        "effort": 5.0,
        "seconds": None,
        "seed": 0,
    }
    for ask in asks(library.topology, one.collective, SizeRange(LOW, HIGH)):
        if not ask.baseline:
            continue
        more = {"engine": ask.engine, "objective": str(ask.objective)}
        for schedule in solve({**given, **more})["schedules"]:
            for variant in forms():
                if f"{ask.name}, {variant.words}" in named:
                    us = clock(
                        {
                            "schedule": schedule,
                            "runtime": target,
                            "model": library.timing.get("model", DATASHEET),
                            "protocols": [],
                            "in_place": [False],
                            "variant": variant.to_json(),
                            "sizes": sizes,
                            "limits": None,
                        }
                    )
                    found = np.minimum(found, [np.inf if x is None else x for x in us])
    return found


def forms() -> list[Variant]:
    """All ways to compile that tuning tries."""
    space = FormSpace(order=tuple(Order), parts=PARTS)
    names = [one.name for one in fields(space)]
    values = product(*(getattr(space, name) for name in names))
    return [Variant(**dict(zip(names, one, strict=True))) for one in values]


def judge(folder: Path, taken: float) -> tuple[tuple[str, ...], float]:
    """One row of the table, and the largest ratio to the baselines' time."""
    library = read(folder)
    one = library.tuned[0]
    sizes = unseen()
    us = times_of_files(library, one, folder, sizes)
    bound = bounds(library.topology, one.collective)
    least = np.array([float(lower_bound_us(bound, n)) for n in sizes])
    over = us / least
    base = times_of_baselines(library, one, sizes)
    worst = int(over.argmax())
    row = (
        library.topology.name,
        one.name,
        f"{taken:.0f}",
        str(len(one.plans)),
        f"{(over <= NEAR).mean():.0%}",
        f"{np.median(over):.3f}",
        f"{over[0]:.3f}",
        f"{over[-1]:.3f}",
        f"{over[worst]:.2f} at {format_bytes(sizes[worst])}",
        f"{(base / us).min():.2f}..{(base / us).max():.2f}",
        f"{int((us > base * SLOWER).sum())}, worst {(us / base).max():.3f}",
    )
    return row, float((us / base).max())


GAINS_AT = (1 << 10, 64 << 10, 1 << 20, 64 << 20, 1 << 30)
"""Sizes of the table of gains."""


def gains_row(folder: Path) -> tuple[str, ...]:
    """One row of the table of gains: µs less, and the ratios with and without the starts."""
    library = read(folder)
    one = library.tuned[0]
    own = one.runtime
    if own is None:
        return (library.topology.name, one.name, "-", *("-" for _ in GAINS_AT), "-", "-")
    known = {n: gain for at, n in enumerate(one.grid) if (gain := one.gain(at))}
    cells = [
        f"{gain.us:,.1f} ({gain.ratio:.2f}, {gain.run_ratio:.2f})"
        if (gain := known.get(n))
        else "-"
        for n in GAINS_AT
    ]
    slower = [n for n, gain in known.items() if gain.ratio * SLOWER < 1]
    pairs = zip(one.grid, one.chosen_us, own.apart_us, strict=False)
    apart = [n for n, us, least in pairs if least is not None and least < us]
    return (
        library.topology.name,
        one.name,
        own.name,
        *cells,
        f"{len(slower)} of {len(known)}{_span(slower)}",
        f"{own.apart}{_span(apart)}" if apart else "-",
    )


def over_row(folder: Path) -> tuple[str, ...]:
    """One row of the table of plans over the least time of any program of their runtime."""
    library = read(folder)
    one = library.tuned[0]
    known = {n: over for at, n in enumerate(one.grid) if (over := one.over_runtime(at))}
    cells = [f"{known[n]:.3f}" if n in known else "-" for n in GAINS_AT]
    worst = max(known, key=known.__getitem__, default=0)
    far = f"{known[worst]:.2f} at {format_bytes(worst)}" if known else "-"
    return (library.topology.name, one.name, one.plans[0].artefacts[0].target, *cells, far)


def print_over(folders: Iterable[Path]) -> None:
    """Print the table of plans over their runtime's bound."""
    table = Table(title="µs of the plan ÷ least µs of any program in its runtime")
    for head in ("machine", "collective", "runtime", *map(format_bytes, GAINS_AT), "farthest"):
        table.add_column(head, overflow="fold")
    for folder in folders:
        row = over_row(folder)
        table.add_row(*row)
        print(" | ".join(row), flush=True)
    Console(width=170).print(table)


def _span(sizes: list[int]) -> str:
    """The ends of sizes in words; empty for none."""
    return f", {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}" if sizes else ""


def print_gains(folders: Iterable[Path]) -> None:
    """Print the table of gains."""
    table = Table(
        title="µs less than NCCL or RCCL by itself (ratio, ratio without starts of calls)"
    )
    at = map(format_bytes, GAINS_AT)
    for head in ("machine", "collective", "over", *at, "it is quicker at", "no file is"):
        table.add_column(head, overflow="fold")
    for folder in folders:
        row = gains_row(folder)
        table.add_row(*row)
        print(" | ".join(row), flush=True)
    Console(width=170).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machines", nargs="*", default=MACHINES)
    parser.add_argument("-c", "--collective", action="append")
    parser.add_argument("--keep", help="a folder for the libraries")
    parser.add_argument("--effort", default="3", help="of each question (default: 3)")
    parser.add_argument(
        "--gains",
        nargs="+",
        type=Path,
        help="only the tables of gains and bounds, of these libraries",
    )
    args = parser.parse_args()
    if args.gains:
        print_gains(args.gains)
        print_over(args.gains)
        return 0
    table = Table(title=f"libraries, 1 KiB to 1 GiB ({os.cpu_count()} cores, {platform.machine()})")
    for head in (
        "machine",
        "collective",
        "s",
        "plans",
        "≤ 1.1 bound",
        "median",
        "1 KiB",
        "1 GiB",
        "farthest",
        "baseline/plan",
        "slower than baseline",
    ):
        table.add_column(head, overflow="fold")
    wrong, made = 0, []
    out = Console(width=170)
    with tempfile.TemporaryDirectory() as scratch:
        for collective in args.collective or COLLECTIVES:
            for machine in args.machines:
                name = f"{machine}-{collective}".replace(":", "-").replace("=", "")
                folder = Path(args.keep or scratch) / name
                folder.parent.mkdir(parents=True, exist_ok=True)
                started = time.monotonic()
                asked = ["-t", machine, "-c", collective, "--effort", args.effort]
                code = weft(["tune", *asked, "-o", str(folder), "-f", "-q"])
                taken = time.monotonic() - started
                if code or weft(["check", str(folder), "-q"]):
                    wrong += 1
                    continue
                made.append(folder)
                row, worst = judge(folder, taken)
                wrong += worst >= WRONG
                table.add_row(*row)
                print(" | ".join(row), flush=True)
        out.print(table)
        print_gains(made)
        print_over(made)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
