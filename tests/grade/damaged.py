"""``make damaged``: catalogue machines with dead cables and slower links: how near bounds we get.

Every machine is made from its seed: some cables are gone, some NICs and cables are slower. Of each,
reduce_scatter, allgather and allreduce are searched at one size. Printed: time over bound, CPU
seconds; for allreduce also what its halves take one after the other, which it must not exceed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import replace
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
from weft.synth.time.schedule_time import simulate

MACHINES = (
    "dgx1",
    "ndv2:nodes=2",
    "dgx2",
    "dgx-a100:nodes=2",
    "dgx-h100:nodes=2",
    "mi250",
    "torus:4x4",
    "mesh:4x4",
)
KINDS = ("reduce_scatter", "allgather", "allreduce")
SLOWER = tuple(map(Fraction, ("1/2", "2/3", "3/4", "9/10")))
MOST_OVER = 1.04
"""An allreduce at more than so many times its bound is printed in red."""


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


def searched(machine: Topology, kind: str, size: int, effort: float) -> tuple[float, float, float]:
    """(µs, bound in µs, CPU seconds) of a search."""
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, size)
    began = time.process_time()
    outcome = weft.synthesize(problem, budget=Budget(effort))
    spent = time.process_time() - began
    us = min(simulate(p.schedule, size).time_us for p in outcome.points)
    return us, float(lower_bound_us(bounds(machine, problem.collective), size)), spent


def main() -> int:
    """Print a table; exit 1 if an allreduce is slower than its halves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=1 << 26)
    parser.add_argument("--effort", type=float, default=20.0)
    args = parser.parse_args()
    table = Table("machine", *KINDS, "allreduce / halves", "CPU s")
    worse = far = 0
    for seed in range(args.seed, args.seed + args.machines):
        machine = damaged(seed)
        found = {kind: searched(machine, kind, args.size, args.effort) for kind in KINDS}
        halves = found["reduce_scatter"][0] + found["allgather"][0]
        ratio = found["allreduce"][0] / halves
        worse += ratio > 1 + 1e-9
        over = found["allreduce"][0] / found["allreduce"][1]
        far += over > MOST_OVER
        row = [f"{us / least:.3f}" for us, least, _ in found.values()]
        table.add_row(
            machine.name,
            *row,
            f"{ratio:.3f}",
            " ".join(f"{spent:.1f}" for _, _, spent in found.values()),
            style="red" if ratio > 1 + 1e-9 or over > MOST_OVER else None,
        )
        print(machine.name, *row, f"{ratio:.3f}", file=sys.stderr, flush=True)
    console = Console(width=150)
    console.print(table)
    console.print(f"{far} allreduces over {MOST_OVER} times the bound, {worse} slower than halves")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
