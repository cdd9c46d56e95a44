"""Programs that carry out a collective, at random: machine, schedule, form, runtime, model, size.

Schedules are shortest-path trees (:mod:`strategies`); machines are the catalogue's, and irregular
ones of all media, with and without numbers of their own.
"""

import random
from dataclasses import dataclass
from fractions import Fraction

from strategies import STANDARD, tree_schedule

from weft.backends.compile.analyses.planned import Order
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.channels import Spread
from weft.backends.compile.passes.threadblocks import Pairing
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import TARGETS
from weft.dsl.nouns.timing import MachineTiming
from weft.dsl.nouns.topology import Link, Medium, Node, NodeKind, Resource, Topology, gpu, switch
from weft.synth.time.calibrated import MODELS, ModelChoice, given_number
from weft.synth.time.program_time import ProgramClock

MACHINES = (
    *("dgx1", "dgx-a100:nodes=1", "dgx-h100", "mi300x", "mi250", "torus:3x3", "ring:5", "mesh:2x3"),
    *("dgx-h100:nodes=2", "dgx-a100:nodes=2", "ndv2:nodes=2", "mi250:nodes=2", "dgx2"),
)
FAMILIES = ("", "v100", "a100", "h100", "b200", "l4", "mi250", "mi300x")
BANDWIDTHS = tuple(map(Fraction, ("5", "12.5", "25", "50", "300")))
LATENCIES = tuple(map(Fraction, ("0", "0.1", "0.35", "0.7", "1.25", "4")))
NUMBERS = (
    *("alpha.network.LL=0.3", "cap.send=2", "local=0.2", "message.LL=6", "message.Simple=40"),
    *("efficiency.LL128=0.5", "reach.network=0.7", "start.Simple=3"),
)
KINDS = tuple(kind for kind in STANDARD if not kind.name.startswith("MULTIROOT"))
"""Kinds for which every target has a word, or a program at least."""


@dataclass(frozen=True)
class RandomForm:
    """A program of a collective on a machine, and what times it at a size."""

    topology: Topology
    collective: Collective
    program: Program
    runtime: str
    choice: ModelChoice
    size: int

    @property
    def time_us(self) -> float:
        """The program's time under the model."""
        clock = ProgramClock(
            self.program, self.topology, self.choice.on(self.topology, self.runtime)
        )
        return clock.time_us(self.size)

    @property
    def told(self) -> str:
        """What it is, in a line."""
        p = self.program
        return (
            f"{self.topology.name} {self.collective} {self.runtime} {p.protocol} {self.choice} "
            f"{self.size} bytes, {p.blocks} blocks, {p.instructions} instructions"
        )


def irregular(dice: random.Random) -> Topology:
    """GPUs in one or two hosts: cables, switches, NICs and shared resources at random."""
    n, hosts = dice.randint(2, 6), dice.choice((1, 2, 2))
    host = [rank * hosts // n if hosts > 1 else None for rank in range(n)]
    nodes: list[Node] = [gpu(rank, host=host[rank]) for rank in range(n)]
    nodes += [switch(f"s{i}", host=dice.randrange(hosts)) for i in range(dice.randint(0, 2))]
    spine = len(nodes)
    nodes.append(switch("spine"))
    nics = {h: len(nodes) + i for i, h in enumerate(sorted({*host} - {None}, key=int))}
    nodes += [Node(f"nic{h}", NodeKind.NIC, host=h) for h in nics]
    ends = [(nic, spine) for nic in nics.values()]
    for rank in range(n):
        ends.append((rank, nics[host[rank]] if host[rank] in nics else spine))
        if dice.random() < 0.6:
            ends.append((rank, (rank + 1) % n))
        ends += [(rank, v) for v in range(n, spine) if dice.random() < 0.6]
    ends = [(a, b) for a, b in ends if a != b]
    links = []
    both = [*ends, *((b, a) for a, b in ends)]
    for a, b in both:
        medium = dice.choice((None, None, None, *Medium))
        links.append(Link(a, b, dice.choice(BANDWIDTHS), dice.choice(LATENCIES), medium=medium))
    shared = [
        Resource(
            f"r{i}",
            tuple(sorted(dice.sample(range(len(links)), min(3, len(links))))),
            dice.choice(BANDWIDTHS),
        )
        for i in range(dice.randint(0, 2))
    ]
    timing = MachineTiming(dice.choice(FAMILIES))
    return Topology("irregular", tuple(nodes), tuple(links), tuple(shared), timing=timing)


def random_form(dice: random.Random) -> RandomForm | None:
    """A program at random; None where the runtime has no room for it, or ranks are not joined."""
    machine = irregular(dice) if dice.random() < 0.6 else topology(dice.choice(MACHINES))
    kind = dice.choice(KINDS)
    roots = (
        [dice.randrange(machine.ranks)]
        if kind.value in ("broadcast", "reduce", "scatter", "gather")
        else []
    )
    collective = make(kind, machine.ranks, chunks=dice.choice((1, 1, 2)), roots=roots)
    runtime = dice.choice((*TARGETS,))
    options = CompileOptions(
        TARGETS[runtime],
        instances=dice.choice((1, 1, 2, 4, 8)),
        protocol=dice.choice(tuple(Protocol)),
        spread=dice.choice(tuple(Spread)),
        pairing=dice.choice(tuple(Pairing)),
        segments=dice.choice((1, 1, 2, 4)),
        order=dice.choice(tuple(Order)),
        in_place=dice.random() < 0.2,
    )
    given = tuple(given_number(one) for one in NUMBERS if dice.random() < 0.1)
    choice = ModelChoice(dice.choice((*MODELS, MODELS[1])))
    size = dice.choice((1, 3, 5, 7)) << dice.randint(6, 23)
    try:
        if choice.name == MODELS[1]:
            choice = ModelChoice(choice.name, given)
            choice.on(machine, runtime)
        schedule = tree_schedule(machine, collective, dice.randrange(1 << 30))
        program = lower_schedule(schedule, options)
    except (UserError, KeyError):
        return None
    return RandomForm(machine, collective, program, runtime, choice, size)
