"""``make mutants``: random mutations of right files and programs, checked and executed.

Of each mutant: rejected, or executed without a wrong result in every order that is tried; and
what is called wrong for a reason that every execution shows must go wrong when it is executed.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

BATCH = 100


def batch(task: tuple[int, int, int]) -> tuple[Counter[str], list[str]]:
    """Verdicts on some mutants, counted, and those on which checker and execution differ."""
    from mutants import mutants

    seen: Counter[str] = Counter()
    bad = []
    first, number, interleavings = task
    for seed, verdict in enumerate(mutants(first, number, interleavings), first):
        seen[verdict.word] += 1
        if not verdict.agrees:
            bad.append(f"mutant {seed}: {verdict.word}: {verdict.detail}")
    return seen, bad


def main() -> int:
    """Print a table; exit 1 if a verdict was refuted by execution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--interleavings", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tasks = [
        (first, min(BATCH, args.seed + args.mutants - first), args.interleavings)
        for first in range(args.seed, args.seed + args.mutants, BATCH)
    ]
    seen: Counter[str] = Counter()
    bad: list[str] = []
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for counts, wrong in pool.imap_unordered(batch, tasks):
            seen += counts
            bad += wrong
    console = Console(width=150)
    table = Table("verdict", "mutants", title=f"{args.interleavings} interleavings each")
    for word, count in seen.most_common():
        table.add_row(word, str(count))
    console.print(table)
    console.print(f"{sum(seen.values())} mutants in {time.monotonic() - started:.0f} s")
    for line in bad:
        console.print(line, style="red")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
