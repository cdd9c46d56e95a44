"""Composite bounds: never above what a schedule takes, in any cost model, and worth something."""

from fractions import Fraction

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import schedules

from weft.dsl.catalogue import topology as machine
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Resource, Topology, gpu, link, switch
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import Bounds, binding, bounds, lower_bound_us
from weft.synth.time.schedule_tables import CostModel
from weft.synth.time.schedule_time import simulate

SIZES = (1, 2_000, 10_000, 100_000, 10**6, 10**8)
MODELS = (None, CostModel(alpha_occupies=True), CostModel(store_and_forward=True))
QUICK = settings(
    max_examples=examples(12, 60), suppress_health_check=list(HealthCheck), deadline=None
)


def never_quicker(schedule: Schedule, found: Bounds) -> None:
    """No cost model beats the bound, at any size."""
    for size in SIZES:
        least, why = binding(found, size)
        for model in MODELS:
            took = simulate(schedule, size, model).time_us
            assert took >= float(least) * (1 - 1e-9), (size, model, why.text)


@QUICK
@given(schedules(max_ranks=5))
def test_random_schedules_are_never_below(schedule):
    never_quicker(schedule, bounds(schedule.topology, schedule.collective))


@QUICK
@given(schedules(max_ranks=4, customs=False, kinds=(Kind.ALLTONEXT, Kind.ALLTOALL, Kind.SCATTER)))
def test_unicast_schedules_are_never_below(schedule):
    never_quicker(schedule, bounds(schedule.topology, schedule.collective))


@pytest.mark.parametrize(
    "kind", ["allgather", "allreduce", "reduce_scatter", "broadcast", "reduce"]
)
@pytest.mark.parametrize("name", ["ring:5", "dgx1", "torus:3x3", "hub:6"])
def test_classic_schedules_are_never_below(name, kind):
    where = machine(name)
    problem = Problem(where, make(kind, where.ranks), objective=Objective.FRONTIER)
    found = bounds(where, problem.collective)
    for point in synthesize(problem, "classic", Budget(20)).points:
        never_quicker(point.schedule, found)


def test_what_lies_behind_a_nic_counts():
    """NIC time 3.75 µs, 2.5 µs over a rail; the last bytes must go on inside the box (0.7 µs),
    or cross once for each of its 8 GPUs: 3.75 + 2.5 + 0.7 - 0.7/8."""
    found = bounds(machine("dgx-a100:nodes=4,fabric=rails"), make("allgather", 32))
    least, why = binding(found, 10**6)
    assert least == Fraction("3.75") + Fraction("2.5") + Fraction("0.7") * Fraction(7, 8)
    assert (why.kind, why.data["copies"], why.data["threshold_us"]) == ("composite", 8, "39/20")
    assert "must go into" in why.text
    reverse = bounds(machine("dgx-a100:nodes=4,fabric=rails"), make("reduce_scatter", 32))
    assert lower_bound_us(reverse, 10**6) == least


def test_a_line_is_met_exactly():
    """One chunk over one cable after another: α + M/b is what it takes at every size."""
    pair = Topology("pair", (gpu(0), gpu(1)), (link(0, 1, 10, 3), link(1, 0, 10, 3)))
    found = bounds(pair, make("broadcast", 2))
    assert [(x.us, x.us_per_byte) for x in found.composite] == [(3, Fraction(1, 10_000))]
    assert lower_bound_us(found, 50_000) == 8


def test_links_of_one_resource_may_work_at_different_times():
    """A shared port that a route crosses twice is of use before the first α and after the last."""
    links = (link(1, 0, 25, "0.7"), link(0, 2, 50, "0.35"), link(2, 1, 50, "1.3"))
    port = Resource("port", (1, 2), Fraction(50))
    where = Topology("twice", (gpu(0), gpu(1), switch("s")), links, (port,))
    found = bounds(where, make("scatter", 2))
    assert found.certificate.kind in ("prices", "cut")
    # The halves: each of both links busy for M/2 at 50 GB/s, α between them may overlap.
    assert lower_bound_us(found, 10**6) <= Fraction("1.65") + 20


@settings(max_examples=examples(12))
@given(st.integers(1, 10**9), st.sampled_from(["allgather", "allreduce", "broadcast", "alltoall"]))
def test_the_envelope_is_never_below_its_parts(size, kind):
    found = bounds(machine("ring:5"), make(kind, 5))
    least = lower_bound_us(found, size)
    assert least >= max(found.latency_us, found.us_per_byte * size)
    assert all(one.at(size) <= least for one in found.composite)
    assert all(one.us <= found.latency_us for one in found.composite)
    assert all(one.us_per_byte <= found.us_per_byte for one in found.composite)


@pytest.mark.parametrize("kind", ["allgather", "broadcast", "reduce_scatter", "allreduce"])
def test_the_numbers_of_the_certificate_add_up(kind):
    where = machine("dgx1")
    for one in bounds(where, make(kind, 8)).composite:
        data = one.certificate.data
        if "early_us" not in data:
            continue
        width = where.capacities()
        weights = [Fraction(times) * width[row] for row, times in data["cover"]]
        early, late = (
            sum((w * Fraction(x) for w, x in zip(weights, data[key], strict=True)), Fraction(0))
            / sum(weights)
            for key in ("early_us", "late_us")
        )
        copies = data["copies"]
        assert one.us == (((copies - 1) * late + early) / copies if copies else late)
        chunks = Fraction(data["chunks"], data["message_chunks"])
        assert one.us_per_byte == chunks / sum(weights) / 1000
