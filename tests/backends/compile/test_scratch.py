"""Scratch slots share places only where the program already orders them, and do so."""

from itertools import combinations

import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from proof import prove

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.prune import Prune
from weft.backends.compile.passes.scratch import Scratch
from weft.backends.compile.pipeline import DEFAULT_PASSES
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL, RCCL, TARGETS
from weft.dsl.nouns.schedule import Schedule

WITHOUT = tuple(one for one in DEFAULT_PASSES if one.name != "scratch")
DGX1 = patterns.both(patterns.DGX1)


def s(offset: int) -> Slice:
    return Slice(Buffer.SCRATCH, offset)


def o(offset: int) -> Slice:
    return Slice(Buffer.OUTPUT, offset)


def i(offset: int) -> Slice:
    return Slice(Buffer.INPUT, offset)


def local(blocks: list[list[Instr]], scratch: int) -> Program:
    """One rank that copies four chunks to its output by way of scratch."""
    code = tuple(Block(0, None, None, tuple(own)) for own in blocks)
    rank = RankProgram(code, 4, 4, scratch)
    return Program.of("local", make("broadcast", 1, chunks=4), (rank,), 4)


def through(k: int, slot: int, count: int = 1) -> list[Instr]:
    """Copy ``count`` chunks from k by way of a slot."""
    return [Instr(Op.COPY, i(k), s(slot), count), Instr(Op.COPY, s(slot), o(k), count)]


def slots(program: Program) -> list[int]:
    """The scratch offsets that instructions name, in order."""
    return [
        part.offset
        for block in program.ranks[0]
        for x in block.code
        for part in (x.src, x.dst)
        if part.buffer is Buffer.SCRATCH
    ]


def test_slots_used_one_after_another_share_a_place() -> None:
    program = local([[*through(0, 0), *through(1, 1), *through(2, 2), *through(3, 3)]], 4)
    shared = Scratch().apply(program, MSCCL)
    assert slots(shared) == [0] * 8
    assert shared.ranks[0].scratch_chunks == 1
    prove(shared, MSCCL)


def test_concurrent_blocks_keep_places_of_their_own() -> None:
    program = local([through(k, k) for k in range(4)], 4)
    assert Scratch().apply(program, MSCCL) == program


def test_a_wait_lets_the_later_block_take_the_place() -> None:
    first, second = [*through(0, 0), *through(1, 1)], [*through(2, 2), *through(3, 3)]
    early = [Instr(Op.COPY, i(2), s(2), 1, ((0, 0),)), *second[1:]]  # only after the write
    late = [Instr(Op.COPY, i(2), s(2), 1, ((0, 1),)), *second[1:]]  # after the read as well
    done = [Instr(Op.COPY, i(2), s(2), 1, ((0, 3),)), *second[1:]]
    for code, size in ((early, 2), (late, 2), (done, 1)):
        shared = Scratch().apply(local([first, code], 4), MSCCL)
        assert shared.ranks[0].scratch_chunks == size
        prove(shared, MSCCL)
    assert slots(Scratch().apply(local([first, late], 4), MSCCL)) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_chunks_that_move_together_stay_neighbours() -> None:
    program = local([[*through(0, 5), *through(1, 2, 2), *through(3, 4)]], 6)
    shared = Scratch().apply(program, MSCCL)
    assert shared.ranks[0].scratch_chunks == 2
    prove(shared, MSCCL)
    # Two single slots are free one by one: a pair finds them where they lie side by side.
    spread = [*through(0, 0), *through(3, 0), *through(1, 2, 2)]
    spread[1], spread[2] = spread[2], spread[1]
    assert Scratch().apply(local([spread], 6), MSCCL).ranks[0].scratch_chunks == 2


def test_a_slot_that_is_read_first_is_left_alone() -> None:
    code = [*through(0, 0), Instr(Op.REDUCE, i(1), s(1)), Instr(Op.COPY, s(2), o(2))]
    assert Scratch().apply(local([code], 3), MSCCL).ranks[0].scratch_chunks == 3


def memory(program: Program) -> int:
    return sum(rank.scratch_chunks for rank in program.ranks)


def before_and_after(schedule: Schedule, **options: object) -> tuple[Program, Program]:
    plain = lower_schedule(schedule, CompileOptions(passes=WITHOUT, **options))
    return plain, lower_schedule(schedule, CompileOptions(**options))


CLASSICS = {
    # name: schedule, target, in place, slots of all ranks before and after. By hand: a ring without
    # fused steps receives 7 partial sums per rank, each added before the next one comes: 1 slot.
    "ring": (lambda: patterns.ring_allreduce(8, 1), RCCL, True, 8 * 7, 8),
    "ring, fused": (lambda: patterns.ring_allreduce(8, 1), MSCCL, True, 0, 0),
    # What arrives from several ranks at any time needs a slot for each: nothing to share.
    "one shot": (lambda: patterns.one_shot(5, 2), MSCCL, False, 5 * 8, 5 * 8),
    "doubling": (lambda: patterns.doubling_allreduce(8, 1), RCCL, True, 8 * 3, 8 * 3),
    # Each block adds the sums of its peer one after another.
    "trees": (lambda: patterns.trees_allreduce(8, DGX1, 1), RCCL, True, 56, 36),
    "trees, out of place": (lambda: patterns.trees_allreduce(8, DGX1, 1), RCCL, False, 32, 24),
}


@pytest.mark.parametrize("name", CLASSICS)
def test_memory_of_the_classics(name: str) -> None:
    build, target, in_place, before, after = CLASSICS[name]
    plain, shared = before_and_after(build(), target=target, in_place=in_place)
    assert (memory(plain), memory(shared)) == (before, after)
    assert waits(shared) == waits(plain)
    prove(shared, target)


def waits(program: Program) -> list[tuple[tuple[int, int], ...]]:
    return [x.waits for rank in program.ranks for block in rank for x in block.code]


@settings(max_examples=examples(20, 40))
@given(data=st.data())
def test_random_schedules_stay_right_in_less_memory(data: st.DataObject) -> None:
    ranks, seed = data.draw(st.integers(2, 6)), data.draw(st.integers(0, 10**6))
    schedule = patterns.random_allreduce(ranks, data.draw(st.integers(1, 8)), seed)
    target = data.draw(st.sampled_from([MSCCL, RCCL, EXECUTOR]))
    options = {
        "target": target,
        "in_place": data.draw(st.booleans()),
        "instances": data.draw(st.integers(1, 2)),
        "count": data.draw(st.integers(0, 2)),
    }
    plain, shared = before_and_after(schedule, **options)
    assert memory(shared) <= memory(plain)
    assert waits(shared) == waits(plain)
    prove(shared, target)


@settings(max_examples=examples(60))
@given(
    order=st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True).flatmap(
        lambda used: st.permutations(used * 2)
    )
)
def test_one_block_takes_as_many_places_as_slots_are_alive_at_once(order: list[int]) -> None:
    """In a single block the least memory is known; slots of one place never live together."""
    first, last, code = {}, {}, []
    for k, slot in enumerate(order):
        code.append(through(slot % 4, slot)[slot in first])
        first.setdefault(slot, k)
        last[slot] = k
    alive = max(sum(first[x] <= k <= last[x] for x in first) for k in range(len(code)))
    shared = Scratch().apply(local([code], 8), MSCCL)
    assert shared.ranks[0].scratch_chunks == alive
    moved = dict(zip(order, slots(shared), strict=True))
    for x, y in combinations(first, 2):
        assert moved[x] != moved[y] or last[x] < first[y] or last[y] < first[x]


def test_prune_after_scratch_changes_nothing() -> None:
    _, shared = before_and_after(patterns.trees_allreduce(8, DGX1, 1), target=RCCL)
    assert Prune().apply(shared, TARGETS["rccl"]) == shared
