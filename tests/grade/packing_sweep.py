"""``make sweep``: random machines, symmetric or not, with failures: rates equal their bounds.

For every machine broadcast, allgather and reduce_scatter attain the bound as rationals (a cut, or,
where no cut is attained, prices of trees), alltoall its linear program, and allreduce the bound or
the exact program over trees, which knows nothing of the packing. Each schedule is verified.
"""

import argparse
import random
import sys
import time
from collections import Counter
from fractions import Fraction

from rich.console import Console
from rich.table import Table

from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.problem import check_connected
from weft.dsl.nouns.topology import Resource, Topology, both_ways, gpu, link, switch
from weft.synth.bounds import bounds
from weft.synth.bounds.trees import tree_time
from weft.synth.engines.packing.order.plan import PackingPlan
from weft.synth.engines.packing.paths.paths import pack_paths
from weft.synth.engines.packing.trees.model import Packing
from weft.synth.engines.packing.trees.trees import pack
from weft.synth.judge.verify import require_valid

KINDS = ("broadcast", "allgather", "reduce_scatter", "allreduce", "alltoall")

SPEEDS = tuple(map(Fraction, ("1", "2", "3", "5/2", "7/3", "25", "300")))


def machine(seed: int) -> Topology:
    """A machine of the catalogue, most of them with dead links, or a random one."""
    rng = random.Random(seed)
    while True:
        made = _named(rng) if rng.random() < 0.6 else _drawn(rng)
        dead = rng.sample(range(len(made.links)), rng.choice([0, 1, 1, 2, 3]))
        try:
            broken = made.without_links(set(dead)) if dead else made
            check_connected(broken, make("allgather", broken.ranks))
        except BadTopology:
            continue
        return broken


def _named(rng: random.Random) -> Topology:
    a, b = rng.randint(2, 4), rng.randint(2, 4)
    nics = ",".join(str(rng.choice([8, 8, 4, 2, 1])) for _ in range(2))
    return topology(
        rng.choice(
            [
                f"ring:{a + b}",
                f"line:{a + b}",
                f"star:{a + b}",
                f"hub:{a + b}",
                f"full:{a + b}",
                f"mesh:{a}x{b}",
                f"torus:{a}x{b}",
                f"hypercube:{a}",
                f"dragonfly:p=1,a={a},h=1",
                "fat-tree:k=4,oversub=2",
                "dgx1",
                "dgx2",
                "dgx-a100",
                "mi250",
                "mi300x",
                "z52",
                "amd8",
                "ndv2:nodes=2",
                f"dgx-a100:nodes=2,nics={nics}",
                "dgx-a100:nodes=2,fabric=planes:2",
            ]
        )
    )


def _drawn(rng: random.Random) -> Topology:
    """Cables of any speed and of one or both directions, switches, NICs of several links."""
    n, switches = rng.randint(3, 10), rng.randint(0, 2)
    nodes = (*(gpu(i) for i in range(n)), *(switch(f"s{i}") for i in range(switches)))
    links = []
    for v in range(1, len(nodes)):
        for a in {rng.randrange(min(v, n)), *(rng.randrange(n) for _ in range(rng.randint(0, 3)))}:
            if a != v:
                links += both_ways(a, v, rng.choice(SPEEDS), 1)
                if rng.random() < 0.3:
                    links.append(link(a, v, rng.choice(SPEEDS), 1))
    shared = []
    if rng.random() < 0.5 and len(links) > 3:
        some = sorted(rng.sample(range(len(links)), rng.randint(2, 3)))
        shared.append(Resource("shared", tuple(some), rng.choice(SPEEDS)))
    return Topology("random", nodes, tuple(links), tuple(shared))


def packed(made: Topology, kind: str, rng: random.Random) -> Packing:
    """The best packing."""
    roots = (rng.randrange(made.ranks),) if kind == "broadcast" else ()
    collective = make(kind, made.ranks, roots=roots)
    return (pack_paths if kind == "alltoall" else pack)(made, collective)[0]


def fault(best: Packing) -> str:
    """What is wrong with a packing, if anything."""
    require_valid(PackingPlan.of(best).schedule())
    known = bounds(best.topology, best.collective).us_per_byte
    if best.us_per_byte < max(known, best.bound):
        return f"{best.us_per_byte} is below a bound"
    if best.optimal:
        return ""
    if best.collective.kind is Kind.ALLREDUCE:
        program = tree_time(best.topology)
        if program is not None and best.us_per_byte == program / 1000:
            return ""
    return f"{float(best.us_per_byte / best.bound - 1):.2e} above the bound"


def main() -> int:
    """Print the counts; exit 1 if a rate is not its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    console = Console(width=150)
    good, by_prices, seconds = Counter[str](), Counter[str](), Counter[str]()
    bad = []
    for seed in range(args.seed, args.seed + args.count):
        made, rng = machine(seed), random.Random(seed)
        for kind in KINDS:
            started = time.process_time()
            best = packed(made, kind, rng)
            seconds[kind] += time.process_time() - started
            wrong = fault(best)
            if wrong:
                bad.append(f"seed {seed}, {made.name}, {made.ranks} ranks, {kind}: {wrong}")
                console.print(bad[-1], style="red", markup=False)
            else:
                good[kind] += 1
                by_prices[kind] += best.certificate.kind == "trees" or not best.optimal
    table = Table("collective", "machines", "rate = bound", "of these by prices of trees", "CPU s")
    for kind in KINDS:
        row = (args.count, good[kind], by_prices[kind], f"{seconds[kind]:.1f}")
        table.add_row(kind, *map(str, row))
    console.print(table)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
