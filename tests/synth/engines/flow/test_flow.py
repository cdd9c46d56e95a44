"""The engine ``flow``: right on random machines, never below the bounds, as good as the others."""

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.base.errors import Refusal, UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Collective, custom, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Outcome, Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.flow.engine import FlowEngine
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate

ROOTED = ("broadcast", "scatter", "gather")


def collective_of(kind: str, ranks: int) -> Collective:
    return make(kind, ranks, roots=(0,) if kind in ROOTED else ())


def solved(
    machine: Topology,
    collective: Collective,
    size: int,
    engine: str = "flow",
    effort: float = 3,
    sketch: Sketch | None = None,
) -> Outcome:
    problem = Problem(machine, collective, sketch, Objective.TIME, size)
    return synthesize(problem, engine, Budget(effort))


def took(outcome: Outcome, size: int) -> float:
    return simulate(outcome.points[0].schedule, size).time_us


@settings(max_examples=examples(4, 20), deadline=None)
@given(
    topologies(max_ranks=5),
    st.sampled_from(["alltoall", "scatter", "gather"]),
    st.integers(1, 10**8),
)
def test_paths_on_random_machines(machine: Topology, kind: str, size: int) -> None:
    collective = collective_of(kind, machine.ranks)
    outcome = solved(machine, collective, size, effort=1)
    assert verify(outcome.points[0].schedule).ok
    least = lower_bound_us(bounds(machine, collective), size)
    assert took(outcome, size) >= float(least) * (1 - 1e-9)


@settings(max_examples=examples(6, 12), deadline=None)
@given(
    topologies(max_ranks=4),
    st.sampled_from(["allgather", "broadcast", "reduce_scatter"]),
    st.integers(1, 10**8),
    st.integers(1, 2),
)
def test_copies_on_random_machines(machine: Topology, kind: str, size: int, chunks: int) -> None:
    collective = collective_of(kind, machine.ranks)
    outcome = solved(machine, collective, size, f"flow{{chunks={chunks}}}", effort=0.5)
    assert verify(outcome.points[0].schedule).ok
    least = lower_bound_us(bounds(machine, collective), size)
    assert took(outcome, size) >= float(least) * (1 - 1e-9)


@pytest.mark.parametrize("size", [10**3, 3 * 10**4, 10**6, 10**8])
@pytest.mark.parametrize(
    ("machine", "kind"),
    [
        ("dgx1", "alltoall"),
        ("ring:6", "alltoall"),
        ("torus:3x3", "scatter"),
        ("dgx1", "gather"),
        ("ndv2:nodes=2", "alltoall"),
    ],
)
def test_paths_are_as_quick_as_packings_at_every_size(machine: str, kind: str, size: int) -> None:
    given = topology(machine)
    collective = collective_of(kind, given.ranks)
    mine, other = (solved(given, collective, size, name) for name in ("flow", "packing"))
    assert took(mine, size) <= took(other, size) * 1.01


def test_a_size_between_small_and_large_has_paths_of_its_own() -> None:
    """At 30 kB packings, whose paths suit every size, are no quicker."""
    machine, size = topology("mi250:nodes=2"), 30_000
    collective = make("alltoall", 16 * 2)
    mine, other = (solved(machine, collective, size, name, 30) for name in ("flow", "packing"))
    assert took(mine, size) <= took(other, size)
    assert mine.points[0].schedule.segments == 1


def test_the_portfolio_asks_for_paths_of_the_size() -> None:
    """A scatter of 100 kB over two boxes: at least a tenth less than any packing takes."""
    machine, size = topology("mi250:nodes=2"), 100_000
    scatter = make("scatter", machine.ranks, roots=(0,))
    best, packed = (solved(machine, scatter, size, name, 30) for name in ("portfolio", "packing"))
    assert best.points[0].schedule.provenance["found_by"].startswith("flow")
    assert took(best, size) < 0.9 * took(packed, size)


def test_the_linear_program_is_the_bound_and_is_met() -> None:
    outcome = solved(topology("dgx1"), make("alltoall", 8), 10**6)
    assert outcome.status is Status.OPTIMAL
    assert "paths: 14.033 µs, of which 14.033 µs are proved" in outcome.statements[0]


def test_demands_of_ones_own_flow() -> None:
    """Both chunks of rank 0 go to rank 2, along both sides of the ring."""
    demand = custom(
        "two", 4, [(0, c, (0,), c) for c in range(2)], [(2, c, (0,), c) for c in range(2)]
    )
    outcome = solved(topology("ring:4"), demand, 10**6)
    routes = {t.dst for t in outcome.points[0].schedule}
    assert routes == {1, 2, 3}


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_program_proves_unsplit_allgather_on_dgx1(solver: str) -> None:
    """Both solvers prove two rounds of a slow link and what α adds: 9.6 µs of whole chunks."""
    engine = f"flow{{solver={solver}, chunks=1}}"
    outcome = solved(topology("dgx1"), make("allgather", 8), 10**6, engine, effort=20)
    assert took(outcome, 10**6) == pytest.approx(9.6)
    assert f"rounded down, by {solver}" in outcome.statements[0]
    assert "0.001% above" in outcome.statements[0]


def test_relays_of_a_sketch_are_kept() -> None:
    machine = topology("ndv2:nodes=2")
    sketch = elaborate(parse("sketch s\nbetween nodes: relay any through 0 -> 1\n", "s"), machine)
    outcome = solved(machine, make("allgather", 16), 10**6, "flow{chunks=1}", 4, sketch)
    schedule = outcome.points[0].schedule
    crossing = {(t.src % 8, t.dst % 8) for t in schedule if t.src // 8 != t.dst // 8}
    assert crossing == {(0, 1)}


@pytest.mark.parametrize(
    ("machine", "kind", "words"),
    [
        ("torus:9x9", "allgather", "64 ranks"),
        ("torus:5x5,dead=0-1", "allgather", "16 ranks"),
        ("torus:20x20,dead=0-1", "alltoall", "pairs"),
        ("torus:5x5", "broadcast", "16 ranks"),
    ],
)
def test_what_is_too_large_is_refused_in_words(machine: str, kind: str, words: str) -> None:
    given = topology(machine)
    with pytest.raises(Refusal, match=words):
        solved(given, collective_of(kind, given.ranks), 1)


@pytest.mark.parametrize(
    ("machine", "kind", "us"),
    [("torus:5x5", "allgather", 11.0), ("ring:32", "reduce_scatter", 16 * (1.25 + 0.7))],
)
def test_more_ranks_have_orbits_as_variables(machine: str, kind: str, us: float) -> None:
    """One chunk for all: the program proves the least of the schedules that look alike from all."""
    given = topology(machine)
    outcome = solved(given, make(kind, given.ranks), 10**6, "flow{chunks=1}", 3)
    assert verify(outcome.points[0].schedule).ok
    assert took(outcome, 10**6) <= us * (1 + 1e-9)
    assert f"alike under {given.ranks} moves" in outcome.statements[0]


def test_programs_that_are_too_large_are_told_before_they_are_built() -> None:
    engine = "flow{chunks=8,effort.most_starts=500,effort.good_starts=500}"
    outcome = solved(topology("dgx1"), make("allgather", 8), 10**6, engine, 2)
    assert "the program was not built: at least" in outcome.statements[0]
    assert "where 500 are tried" in outcome.statements[0]


def test_sums_are_refused_in_words() -> None:
    problem = Problem(topology("ring:4"), make("allreduce", 4))
    assert FlowEngine().refuses(problem) == "it moves and copies, and adds nothing up"


@pytest.mark.parametrize("text", ["solver=unknown", "chunks=-1", "epochs=1001"])
def test_wrong_options_are_told(text: str) -> None:
    with pytest.raises(UserError, match="flow: "):
        solved(topology("ring:4"), make("allgather", 4), 1, f"flow{{{text}}}")


@pytest.mark.parametrize("machine", ["line:4", "hypercube:3"])
def test_an_allreduce_of_its_halves_has_the_rate_of_its_busiest_link(machine: str) -> None:
    place = topology(machine)
    problem = Problem(place, make("allreduce", place.ranks), None, Objective.TIME, 64 << 10)
    outcome = synthesize(problem, "flow", Budget(effort=1))
    for point in outcome.points:
        assert verify(point.schedule).ok
        assert point.rounds_per_chunk >= point.bound > 0
