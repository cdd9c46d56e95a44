"""Plans in which switches sum and copy: their clock, their forms, and who leaves them out."""

import json
from dataclasses import replace

import pytest

from weft.backends.compile.variants import Variant
from weft.backends.tune.artefacts import Wanted
from weft.backends.tune.asks import Ask, asks_of_switches
from weft.backends.tune.cast_plans import (
    asked_of,
    cast_clock,
    form_of,
    left_out,
    limits_told,
    unsaid,
    why_not,
)
from weft.backends.tune.options import TuneOptions
from weft.backends.tune.work import Stand, clock, explore
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.schedule import Schedule, dump
from weft.synth.engines.classic.in_network import IN_NETWORK
from weft.synth.engines.classic.place import Site

HUB = "hub:4,bw=450GB/s,capable=hub:multicast+reduces+issuer_in_group"
H100 = f"{HUB},family=h100"
PLANS = TuneOptions(SizeRange(1 << 20, 1 << 24), Wanted(("mscclpp-json",)))


def made(name: str, kind: str, machine: str = H100) -> Schedule:
    (one,) = (x for x in IN_NETWORK if x.name == name and x.kind == kind)
    return one.schedule(Site(topology(machine)).switches)


def us(schedule: Schedule, size: int, by: str = "datasheet", lanes: int = 4) -> float:
    found = cast_clock(schedule, None, "executor", by, lanes)
    assert found is not None
    return found.time_us(size)


def test_a_two_shot_takes_what_the_model_of_switches_says() -> None:
    """(1 + 1/n) M/b, and at small sizes signals, a request, its answer, a store and signals."""
    two_shot = made("nvls", "allreduce", HUB)
    assert us(two_shot, 1 << 30) == pytest.approx(1.25 * (1 << 30) / 450e3, rel=0.02)
    hop = float(two_shot.topology.links[0].latency)
    assert us(two_shot, 1 << 10) == pytest.approx(10 * hop, rel=0.02)


def test_too_few_thread_blocks_do_not_fill_the_switch() -> None:
    """16 of all members do: four GPUs with one each issue M/4 at a sixteenth of a port."""
    two_shot = made("nvls", "allreduce", HUB)
    assert us(two_shot, 1 << 30, lanes=1) == pytest.approx(4 * (1 << 30) / 450e3, rel=0.01)
    assert us(two_shot, 1 << 30, lanes=8) == us(two_shot, 1 << 30)


def test_the_bus_bandwidth_of_eight_h100_is_the_published_one() -> None:
    """475 to 480 GB/s (NVIDIA/nccl 1455), of 490 that the links and NVLS's share of them allow."""
    two_shot = made("nvls", "allreduce", "dgx-h100:nvls=on")
    found = 2 * 7 / 8 * (8 << 30) / us(two_shot, 8 << 30, "calibrated", 2) / 1e3
    assert found == pytest.approx(478, rel=0.03)


def test_a_sum_that_is_also_stored_on_a_neighbour_takes_longer() -> None:
    """A load-reduce alone is in no plan: n M out of a port become (n + 1) M."""
    one_shot = made("nvls_one_shot", "allreduce", HUB)
    assert us(one_shot, 1 << 26) == pytest.approx(5 * (1 << 26) / 450e3, rel=0.05)


def test_only_copies_side_by_side_are_tried() -> None:
    two_shot = made("nvls", "allreduce")
    assert form_of(two_shot, Variant(instances=2, segments=4)) == Variant(instances=2)
    given = {
        "schedule": json.loads(json.dumps(dump(two_shot))),
        "runtime": "executor",
        "model": "calibrated",
        "protocols": ["LL", "Simple"],
        "sizes": [1 << 20, 1 << 26],
        "best": [None, None],
        "floor": [0.0, 0.0],
        "known": [],
        "forms": [[], [Variant(segments=4).to_json()]],
        "wide": [True, True],
        "deep": True,
    }
    rows = explore(given)
    assert {row["protocol"] for row in rows} == {"Simple"}
    assert {row["segments"] for row in rows} == {1}
    best = min(rows, key=lambda row: row["us"][1] or 1e9)
    assert best["instances"] == 4
    asked = {**given, "variant": Variant(instances=4).to_json(), "in_place": [True]}
    assert clock(asked) == best["us"]


def test_a_root_alone_is_tried_with_as_many_blocks_as_fill_the_switch() -> None:
    """Of one block it is far behind; who looked at few only would not find it in reach."""
    one = made("nvls", "broadcast")
    given = {
        "schedule": json.loads(json.dumps(dump(one))),
        "runtime": "executor",
        "model": "calibrated",
        "protocols": ["Simple"],
        "sizes": [16 << 20],
        "best": [75.0],
        "floor": [0.0],
        "known": [],
        "forms": [[]],
        "wide": [True],
        "deep": False,
    }
    rows = explore(given)
    assert min(row["us"][0] for row in rows if row["instances"] == 16) < 75


def test_messages_of_less_than_a_granule_of_each_chunk_are_not_timed() -> None:
    stand = Stand(made("nvls", "allreduce"), "executor", (Protocol.SIMPLE,), "calibrated")
    timer = stand.timer(Variant(instances=4))
    assert timer is not None
    assert not stand.worthwhile(timer, Protocol.SIMPLE, 128)
    assert stand.worthwhile(timer, Protocol.SIMPLE, 256)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (TuneOptions(PLANS.sizes), "msccl-xml cannot express it (MSCCL XML lacks instructions"),
        (replace(PLANS, wanted=Wanted(("mscclpp-json", "torch"))), "torch cannot express it"),
        (replace(PLANS, protocols=("LL",)), "packets cannot be summed"),
        (PLANS, None),
    ],
)
def test_formats_that_leave_switches_out(options: TuneOptions, why: str | None) -> None:
    machine, wanted = topology(H100), make("allreduce", 4)
    found = why_not(machine, options)
    assert asked_of(machine, wanted, options) is (why is None)
    if why is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(why)
        told = left_out(machine, wanted, found)
        assert told is not None
        assert "1.2 times the bandwidth: " in told


def test_gpus_before_sm_90_do_not_have_it() -> None:
    old = topology(f"{HUB},family=a100")
    assert "sm_80 lacks load-reduce" in str(why_not(old, PLANS))
    assert left_out(topology("hub:4"), make("allreduce", 4), "no reason") is None


def test_trees_and_algorithms_are_asked() -> None:
    machine, wanted = topology(H100), make("allgather", 4)
    found = list(asks_of_switches(machine, wanted, PLANS.sizes))
    assert next(one.engine for one in found if one.engine.startswith("classic")).endswith("=nvls}")
    assert {one.name for one in found} >= {"nvls", "in switches, packing 1MiB"}
    only = list(asks_of_switches(machine, wanted, PLANS.sizes, ("greedy",)))
    assert not [one for one in only if isinstance(one, Ask) and "packing" in one.engine]


def test_groups_that_no_plan_has_are_told() -> None:
    """A thread block has 16 channels, for the signals to 17 others."""
    large = made("nvls", "broadcast", f"hub:18,{HUB.partition(',')[2]}")
    assert "17 others" in str(unsaid([large]))
    assert unsaid([large, made("nvls", "broadcast")]) is None
    assert unsaid([]) is None


def test_limits_are_told_of_plans_with_casts_alone() -> None:
    two_shot = made("nvls", "allreduce")
    (line,) = limits_told({"one": (two_shot, 4)})
    assert "one: switches sum or copy" in line
    assert "256 bytes" in line
    assert "all 4 GPUs" in line
    assert "sm_90" in line
    plain = Schedule.of(topology("hub:4"), make("allreduce", 4), [])
    assert not list(limits_told({"one": (plain, 4)}))
