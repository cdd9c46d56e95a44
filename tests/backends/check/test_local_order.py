"""Order inside a rank, against a search through the graph."""

from collections import deque

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from operations import topological_order
from wait_programs import programs

from weft.backends.check import races
from weft.backends.check.checker import check_program
from weft.backends.check.findings import CheckLimits, errors
from weft.backends.check.graph import Edge, Graph, expand
from weft.backends.check.races import ordered_locally
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice


def reached(graph: Graph, start: int) -> set[int]:
    """All operations after one, by breadth-first search."""
    edges = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    seen, queue = set(), deque([start])
    while queue:
        node = queue.popleft()
        for a, b in edges:
            if a == node and b not in seen:
                seen.add(b)
                queue.append(b)
    return seen


@settings(max_examples=examples(75, 150), deadline=None)
@given(program=programs(), cells=st.sampled_from([1, 1000]))
def test_clocks_know_exactly_what_a_search_finds(program: Program, cells: int) -> None:
    listing = program
    graph = expand(listing)
    block, rank = graph.block(), listing.block_rank
    pairs = [
        (a, b)
        for a in range(graph.size)
        for b in range(graph.size)
        if block[a] != block[b] and rank[block[a]] == rank[block[b]]
    ]
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    after = [reached(graph, a) for a in range(graph.size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(races, "LIMITS", CheckLimits(clock_entries=cells))  # also rank by rank
        assert ordered_locally(graph, first, second).tolist() == [b in after[a] for a, b in pairs]


@settings(max_examples=examples(50), deadline=None)
@given(program=programs())
def test_the_order_is_topological(program: Program) -> None:
    listing = program
    graph = expand(listing)
    order = topological_order(graph)
    place = np.empty(graph.size, np.int64)
    place[order] = np.arange(graph.size)
    assert sorted(order.tolist()) == list(range(graph.size))
    assert (place[graph.source] < place[graph.target]).all()
    assert (graph.kind != Edge.CREDIT).all()


def test_order_through_another_rank_is_found_too() -> None:
    """What local clocks cannot prove is not a race yet: a message there and back orders it."""
    i, o, s = (Slice(b, 0) for b in (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH))

    def program(last: Slice) -> Program:
        there = Block(0, 1, None, (Instr(Op.COPY, i, s), Instr(Op.SEND, s, s)))
        back = Block(1, None, 1, (Instr(Op.RECV, i, o), Instr(Op.COPY, o, last)))
        echo = Block(0, None, 0, (Instr(Op.RECV, s, s),))
        answer = Block(1, 0, None, (Instr(Op.SEND, s, o, 1, ((0, 0),)),))
        ranks = (RankProgram((there, back), 1, 1, 1), RankProgram((echo, answer), 1, 1, 1))
        return Program.of("echo", make("broadcast", 2), ranks, 1)

    def racing(program: Program) -> bool:
        return any(f.check == "races" for f in errors(check_program(program)))

    assert not racing(program(s))  # overwrites s after its copy has come back
    echo = program(s)
    silent = RankProgram(
        (echo.ranks[1].blocks[0], Block(1, 0, None, (Instr(Op.SEND, i, o),))), 1, 1, 1
    )
    assert racing(Program.of("race", make("broadcast", 2), (echo.ranks[0], silent), 1))
