"""Every classic algorithm, at 2–17 ranks, in and out of place, 1–4 instances, three protocols.

Run: ``python tests/grade/classic_sweep.py [NAME…] [--most N] [--prove SHARE] [--time SHARE]``;
prints, for each algorithm, programs, wrong ones, and how far the simulated times are from the cost
formulas: with a latency near zero for all, with one of the size of a message for those whose steps
are chained.
"""

import argparse
import random
import sys
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from classics import Case, numbers, off_by, wrong

from weft.dsl.nouns.program import Protocol
from weft.synth.engines.classic.flat import FLAT
from weft.synth.engines.classic.model import Flat

PIECES = ((1,), (1, 4))
"""Chunks of an algorithm without, and with, a pipeline."""


def cases(one: Flat, most: int) -> list[Case]:
    """All programs of one algorithm."""
    return [
        Case(one, n, in_place, instances, protocol, chunks)
        for n, in_place, instances, protocol, chunks in product(
            numbers(one, most),
            (False, True),
            range(1, 5),
            Protocol,
            (1, 4) if one.pipelined else (1,),
        )
    ]


def judge(one: Flat, options: argparse.Namespace) -> str:
    """One line of the table."""
    begin, bad, worst, chained = time.monotonic(), [], (0.0, ""), (0.0, "")
    found = cases(one, options.most)
    choice = random.Random(f"{one.name} {one.kind}")
    proved = timed = 0
    for case in found:
        place = "in" if case.in_place else "out"
        where = f"{case.ranks} ranks {place} x{case.instances} {case.protocol} c{case.chunks}"
        prove, measure = choice.random() < options.prove, choice.random() < options.time
        if not (prove or measure):
            continue
        program = case.program()
        if prove:
            proved += 1
            if text := wrong(program, options.interleavings):
                bad.append(f"{where}: {text}")
        if not measure:
            continue
        timed += 1
        worst = max(worst, (abs(off_by(case, "0.0001us", program)), where))
        if one.cost(case.ranks, case.chunks).chained:
            chained = max(chained, (abs(off_by(case, "0.7us", program)), where))
    line = (
        f"{one.name:20} {one.kind:15} {len(found):4} programs, {proved:4} proved and executed, "
        f"{len(bad)} wrong; {timed:4} timed, off by at most {worst[0]:.3%} "
        f"({worst[1]}), chained {chained[0]:.3%} ({chained[1]}); {time.monotonic() - begin:.0f} s"
    )
    return "\n    ".join([line, *bad[:3]])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=int, default=17)
    parser.add_argument("--interleavings", type=int, default=2)
    parser.add_argument("--prove", type=float, default=1.0, help="share that is proved and run")
    parser.add_argument("--time", type=float, default=1.0, help="share that is simulated")
    options = parser.parse_args()
    for one in FLAT:
        if not options.names or one.name in options.names:
            print(judge(one, options), flush=True)


if __name__ == "__main__":
    main()
