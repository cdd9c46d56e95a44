"""α alone: as the simulation on links that take no time to transmit."""

from __future__ import annotations

from dataclasses import replace

from examples import examples
from hypothesis import given, settings
from strategies import planned_schedules, schedules

from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import BANDWIDTHS
from weft.synth.time.latency import latency_us
from weft.synth.time.schedule_time import simulate


def simulated(schedule: Schedule) -> float:
    """One byte on the fastest links there can be takes a trillionth of a µs: rounded away."""
    links = tuple(replace(x, bandwidth=BANDWIDTHS[1]) for x in schedule.topology.links)
    machine = replace(schedule.topology, links=links, resources=())
    return round(simulate(replace(schedule, topology=machine), 1).time_us, 6)


@settings(max_examples=examples(30))
@given(schedules())
def test_it_is_the_simulation_without_transmission(schedule: Schedule) -> None:
    assert latency_us(schedule) == simulated(schedule)


@settings(max_examples=examples(22))
@given(planned_schedules())
def test_a_planned_order_changes_nothing(schedule: Schedule) -> None:
    assert latency_us(schedule) == simulated(schedule)
