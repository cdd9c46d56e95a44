"""Message graphs: what is made is proved by the judge, and what is broken is found by it."""

from dataclasses import replace

import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_moves import random_algorithm
from strategies import schedules

from weft.backends.check.findings import errors
from weft.backends.formats.messages.judge import check_graph, order_of, run_graph
from weft.backends.formats.messages.lower import graph_of_algorithm, graph_of_schedule
from weft.backends.formats.messages.model import GraphNode, GraphNodeKind, MessageGraph
from weft.backends.formats.messages.replay import ReplayRule, replayed
from weft.dsl.nouns.schedule import Schedule

SEND, RECV, SUM = GraphNodeKind.SEND, GraphNodeKind.RECV, GraphNodeKind.SUM


def graph(schedule: Schedule, size: int = 1 << 20) -> MessageGraph:
    return graph_of_schedule(schedule, "test", size, lambda _: 0)


def wrong(made: MessageGraph) -> list[str]:
    return [f"{one.check}: {one.message}" for one in errors(check_graph(made))]


KNOWN = {
    "ring": patterns.ring_allreduce(5, 2),
    "doubling": patterns.doubling_allreduce(8, 3),
    "scatter": patterns.ring_reduce_scatter(4, 1),
    "alltoall": patterns.direct_alltoall(4, 2),
    "one_shot": patterns.one_shot(4, 2),
    "trees": patterns.trees_allreduce(6, patterns.both(patterns.ring(6)), 1),
}


@pytest.mark.parametrize("name", KNOWN)
def test_textbook_schedules_are_proved_and_run(name: str) -> None:
    schedule = KNOWN[name]
    made = graph(schedule)
    assert wrong(made) == []
    assert made.count(SEND) == made.count(RECV) == len(schedule)
    assert run_graph(made, schedule.collective, seed=1).ok


@settings(max_examples=examples(30, 60), deadline=None)
@given(schedules())
def test_random_schedules_are_proved_and_run(schedule: Schedule) -> None:
    made = graph(schedule, 12345)
    assert wrong(made) == []
    assert run_graph(made, schedule.collective, seed=1).ok
    tags = [node.tag for _, _, node in made.nodes() if node.kind is SEND]
    assert len(set(tags)) == len(tags)
    assert all(node.bytes >= 1 for _, _, node in made.nodes())


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_random_algorithms_are_proved_and_run(seed: int, in_place: bool) -> None:
    algorithm = random_algorithm(seed, ranks=4, chunks=3, moves=20, in_place=in_place)
    made = graph_of_algorithm(algorithm, 4096, lambda _: 0)
    assert wrong(made) == []
    assert run_graph(made, algorithm.collective, seed).ok


def test_a_small_message_has_no_empty_parts() -> None:
    made = graph(patterns.ring_allgather(4, 8), 3)
    assert {node.bytes for _, _, node in made.nodes()} == {1}


def test_whatever_carries_another_value_is_found() -> None:
    """Each dependency of a value, replaced by none or by another input, is an error."""
    made = graph(patterns.ring_allreduce(3, 1))
    for rank, place, node in made.nodes():
        if node.kind is RECV:
            continue
        for changed in (
            replace(node, needs=(), inputs=(0,)),
            replace(node, needs=(), inputs=(2,)),
            replace(node, inputs=(*node.inputs, 1)),
        ):
            if (changed.needs, changed.inputs) == (node.needs, node.inputs):
                continue
            assert wrong(_with(made, rank, place, changed)), (rank, place, changed)


def _with(made: MessageGraph, rank: int, place: int, node: GraphNode) -> MessageGraph:
    own = list(made.ranks[rank])
    own[place] = node
    ranks = (*made.ranks[:rank], tuple(own), *made.ranks[rank + 1 :])
    return replace(made, ranks=ranks)


def test_faults_of_form_are_named() -> None:
    pair = ((GraphNode(SEND, 8, 1, 0, inputs=(0,)),), (GraphNode(RECV, 8, 0, 0),))

    def told(rank: int, node: GraphNode) -> str:
        return wrong(_with(MessageGraph("", pair), rank, 0, node))[0]

    assert wrong(MessageGraph("", pair)) == []
    assert "peers are the others of 2" in told(0, GraphNode(SEND, 8, 0, 0))
    assert "a message of 0 bytes" in told(0, GraphNode(SEND, 0, 1, 0))
    assert "one end is missing" in told(1, GraphNode(RECV, 8, 0, 1))
    assert "8 bytes are sent, 9 received" in told(1, GraphNode(RECV, 9, 0, 0))
    assert "depends on itself" in told(0, GraphNode(SEND, 8, 1, 0, needs=(0,)))
    assert "not there" in told(0, GraphNode(SEND, 8, 1, 0, needs=(4,)))


def test_a_deadlock_is_found() -> None:
    """Each rank sends only what it has received."""
    ranks = tuple(
        (GraphNode(SEND, 8, 1 - r, r, needs=(1,)), GraphNode(RECV, 8, 1 - r, 1 - r))
        for r in range(2)
    )
    assert "a cycle of dependencies" in wrong(MessageGraph("", ranks))[0]


def test_messages_of_one_tag_meet_in_the_order_of_issue() -> None:
    """The second send of the file goes first, because the first one waits for it."""
    send, recv = GraphNode(SEND, 8, 1, 0), GraphNode(RECV, 8, 0, 0)
    own = (replace(send, needs=(1,)), send)
    made = MessageGraph("", (own, (recv, recv)))
    assert wrong(made) == []
    assert order_of(made).send_of.tolist() == [-1, -1, 1, 0]
    sized = MessageGraph("", (own, (replace(recv, bytes=9), recv)))
    assert "8 bytes are sent, 9 received" in wrong(sized)[0]
    assert "2 messages are sent, 1 received" in wrong(MessageGraph("", (own, (recv,))))[0]


def test_a_tag_that_names_two_messages_proves_no_collective() -> None:
    """Which of the two a receive takes would be a matter of time."""
    made = graph(patterns.ring_allgather(3, 2))
    tagged = tuple(tuple(replace(n, tag=0) if n.tag >= 0 else n for n in own) for own in made.ranks)
    assert "names several messages" in wrong(replace(made, ranks=tagged))[0]


def test_ports_serve_first_come_first_served_and_sums_take_time() -> None:
    """Two messages of 10 units on one port, the second one's sum after it: by hand."""
    ranks = (
        (GraphNode(SEND, 10, 1, 0), GraphNode(SEND, 10, 1, 1)),
        (GraphNode(RECV, 10, 0, 0), GraphNode(RECV, 10, 0, 1), GraphNode(SUM, needs=(1,), ps=5)),
    )
    made = MessageGraph("", ranks)
    rule = ReplayRule(lambda rank, node: [(0, node.bytes, node.bytes + 3)], lambda n: n.ps, True)
    assert replayed(made, rule) == 20 + 3 + 5
    two = ReplayRule(lambda rank, node: [(0, 10, 13), (1, 10, 13)], lambda n: n.ps, True)
    assert replayed(made, two) == 36 + 5  # stored whole at the second: 13 + 13, then 10 more


def test_a_send_after_another_begins_when_that_one_has_begun() -> None:
    ranks = (
        (
            GraphNode(SEND, 10, 1, 0),
            GraphNode(SEND, 10, 1, 1, after=(0,)),
            GraphNode(SUM, needs=(0,), ps=100),
        ),
        (GraphNode(RECV, 10, 0, 0), GraphNode(RECV, 10, 0, 1)),
    )
    made = MessageGraph("", ranks)

    def run(on_arrival: bool) -> int:
        rule = ReplayRule(lambda rank, node: [(node.tag, 10, 13)], lambda n: n.ps, on_arrival)
        return replayed(made, rule)

    assert (run(True), run(False)) == (113, 100)
