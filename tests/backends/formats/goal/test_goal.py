"""GOAL: the text is read as it was written, refused where it is wrong, and timed by LogGOP."""

from dataclasses import replace
from fractions import Fraction

import outside_readers
import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from outside_simulators import made, time_of
from strategies import planned_schedules, ring

from weft.backends.check.findings import errors
from weft.backends.formats.goal.format import (
    FS,
    PS,
    GoalFile,
    LogGop,
    goal_text,
    loggop_of,
    loggop_us,
    read_goal,
)
from weft.backends.formats.messages.judge import check_graph
from weft.backends.formats.messages.lower import graph_of_schedule
from weft.backends.formats.messages.model import GraphNodeKind
from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.time.schedule_time import simulate

SEND = GraphNodeKind.SEND


@settings(max_examples=examples(30, 60), deadline=None)
@given(planned_schedules())
def test_a_text_is_read_as_it_was_written(schedule: Schedule) -> None:
    """Proved, in the order of the ports, to the byte; slices are written out."""
    text = made(GoalFile(), schedule, 1 << 16).text
    graph = read_goal(text, "x")
    assert not errors(check_graph(graph))
    for rank, own in enumerate(graph.ranks):
        for port in {node.port for node in own if node.kind is SEND}:
            sends = [i for i, node in enumerate(own) if node.kind is SEND and node.port == port]
            followed = [other for i in sends for other in own[i].after]
            assert len(followed) == len(set(followed)) == len(sends) - 1, rank
            assert set(followed) <= set(sends)
    notes = tuple(line[3:] for line in text.split("\n") if line.startswith("// LogGOPSim"))
    units = PS if '"units_per_us":1000000,' in text else FS
    assert goal_text(graph, units, notes) == text


def test_sends_of_a_port_follow_the_planned_order() -> None:
    """All ranks begin with rank 0 in the file; in the simulation no two do."""
    schedule = patterns.direct_alltoall(4, 1)
    graph = read_goal(made(GoalFile(ports=False), schedule, 1 << 16).text, "x")
    first = [
        next(node.peer for node in own if node.kind is SEND and not node.after)
        for own in graph.ranks
    ]
    assert [(peer - rank) % 4 for rank, peer in enumerate(first)] == [1] * 4


def test_the_rule_by_hand() -> None:
    """25 GB/s, so 40 ps a byte; two messages of 1000 bytes on one NIC, the second sent on."""
    machine = ring(3, "25", "0.7")
    link = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    moves = [
        Transfer(0, 0, 1, (link[0, 1],), 0),
        Transfer(1, 0, 1, (link[0, 1],), 0),
        Transfer(1, 1, 2, (link[1, 2],), 1),
    ]
    c = make("broadcast", 3, chunks=2)
    schedule = Schedule.of(machine, c, [*moves, Transfer(0, 1, 2, (link[1, 2],), 1)])
    graph = graph_of_schedule(schedule, "x", 2000, lambda _: 0)
    rule, same = loggop_of(graph, machine)
    assert rule == LogGop(700_000, 40, PS, (0.7, 0.7))
    assert same is graph
    one, alpha = 999 * 40e-6, 0.7
    assert loggop_us(graph, rule) == pytest.approx(2 * one + 2 * alpha + one)


def test_units_are_finer_where_picoseconds_are_coarse() -> None:
    graph = graph_of_schedule(patterns.ring_allgather(3, 1), "x", 1 << 20, lambda _: 0)
    machine = ring(3, "150", "0.7")
    rule, _ = loggop_of(graph, machine)
    assert rule.units_per_us == FS
    assert rule.gap == round(Fraction(10**6, 150))
    slow = ring(3, "150", "2.5")  # 2.5e9 fs have more than 31 bits
    assert (
        loggop_of(
            graph_of_schedule(patterns.ring_allgather(3, 1), "x", 1 << 20, lambda _: 0), slow
        )[0].units_per_us
        == PS
    )


def unequal(alpha: str) -> Schedule:
    """An allgather around four ranks, one of whose links is four times as slow."""
    machine = ring(4, "50", "0.7")
    slow = replace(machine.links[0], bandwidth=Fraction("12.5"), latency=Fraction(alpha))
    found = patterns.ring_allgather(4, 1)
    return replace(found, topology=replace(machine, links=(slow, *machine.links[1:])))


@pytest.mark.parametrize("alpha", ["0.7", "2.5"])
def test_bytes_are_scaled_where_links_are_unequal(alpha: str) -> None:
    """65,536 bytes at 12.5 GB/s are 262,144 at 50: one G of 20 ps."""
    schedule = unequal(alpha)
    found = made(GoalFile(), schedule, 4 << 16)
    graph = read_goal(found.text, "x")
    sizes = {node.bytes for _, _, node in graph.nodes()}
    assert sizes == {65536, 262144}
    (_, run), *_ = found.told
    assert "-G 20 " in run
    assert ("0.700 to 2.500 µs" in run) == (alpha == "2.5")
    one = time_of(found)
    assert one["us"] == pytest.approx(one["schedule_us"], rel=1e-4)
    plain = made(GoalFile(scaled=False), schedule, 4 << 16)
    assert {node.bytes for _, _, node in read_goal(plain.text, "x").nodes()} == {65536}
    assert GoalFile().graph_us(graph, schedule.topology) == one["us"]
    with pytest.raises(UserError, match="links of another machine"):
        GoalFile().graph_us(graph, ring(4, "50", "0.7"))


@pytest.mark.parametrize("name", ["ring:6", "full:5"])
def test_direct_machines_take_what_weft_says(name: str) -> None:
    n = topology(name).ranks
    schedule = patterns.direct_alltoall(n, 1) if name[0] == "f" else patterns.ring_allreduce(n, 2)
    one = time_of(made(GoalFile(), schedule, 1 << 20))
    assert one["us"] == pytest.approx(one["schedule_us"], rel=1e-3)
    assert one["schedule_us"] == pytest.approx(simulate(schedule, 1 << 20).time_us, rel=1e-5)


GOOD = """/* two ranks */num_ranks 2
rank 0 {
a: send 8b to 1 tag 3 cpu 0 nic 1
/* between */b : calc 500 cpu 0
// after it
b requires a
calc 7
}rank 1 {l1: recv 8b from 0 tag 3
}
"""


def test_a_file_of_others_is_read() -> None:
    graph = read_goal(GOOD, "x")
    assert [len(own) for own in graph.ranks] == [3, 1]
    assert (graph.ranks[0][0].port, graph.ranks[0][1].needs) == (1, (0,))
    assert len(outside_readers.read_goal(GOOD)) == 2
    assert not errors(check_graph(graph))
    assert "not judged" in check_graph(graph)[0].message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_ranks 2", "num_ranks 3", "rank 2 of 3 is missing"),
        ("b requires a", "b requires c", "no operation above has the label c"),
        ("b requires a", "b requires a // why", "is not an operation"),
        ("cpu 0 nic 1", "cpu 0 nic 1 // why", "is not an operation"),
        ("cpu 0 nic 1", "cpu 0 nic 1 /* why */", "is not an operation"),
        ("a: send", "a requires b\na: send", "no operation above has the label a"),
        ("b : calc", "a: calc", "the label a is there twice"),
        ("b : calc", "send: calc", "is not an operation"),
        ("8b to 1", "8 to 1", "is not an operation"),
        ("8b to 1", "٨b to 1", "is not an operation"),
        ("send 8b to", "send 8b from", "is not an operation"),
        ("send 8b", "send 2147483648b", "up to 2147483647"),
        ("from 0", "from -1", "any rank or any tag"),
        ("nic 1", "nic 256", "up to 255"),
        ("tag 3\n}", "tag 3 }", "is not an operation"),
        ("tag 3\n}", "tag 3\n", "expected a closing brace"),
        ("rank 0 {", "x\nrank 0 {", "stands outside of the ranks"),
        ("rank 0 {", "rank 1 {", "rank 1 stands where rank 0 should"),
        ("/* two ranks */num_ranks 2\n", "", "rank 0 stands where rank 0 should"),
        ("// after it", "/* after it", "a comment is not closed"),
        ("a: send", "  a: send", "blanks before 'a: send"),
        ("tag 3\n}", "tag 3\n }", "blanks before '}'"),
        ("*/b :", "*/ b :", "blanks before 'b :"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, words: str) -> None:
    """The converter of LogGOPSim refuses each of these too, but for the label that is there twice
    (it keeps the first) and numbers that it cuts to their bits."""
    with pytest.raises(BadFile, match=words) as caught:
        read_goal(GOOD.replace(old, new), "x")
    assert str(caught.value.where).startswith("x")
    with pytest.raises(outside_readers.Refused):
        outside_readers.read_goal(GOOD.replace(old, new))
