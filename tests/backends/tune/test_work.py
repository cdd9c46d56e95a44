"""The jobs of tuning."""

import json
from dataclasses import replace
from typing import Any

import patterns
import pytest

from weft.backends.compile.analyses.planned import Order
from weft.backends.compile.compile import lower_schedule
from weft.backends.compile.descent import RaceEffort
from weft.backends.compile.passes.channels import Spread
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.compile.variants import LANES, Variant, variant_of
from weft.backends.tune import work
from weft.backends.tune.effort import EFFORT
from weft.backends.tune.work import PROMISING, Stand, TimedProgram, clock, explore, solve
from weft.dsl.base.errors import BadFile
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import TunedPlan
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import target as target_of
from weft.dsl.nouns.schedule import load


def ask(machine: str, kind: str, engine: str, **more: object) -> dict[str, object]:
    there = topology(machine)
    return {
        "topology": there.to_json(),
        "collective": make(kind, there.ranks).to_json(),
        "engine": engine,
        "objective": "time",
        "bytes": 1 << 20,
        "sketch": None,
        "one_shot": False,
        "effort": 10.0,
        "seconds": None,
        "seed": 0,
        **more,
    }


def stand(machine: str, kind: str, engine: str) -> dict[str, object]:
    found = solve(ask(machine, kind, engine))["schedules"]
    protocols = ["Simple", "LL128"]
    return {"schedule": found[0], "runtime": "msccl", "model": "datasheet", "protocols": protocols}


SMALL, LARGE = 1 << 12, 1 << 27
"""Messages of one turn of the loop, and of several."""


def at(sizes: list[int], best: list[float | None]) -> dict[str, object]:
    """Argument of explore for some sizes, for a schedule that was not timed yet."""
    return {
        "sizes": sizes,
        "best": best,
        "floor": [0.0] * len(sizes),
        "known": [],
        "forms": [[] for _ in sizes],
        "wide": [True] * len(sizes),
    }


def test_a_question_that_an_engine_refuses_is_answered_with_why() -> None:
    answer = solve(ask("ring:4", "alltoall", "packing{trees=1}"))
    assert answer["schedules"] == []
    assert "trees" in answer["why"]


def test_one_shot_sums_at_home() -> None:
    answer = solve(ask("full:4", "allreduce", "classic", one_shot=True, bytes=1024))
    schedule = load(answer["schedules"][0])
    assert schedule.steps == 1
    assert not schedule.reduce.any()
    assert schedule.collective.local_reduce


def test_forms_that_no_file_can_hold_are_not_timed() -> None:
    """Sixteen times the chains of a machine with 16 ranks are more blocks than msccl numbers."""
    given = Stand.of(stand("full:16", "allgather", "classic{algorithm=direct}"))
    assert given.timer(Variant(1)) is not None
    assert given.timer(Variant(16, spread=Spread.CHAINS)) is None


def test_large_programs_whose_instances_would_share_blocks_are_not_explored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = Stand.of(stand("full:16", "allgather", "classic{algorithm=direct}"))
    many = Variant(8, pairing=Pairing.NONE)
    assert given.timer(many, room=True) is not None
    monkeypatch.setattr(work, "RACE", RaceEffort(shared_instructions=1000))
    few, one = replace(many, segments=2), Variant(1, pairing=Pairing.NONE, segments=2)
    assert given.timer(few) is not None  # a finalist is compiled in any case
    assert given.timer(few, room=True) is None
    assert given.timer(one, room=True) is not None


def test_exploring_times_more_instances_while_that_helps() -> None:
    given = stand("ring:4", "allgather", "classic{algorithm=ring}")
    rows = explore({**given, **at([1 << 10, 1 << 24], [None, None]), "deep": True})
    mine = {Variant.of(r): r["us"] for r in rows}
    one = mine[Variant(1)]
    assert one[0] is not None
    large = [us[1] for us in mine.values() if us[1] is not None]
    assert min(large) < one[1]
    # What is told is what the clock tells.
    best = min(mine, key=lambda v: mine[v][1] or 1e9)
    asked = {"variant": best.to_json(), "sizes": [1 << 24], "limits": None, "in_place": [False]}
    exact = clock({**given, **asked})
    assert exact[0] == pytest.approx(mine[best][1], rel=1e-3)


def test_a_size_that_cannot_be_won_is_not_looked_at_again() -> None:
    given = {**stand("ring:4", "allgather", "classic{algorithm=ring}"), "protocols": ["Simple"]}
    assert explore({**given, **at([SMALL], [1e-3]), "deep": True}) == []
    one = explore({**given, **at([SMALL], [None]), "deep": False})[0]["us"][0]
    # What takes so many times the best is given up.
    many = EFFORT.kept_ratio * PROMISING[1]
    rows = explore({**given, **at([SMALL], [one / (many - 0.01)]), "deep": False})
    assert 1 in {Variant.of(r).instances for r in rows}
    assert explore({**given, **at([SMALL], [one / (many + 0.01)]), "deep": False}) == []


def test_a_program_is_not_run_whose_bytes_alone_take_longer_than_the_best() -> None:
    """However many instances: they would gain up to :data:`PROMISING`, but not on the links."""
    given = {**stand("ring:4", "allgather", "classic{algorithm=ring}"), "protocols": ["Simple"]}
    rows = explore({**given, **at([LARGE], [None]), "deep": True})
    best = min(row["us"][0] for row in rows if row["us"][0] is not None)
    assert explore({**given, **at([LARGE], [best / 1.1]), "deep": True}) == []
    assert explore({**given, **at([SMALL], [best / 1.1]), "deep": True}) != []


def test_the_forms_of_others_come_first() -> None:
    given = stand("ring:4", "allgather", "classic{algorithm=ring}")
    form = Variant(2, Protocol.SIMPLE, pairing=Pairing.NONE)
    asked = {**given, **at([1 << 16], [None]), "deep": True, "forms": [[form.to_json()]]}
    narrow = explore({**asked, "wide": [False]})
    assert [Variant.of(row) for row in narrow] == [form]
    us = narrow[0]["us"][0]
    # Near the best it is tried in all forms; far behind only in those.
    assert len(explore({**asked, "best": [us / (EFFORT.wide_ratio - 0.01)]})) > 1
    assert explore({**asked, "best": [us / (EFFORT.wide_ratio + 0.01)]}) == narrow


def test_orders_are_tried_where_links_differ() -> None:
    given = stand("mi250:nodes=1", "allgather", "packing{trees=1}")
    rows = explore({**given, **at([1 << 26], [None]), "deep": True, "protocols": ["Simple"]})
    orders = {Variant.of(row).order for row in rows}
    assert len(orders) > 1
    assert orders <= set(Order)


def test_a_schedule_that_cannot_win_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    given = stand("ring:4", "allgather", "classic{algorithm=ring}")
    monkeypatch.setattr(work, "lower_schedule", None)  # would raise
    sizes, best = [1 << 10, 1 << 24], [5.0, 7.0]
    assert explore({**given, **at(sizes, best), "floor": best, "deep": True}) == []


def test_what_a_round_knows_is_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given = stand("full:4", "allgather", "classic{algorithm=direct}")
    sizes = [1 << 12, 1 << 16]
    usual = {**at(sizes, [None, None]), "protocols": ["Simple"], "deep": False}
    first = explore({**given, **usual})
    assert {Variant.of(row).instances for row in first} == {1, 4}
    monkeypatch.setattr(work, "lower_schedule", None)
    assert explore({**given, **usual, "known": first}) == []


def test_a_clock_gives_up_beyond_its_limits() -> None:
    given = stand("ring:4", "allgather", "classic{algorithm=ring}")
    asked = {**given, "variant": Variant(4).to_json(), "sizes": [1 << 12, 1 << 20]}
    asked["in_place"] = [False]
    us = clock({**asked, "limits": None})
    assert None not in us
    assert clock({**asked, "limits": [us[0], None]}) == us
    assert clock({**asked, "limits": [us[0] * 0.99, us[1] * 1.01]}) == [None, us[1]]


def test_protocols_of_small_payloads_are_not_tried_on_huge_loops() -> None:
    given = {
        **stand("ring:4", "allgather", "classic{algorithm=ring}"),
        "protocols": ["Simple", "LL"],
    }
    rows = explore({**given, **at([1 << 40], [None]), "deep": False})
    assert {Variant.of(r).protocol for r in rows} == {Protocol.SIMPLE}


@pytest.mark.parametrize("lanes", [0, 3])
@pytest.mark.parametrize("parts", [1, 8])
def test_a_variant_comes_back_from_a_job_and_from_a_plan(lanes: int, parts: int) -> None:
    one = Variant(2, Protocol.LL, Spread.CHAINS, Pairing.NONE, 4, Order.STEPS, parts, lanes)
    assert Variant.of(json.loads(json.dumps(one.to_json()))) == one
    assert variant_of(plan_of(one, one.passes)) == one
    told = variant_of(plan_of(one, {})).words
    assert (one.words == told) == (one.passes == {})


@pytest.mark.parametrize(
    ("option", "value"), [("channels.lanes", -1), ("channels.lanes", "2"), ("lower.parts", 0)]
)
def test_a_plan_whose_numbers_cannot_be_is_refused(option: str, value: str | int) -> None:
    with pytest.raises(BadFile, match=option.partition(".")[2]):
        variant_of(plan_of(Variant(), {option: value}))


def plan_of(one: Variant, options: dict[str, str | int]) -> TunedPlan:
    """A plan that was compiled in some form."""
    name, copies = "a", one.instances
    return TunedPlan(name, 1, 2, "", "", str(one.protocol), copies, one.segments, options, "", ())


def test_lanes_are_tried_where_trees_of_unequal_hosts_share_connections() -> None:
    """One thread block for all that goes to a peer holds up what is late behind what is later."""
    given = stand("dgx-a100:nodes=2,nics=8,4", "allgather", "packing")
    rows = explore({**given, "protocols": ["Simple"], **at([1 << 20], [None]), "deep": True})
    times = {Variant.of(row): row["us"][0] for row in rows}
    plain = times[Variant()]
    assert min(us for one, us in times.items() if one.lanes == LANES) < plain


@pytest.mark.parametrize(
    "variant",
    [
        Variant(),
        Variant(instances=4, protocol=Protocol.LL),
        Variant(pairing=Pairing.NONE, segments=4),
        Variant(instances=2, pairing=Pairing.NONE, segments=2, parts=8),
    ],
)
def test_the_bytes_of_a_turn_are_those_of_which_one_more_begin_another(variant: Variant) -> None:
    """As the program is cut, without compiling it."""
    one = Stand(patterns.ring_allgather(4, 2), "msccl", (), "datasheet")
    timer = one.timer(variant)
    assert isinstance(timer, TimedProgram)
    program, turn = replace(timer.program, protocol=variant.protocol), one.turn_bytes(variant)
    turns = [one.model.cut(program, n).iterations for n in (turn, turn + 1, 3 * turn)]
    assert turns == [1, 2, 3]


def test_a_program_is_compiled_once_to_see_whether_it_has_room_and_to_be_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = []

    def counted(*given: Any) -> Program:
        compiled.append(given)
        return lower_schedule(*given)

    monkeypatch.setattr(work, "lower_schedule", counted)
    one = Stand(patterns.ring_allgather(2, 1), "msccl", (), "datasheet")
    for count in (1, 2, 4):
        assert isinstance(one.timer(Variant(instances=count), room=True), TimedProgram)
    assert len(compiled) == 1


def test_scratch_is_packed_only_where_a_program_does_not_fit_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The times are the same."""
    given = stand("ring:6", "reduce_scatter", "packing")
    schedule, variant = load(given["schedule"]), Variant(instances=2)

    def look() -> tuple[int, list[float]]:
        timer = work._made_timer(schedule, ("msccl", "datasheet"), (variant,), room=True)
        assert isinstance(timer, TimedProgram)
        times = [timer.clock.time_us(n) for n in (1 << 10, 1 << 22)]
        return int(timer.program.chunks[:, 2].sum()), times

    loose, times = look()
    few = replace(target_of("msccl"), max_offset=1)
    monkeypatch.setattr(work, "target_of", lambda _: few)
    monkeypatch.setattr(work, "require_fit", lambda *_: None)
    packed, same = look()
    assert packed < loose
    assert same == times


def test_what_can_gain_a_thousandth_is_not_tried() -> None:
    given = stand("ring:4", "allgather", "classic{algorithm=ring}")
    for floor, tried in ((0.999, False), (0.99, True)):
        asked = {**at([1 << 10], [1e6]), "floor": [floor * 1e6], "deep": True}
        assert bool(explore({**given, **asked})) is tried
