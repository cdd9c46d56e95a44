"""What a person sees of weft in Python: short texts of values, errors with hints, few names."""

from __future__ import annotations

import pytest

import weft

SHORT = 200


@pytest.fixture(scope="module")
def outcome() -> weft.Outcome:
    ring = weft.topology("ring:4")
    return weft.synthesize(weft.Problem(ring, weft.make("allgather", 4)), "classic")


def test_values_are_shown_in_one_short_line(outcome):
    schedule = outcome.points[0].schedule
    box = weft.topology("dgx-a100:nodes=4")
    program = weft.compile_schedule(schedule)
    shown = [
        box,
        weft.make("allgather", 32),
        schedule,
        outcome,
        *outcome.points,
        weft.Problem(box, weft.make("allgather", 32)),
        weft.bounds(schedule.topology, schedule.collective),
        weft.simulate(schedule, 1 << 20),
        weft.simulate_program(program, schedule.topology, 1 << 20),
        program,
    ]
    texts = [repr(one) for one in shown]
    assert [t for t in texts if len(t) > SHORT or "\n" in t] == []
    assert texts[0].startswith("<Topology dgx-a100:nodes=4: 32 GPUs in 4 hosts, ")
    assert texts[1] == "<Collective allgather on 32 ranks, 32 chunks>"
    assert texts[2].startswith("<Schedule allgather on ring:4: ")


def test_errors_carry_their_hint_in_their_text():
    with pytest.raises(weft.WeftError) as caught:
        weft.topology("dgx9")
    assert str(caught.value) == "unknown topology 'dgx9'\n\nhint: did you mean 'dgx2' or 'dgx1'?"
    assert caught.value.message == "unknown topology 'dgx9'"


def test_a_text_where_a_topology_is_needed_is_told():
    with pytest.raises(weft.WeftError, match=r'(?s)not a str.*hint: weft.topology\("dgx1"\)'):
        weft.Problem("dgx1", weft.make("allgather", 8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="collective is a Collective, not a str"):
        weft.Problem(weft.topology("dgx1"), "allgather")  # type: ignore[arg-type]


def test_the_names_of_the_root_are_the_public_face():
    assert dir(weft) == sorted(weft.__all__)
