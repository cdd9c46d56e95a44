"""The jobs of tuning."""

from __future__ import annotations

import pytest

from weft.backends.compile.passes.channels import Spread
from weft.backends.tune.variants import Variant
from weft.backends.tune.work import Stand, clock, explore, solve
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Protocol
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
    return {"schedule": found[0], "runtime": "msccl", "protocols": ["Simple", "LL128"]}


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


def test_exploring_times_more_instances_while_that_helps() -> None:
    given = stand("ring:4", "allgather", "classic{algorithm=ring}")
    rows = explore({**given, "sizes": [1 << 10, 1 << 24], "best": [None, None], "deep": True})
    mine = {Variant.of(r): r["us"] for r in rows}
    one = mine[Variant(1)]
    assert one[0] is not None
    large = [us[1] for us in mine.values() if us[1] is not None]
    assert min(large) < one[1]
    # What is told is what the clock tells.
    best = min(mine, key=lambda v: mine[v][1] or 1e9)
    exact = clock({**given, "variant": best.to_json(), "sizes": [1 << 24], "in_place": [False]})
    assert exact[0] == pytest.approx(mine[best][1], rel=1e-3)


def test_a_size_that_cannot_be_won_is_not_looked_at_again() -> None:
    given = stand("ring:4", "allgather", "classic{algorithm=ring}")
    rows = explore({**given, "sizes": [1 << 24], "best": [1e-3], "deep": True})
    assert {Variant.of(r).instances for r in rows} == {1}


def test_protocols_of_small_payloads_are_not_tried_on_huge_loops() -> None:
    given = {
        **stand("ring:4", "allgather", "classic{algorithm=ring}"),
        "protocols": ["Simple", "LL"],
    }
    rows = explore({**given, "sizes": [1 << 40], "best": [None], "deep": False})
    assert {Variant.of(r).protocol for r in rows} == {Protocol.SIMPLE}
