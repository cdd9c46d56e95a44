"""The engine ``intervals``: proved least times, against a search of all plans and known optima."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

import weft
from weft.dsl.base.errors import Missing, UserError
from weft.dsl.base.registry import ENGINES
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Outcome, Silent, Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.fabric.hop_table import HopTable, hop_table_of
from weft.synth.judge.verify import verify
from weft.synth.reductions.reverse import keeps_times, reverse
from weft.synth.time.schedule_time import simulate

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
QUADS = "forbid links 0..3 <-> 4..7 except 0 <-> 4, 2 <-> 6\n"


def asked(machine: Topology, kind: str, size: int, rules: str = "") -> Problem:
    sketch = elaborate(parse(f"sketch test\n{rules}", "test"), machine) if rules else None
    roots = (0,) if kind in ("broadcast", "reduce") else ()
    return Problem(machine, make(kind, machine.ranks, roots=roots), sketch, Objective.TIME, size)


def taken(outcome: Outcome, problem: Problem) -> float:
    """µs of the answer, which the independent checker has accepted."""
    schedule = outcome.points[0].schedule
    assert verify(schedule, problem.sketch).ok
    return simulate(schedule, problem.bytes or 1).time_us


@pytest.mark.parametrize(
    ("machine", "rules", "size", "us"),
    [
        ("ndv2", "chunks 1\n", MiB, 9.96432),
        ("ndv2", "chunks 1\n", GiB, 8_055.16),
        ("ndv2", "chunks 2\n", 64 * KiB, 1.8096),
        ("ndv2", "chunks 2\n", MiB, 7.2536),
        ("ndv2", "chunks 3\n", 16 * KiB, 1.468267),
        ("dgx1:dead=0-4", "chunks 1\n", MiB, 14.5072),
        ("dgx1:dead=0-4", "chunks 2\nmax hops 3\n", MiB, 11.18576),
        ("dgx1", f"chunks 1\n{QUADS}", MiB, 12.58576),
    ],
)
def test_known_optima_are_proved(machine: str, rules: str, size: int, us: float) -> None:
    problem = asked(topology(machine), "allgather", size, rules)
    outcome = synthesize(problem, "intervals{patience=0}", Budget(5))
    assert taken(outcome, problem) == pytest.approx(us, rel=5e-4)
    assert outcome.status is Status.OPTIMAL
    assert outcome.points[0].least_us == pytest.approx(us, rel=5e-4)


def test_a_sum_turned_round_takes_as_long_in_another_plan() -> None:
    """The clock runs the first plan found, turned round, in 11.89 µs."""
    problem = asked(topology("ndv2"), "reduce_scatter", MiB, "chunks 1\n")
    outcome = synthesize(problem, "intervals{patience=0}", Budget(5))
    assert taken(outcome, problem) == pytest.approx(9.96432, rel=5e-4)
    assert outcome.status is Status.OPTIMAL


def test_an_allreduce_has_the_best_halves() -> None:
    problem = asked(topology("ndv2"), "allreduce", MiB, "chunks 8\n")
    assert taken(synthesize(problem, "intervals", Budget(5)), problem) < 1.0005 * 2 * 9.96432


def test_the_race_takes_the_proof_under_a_sketch() -> None:
    problem = asked(topology("ndv2"), "allgather", MiB, "chunks 1\n")
    outcome = synthesize(problem, "portfolio", Budget(5))
    assert outcome.status is Status.OPTIMAL
    assert taken(outcome, problem) == pytest.approx(9.96432, rel=5e-4)
    assert outcome.points[0].schedule.provenance["found_by"] == "intervals"


# --- against all plans ----------------------------------------------------------------------------


def least(machine: HopTable, holders: list[set[int]], wanted: list[set[int]]) -> Fraction:
    """The least µs of whole chunks: every order of transfers, each as early as it can start."""
    best = [1 << 62]

    def grow(ready: list[dict[int, int]], free: dict[int, int], last: int, end: int) -> None:
        missing = [w - r.keys() for w, r in zip(wanted, ready, strict=True)]
        if not any(missing):
            best[0] = min(best[0], end)
            return
        for h in range(machine.hops):
            u, v = int(machine.src[h]), int(machine.dst[h])
            held = range(int(machine.first[h]), int(machine.first[h + 1]))
            for j, here in enumerate(ready):
                if u not in here or v in here or not missing[j]:
                    continue
                start = max([here[u], *(free.get(int(machine.resource[i]), 0) for i in held)])
                done = start + int(machine.arrives[h])
                if start < last or done >= best[0]:
                    continue
                then = free | {int(machine.resource[i]): start + int(machine.hold[i]) for i in held}
                came = [*ready[:j], here | {v: done}, *ready[j + 1 :]]
                grow(came, then, start, max(end, done) if v in wanted[j] else end)

    grow([dict.fromkeys(h, 0) for h in holders], {}, 0, 0)
    return Fraction(best[0], machine.unit)


@settings(max_examples=examples(15, 100), deadline=None)
@given(
    topologies(max_ranks=3),
    st.sampled_from(["allgather", "broadcast", "reduce_scatter", "reduce"]),
    st.integers(1, 10**7),
)
def test_a_bound_is_the_least_of_all_plans(machine: Topology, kind: str, size: int) -> None:
    problem = asked(machine, kind, size)
    copied = reverse(problem)[0] if problem.collective.combining else problem
    grain = Fraction(size, copied.collective.message_chunks)
    places = copied.collective.pre, copied.collective.post
    holders, wanted = (
        [set(p.ranks[p.chunks == c].tolist()) for c in range(copied.collective.chunks)]
        for p in places
    )
    best = float(least(hop_table_of(copied.topology, grain), holders, wanted))
    outcome = synthesize(problem, "intervals{chunks=1}", Budget(3))
    point, us = outcome.points[0], taken(outcome, problem)
    mirrored = problem.collective.combining and not keeps_times(point.schedule, size)
    assert point.least_us is not None
    if not mirrored:
        assert us >= best * (1 - 1e-9)
        assert point.least_us == pytest.approx(best, rel=1e-5)
    if outcome.status is Status.OPTIMAL and not mirrored:
        assert us == pytest.approx(best, rel=1e-9)
    assert us >= float(lower_bound_us(bounds(machine, problem.collective), size)) * (1 - 1e-9)
    other = synthesize(problem, "sketched{chunks=1}", Budget(3))
    assert us <= taken(other, problem) * (1 + 1e-9)


# --- what goes wrong ------------------------------------------------------------------------------


def failing(error: Exception) -> Callable[..., Any]:
    def solve(*_: Any, **__: Any) -> Any:
        raise error

    return solve


def test_without_the_solver_the_answer_is_kept_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = failing(Missing("OR-Tools is not installed"))
    monkeypatch.setattr("weft.synth.engines.intervals.cut.solve", missing)
    problem = asked(topology("ndv2"), "allgather", MiB, "chunks 1\n")
    outcome = synthesize(problem, "intervals{patience=0}", Budget(5))
    assert taken(outcome, problem) < 12
    assert "CP-SAT was not asked: OR-Tools is not installed" in outcome.statements[0]
    assert outcome.status is Status.FEASIBLE


def test_a_model_that_is_too_large_is_told_before_it_is_built() -> None:
    problem = asked(topology("ndv2"), "allgather", MiB, "chunks 6\n")
    outcome = synthesize(problem, "intervals{patience=0}", Budget(5))
    assert "1,344 intervals are more than 1,000, so CP-SAT was not asked" in outcome.statements[0]
    assert taken(outcome, problem) < 8


def test_rules_that_exclude_each_other_are_an_error() -> None:
    problem = asked(topology("ring:4"), "allgather", KiB, "chunks 1\nmax hops 1\n")
    with pytest.raises(UserError, match="no way was found"):
        synthesize(problem, "intervals", Budget(1))


def test_options_and_problems_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="0 or more"):
        ENGINES.make("intervals{chunks=-1}")
    assert "halves" in str(
        ENGINES.make("intervals").refuses(asked(topology("ring:4"), "allreduce", KiB))
    )
    bandwidth = replace(asked(topology("ring:4"), "allgather", KiB), objective=Objective.BANDWIDTH)
    assert "one message size" in str(ENGINES.make("intervals").refuses(bandwidth))
    assert "32 ranks" in str(
        ENGINES.make("intervals").refuses(asked(topology("ring:40"), "allgather", KiB))
    )


def test_peers_that_were_chosen_prove_nothing_about_others() -> None:
    rules = "chunks 1\nswitch nvswitch0: at most 2 peers\n"
    problem = asked(topology("dgx-a100"), "allgather", MiB, rules)
    outcome = ENGINES.make("intervals{patience=0}").solve(problem, Budget(5), Silent())
    least = lower_bound_us(bounds(problem.topology, problem.collective), MiB)
    assert outcome.points[0].least_us == pytest.approx(float(least))


# --- the frontier in time -------------------------------------------------------------------------


def test_the_frontier_in_time_is_proved_by_pieces() -> None:
    """The least of each size over 1, 2 and 3 pieces; a sketch fixes them."""
    found = weft.time_frontier(Problem(topology("ndv2"), make("allgather", 8)), (KiB, 256 * KiB))
    assert [(one.best.pieces, one.proved) for one in found] == [(3, True), (3, True)]
    assert [one.best.us for one in found] == pytest.approx([1.404267, 2.75536], rel=5e-4)
    assert all(one.bound_us <= one.least_us <= one.best.us for one in found)
    ruled = asked(topology("ring:4"), "allreduce", KiB, "chunks 8\n")
    (one,) = weft.time_frontier(ruled, (KiB,))
    assert [cut.pieces for cut in one.cuts] == [8]
    with pytest.raises(UserError, match="message sizes"):
        weft.time_frontier(ruled, ())
