"""Plans compiled of schedules with casts: proved, executed exactly; mutants rejected; refusals."""

from dataclasses import replace
from typing import Any

import pytest
import switch_mutants
from casts import FREE, NVLS, TURNING, spread_all, star, sums_alone, two_level, two_shot
from plans import operations

from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact
from weft.backends.formats.mscclpp.casts.emit import cast_plan
from weft.backends.formats.mscclpp.check import check_plan
from weft.backends.formats.mscclpp.interpret import collective_of, run_plan
from weft.backends.formats.mscclpp.plan.model import Channel, ExecutionPlan, Multicast, PlanOp
from weft.backends.formats.mscclpp.plan.read import read_plan
from weft.dsl.base.errors import UserError
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.capabilities import CastLimits
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology


def plan_of(schedule: Schedule, in_place: bool = False, lanes: int = 1) -> ExecutionPlan:
    nodes = [h or 0 for h in schedule.topology.host_of]
    return cast_plan(schedule, "casts", nodes, in_place=in_place, lanes=lanes)


def right(plan: ExecutionPlan, wanted: Schedule, orders: int = 6) -> None:
    assert not errors(check_plan(plan)), [str(f) for f in errors(check_plan(plan))]
    done = run_plan(plan, wanted.collective, orders=orders)
    assert done.ok, done.detail


SCHEDULES: dict[str, Any] = {
    "allgather": lambda: spread_all(4),
    "broadcast": lambda: spread_all(4, "broadcast"),
    "reduce_scatter": lambda: sums_alone(4),
    "reduce": lambda: sums_alone(3, "reduce"),
    "two boxes": lambda: two_level(3),
    **{f"allreduce of {n}": lambda n=n: two_shot(n) for n in (2, 3, 5, 7)},
}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", SCHEDULES)
def test_plans_are_proved_and_executed(name: str, in_place: bool) -> None:
    schedule = SCHEDULES[name]()
    right(plan_of(schedule, in_place), schedule)


def test_an_allreduce_is_one_operation_per_rank_and_lane() -> None:
    """The fields are those that the loader reads: two channels where input and output differ."""
    schedule = two_shot(8)
    plan = plan_of(schedule, lanes=2)
    right(plan, schedule)
    sums = list(operations(plan, PlanOp.MULTICAST_REDUCE_STORE))
    assert len(sums) == 16
    (r, b, _), op = sums[3]
    assert op.channel is Channel.SWITCH
    assert (op.src, op.dst) == ((Multicast(0, 2 * r + b, 1),), (Multicast(1, 2 * r + b, 1),))
    assert [str(g.buffer) for g in plan.gpus[0].groups()] == ["i", "o"]
    in_place = plan_of(schedule, in_place=True)
    assert [str(g.buffer) for g in in_place.gpus[5].groups()] == ["o"]
    assert not in_place.gpus[0].scratch_chunks
    assert collective_of(in_place) == schedule.collective


def test_lanes_fill_the_switch_and_may_be_asked_for() -> None:
    found = artefact(two_shot(4), "mscclpp-json")
    assert max(len(g.blocks) for g in read_plan(found.text).gpus) == 4
    asked = artefact(two_shot(4), "mscclpp-json", CompileOptions(instances=2), sizes=1 << 20)
    plan = read_plan(asked.text)
    assert (len(plan.gpus[0].blocks), plan.max_bytes) == (2, 1 << 20)
    assert asked.made.facts["load_reduces"] == 8


def test_a_sum_alone_goes_to_a_neighbour_too() -> None:
    found = artefact(sums_alone(4), "mscclpp-json")
    assert any("cannot load-reduce alone" in text for _, text in found.made.told)
    pairs = {g.ranks for gpu in read_plan(found.text).gpus for g in gpu.groups()}
    assert pairs == {(0, 1, 2, 3), (0, 1), (2, 3)}


@pytest.mark.parametrize("schedule", [two_shot(3), spread_all(3), two_level(2)])
def test_mutants_are_rejected(schedule: Schedule) -> None:
    """Some of all that the sweep tries."""
    for in_place in (False, True):
        plan = plan_of(schedule, in_place)
        found = list(switch_mutants.mutants(plan))
        assert len(found) > 30
        for name, mutant in found[in_place :: max(3, len(found) // 8)]:
            good = not errors(check_plan(mutant))
            assert not (good and run_plan(mutant, schedule.collective, orders=24).ok), name


# --- what is refused ------------------------------------------------------------------------------


def limited(**limits: Any) -> Schedule:
    schedule = two_shot(3)
    t = schedule.topology
    nodes = tuple(
        n if n.stores else replace(n, limits=replace(n.limits, **limits)) for n in t.nodes
    )
    return replace(schedule, topology=replace(t, nodes=nodes))


def one_cast(able: str, *casts: Cast) -> Schedule:
    t: Topology = star(3, able)
    return Schedule.of(t, make("broadcast", 3), [], casts=casts)


REFUSED: dict[str, tuple[Any, str, str]] = {
    # schedule, format, words
    "all push": (lambda: two_shot(3, TURNING), "mscclpp-json", "all its sources push"),
    "an issuer outside": (lambda: two_shot(3, FREE), "mscclpp-json", "not in the group"),
    "before sm_90": (lambda: two_shot(3), "mscclpp-json{sm=80}", "sm_80 lacks load-reduce"),
    "double precision": (lambda: two_shot(3), "mscclpp-json{dtype=float64}", "not sum float64"),
    "a maximum": (lambda: two_shot(3), "mscclpp-json{op=max}", "always adds"),
    "a type beyond the switch": (
        lambda: limited(types=("float16",)),
        "mscclpp-json{dtype=float32}",
        "sums float16, not float32",
    ),
    "a type beyond the switch where none is named": (
        lambda: limited(types=("int32",)),
        "mscclpp-json",
        "sums int32, not float16, bfloat16, float32, uint32; dtype= says",
    ),
    "across nodes": (lambda: two_shot(4), "mscclpp-json{gpus_per_node=2}", "on several nodes"),
    "MSCCL XML": (lambda: two_shot(3), "msccl-xml", "lacks instructions and channel types"),
    "torch": (lambda: two_shot(3), "torch", "library's own allreduce"),
    "JAX": (lambda: two_shot(3), "jax", "no sum"),
    "messages": (lambda: two_shot(3), "chakra-et", "one receiver"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_plan_can_say_is_refused_in_words(name: str) -> None:
    make_one, to, words = REFUSED[name]
    with pytest.raises(UserError, match=words):
        artefact(make_one(), to)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (CompileOptions(lanes=2), "lanes= says nothing"),
        (CompileOptions(segments=2), "segments= says nothing"),
        (CompileOptions(protocol="LL"), "a load-reduce would sum"),  # type: ignore[arg-type]
    ],
)
def test_options_of_lowering_are_refused(options: CompileOptions, words: str) -> None:
    with pytest.raises(UserError, match=words):
        artefact(two_shot(3), "mscclpp-json", options)


def test_sizes_stay_within_32_bits() -> None:
    with pytest.raises(UserError, match="too large"):
        artefact(two_shot(3), "mscclpp-json", sizes=SizeRange(16, 1 << 33))


def test_a_large_group_needs_more_channels_than_a_block_has() -> None:
    with pytest.raises(UserError, match="17 others"):
        plan_of(spread_all(18, "broadcast"))
    assert CastLimits().least == 2


def test_a_store_where_another_reads_is_refused() -> None:
    first = spread_all(3, "broadcast").casts[0]
    schedule = one_cast(NVLS, first)
    schedule = Schedule.of(
        schedule.topology, schedule.collective, [Transfer(0, 0, 1, (0, 3), 0)], casts=[first]
    )
    with pytest.raises(UserError, match="in the step in which"):
        plan_of(schedule)
