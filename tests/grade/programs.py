"""What the sweeps of back ends go through: classic algorithms, grade schedules, random ones.

Every case has a name, and is made only when its turn comes: see :mod:`kept`. Schedules of the grade
take longest to find: in a folder ``found`` they are kept for the next run, or the other sweep.
"""

import random
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cases import CASES
from kept import Case
from random_moves import random_algorithm
from run import _machine, _sketch

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.schedule import read as read_schedule
from weft.dsl.nouns.schedule import write as write_schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.engines.classic.flat import FLAT, classic_algorithm
from weft.synth.engines.classic.place import all_algorithms
from weft.synth.engines.classic.text import named_algorithm

MACHINES = {"torus:4x4": 16, "dgx1": 8, "dgx-a100:nodes=2": 16, "dgx-a100:nodes=4": 32}
"""Machines of the algorithms that depend on one, and their ranks."""

KINDS = ("classic", "machines", "grade", "random")


def cases(
    kinds: list[str], most: int, effort: float, count: int, found: Path | None = None
) -> Iterator[Case]:
    """All cases of some kinds, of ``most`` ranks at most; ``count`` random ones."""
    made = {
        "classic": lambda: classics(most),
        "machines": lambda: on_machines(most),
        "grade": lambda: grades(most, effort, found),
        "random": lambda: randoms(count),
    }
    return chain.from_iterable(made[kind]() for kind in kinds)


def classics(most: int) -> Iterator[Case]:
    """Every classic algorithm on 3 or more ranks: the fewest, about 8, and the most allowed."""
    for one in FLAT:
        defined = [n for n in range(3, most + 1) if not one.defined(n)]
        if not defined:
            continue
        for n in sorted({defined[0], min(defined, key=lambda n: abs(n - 8)), defined[-1]}):
            yield f"{one.name} {one.kind} {n}", partial(classic_algorithm, one.name, one.kind, n)


def on_machines(most: int) -> Iterator[Case]:
    """The classic algorithms that depend on a machine, on several."""
    known = {(one.name, one.kind) for one in all_algorithms()}
    for name, kind in sorted(known - {(one.name, one.kind) for one in FLAT}):
        for machine, ranks in MACHINES.items():
            if ranks <= most:
                yield f"{name} {kind} {machine}", partial(_placed, name, kind, machine)


def _placed(name: str, kind: Any, machine: str) -> Any:
    """An algorithm on a machine; None: it is not for such machines."""
    try:
        return named_algorithm(f"classic:{name}{{collective={kind},on={machine}}}").algorithm
    except UserError:
        return None


def grades(most: int, effort: float, found: Path | None) -> Iterator[Case]:
    """A schedule for every size of the grade cases."""
    for case in CASES:
        machine = _machine(case.topology)
        if machine is None or machine.ranks > most:
            continue
        for size, _ in case.limits:
            rules = "".join(f" {one}" for one in (case.sketch, case.note) if one)
            name = f"{case.name} {case.topology} {case.collective}{rules} {size} B"
            make_it = partial(_found, case, machine, size, effort)
            path = found and found / f"{re.sub('[^A-Za-z0-9]+', '-', name)}-{effort}.json"
            yield name, partial(_read_or_made, path, make_it) if path else make_it


def _found(case: Any, machine: Any, size: int, effort: float) -> Schedule | None:
    """The first schedule found for a size of a case; None: there is none with that effort."""
    collective = make(case.collective, machine.ranks)
    engine = "portfolio" if case.engine == "exact" else case.engine
    problem = Problem(machine, collective, _sketch(case, machine), Objective.TIME, bytes=size)
    outcome = synthesize(problem, engine, Budget(effort))
    return outcome.points[0].schedule if outcome.points else None


def _read_or_made(path: Path, make_it: Callable[[], Schedule | None]) -> Schedule | None:
    """The schedule in a file; else the one that is made, and written to it."""
    if path.exists():
        return read_schedule(path)
    schedule = make_it()
    if schedule is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_schedule(path, schedule)
    return schedule


def randoms(count: int) -> Iterator[Case]:
    """Random algorithms of two to six ranks, in and out of place."""
    for seed in range(count):
        yield f"random {seed}", partial(_random, seed)


def _random(seed: int) -> Any:
    rng = random.Random(seed)
    return random_algorithm(
        seed,
        ranks=rng.randint(2, 6),
        chunks=rng.randint(1, 4),
        moves=rng.randint(4, 24),
        in_place=bool(seed % 2),
    )
