"""Lines that make a time impossible: known cores, their minimality, and the model of times."""

from fractions import Fraction
from itertools import combinations

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Sketch
from weft.synth.base.engine import Budget
from weft.synth.base.meter import STEPS, Meter
from weft.synth.explain.timed import TimedPlans
from weft.synth.explain.within import Possibility, Within, explain_within
from weft.synth.judge.verify import verify
from weft.synth.solvers.cp_sat import CpVerdict
from weft.synth.time.schedule_time import simulate

QUADS = "forbid links 0..3 <-> 4..7 except 0 <-> 4, 2 <-> 6"
NEVER = "never send any chunk of rank 2 over 2 -> 6"
KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30


def ruled(machine: str, collective: str, *lines: str) -> tuple:
    there = topology(machine)
    text = "\n".join(["sketch s", *lines, ""])
    return there, make(collective, there.ranks), elaborate(parse(text, "s"), there)


def asked(
    lines: tuple[str, ...], size: int, within: str, effort: float = 10, machine: str = "dgx1"
) -> Within:
    problem = ruled(machine, "allgather", *lines)
    return explain_within(*problem, size, Fraction(within), Budget(effort))


NEAR = "forbid links 1 -> 0"
CORES = {
    "quads": ("dgx1", (QUADS, "max hops 3", "chunks 1"), 64 * KiB, "2", {QUADS}),
    "never": ("dgx1", (QUADS, "max hops 3", NEVER, "chunks 1"), 64 * KiB, "2", {NEVER}),
    "chunks": ("dgx1", ("max hops 3", NEVER, "chunks 1"), MiB, "9.9", {"chunks 1"}),
    "two": ("torus:2x3", ("chunks 1", "max hops 4", NEAR), MiB, "19.2", {"chunks 1", NEAR}),
    "machine": ("dgx1", ("max hops 3", "chunks 1"), MiB, "6.5", set()),
}


@pytest.mark.parametrize("name", CORES)
def test_known_cores_are_minimal(name: str) -> None:
    machine, lines, size, within, core = CORES[name]
    found = asked(lines, size, within, machine=machine)
    assert found.answer.verdict is Possibility.IMPOSSIBLE
    assert found.answer.why
    assert found.minimal
    texts = {one.unit[0].span.text for one in found.core if one.unit[0].span}
    assert texts == core
    for some in (x for count in range(len(core)) for x in combinations(sorted(core), count)):
        smaller = asked((*some, "max hops 7"), size, within, 1, machine)
        assert smaller.answer.verdict is Possibility.POSSIBLE, some


def test_a_time_that_a_required_send_allows() -> None:
    lines = ("max hops 3", "send any chunk of rank 1 over 1 -> 5", "chunks 1")
    found = asked(lines, MiB, "9.97")
    assert found.answer.verdict is Possibility.POSSIBLE
    assert not found.core
    assert found.answer.us == pytest.approx(9.96432)
    assert found.answer.least


def test_without_effort_it_is_undecided() -> None:
    found = asked(("chunks 1",), MiB, "9.9", 0.0001)
    assert found.answer.verdict is Possibility.UNDECIDED
    assert found.answer.why


OPTIMA = [
    ("dgx1", "allgather", (), 1, 64 * KiB, 1.89152),
    ("dgx1", "allgather", (), 1, MiB, 9.96432),
    ("dgx1", "allgather", (), 1, GiB, 8055.16368),
    ("dgx1", "allgather", (), 2, MiB, 7.2536),
    ("dgx1", "allgather", (QUADS,), 1, MiB, 12.58576),
    ("hub:4", "allgather", ("switch hub: at most 1 peers",), 1, MiB, None),
    ("ring:6", "allgather", ("symmetry: rotate 1",), 1, MiB, None),
    ("ring:6", "allgather", ("own data first",), 1, MiB, None),
]


@pytest.mark.parametrize(("machine", "collective", "lines", "pieces", "size", "us"), OPTIMA)
def test_least_times_in_whole_chunks(
    machine: str, collective: str, lines: tuple[str, ...], pieces: int, size: int, us: float | None
) -> None:
    there, moved, sketch = ruled(machine, collective, *lines)
    problem = Problem(there, moved, sketch, Objective.TIME, size)
    within = Fraction(2 * (us or 200))
    found = TimedPlans(problem, pieces, within).solve(Meter(8 * STEPS), 0, best=True)
    assert found.verdict is CpVerdict.OPTIMAL
    assert found.schedule is not None
    assert us is None or found.us == pytest.approx(us, rel=5e-4)
    assert verify(found.schedule, Sketch("", sketch.rules)).ok
    assert simulate(found.schedule, size).time_us >= found.us * (1 - 1e-9)
    sooner = TimedPlans(problem, pieces, Fraction(found.us) * Fraction(9999, 10000))
    assert sooner.solve(Meter(8 * STEPS), 0).verdict is CpVerdict.INFEASIBLE
