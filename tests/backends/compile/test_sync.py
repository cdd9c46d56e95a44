"""Fewer waits, the same order: by brute force on small programs."""

import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from wait_programs import COPY, after, local_edges, longest, message_edges, programs

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.fuse import Fuse
from weft.backends.compile.passes.sync import Sync
from weft.backends.execute.execute import run_program
from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Instr, Program, Protocol, RankProgram
from weft.dsl.nouns.runtime import MSCCL, RCCL


def without(program: Program, r: int, b: int, i: int, wait: tuple[int, int]) -> Program:
    """The program without one wait."""
    rank = program.ranks[r]
    code = list(rank.blocks[b].code)
    x = code[i]
    code[i] = Instr(x.op, x.src, x.dst, x.count, tuple(w for w in x.waits if w != wait))
    block = rank.blocks[b]
    blocks = list(rank.blocks)
    blocks[b] = Block(block.channel, block.send, block.recv, tuple(code))
    ranks = list(program.ranks)
    ranks[r] = RankProgram(
        tuple(blocks), rank.input_chunks, rank.output_chunks, rank.scratch_chunks
    )
    return Program.of(
        program.name,
        program.collective,
        tuple(ranks),
        program.message_chunks,
        program.in_place,
        program.protocol,
    )


def waits(program: Program) -> list[tuple[int, int, int, tuple[int, int]]]:
    return [
        (r, b, i, wait)
        for r, rank in enumerate(program.ranks)
        for b, block in enumerate(rank)
        for i, instr in enumerate(block.code)
        for wait in instr.waits
    ]


def steps(program: Program) -> int:
    return sum(max(1, len(i.waits)) for rank in program.ranks for b in rank for i in b.code)


@settings(max_examples=examples(30, 60), deadline=None)
@given(program=programs())
def test_transitive_reduction_keeps_the_order_and_no_wait_too_many(program: Program) -> None:
    slim = Sync().apply(program, MSCCL)
    order = after(local_edges(program))
    assert after(local_edges(slim)) == order
    for wait in waits(slim):
        assert after(local_edges(without(slim, *wait))) != order, wait


@settings(max_examples=examples(30, 60), deadline=None)
@given(program=programs())
def test_moved_waits_imply_the_order_and_lengthen_no_path(program: Program) -> None:
    reduced, moved = Sync().apply(program, MSCCL), Sync(move=True).apply(program, MSCCL)
    before, now = after(local_edges(program)), after(local_edges(moved))
    assert all(before[node] <= now[node] for node in before)
    assert longest(local_edges(moved)) == longest(local_edges(program))
    flags = [{(r, wait) for r, _, _, wait in waits(p)} for p in (reduced, moved)]
    assert len(flags[1]) <= len(flags[0])
    assert flags[1] <= flags[0]  # no flag that was not there
    assert steps(moved) <= steps(reduced) <= steps(program)


@settings(max_examples=examples(12, 25), deadline=None)
@given(data=st.data())
def test_programs_with_messages(data: st.DataObject) -> None:
    """Order through messages too; proved and run; large messages that fill FIFOs included."""
    schedule = patterns.random_allreduce(
        data.draw(st.integers(2, 5)), data.draw(st.integers(1, 6)), data.draw(st.integers(0, 10**6))
    )
    woven = lower_schedule(
        schedule,
        CompileOptions(
            passes=data.draw(st.sampled_from([(), (Fuse(),)])),
            protocol=data.draw(st.sampled_from([Protocol.SIMPLE, Protocol.LL])),
            count=data.draw(st.integers(0, 4)),
            in_place=data.draw(st.booleans()),
        ),
    )
    slim = Sync(move=True).apply(woven, MSCCL)
    edges = [local_edges(p) + message_edges(p) for p in (woven, slim)]
    before, now = map(after, edges)
    assert all(before[node] <= now[node] for node in before)
    assert longest(edges[1]) == longest(edges[0])
    assert steps(slim) <= steps(woven)
    assert not errors(check_program(slim))
    assert run_program(slim, interleavings=4).ok


def _one_rank(*blocks: list[tuple[tuple[int, int], ...]]) -> Program:
    code = tuple(Block(0, None, None, tuple(Instr(*COPY, 1, w) for w in block)) for block in blocks)
    return Program.of("one", make("allgather", 1), (RankProgram(code, 1, 1, 0),), 1)


def shown(program: Program) -> list[list[tuple[tuple[int, int], ...]]]:
    return [[i.waits for i in block.code] for block in program.ranks[0]]


def test_the_examples_of_the_page() -> None:
    # Block 1 waits for (0, 0), at a place where (0, 1), which block 2 needs, is done as early.
    later = _one_rank([(), ()], [(), (), ((0, 0),)], [(), (), ((0, 1),)])
    assert shown(Sync(move=True).apply(later, MSCCL))[1:] == [[(), (), ((0, 1),)]] * 2
    assert Sync(move=True).apply(later, RCCL) is later
    ahead = _one_rank([()], [()], [(), (), ((0, 0), (1, 0))])
    assert shown(Sync(move=True).apply(ahead, MSCCL))[2] == [(), ((1, 0),), ((0, 0),)]
    # Nothing may move where the waiting one would start later for it.
    tight = _one_rank([(), ()], [((0, 0),)], [((0, 1),)])
    assert Sync(move=True).apply(tight, MSCCL) is tight


def test_a_circle_of_waits_is_refused() -> None:
    with pytest.raises(CheckFailed, match="rank 0: block 0 waits in a circle at instruction 1"):
        Sync(move=True).apply(_one_rank([(), ((1, 0),)], [((0, 1),)]), MSCCL)
    with pytest.raises(CheckFailed, match="waits for instruction 7 of block 1, which does not"):
        Sync(move=True).apply(_one_rank([(), ((1, 7),)], [()]), MSCCL)


def test_a_wait_for_the_own_block_says_nothing() -> None:
    program = _one_rank([(), ((0, 0),)], [()])
    assert shown(Sync(move=True).apply(program, MSCCL)) == [[(), ()], [()]]


def test_fewer_flags_and_steps_in_real_programs() -> None:
    def flags(program: Program) -> int:
        return len({(r, wait) for r, _, _, wait in waits(program)})

    for schedule, options, fewer in (
        (patterns.halving_doubling_allreduce(8, 2), {"count": 1}, flags),
        (patterns.one_shot_ring(5, 3), {"count": 1}, flags),
        (
            patterns.routed("alltoall", 5, patterns.both(patterns.ring(5)), 2),
            {"instances": 3, "lanes": 2},
            steps,
        ),
    ):
        program = lower_schedule(schedule, CompileOptions(passes=(Fuse(),), **options))
        reduced, moved = Sync().apply(program, MSCCL), Sync(move=True).apply(program, MSCCL)
        assert fewer(moved) < fewer(reduced)
        assert not errors(check_program(moved))
