"""Every hierarchical classic, on all boxes of 2–17 ranks, both placements, instances, protocols.

Run: ``python -m tests.grade.hierarchies [NAME…] [--most N] [--instances 1,2] [--interleavings K]``;
prints, for each algorithm, programs, wrong ones, and how far the simulated times are from the cost
formulas where those are claimed to 1 %, and elsewhere.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from classics import wrong
from hierarchies import Case, exact, off_by, shapes

from weft.dsl.nouns.program import Protocol
from weft.synth.engines.classic.hierarchical import HIERARCHICAL, Hierarchical


def judge(
    one: Hierarchical, most: int, instances: list[int], interleavings: int, proof: bool
) -> str:
    """One line of the table."""
    begin, bad = time.monotonic(), []
    off = {True: (0.0, ""), False: (0.0, "")}
    cases = [
        Case(one, *rest) for rest in product(shapes(one, most), (False, True), instances, Protocol)
    ]
    for case in cases:
        sides = "x".join(map(str, case.shape))
        place = "in" if case.in_place else "out"
        where = f"{sides} {place} x{case.instances} {case.protocol}"
        if proof and (text := wrong(case.program(), interleavings)):
            bad.append(f"{where}: {text}")
        off[exact(case)] = max(off[exact(case)], (abs(off_by(case)), where))
    line = (
        f"{one.name:16} {one.kind:15} {len(cases):5} programs {len(bad):3} wrong; off by at most "
        f"{off[True][0]:7.3%} ({off[True][1]}), unclaimed {off[False][0]:7.3%} ({off[False][1]}) "
        f"in {time.monotonic() - begin:.0f} s"
    )
    return "\n    ".join([line, *bad[:3]])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=int, default=17)
    parser.add_argument("--instances", default="1,2,3,4")
    parser.add_argument("--interleavings", type=int, default=2)
    parser.add_argument("--only-time", action="store_true")
    options = parser.parse_args()
    instances = [int(text) for text in options.instances.split(",")]
    for one in HIERARCHICAL:
        if not options.names or one.name in options.names:
            print(
                judge(one, options.most, instances, options.interleavings, not options.only_time),
                flush=True,
            )


if __name__ == "__main__":
    main()
