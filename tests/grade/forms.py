"""Quality of the form that ``weft compile`` races to, on schedules that it was not tuned on.

    python tests/grade/forms.py [--seed 7] [--cases 24] [--forms 400] [--verbose]

Each case is a random machine, collective, size and runtime; its schedule is searched, compiled in
the raced form, and in many random forms, of which the best counts; so does the form that tuning's
exploration of the same schedule finds. Printed: the plain form and the raced one over the best, and
CPU seconds of the race.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from weft.backends.compile.choice import FormTimer, chosen_form, open_space
from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.descent import FormSpace
from weft.backends.compile.source import CompileSource, source_of
from weft.backends.compile.timing import ProgramTimer, clock_for
from weft.backends.compile.variants import Variant
from weft.backends.formats.format import format_named
from weft.backends.tune.work import explore
from weft.dsl.base.errors import WeftError
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import dump
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget

MACHINES = {
    "dgx1": "msccl",
    "dgx-a100": "executor",
    "dgx-a100:nodes=2": "msccl",
    "dgx-h100": "executor",
    "dgx-h100:nodes=2": "executor",
    "dgx-h100:nodes=4": "executor",
    "ndv2:nodes=2": "msccl",
    "mi300x": "rccl",
    "mi250": "rccl",
    "torus:4x4": "msccl",
    "ring:8": "executor",
    "dgx2": "executor",
}
KINDS = ("allreduce", "allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast")
PROTOCOLS = {"rccl": ("Simple", "LL")}


@dataclass(frozen=True, slots=True)
class Case:
    """A question of which the answer is compiled."""

    machine: str
    runtime: str
    kind: str
    size: int
    effort: float

    @property
    def words(self) -> str:
        """Return it in words."""
        return f"{self.machine} {self.kind} {format_bytes(self.size)} {self.runtime}"


@dataclass(frozen=True, slots=True)
class Found:
    """µs of a case: the plain form, the raced one, tuning's, the best; CPU seconds of the race."""

    plain: float
    raced: float
    tuned: float
    best: float
    form: str
    best_form: str
    timed: int
    seconds: float


def cases(seed: int, number: int) -> Iterator[Case]:
    """Yield random cases, none of them twice."""
    rng, seen = Random(seed), set()
    while len(seen) < number:
        machine = rng.choice(sorted(MACHINES))
        one = Case(
            machine,
            MACHINES[machine],
            rng.choice(KINDS),
            1 << rng.randrange(13, 29),
            rng.choice((1.0, 2.0, 3.0)),
        )
        if one not in seen:
            seen.add(one)
            yield one


def random_forms(space: FormSpace, number: int, rng: Random) -> list[Variant]:
    """Return different forms of a space; all of them where it has no more."""
    found: dict[Variant, None] = {}
    for _ in range(20 * number):
        if len(found) == number:
            break
        form = Variant(
            instances=rng.choice(space.instances),
            protocol=rng.choice(space.protocol),
            pairing=rng.choice(space.pairing),
            segments=rng.choice(space.segments),
            order=rng.choice(space.order),
            parts=rng.choice(space.parts),
            lanes=rng.choice(space.lanes),
        )
        found[form] = None
    return list(found)


def looked(one: Case, forms: int, seed: int) -> Found | None:
    """Return the times of a case; None where no schedule is found or none can be timed."""
    machine = topology(one.machine)
    problem = Problem(machine, make(one.kind, machine.ranks), None, Objective.TIME, one.size)
    points = synthesize(problem, "portfolio", Budget(one.effort, 1, seed, None)).points
    if not points:
        return None
    o = CompileOptions(target=one.runtime)
    backend = format_named("msccl-xml")
    source = source_of(points[0].schedule, "msccl-xml", o)
    clock = clock_for(source, backend, one.runtime, SizeRange(one.size, one.size))
    if isinstance(clock, str):
        return None
    begun = time.process_time()
    choice = chosen_form(source, backend, clock, o, None)
    seconds = time.process_time() - begun
    if choice is None:
        return None
    timer = FormTimer(source, backend, clock, o)
    space = open_space(source, backend, o, clock.model)
    assert space is not None
    raced = choice.us[choice.form]
    best, best_form = raced, choice.form
    for form in random_forms(space, forms, Random(seed)):
        us = timer.us(form, one.size, best)
        if us is not None and us < best:
            best, best_form = us, form
    tuned = explored(source, clock, one)
    plain = timer.us(Variant(), one.size) or math.inf
    return Found(
        plain,
        raced,
        tuned,
        min(best, tuned),
        choice.form.words,
        best_form.words if best <= tuned else "tuning's",
        choice.timed,
        seconds,
    )


def explored(source: CompileSource, clock: ProgramTimer, one: Case) -> float:
    """Return the µs that tuning's exploration of the schedule finds."""
    given = {
        "schedule": dump(source.noun),
        "runtime": one.runtime,
        "model": "calibrated",
        "protocols": PROTOCOLS.get(one.runtime, ("Simple", "LL", "LL128")),
        "sizes": [one.size],
        "best": [None],
        "floor": [0.0],
        "known": [],
        "forms": [[]],
        "wide": [True],
        "deep": True,
    }
    return min((us for row in explore(given) if (us := row["us"][0]) is not None), default=math.inf)


def main() -> int:
    """Print one line for each case, then mean and worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--forms", type=int, default=400)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    rows: list[Found] = []
    for one in cases(args.seed, args.cases):
        try:
            found = looked(one, args.forms, args.seed)
        except WeftError as error:
            print(f"{one.words}: {error.message}")
            continue
        if found is None:
            print(f"{one.words}: not timed")
            continue
        rows.append(found)
        told = f"{one.words:44} plain {found.plain / found.best:7.3f}  raced "
        told += f"{found.raced / found.best:6.3f}  tune {found.tuned / found.best:6.3f}  "
        print(f"{told}{found.best:10.2f} µs  {found.timed:2} forms  {found.seconds:5.2f} s")
        if args.verbose or found.raced > 1.02 * found.best:
            print(f"    {found.form}; best: {found.best_form}")
        sys.stdout.flush()
    for name in ("plain", "raced", "tuned"):
        ratios = [getattr(row, name) / row.best for row in rows]
        print(f"{name:6} mean {sum(ratios) / len(ratios):.4f}  worst {max(ratios):.4f}")
    took = [row.seconds for row in rows]
    print(f"CPU s  mean {sum(took) / len(took):.2f}  most {max(took):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
