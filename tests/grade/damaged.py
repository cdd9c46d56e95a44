"""``make damaged``: catalogue machines with dead cables and slower links: how near bounds we get.

Every machine is made from its seed: some cables are gone, some NICs and cables are slower. Of each,
reduce_scatter, allgather and allreduce are searched at one size. Printed: time over bound, CPU
seconds; for allreduce also what its halves take one after the other, which it must not exceed.
Where a search ends far from its bound, the reasons: what is busy longest, the proof of the bound.
"""

import argparse
import random
import sys
import time
from dataclasses import dataclass, replace
from fractions import Fraction

from rich.console import Console
from rich.table import Table

import weft
from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem, check_connected
from weft.dsl.nouns.topology import Topology
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.portfolio.engine import Portfolio
from weft.synth.explain.critical import gap_words, what_binds
from weft.synth.time.schedule_time import simulate

MACHINES = (
    "dgx1 ndv2:nodes=2 dgx2 dgx-a100:nodes=2 dgx-h100:nodes=2 mi250 torus:4x4 mesh:4x4".split()
)
KINDS = ("reduce_scatter", "allgather", "allreduce")
SLOWER = tuple(map(Fraction, ("1/2", "2/3", "3/4", "9/10")))
MOST_OVER = 1.04
"""An allreduce at more than so many times its bound is printed in red, with the reasons."""

SLOWER_THAN_HALVES = Portfolio().effort.halves_near
"""An allreduce may take so many times what its halves take: this near to the bound they
do not race."""

MOST_SECONDS = 20.0
"""CPU seconds that a search should take at most."""


def damaged(seed: int) -> Topology:
    """A catalogue machine with up to three dead cables, and slower links and shared resources."""
    rng = random.Random(seed)
    while True:
        machine = topology(MACHINES[seed % len(MACHINES)])
        dead: set[int] = set()
        for one in rng.sample(machine.links, rng.randint(0, 3)):
            ends = ({one.src, one.dst}, one.bandwidth)
            dead |= {
                i for i, x in enumerate(machine.links) if ({x.src, x.dst}, x.bandwidth) == ends
            }
        slow = rng.sample(range(len(machine.links)), max(1, len(machine.links) // 10))
        weak = {i: rng.choice(SLOWER) for i in slow}
        links = tuple(
            replace(x, bandwidth=x.bandwidth * weak.get(i, 1)) for i, x in enumerate(machine.links)
        )
        shared = tuple(
            replace(x, bandwidth=x.bandwidth * rng.choice((1, 1, 1, *SLOWER)))
            for x in machine.resources
        )
        try:
            broken = replace(machine, links=links, resources=shared).without_links(dead)
            check_connected(broken, make("allgather", broken.ranks))
        except BadTopology:
            continue
        return replace(broken, name=f"{machine.name} damaged {seed}")


@dataclass(frozen=True)
class Searched:
    """Answer of a search: µs, its lower bound, CPU seconds, and the reasons for the gap."""

    us: float
    least: float
    spent: float
    reasons: tuple[str, ...]

    @property
    def over(self) -> float:
        """Time over bound."""
        return self.us / self.least


def searched(machine: Topology, kind: str, size: int, effort: float) -> Searched:
    """Search once."""
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, size)
    began = time.process_time()
    outcome = weft.synthesize(problem, budget=Budget(effort))
    spent = time.process_time() - began
    best = min((p.schedule for p in outcome.points), key=lambda s: simulate(s, size).time_us)
    found = bounds(machine, problem.collective)
    us, least = simulate(best, size).time_us, float(lower_bound_us(found, size))
    reasons: tuple[str, ...] = ()
    if us > MOST_OVER * least:
        binding = what_binds(best, size, found)
        name = best.provenance.get("found_by", "?")
        reasons = (f"found by {name}", *gap_words(binding), binding.certificate.text)
    return Searched(us, least, spent, reasons)


def main() -> int:
    """Print a table; exit 1 if an allreduce is slower than its halves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=1 << 26)
    parser.add_argument("--effort", type=float, default=20.0)
    args = parser.parse_args()
    table = Table("machine", *KINDS, "allreduce / halves", "CPU s")
    worse = far = late = 0
    for seed in range(args.seed, args.seed + args.machines):
        machine = damaged(seed)
        found = {kind: searched(machine, kind, args.size, args.effort) for kind in KINDS}
        ratio = found["allreduce"].us / (found["reduce_scatter"].us + found["allgather"].us)
        worse += ratio > SLOWER_THAN_HALVES
        far += found["allreduce"].over > MOST_OVER
        late += max(x.spent for x in found.values()) > MOST_SECONDS
        row = [f"{x.over:.3f}" for x in found.values()]
        spent = " ".join(f"{x.spent:.1f}" for x in found.values())
        red = ratio > SLOWER_THAN_HALVES or found["allreduce"].over > MOST_OVER
        table.add_row(machine.name, *row, f"{ratio:.4f}", spent, style="red" if red else None)
        print(machine.name, *row, f"{ratio:.4f}", spent, file=sys.stderr, flush=True)
        for kind, one in found.items():
            for reason in one.reasons:
                print(f"    {kind}: {reason}", file=sys.stderr, flush=True)
    console = Console(width=150)
    console.print(table)
    console.print(
        f"{far} allreduces over {MOST_OVER} times the bound, {worse} slower than halves, "
        f"{late} machines with a search of more than {MOST_SECONDS:g} CPU s"
    )
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
