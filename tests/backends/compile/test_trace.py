"""Moves written one after another become programs that do the same, at once where they may."""

from functools import partial

import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proof import good
from random_moves import moves, random_algorithm
from work import calls_of

from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.backends.compile.passes.trace import Trace
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Op, Protocol
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL, RCCL, Target
from weft.dsl.nouns.slots import INPUT, NONE, OUTPUT, SCRATCH


@settings(max_examples=examples(30, 60), deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 60),
    st.booleans(),
    st.sampled_from([MSCCL, RCCL, EXECUTOR]),
    st.sampled_from([1, 1, 2, 3]),
)
@example(197, 3, 5, 8, True, MSCCL, 2)  # a send moved ahead of what its waiters relied on
def test_a_compiled_algorithm_does_what_its_moves_do(
    seed: int, ranks: int, chunks: int, count: int, in_place: bool, target: Target, instances: int
) -> None:
    algorithm = random_algorithm(seed, ranks=ranks, chunks=chunks, moves=count, in_place=in_place)
    program = lower_algorithm(algorithm, CompileOptions(target, instances, in_place=in_place))
    assert all(i.op in target.ops for r in program.ranks for b in r for i in b.code)
    good(program)


def ring_allreduce(n: int, k: int = 1) -> Algorithm:
    """Reduce-scatter and allgather around a ring, in place, k chunks at once."""

    def hop(chunk: int, at: int, adds: bool) -> list[tuple[int, ...]]:
        slots = [OUTPUT + chunk % n * k + j for j in range(k)]
        to = (at + 1) % n
        return [(s - OUTPUT, at % n, s, to, s, s if adds else NONE) for s in slots]

    rows = [x for t in range(n - 1) for r in range(n) for x in hop(r - t, r, True)]
    rows += [x for t in range(n - 1) for r in range(n) for x in hop(r + 1 - t, r, False)]
    c = make("allreduce", n, chunks=n * k)
    return Algorithm("ring", c, moves(*rows), [0] * n, in_place=True)


@pytest.mark.parametrize("target", [MSCCL, RCCL])
def test_a_ring_takes_its_steps_and_chunks_travel_together(target: Target) -> None:
    flow = Trace().apply(ring_allreduce(4, 2), target)
    assert flow.messages.step.reshape(6, 8).tolist() == [[t] * 8 for t in range(6)]
    program = lower_algorithm(ring_allreduce(4, 2), CompileOptions(target, protocol=Protocol.LL))
    good(program)
    counts = {i.count for r in program.ranks for b in r for i in b.code}
    assert counts == {2}
    if target.fuses:
        assert [[i.op.value for i in b.code] for b in program.ranks[0]] == [
            ["s", "rrs", "rrs", "rrcs", "rcs", "rcs", "r"]
        ]


def test_a_first_sum_from_input_to_output_travels_in_one_piece() -> None:
    rows = [(k, 1, INPUT + k, 0, OUTPUT + k, INPUT + k) for k in range(4)]
    rows += [(k, 0, OUTPUT + k, 1, OUTPUT + k) for k in range(4)]
    algorithm = Algorithm("pair", make("allreduce", 2, chunks=4), moves(*rows), [0, 0])
    program = lower_algorithm(algorithm, CompileOptions(protocol=Protocol.LL))
    good(program)
    counts = {i.count for r in program.ranks for b in r for i in b.code}
    assert counts == {4}
    # Where the operand is the next one's target, one after another.
    rows = [(0, 1, INPUT + k, 0, OUTPUT + k, OUTPUT + k + 1) for k in range(2)]
    flow = Trace().apply(
        Algorithm("x", make("allreduce", 2, chunks=4), moves(*rows), [0, 0]), MSCCL
    )
    assert len(set(flow.messages.step.tolist())) == 2


def test_a_pipeline_stays_one() -> None:
    """A chain written chunk by chunk: chunk k is at hop h in step k + h, none waits for all."""
    n, chunks = 4, 5
    rows = [
        (k, r, (INPUT if r == 0 else OUTPUT) + k, r + 1, OUTPUT + k)
        for k in range(chunks)
        for r in range(n - 1)
    ]
    rows += [(k, 0, INPUT + k, 0, OUTPUT + k) for k in range(chunks)]
    chain = Algorithm("chain", make("broadcast", n, chunks=chunks), moves(*rows), [0] * n)
    m = Trace().apply(chain, MSCCL).messages
    assert all(s == k + r for s, k, r in zip(m.step, m.chunk, m.src, strict=True))
    program = lower_algorithm(chain)
    good(program)
    assert [i.op for i in program.ranks[1].blocks[0].code] == [Op.RECV_COPY_SEND] * chunks


def test_the_earliest_free_step_of_a_connection_is_taken() -> None:
    """Chunk 0 uses 0 -> 1 twice; chunk 1, written later, does not wait for the second time."""
    there_and_back = [
        [
            (k, 0, INPUT + k, 1, SCRATCH + k),
            (k, 1, SCRATCH + k, 0, SCRATCH + k),
            (k, 0, SCRATCH + k, 1, OUTPUT + k),
        ]
        for k in range(2)
    ]
    rows = [
        *there_and_back[0],
        *there_and_back[1],
        *((k, 0, INPUT + k, 0, OUTPUT + k) for k in (0, 1)),
    ]
    c = make("broadcast", 2, chunks=2)
    algorithm = Algorithm("twice", c, moves(*rows), [2, 2])
    assert Trace().apply(algorithm, MSCCL).messages.step.tolist() == [0, 1, 2, 1, 2, 3]
    good(lower_algorithm(algorithm))


def test_sums_into_one_slot_share_a_step() -> None:
    n = 5
    rows = [(0, 0, INPUT, 0, OUTPUT), *((0, r, INPUT, 0, OUTPUT, OUTPUT) for r in range(1, n))]
    star = Algorithm("star", make("reduce", n), moves(*rows), [0] * n)
    m = Trace().apply(star, MSCCL).messages
    assert m.step.tolist() == [0] * 4
    assert m.turn.tolist() == [0, 1, 2, 3]
    for target in (MSCCL, RCCL):
        good(lower_algorithm(star, CompileOptions(target)))


def test_a_slot_is_sent_before_it_is_overwritten() -> None:
    """Write after read: for the same chunk in the same step, for another chunk one later."""
    rows = [
        (0, 0, INPUT, 1, SCRATCH),
        (0, 1, INPUT, 0, INPUT, INPUT),
        (0, 1, SCRATCH, 1, INPUT, INPUT),
    ]
    in_place = Algorithm("pair", make("allreduce", 2), moves(*rows), [0, 1], in_place=True)
    flow = Trace().apply(in_place, MSCCL)
    assert (flow.messages.step.tolist(), flow.local.step.tolist()) == ([0, 0], [0])
    assert flow.messages.contended.tolist() == [False, True]
    good(lower_algorithm(in_place))


def test_what_the_author_asks_for_arrives() -> None:
    rows = [(0, 0, INPUT, 1, OUTPUT, NONE, 3, 1, 2), (0, 0, INPUT, 0, OUTPUT, *[NONE] * 4)]
    m = Trace().apply(Algorithm("a", make("broadcast", 2), Moves.of(rows), [0, 0]), MSCCL).messages
    assert [x.tolist() for x in (m.channel, m.send_hint, m.recv_hint)] == [[3], [1], [2]]


def test_instances_and_protocol_are_the_algorithms_unless_said_otherwise() -> None:
    ring = ring_allreduce(3)
    wished = Algorithm(ring.name, ring.collective, ring.moves, ring.scratch, True, 2, Protocol.LL)
    program = lower_algorithm(wished)
    assert (program.message_chunks, program.protocol) == (6, Protocol.LL)
    program = lower_algorithm(wished, CompileOptions(instances=1, protocol=Protocol.SIMPLE))
    assert (program.message_chunks, program.protocol, program.name) == (3, Protocol.SIMPLE, "ring")


def test_out_of_place_cannot_be_made_in_place() -> None:
    rows = [(0, 0, INPUT, 1, OUTPUT), (0, 0, INPUT, 0, OUTPUT)]
    algorithm = Algorithm("a", make("broadcast", 2), moves(*rows), [0, 0])
    with pytest.raises(UserError, match="written out of place"):
        lower_algorithm(algorithm, CompileOptions(in_place=True))


def test_tracing_is_linear() -> None:
    """Some calls for each move, and as many for each of four times as many moves."""
    each = []
    for ranks in (40, 80):
        ring = ring_allreduce(ranks, 2)
        flow, calls = calls_of(partial(Trace().apply, ring, MSCCL))
        assert len(flow.messages) == ranks * (ranks - 1) * 2 * 2
        each.append(calls / len(flow.messages))
    assert max(each) < 8
    assert each[1] < 1.1 * each[0]


def test_a_fused_send_takes_its_place_in_the_order_with_it() -> None:
    """Found at random: who waited for a send that fusion moved up relied on what was before it."""
    algorithm = random_algorithm(1656, ranks=4, chunks=4, moves=63, in_place=False)
    for protocol in Protocol:
        good(lower_algorithm(algorithm, CompileOptions(instances=3, protocol=protocol)))
