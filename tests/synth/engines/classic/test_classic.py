"""The engine classic: verified, never below the bound, optimal where theory says so."""

from dataclasses import replace
from fractions import Fraction

import pytest

from weft.dsl.base.errors import BadAlgorithm, CheckFailed, UnknownName, UserError, WeftError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make, one_shot_allreduce
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import dumps
from weft.synth.api import synthesize
from weft.synth.base.engine import Outcome, Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.classic.engine import grid_of_phases
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate


def solved(
    machine: str, kind: str, objective: Objective, engine: str = "classic", size: int | None = None
) -> Outcome:
    where = topology(machine)
    problem = Problem(where, make(kind, where.ranks), objective=objective, bytes=size)
    return synthesize(problem, engine)


MACHINES = ("ring:5", "hub:6", "torus:3x3", "dgx1", "hypercube:3")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "kind", ["allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "alltoall"]
)
def test_schedules_are_right_and_above_the_bound(machine: str, kind: str) -> None:
    where = topology(machine)
    outcome = solved(machine, kind, Objective.FRONTIER)
    bound = bounds(where, make(kind, where.ranks))
    assert outcome.points
    for point in outcome.points:
        assert verify(point.schedule).ok
        assert point.steps >= bound.steps
        assert point.rounds_per_chunk >= bound.rounds_per_chunk
        for size in (1 << 10, 1 << 20):
            time = simulate(point.schedule, size).time_us
            assert time >= float(lower_bound_us(bound, size)) * (1 - 1e-9)
    steps = [p.steps for p in outcome.points]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("machine", "kind", "engine", "rounds"),
    [
        ("ring:8", "allreduce", "classic{algorithm=biring}", "7/8"),  # 2 (n-1)/n over two ways
        ("ring:8", "allgather", "classic", "7/2"),
        ("hub:8", "allreduce", "classic{algorithm=ring}", "7/4"),  # one port: 2 (n-1)/n
        ("hub:8", "alltoall", "classic", "7"),
        ("torus:4x4", "allreduce", "classic", "15/32"),  # four cables
        ("torus:3x3x3", "allgather", "classic", "13/3"),
        ("hypercube:3", "allreduce", "classic", "7/12"),
    ],
)
def test_it_is_optimal_where_theory_says_so(
    machine: str, kind: str, engine: str, rounds: str
) -> None:
    outcome = solved(machine, kind, Objective.BANDWIDTH, engine)
    assert outcome.status is Status.OPTIMAL
    (point,) = outcome.points
    assert point.rounds_per_chunk == point.bound == Fraction(rounds)
    assert point.bandwidth_optimal


@pytest.mark.parametrize("kind", ["allgather", "broadcast", "reduce", "alltoall"])
def test_a_line_is_served_over_relays(kind: str) -> None:
    assert all(verify(p.schedule).ok for p in solved("line:4", kind, Objective.FRONTIER).points)
    with pytest.raises(UserError, match="no classic algorithm fits allreduce on line:4"):
        solved("line:4", "allreduce", Objective.FRONTIER)


def test_a_ring_one_way_uses_half_of_the_cables() -> None:
    outcome = solved("ring:8", "allreduce", Objective.BANDWIDTH, "classic{algorithm=ring}")
    assert outcome.status is Status.FEASIBLE
    assert outcome.points[0].rounds_per_chunk == 2 * outcome.points[0].bound


@pytest.mark.parametrize("kind", ["allgather", "alltoall"])
def test_the_least_latency_is_proved(kind: str) -> None:
    outcome = solved("hub:8", kind, Objective.LATENCY)
    assert outcome.status is Status.OPTIMAL
    assert outcome.points[0].steps == 1


def test_time_is_the_best_of_all_at_that_size() -> None:
    small, large = (
        solved("hub:8", "allreduce", Objective.TIME, size=size).points[0].schedule
        for size in (256, 1 << 26)
    )
    names = [s.provenance["algorithm"] for s in (small, large)]
    assert names[0] == "one_shot"
    assert names[1] != "one_shot"
    for size, own, other in ((256, small, large), (1 << 26, large, small)):
        assert simulate(own, size).time_us <= simulate(other, size).time_us


def test_boxes_get_a_hierarchical_answer() -> None:
    outcome = solved("dgx-a100:nodes=2", "allreduce", Objective.BANDWIDTH)
    assert outcome.points[0].schedule.provenance["algorithm"] == "two_level"


def test_the_same_question_has_the_same_answer() -> None:
    first, second = (solved("dgx1", "allreduce", Objective.FRONTIER) for _ in range(2))
    assert [dumps(p.schedule) for p in first.points] == [dumps(p.schedule) for p in second.points]


def test_a_group_with_a_root() -> None:
    where = topology("dgx1").restricted_to([6, 2, 4, 1])
    outcome = synthesize(Problem(where, make("broadcast", 4, roots=[3])), "classic")
    assert all(verify(p.schedule).ok for p in outcome.points)


def test_what_it_does_not_do_is_said() -> None:
    with pytest.raises(UnknownName, match="'rign'"):
        solved("ring:4", "allreduce", Objective.FRONTIER, "classic{algorithm=rign}")
    with pytest.raises(UserError, match="bruck is not an algorithm for allreduce"):
        solved("hub:4", "allreduce", Objective.FRONTIER, "classic{algorithm=bruck}")
    with pytest.raises(UserError, match="needs an even number of ranks"):
        solved("hub:5", "allreduce", Objective.FRONTIER, "classic{algorithm=swing}")
    with pytest.raises(UserError, match="classic lacks an algorithm for alltonext"):
        solved("hub:5", "alltonext", Objective.FRONTIER)
    with pytest.raises(UserError, match="expected a torus, got ring:5"):
        solved("ring:5", "allreduce", Objective.FRONTIER, "classic{algorithm=torus}")
    with pytest.raises(UserError, match="chunks is -1"):
        solved("ring:5", "allreduce", Objective.FRONTIER, "classic{chunks=-1}")
    where = topology("hub:3")
    with pytest.raises(UserError, match="classic lacks an algorithm for allreduce"):
        synthesize(Problem(where, one_shot_allreduce(3)), "classic")


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("classic{shape=3+2}", "levels of 3x2 do not hold 4 ranks"),
        ("classic{algorithm=ring,shape=3+2}", "levels of 3x2 do not hold 4 ranks"),
        ("classic{algorithm=ring,shape=2+2}", "ring is not hierarchical"),
    ],
)
def test_a_shape_that_says_nothing_is_refused(engine: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        solved("hub:4", "allreduce", Objective.LATENCY, engine)


def test_a_shape_that_fits_is_used() -> None:
    for engine in ("classic{shape=2+2}", "classic{algorithm=blueconnect,shape=2+2}"):
        assert all(
            verify(p.schedule).ok
            for p in solved("hub:4", "allreduce", Objective.LATENCY, engine).points
        )


@pytest.mark.parametrize("mistake", [BadAlgorithm("chunk 3 is lost"), CheckFailed("it is wrong")])
def test_a_wrong_algorithm_of_ours_is_not_said_not_to_fit(
    mistake: WeftError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise mistake

    monkeypatch.setattr("weft.synth.engines.classic.place.Site.algorithm", wrong)
    with pytest.raises(type(mistake), match=mistake.message):
        solved("hub:4", "allreduce", Objective.LATENCY)


def test_phases_of_one_slice_overlap_with_those_of_the_next() -> None:
    size = 1 << 30
    outcome = solved(
        "dgx-a100:nodes=2", "allreduce", Objective.TIME, "classic{algorithm=two_level}", size
    )
    point = outcome.points[0]
    assert point.schedule.segments > 1
    assert verify(point.schedule).ok
    where = point.schedule.topology
    least = float(lower_bound_us(bounds(where, make("allreduce", where.ranks)), size))
    took = simulate(point.schedule, size).time_us
    assert least <= took < 1.02 * least
    assert simulate(replace(point.schedule, segments=1), size).time_us > 1.5 * least


def test_levels_are_those_of_the_sketch_where_the_machine_has_others() -> None:
    where = topology("dragonfly:p=2,a=2,h=1")
    text = """sketch groups
phases:
    reduce_scatter in blocks of 4
    allreduce across blocks of 4
    allgather in blocks of 4
"""
    sketch = elaborate(parse(text), where)
    problem = Problem(where, make("allreduce", where.ranks), sketch, Objective.TIME, 1 << 20)
    schedule = synthesize(problem, "classic").points[0].schedule
    assert verify(schedule, sketch).ok
    uneven = replace(problem, sketch=None)
    assert grid_of_phases(uneven) is None
    grid = grid_of_phases(problem)
    assert grid is not None
    assert grid.shape == (4, 3)
    assert set(grid.lines(0)) == {(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)}
