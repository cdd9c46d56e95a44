"""Lines that make a time impossible: cores of random sketches, each strict subset checked, and the
same verdicts from z3, which is given the meaning of each line by this script.

``python tests/grade/within_sweep.py [QUESTIONS] [SEED]``
"""

import random
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations

import z3

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import Topology
from weft.synth.base.engine import Budget
from weft.synth.explain.within import Possibility, explain_within
from weft.synth.judge.verify import verify

MACHINES = ("dgx1", "ring:6", "torus:2x3", "hypercube:3")
CHUNKS = "chunks 1"
SIZES = (1 << 13, 1 << 16, 1 << 20)
Line = tuple[str, Callable[["Model"], Iterator[z3.BoolRef]]]


class Model:
    """One chunk per rank in z3: real times, exact rationals, an order for each pair on a link."""

    def __init__(self, machine: Topology, size: int) -> None:
        self.n, self.links = machine.ranks, machine.links
        grain = Fraction(size, self.n)
        self.hold = [_real(grain / x.bandwidth / 1000) for x in self.links]
        self.alpha = [_real(x.latency) for x in self.links]
        pairs = [(c, i) for c in range(self.n) for i in range(len(self.links))]
        self.take = {k: z3.Bool(f"x{k}") for k in pairs}
        self.start = {k: z3.Real(f"s{k}") for k in pairs}
        self.come = [[z3.Real(f"a{c},{v}") for v in range(self.n)] for c in range(self.n)]
        self.depth = [[z3.Int(f"d{c},{v}") for v in range(self.n)] for c in range(self.n)]

    def base(self) -> Iterator[z3.BoolRef]:
        for c in range(self.n):
            yield self.depth[c][c] == 0
            yield self.come[c][c] == 0
            for v in range(self.n):
                ins = [self.take[c, i] for i, x in enumerate(self.links) if x.dst == v]
                yield z3.PbEq([(x, 1) for x in ins], int(v != c))
            for i, x in enumerate(self.links):
                s, end = self.start[c, i], self.come[c][x.dst]
                there = z3.And(
                    s >= self.come[c][x.src],
                    end == s + self.hold[i] + self.alpha[i],
                    self.depth[c][x.dst] == self.depth[c][x.src] + 1,
                )
                yield z3.Implies(self.take[c, i], there)
        for i in range(len(self.links)):
            for a, b in combinations(range(self.n), 2):
                apart = z3.Or(
                    self.start[a, i] >= self.start[b, i] + self.hold[i],
                    self.start[b, i] >= self.start[a, i] + self.hold[i],
                )
                yield z3.Or(z3.Not(self.take[a, i]), z3.Not(self.take[b, i]), apart)

    def over(self, u: int, v: int) -> list[int]:
        return [i for i, x in enumerate(self.links) if (x.src, x.dst) == (u, v)]

    def by(self, us: Fraction) -> Iterator[z3.BoolRef]:
        for row in self.come:
            yield from (end <= _real(us) for end in row)


def _real(x: Fraction) -> z3.RatNumRef:
    return z3.Q(x.numerator, x.denominator)


def random_line(machine: Topology, rng: random.Random) -> Line:
    """Return a line of a sketch, and its meaning in z3."""
    link = rng.choice(machine.links)
    u, v, r = link.src, link.dst, rng.randrange(machine.ranks)
    n = machine.ranks

    def none(m: Model, chunks: range) -> Iterator[z3.BoolRef]:
        return (z3.Not(m.take[c, i]) for c in chunks for i in m.over(u, v))

    most = rng.randint(2, 4)
    return rng.choice(
        [
            (f"forbid links {u} -> {v}", lambda m: none(m, range(n))),
            (
                f"never send any chunk of rank {r} over {u} -> {v}",
                lambda m: none(m, range(r, r + 1)),
            ),
            (
                f"send any chunk of rank {u} over {u} -> {v}",
                lambda m: iter([z3.Or([m.take[u, i] for i in m.over(u, v)])]),
            ),
            (f"max hops {most}", lambda m: (d <= most for row in m.depth for d in row)),
        ]
    )


class Question:
    """A machine, a size, a time, and lines."""

    def __init__(self, rng: random.Random) -> None:
        self.machine = topology(rng.choice(MACHINES))
        self.size = rng.choice(SIZES)
        count = rng.randint(3, 5)
        self.lines = dict(random_line(self.machine, rng) for _ in range(count))
        free = self.ask((CHUNKS,), Fraction(10**6)).answer.us
        assert free is not None
        self.within = Fraction(round(free * rng.uniform(0.99, 1.35) * 10**4), 10**4)

    def ask(self, lines: tuple[str, ...], within: Fraction):
        text = "\n".join(["sketch s", *lines, ""])
        sketch = elaborate(parse(text, "s"), self.machine)
        collective = make("allgather", self.machine.ranks)
        found = explain_within(self.machine, collective, sketch, self.size, within, Budget(10))
        if found.answer.schedule is not None:
            assert verify(found.answer.schedule, sketch).ok, text
        return found

    def z3(self, lines: tuple[str, ...]) -> Possibility | None:
        """Return the verdict of z3; None where it has none, or may cut chunks."""
        if CHUNKS not in lines:
            return None
        model, solver = Model(self.machine, self.size), z3.Solver()
        solver.set("timeout", 60_000)
        solver.add(*model.base(), *model.by(self.within))
        for line in lines:
            solver.add(*(self.lines[line](model) if line != CHUNKS else ()))
        told = {"sat": Possibility.POSSIBLE, "unsat": Possibility.IMPOSSIBLE}
        return told.get(str(solver.check()))


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    cores = possible = subsets = agreed = wrong = open_ = 0
    while cores < count:
        one = Question(rng)
        lines = (CHUNKS, *one.lines)
        found = one.ask(lines, one.within)
        verdicts = {lines: found.answer.verdict}
        core = tuple(x.unit[0].span.text for x in found.core if x.unit[0].span)
        if found.answer.verdict is Possibility.IMPOSSIBLE and found.minimal:
            cores += 1
            verdicts[core] = one.ask(core, one.within).answer.verdict
            wrong += verdicts[core] is not Possibility.IMPOSSIBLE
            for some in (x for size in range(len(core)) for x in combinations(core, size)):
                subsets += 1
                verdicts[some] = one.ask(some, one.within).answer.verdict
                wrong += verdicts[some] is not Possibility.POSSIBLE
        else:
            possible += found.answer.verdict is Possibility.POSSIBLE
            open_ += found.answer.verdict is not Possibility.POSSIBLE
        for some, verdict in verdicts.items():
            other = one.z3(some)
            agreed += other is verdict
            if other not in (None, verdict):
                wrong += 1
                print("DIFFER", one.machine.name, one.size, one.within, some, verdict, other)
        print(one.machine.name, one.size, float(one.within), found.answer.verdict, core, flush=True)
    print(
        f"{cores} cores, {subsets} strict subsets, {possible} possible, {open_} undecided, "
        f"{agreed} verdicts as z3's, {wrong} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
