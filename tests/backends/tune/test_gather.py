"""What a race starts with, when it is interrupted."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from weft.backends.tune.options import TuneOptions
from weft.backends.tune.tune import gather, tune
from weft.backends.tune.work import solve
from weft.dsl.base.errors import NothingFound
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.topology import Topology


def test_an_interruption_before_any_schedule_is_none_that_there_is_none() -> None:
    options = TuneOptions(SizeRange(1024, 2048), engines=("classic",))
    asked = topology("ring:4"), make("allgather", 4)
    with pytest.raises(KeyboardInterrupt):
        gather(*asked, options, lambda label, function, given: [None for _ in given])
    nothing = {"schedules": [], "why": "it cannot"}
    found = gather(*asked, options, lambda label, function, given: [nothing for _ in given])
    assert (found.runners, found.why) == ([], "it cannot")
    counted = itertools.count()
    found = gather(
        *asked,
        options,
        lambda label, function, given: [
            {"schedules": [], "why": f"reason {next(counted)}"} for _ in given
        ],
    )
    assert found.why == f"reason 0; reason 1; reason 2; and {next(counted) - 3} more"


def test_sketches_of_the_shelf_are_asked_where_there_is_room_below_the_bound() -> None:
    machine, wanted = topology("dgx1"), make("allgather", 8)
    asked: list[str] = []

    def jobs(found: str) -> Callable[[str, str, Sequence[Any]], list[Any]]:
        schedule = solve(_ask(machine, wanted, found))["schedules"]

        def answer(label: str, function: str, given: Sequence[Any]) -> list[Any]:
            asked.extend(one["sketch"]["name"] for one in given if one["sketch"])
            return [{"schedules": schedule, "why": ""} for _ in given]

        return answer

    options = TuneOptions(SizeRange(1 << 20, 1 << 28))
    gather(machine, wanted, options, jobs("packing"))
    assert asked == []  # the bound is reached
    gather(machine, wanted, options, jobs("classic{algorithm=recursive_doubling}"))
    assert "ndv2_relay" in asked


def test_little_effort_is_for_small_messages() -> None:
    """Of 0.7 µs a hop and 50 GB/s: latency is the most of it up to 16 KiB."""
    asked: dict[int, float] = {}

    def jobs(label: str, function: str, given: Sequence[Any]) -> list[Any]:
        asked.update((q["bytes"], q["effort"]) for q in given if q["engine"] == "portfolio")
        return [{"schedules": [], "why": "it cannot"} for _ in given]

    options = TuneOptions(SizeRange(1 << 10, 1 << 30), effort=3.0)
    gather(topology("ring:4"), make("allgather", 4), options, jobs)
    sizes = (1 << n for n in (10, 14, 18, 22, 26, 30))
    assert asked == dict(zip(sizes, (0.3, 0.3, 3.0, 3.0, 3.0, 3.0), strict=True))


def test_switches_that_sum_only_forward_and_that_is_said() -> None:
    """Engines that find casts beyond all transfers look for no transfers, which plans need."""
    able = topology("hub:4,capable=hub:multicast+reduces+issuer_in_group")
    asked: list[Any] = []
    said: list[tuple[str, str]] = []

    def jobs(label: str, function: str, given: Sequence[Any]) -> list[Any]:
        asked.extend(given)
        return [{"schedules": [], "why": "it cannot"} for _ in given]

    options = TuneOptions(SizeRange(1 << 20, 1 << 21))
    with pytest.raises(NothingFound):
        tune(able, make("allreduce", 4), options, jobs, lambda *words: said.append(words))
    plain = able.without_capabilities().to_json()
    assert asked
    assert all(one["topology"] == plain for one in asked)
    assert not any("nvls" in one["engine"] for one in asked)
    assert [label for label, _ in said] == ["Remark"]
    assert "1.2 times the bandwidth" in said[0][1]


def _ask(machine: Topology, wanted: Collective, engine: str) -> dict[str, Any]:
    given = {"topology": machine.to_json(), "collective": wanted.to_json(), "engine": engine}
    rest = {"bytes": None, "sketch": None, "one_shot": False, "effort": 3.0, "seconds": None}
    return {**given, **rest, "objective": "bandwidth", "seed": 0}
