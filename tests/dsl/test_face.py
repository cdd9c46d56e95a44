"""What a person sees of weft in Python: short texts of values, errors with hints, few names."""

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


def test_texts_and_numbers_are_arguments(outcome):
    schedule = outcome.points[0].schedule
    asked = weft.problem("ring:4", "allgather", size="1MiB")
    assert (asked.bytes, asked.objective, asked.topology.name) == (1 << 20, "time", "ring:4")
    found = weft.synthesize(asked, "classic", effort=1, time="60s", seed=3)
    assert found.points[0].schedule.provenance["seed"] == 3
    one = weft.simulate(schedule, "1MiB", bound=weft.bounds(asked.topology, asked.collective))
    assert one.time_us == weft.simulate(schedule, 1 << 20).time_us
    assert 0 < one.of_bound <= 1
    several = weft.simulate(schedule, "1KiB:4KiB")
    assert [s.message_bytes for s in several] == [1024, 2048, 4096]
    made = weft.compile(schedule, instances=2)
    assert made.text.startswith("<algo ")
    timed = weft.simulate(made.program, ["64KiB"], topology="ring:4")
    assert timed[0].time_us > one.time_us / 16


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda s: weft.simulate(s, 1.5), "number of bytes"),
        (lambda s: weft.simulate(s, "1"), "units: B"),
        (lambda s: weft.simulate([s], "1MiB"), "a schedule"),
        (lambda s: weft.compile("x"), "a schedule"),
        (lambda s: weft.compile(s, sizes=[1024, 1 << 20]), r"\(1024, 1048576\), or a text"),
        (lambda s: weft.compile(s, sizes=[]), "low:high"),
        (lambda s: weft.compile(s, instance=2), "did you mean 'instances'"),
        (lambda s: weft.problem(3, "allgather"), 'a text such as "dgx1"'),
        (lambda s: weft.problem("ring:4", 4), 'a name such as "allgather"'),
        (lambda s: weft.problem("ring:4", "allgather", objective="tim"), "did you mean 'time'"),
        (lambda s: weft.synthesize("dgx1"), r"weft.problem\("),
        (lambda s: weft.synthesize(weft.problem("ring:4", "allgather"), effort="5"), "a number"),
        (lambda s: weft.synthesize(weft.problem("ring:4", "allgather"), effort=-1), "a number"),
        (lambda s: weft.synthesize(weft.problem("ring:4", "allgather"), time=0), "60s"),
    ],
)
def test_wrong_arguments_are_told_with_a_hint(outcome, ask, told):
    with pytest.raises(weft.WeftError, match=f"(?s)hint: .*{told}"):
        ask(outcome.points[0].schedule)


def test_bounds_take_names():
    assert weft.bounds("ring:4", "allgather") == weft.bounds(
        weft.topology("ring:4"), weft.make("allgather", 4)
    )


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda s: weft.topology(3), 'weft.topology("dgx1")'),
        (lambda s: weft.verify("x"), "schedule"),
        (lambda s: weft.verify(s, "x"), "weft.elaborate"),
        (lambda s: weft.compile_schedule("x"), "Schedule"),
        (lambda s: weft.compile(s, instances="x"), "instances"),
        (lambda s: weft.load_sketch(3), "ndv2_relay"),
        (lambda s: weft.parse_sketch(3), "load_sketch"),
        (lambda s: weft.elaborate("ndv2_relay", s.topology), "parse_sketch"),
        (lambda s: weft.synthesize(weft.problem("ring:4", "allgather"), 3), "portfolio"),
        (lambda s: weft.synthesize(weft.problem("ring:4", "allgather"), seed="a"), "seed"),
        (lambda s: weft.Topology.from_networkx(3), "networkx.Graph"),
        (lambda s: weft.Library.load(3), "weft tune"),
        (lambda s: weft.tune("ring:4", 3), "allgather"),
        (lambda s: weft.tune("ring:4", "allgather", jobs="x"), "jobs"),
    ],
)
def test_nouns_of_another_type_are_told(outcome, ask, told):
    with pytest.raises(weft.WeftError) as caught:
        ask(outcome.points[0].schedule)
    assert told in str(caught.value)


def test_a_sketch_of_another_machine_warns():
    with pytest.warns(UserWarning, match=r"one node|moves nothing") as told:
        weft.problem("dgx1", "allgather", "ndv2_relay")
    assert "only one node" in str(told[0].message)
