"""Channels and thread blocks: right whatever is chosen, and worth something."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product

import contenders
import numpy as np
import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_rules import published
from proof import prove, steps

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.analyses.forwarding import earliest, urgency
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.channels import Channels, Spread
from weft.backends.compile.passes.lower import Lower
from weft.backends.compile.passes.threadblocks import Pairing
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL, RCCL
from weft.dsl.nouns.schedule import Schedule
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL as MODEL

DGX1 = patterns.both(patterns.DGX1)


@dataclass(frozen=True)
class Size:
    """The most of each: blocks of a rank, channels, steps of a rank, steps of one block."""

    blocks: int
    channels: int
    work: int
    longest: int

    def no_worse(self, other: Size) -> bool:
        """In every number; the longest block may be longer where there are fewer of them."""
        return (
            self.blocks <= other.blocks
            and self.channels <= other.channels
            and self.work <= other.work
            and (self.longest <= other.longest or self.blocks < other.blocks)
        )


def size(program: Program) -> Size:
    table = steps(program)
    return Size(max(map(len, table)), program.channels, max(map(sum, table)), max(map(max, table)))


@pytest.mark.parametrize("protocol", [Protocol.SIMPLE, Protocol.LL])
@pytest.mark.parametrize("name", contenders.CASES)
def test_no_worse_than_the_published_rules(name: str, protocol: Protocol) -> None:
    """In blocks, channels and steps, wherever those rules give a program that is right.

    References have as many chunks as a FIFO has slots, or fewer.
    """
    schedule = contenders.CASES[name]()
    ours = []
    for pairing, spread in product((Pairing.AUTO, Pairing.FEWEST), Spread):
        options = CompileOptions(in_place=True, protocol=protocol, pairing=pairing, spread=spread)
        program = lower_schedule(schedule, options)
        prove(program, MSCCL)
        ours.append(size(program))
    for together in (1, 2, 4, 8):
        if together > protocol.fifo_operations:
            continue
        theirs = contenders.by_the_rules(schedule, together)
        if theirs is None or errors(check_program(replace(theirs, protocol=protocol))):
            continue
        assert any(own.no_worse(size(theirs)) for own in ours), (ours, size(theirs))


def test_the_rules_hang_where_the_checker_says_so() -> None:
    """A ring with two chunks per rank, one channel, Simple: all FIFOs full, all wait."""
    theirs = contenders.by_the_rules(patterns.ring_allreduce(8, 2), 2)
    assert theirs is not None
    assert {f.check for f in errors(check_program(theirs))} == {"deadlock"}
    assert not errors(check_program(replace(theirs, protocol=Protocol.LL)))


def test_the_rules_count_as_published() -> None:
    """Known of the language's own examples: a ring is one block of 2N - 1 steps on one channel."""
    for n in (3, 8):
        outcome = published(contenders.chunk_ops(patterns.ring_allreduce(n, 1)), n)
        assert outcome.channels == 1
        assert set(outcome.steps) == {(2 * n - 1,)}
        insts = [x.op for x in outcome.code[0][0].code]
        assert insts == ["s", *["rrs"] * (n - 2), "rrcs", *["rcs"] * (n - 2), "r"]


TIMED = {
    **contenders.CASES,
    "doubling": lambda: patterns.doubling_allreduce(8, 1),
    "halving doubling": lambda: patterns.halving_doubling_allreduce(8, 2),
    "one shot": lambda: patterns.one_shot(4, 2),
    "alltoall": lambda: patterns.direct_alltoall(6, 2),
    "trees": lambda: patterns.trees_allreduce(8, DGX1, 1),
    "random": lambda: patterns.random_allreduce(6, 8, 3),
}


@pytest.mark.parametrize("name", TIMED)
def test_auto_costs_no_time(name: str) -> None:
    """Against a block for every end that forwards nothing: fewer or as many blocks, as fast."""
    schedule = TIMED[name]()
    by = {p: lower_schedule(schedule, CompileOptions(pairing=p)) for p in Pairing}
    blocks = {p: sum(len(rank.blocks) for rank in program.ranks) for p, program in by.items()}
    assert blocks[Pairing.FEWEST] <= blocks[Pairing.AUTO] <= blocks[Pairing.FORWARD]
    for message in (1 << 12, 1 << 26):
        time = {
            p: simulate_program(x, schedule.topology, message, MODEL).time_us for p, x in by.items()
        }
        assert time[Pairing.AUTO] <= 1.02 * time[Pairing.FORWARD]
        assert time[Pairing.AUTO] <= 1.02 * time[Pairing.FEWEST]


def test_fusion_costs_no_time_where_a_sum_goes_to_many() -> None:
    """Seven sends wait for the last sum: fused with one of them, it would hold up the others."""
    schedule = contenders.CASES["all-pairs 8"]()
    o = CompileOptions(in_place=True)
    without = replace(o, passes=tuple(one for one in o.passes if one.name != "fuse"))
    for message in (1 << 12, 1 << 20, 1 << 26):
        time = [
            simulate_program(lower_schedule(schedule, x), schedule.topology, message, MODEL).time_us
            for x in (o, without)
        ]
        assert time[0] <= time[1]


def test_phases_of_a_tree_overlap_from_one_iteration_to_the_next() -> None:
    """A block of both phases would hold the loop up for the whole way up and down."""
    schedule = contenders.CASES["tree 16"]()
    by = {p: lower_schedule(schedule, CompileOptions(in_place=True, pairing=p)) for p in Pairing}
    time = {
        p: simulate_program(x, schedule.topology, 1 << 26, MODEL).time_us for p, x in by.items()
    }
    assert size(by[Pairing.FEWEST]).blocks + 1 == size(by[Pairing.AUTO]).blocks
    assert 5 * time[Pairing.AUTO] < time[Pairing.FEWEST]


@settings(max_examples=examples(20, 40))
@given(data=st.data())
def test_whatever_is_chosen_is_right(data: st.DataObject) -> None:
    ranks, seed = data.draw(st.integers(2, 6)), data.draw(st.integers(0, 10**6))
    schedule = patterns.random_allreduce(ranks, data.draw(st.integers(1, 6)), seed)
    target = data.draw(st.sampled_from([MSCCL, RCCL, EXECUTOR]))
    options = CompileOptions(
        target=target,
        in_place=data.draw(st.booleans()),
        instances=data.draw(st.integers(1, 2)),
        lanes=data.draw(st.integers(0, 2)),
        pairing=data.draw(st.sampled_from(Pairing)),
        spread=data.draw(st.sampled_from(Spread)),
        protocol=data.draw(st.sampled_from(Protocol)),
    )
    prove(lower_schedule(schedule, options), target)


@settings(max_examples=examples(20, 40))
@given(data=st.data())
def test_fewest_is_the_fewest(data: st.DataObject) -> None:
    """A rank needs as many blocks on a channel as it has ends on the fuller side."""
    schedule = patterns.random_allreduce(
        data.draw(st.integers(2, 6)), data.draw(st.integers(1, 4)), data.draw(st.integers(0, 10**6))
    )
    options = CompileOptions(in_place=True, pairing=Pairing.FEWEST, count=1)
    program = lower_schedule(schedule, options)
    for rank in program.ranks:
        ends: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        blocks: dict[int, int] = defaultdict(int)
        for block in rank:
            if (block.send, block.recv) != (None, None):
                ends[block.channel][0] += block.send is not None
                ends[block.channel][1] += block.recv is not None
                blocks[block.channel] += 1
        long = any(i.count > 2 for block in rank for i in block.code)
        assert long or all(blocks[c] == max(ends[c]) for c in blocks)


# --- chains -----------------------------------------------------------------------------------


def channels_of(schedule: Schedule, spread: Spread) -> np.ndarray:
    flow = Lower().apply(schedule, MSCCL)
    return Channels(policy=spread).apply(flow, MSCCL).messages.channel


def test_chains_over_the_same_hops_share_a_channel() -> None:
    assert set(channels_of(patterns.ring_allreduce(6, 1), Spread.CHAINS)) == {0}
    # Each chunk of a reduce_scatter leaves out another hop; so does each of an allgather.
    assert set(channels_of(patterns.ring_reduce_scatter(4, 1), Spread.CHAINS)) == {0, 1, 2, 3}
    assert set(channels_of(patterns.ring_allgather(5, 2), Spread.CHAINS)) == set(range(5))
    # What nobody sends on is no chain.
    assert set(channels_of(patterns.direct_alltoall(4, 2), Spread.CHAINS)) == {0}


def test_a_chain_has_its_blocks_for_itself() -> None:
    schedule = patterns.ring_reduce_scatter(4, 1)
    program = lower_schedule(schedule, CompileOptions(spread=Spread.CHAINS, in_place=True))
    prove(program, MSCCL)
    sends = [
        [len(b.code) for b in rank if (b.send, b.recv) != (None, None)] for rank in program.ranks
    ]
    assert sends == [[1, 1, 1, 1]] * 4  # head, two in the middle, tail


def test_more_chains_than_channels_are_refused() -> None:
    schedule = patterns.ring_allgather(40, 1)
    with pytest.raises(UserError, match="chains of their own need more than 32 channels"):
        lower_schedule(schedule, CompileOptions(spread=Spread.CHAINS))


# --- what is critical -------------------------------------------------------------------------


@settings(max_examples=examples(30))
@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_earliest_and_urgency_are_longest_paths(ranks: int, chunks: int, seed: int) -> None:
    m = Lower().apply(patterns.random_allreduce(ranks, chunks, seed), MSCCL).messages
    pair = m.src * ranks + m.dst
    _, connection = np.unique(pair, return_inverse=True)
    rows = list(zip(*(x.tolist() for x in (m.chunk, m.src, m.dst, m.step)), strict=True))
    n = len(rows)
    before = [
        [
            j
            for j in range(n)
            if rows[j][3] < rows[i][3]
            and (
                (rows[j][0], rows[j][2]) == (rows[i][0], rows[i][1]) or rows[j][1:3] == rows[i][1:3]
            )
        ]
        for i in range(n)
    ]
    begin, end = [0] * n, [0] * n
    order = sorted(range(n), key=lambda i: rows[i][3])
    for step in sorted({row[3] for row in rows}):
        now = [i for i in order if rows[i][3] == step]
        for i in now:
            begin[i] = max((end[j] for j in before[i]), default=0)
        for c in set(connection[now].tolist()):
            group = [i for i in now if connection[i] == c]
            start = max(begin[i] for i in group)
            for i in group:
                begin[i], end[i] = start, start + len(group)
    assert [x.tolist() for x in earliest(m, connection)] == [begin, end]
    # Of a broadcast the root's message is followed by as many hops as the tree is deep.
    down = Lower().apply(patterns.tree_broadcast(8, DGX1, 1), MSCCL).messages
    depth = {v: d + 1 for _, v, d in patterns.tree(8, DGX1, 0)}
    below = {v: [w for u, w, _ in patterns.tree(8, DGX1, 0) if u == v] for v in range(8)}

    def height(v: int) -> int:
        return max((1 + height(w) for w in below[v]), default=0)

    assert urgency(down).tolist() == [height(v) for v in down.dst.tolist()]
    assert max(depth.values()) == 1 + max(urgency(down))


@pytest.mark.parametrize("spread", Spread)
def test_no_limit_of_steps_is_a_limit_that_nothing_reaches(spread: Spread) -> None:
    flow = Lower().apply(patterns.trees_allreduce(8, DGX1, 4), MSCCL)
    free, wide, tight = (
        Channels(policy=spread, steps=steps).apply(flow, MSCCL).messages.channel
        for steps in (0, 1 << 30, 2)
    )
    assert (free == wide).all()
    assert tight.max() > free.max()


@pytest.mark.parametrize(
    ("channels", "words"),
    [
        (Channels(lanes=-1), "lanes is -1; 0 means as fusing needs"),
        (Channels(steps=-1), "steps is -1; 0 means no limit"),
    ],
)
def test_negative_lanes_and_steps_are_refused(channels: Channels, words: str) -> None:
    with pytest.raises(UserError, match=words):
        channels.apply(Lower().apply(patterns.ring_allgather(3, 1), MSCCL), MSCCL)
