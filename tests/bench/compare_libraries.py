"""Compare two libraries for one machine: their files by program simulation, at 200 sizes.

    python tests/bench/compare_libraries.py OLD NEW [--sizes 200] [--within 1.03]

The sizes are evenly spread on a logarithmic scale, off the grid of any race. For each collective
of both: how much longer a plan of NEW takes than that of OLD, at the worst and the best size, and
how often. Exit code 1 where NEW takes longer than ``--within`` says.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from weft.backends.formats.msccl.read import program_of, read_msccl_xml
from weft.backends.formats.msccl.read.collective import fit
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.library import Library, Tuned, read
from weft.synth.time.calibrated import DATASHEET, named_model
from weft.synth.time.program_time import ProgramClock


def spread(low: int, high: int, count: int) -> list[int]:
    """Return sizes evenly on a logarithmic scale, between those of a grid."""
    return [round(low * (high / low) ** ((i + 0.37) / count)) for i in range(count)]


def times(library: Library, one: Tuned, folder: Path, sizes: list[int]) -> np.ndarray:
    """Return the µs of the files that a runtime would pick, out of place."""
    clocks: dict[str, ProgramClock] = {}
    name = str(library.timing.get("model", DATASHEET))
    model = named_model(library.topology, str(library.timing.get("runtime")), name)
    found = []
    for size in sizes:
        file = next(a.file for a in one.pick(size).artefacts if not a.in_place)
        if file not in clocks:
            algo = read_msccl_xml((folder / file).read_text(), file)
            program = program_of(algo, fit(one.collective, algo))
            clocks[file] = ProgramClock(program, library.topology, model)
        found.append(clocks[file].time_us(size))
    return np.array(found)


def compare(old: Path, new: Path, count: int) -> list[tuple[str, np.ndarray, list[int]]]:
    """Return for each collective the ratio of new to old times, and the sizes."""
    before, after = read(old), read(new)
    rows = []
    for one in before.tuned:
        other = next((t for t in after.tuned if t.name == one.name), None)
        if other is None:
            continue
        sizes = spread(max(before.low, after.low), min(before.high, after.high), count)
        ratio = times(after, other, new, sizes) / times(before, one, old, sizes)
        rows.append((f"{one.name}: {len(one.plans)} -> {len(other.plans)} plans", ratio, sizes))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--within", type=float, default=1.03)
    args = parser.parse_args()
    worst = 0.0
    for words, ratio, sizes in compare(args.old, args.new, args.sizes):
        at = int(ratio.argmax())
        print(
            f"{words}; new/old {ratio.min():.3f} to {ratio.max():.3f} (at "
            f"{format_bytes(sizes[at])}), median {np.median(ratio):.3f}; longer at "
            f"{int((ratio > 1.001).sum())} of {len(sizes)} sizes, by more than "
            f"{args.within - 1:.0%} at {int((ratio > args.within).sum())}"
        )
        slow = [
            f"{format_bytes(n)} {r:.3f}"
            for n, r in zip(sizes, ratio, strict=True)
            if r > args.within
        ]
        if slow:
            print("   " + ", ".join(slow[:12]))
        worst = max(worst, float(ratio.max()))
    return 1 if worst > args.within else 0


if __name__ == "__main__":
    sys.exit(main())
