"""The engine packing: right schedules, rates that meet their bounds, times near them."""

import pytest
from enough import Enough
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import named
from strategies import topologies

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import custom, make, one_shot_allreduce
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Outcome, Point, Silent, Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.packing.engine import PACKING_EFFORT, Packer
from weft.synth.engines.packing.trees.model import tree_depth
from weft.synth.time.schedule_time import simulate

QUICK = Budget(effort=20)


def solved(name: str, kind: str, size: int, engine: str = "packing", enough: float = 0) -> Outcome:
    """Outcome of an engine, which may stop at a schedule of at most ``enough`` µs."""
    machine = topology(name)
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, size)
    return synthesize(problem, engine, QUICK, Enough(problem, enough))


@pytest.mark.parametrize(
    ("name", "kind", "size", "limit"),
    [
        ("dgx1", "allgather", 10**3, 1.5),
        ("dgx1", "broadcast", 10**9, 6800),
        ("dgx1", "broadcast", 10**3, 1.47),
        ("dgx-a100:nodes=4", "allgather", 10**3, 3.6),
        ("dgx-a100:nodes=4", "allgather", 10**9, 3800),
        ("dgx-a100:nodes=2,fabric=planes:2", "allgather", 10**9, 2900),
        ("dgx-a100:nodes=4,nics=8,8,4,2", "alltoall", 10**9, 123_000),
        ("ring:8,bw=50GB/s,dead=7-0", "allreduce", 10**9, 20_600),
        ("mi300x:dead=0-1", "alltoall", 10**9, 2330),
    ],
)
def test_named_cases_are_as_quick_as_asked_for(
    name: str, kind: str, size: int, limit: float
) -> None:
    point = solved(name, kind, size, enough=limit).points[0]
    time = simulate(point.schedule, size).time_us
    assert time <= limit
    known = bounds(topology(name), point.schedule.collective.plain())
    assert time >= float(lower_bound_us(known, size)) * (1 - 1e-9)


@pytest.mark.parametrize(
    "kind", "broadcast reduce allgather reduce_scatter allreduce alltoall scatter gather".split()
)
@pytest.mark.parametrize("name", ["ring:6", "dgx-a100"])
def test_the_rate_is_the_bound(name: str, kind: str) -> None:
    machine = topology(name)
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.BANDWIDTH)
    outcome = synthesize(problem, "packing", QUICK)
    point = outcome.points[0]
    assert point.bandwidth_optimal
    assert point.rate == point.bound
    assert outcome.status is Status.OPTIMAL
    assert "which is the bound" in outcome.statements[0]


@settings(max_examples=examples(4, 12))
@given(data=st.data())
def test_random_machines(data: st.DataObject) -> None:
    machine = data.draw(topologies(max_ranks=5))
    kind = data.draw(st.sampled_from(("allgather", "allreduce", "alltoall", "broadcast")))
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, 10**6)
    point = synthesize(problem, "packing", Budget(effort=5)).points[0]  # verified there
    assert point.rounds_per_chunk >= point.bound


def test_the_frontier_is_of_sizes() -> None:
    machine = topology("torus:4x4")
    problem = Problem(machine, make("allgather", 16))
    outcome = synthesize(problem, "packing", QUICK)
    assert sorted(s for p in outcome.points for s in p.sizes) == sorted(PACKING_EFFORT.sizes)
    assert all(f" {point.schedule.segments} segment" in point.words for point in outcome.points)
    small = min(simulate(p.schedule, 1000).time_us for p in outcome.points)
    known = bounds(machine, problem.collective)
    assert small <= 1.05 * float(known.latency_us)


def test_latency_looks_at_a_byte() -> None:
    machine = topology("ring:8")
    problem = Problem(machine, make("alltoall", 8), None, Objective.LATENCY)
    point = synthesize(problem, "packing", QUICK).points[0]
    assert simulate(point.schedule, 1).time_us <= 2.81


def test_slices_and_grains_as_demanded() -> None:
    point = solved("dgx1", "allgather", 10**6, "packing{segments=3,grains=64}").points[0]
    assert point.schedule.segments == 3
    assert point.schedule.collective.message_chunks <= 64
    with pytest.raises(UserError, match="4 grains are too few"):
        solved("dgx1", "allgather", 10**6, "packing{grains=4}")


def test_what_each_rank_sends_to_one_other() -> None:
    machine = topology("ring:6")
    rows = [(0, 0, [0], 0), (2, 1, [2], 0)], [(3, 0, [0], 0), (1, 1, [2], 0)]
    problem = Problem(machine, custom("pairs", 6, *rows), None, Objective.TIME, 1000)
    assert synthesize(problem, "packing", QUICK).points


def test_it_says_what_it_cannot_do() -> None:
    machine = topology("ring:4")
    refuses = Packer().refuses
    assert "cut already" in (refuses(Problem(machine, one_shot_allreduce(4))) or "")
    one = machine.restricted_to([0])
    assert "nothing has to move" in (refuses(Problem(one, make("allgather", 1))) or "")
    both = custom("two", 4, [(0, 0, [0], 0)], [(1, 0, [0], 0), (2, 0, [0], 0)])
    assert refuses(Problem(machine, both)) is None
    held = [(rank, 0, [rank], 0) for rank in range(3)]
    odd = custom("odd", 4, held, [(3, 0, [0, 1, 2], 0), (0, 0, [0, 1], 0)])
    assert "neither" in (refuses(Problem(machine, odd)) or "")
    idle = custom("idle", 4, [(0, 0, [0], 0)], [(0, 0, [0], 0)])
    assert "nothing has to move" in (refuses(Problem(machine, idle)) or "")
    assert refuses(Problem(machine, make("scatter", 4))) is None


@pytest.mark.parametrize("option", ["trees", "height", "peers"])
def test_limits_of_trees_are_refused_where_there_are_none(option: str) -> None:
    machine = topology("ring:6")
    why = Packer(**{option: 3}).refuses(Problem(machine, make("alltoall", 6)))
    assert why == f"the option {option} is for trees, not for paths"
    with pytest.raises(UserError, match=f"keep no limit of {option}"):
        Packer(**{option: 3}, boxes=True)


@pytest.mark.parametrize(
    ("name", "kind"), [("torus:4x4", "alltoall"), ("torus:4x4,dead=0-1", "allgather")]
)
def test_the_fewest_steps_are_known_as_such(name: str, kind: str) -> None:
    machine = topology(name)
    problem = Problem(machine, make(kind, 16), None, Objective.BANDWIDTH)
    point = synthesize(problem, "packing", QUICK).points[0]
    assert point.steps == bounds(machine, problem.collective).steps
    assert point.step_optimal


def said(name: str, kind: str, engine: str) -> tuple[str, ...]:
    machine = topology(name)
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.BANDWIDTH)
    return synthesize(problem, engine, QUICK).statements


def test_load_and_rate_are_told_apart() -> None:
    load, rate = said("dgx1", "allgather", "packing{trees=1}")
    assert "a load 28.57% above the bound 7/6: 8 trees, " in load
    assert rate.startswith("77.78% of the bound's rate, with 1 tree per root")


def test_of_an_allreduce_both_halves_have_a_height() -> None:
    (words, *_) = said("line:4", "allreduce", "packing{height=3}")
    assert words.startswith("1 round per chunk, which is the bound: ")
    assert "height 6 (3 up to the root, 3 down from it), " in words


def test_a_height_limits_each_half_of_an_allreduce() -> None:
    """The quickest trees of a ring of six are three hops high, up and down again."""
    packing = named("ring:6", "allreduce")
    assert max(packing.heights) == 6
    assert tree_depth(packing) == 3


def test_a_loss_of_the_grid_is_not_one_of_the_trees() -> None:
    (words, *_) = said("dgx1", "allgather", "packing{grains=32}")
    assert words.startswith("the trees attain the bound 7/6 exactly; in the file their shares are")
    assert "multiples of 1/4 of a chunk, 7.14% above: 48 trees, 6 per root, " in words
    # Equal trees are taken where they fit the grid.
    (words, *_) = said("dgx1", "allgather", "packing{grains=64}")
    assert words.startswith("7/6 rounds per chunk, which is the bound: 48 trees, 6 per root, ")


class Impatient(Silent):
    """Says stop at once, and counts what it hears."""

    def __init__(self) -> None:
        self.heard: list[Point] = []

    def incumbent(self, point: Point) -> None:
        self.heard.append(point)

    def cancelled(self) -> bool:
        return True


def test_told_to_stop_it_gives_what_it_has() -> None:
    machine = topology("torus:4x4")
    watcher = Impatient()
    outcome = synthesize(Problem(machine, make("allgather", 16)), "packing", QUICK, watcher)
    assert len(outcome.points) == len(watcher.heard) == 1
    assert "stopped before all orders were tried" in outcome.statements


@pytest.mark.parametrize("option", ["trees", "height", "peers", "segments", "grains"])
@pytest.mark.parametrize("value", [-1, 10**20])
def test_options_that_no_memory_or_file_can_hold_are_refused(option: str, value: int) -> None:
    with pytest.raises(UserError, match=f"packing: {option} is {value}"):
        Packer(**{option: value})
    with pytest.raises(UserError, match="segments is 65537"):
        Packer(segments=65537)
