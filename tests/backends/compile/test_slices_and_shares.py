"""Schedules with slices, unequal chunks and a planned order: lowered right, and with no more."""

from dataclasses import replace
from random import Random

import numpy as np
import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from shares import in_pieces, moved, parts, with_priorities, with_sizes

from weft.backends.check.checker import check_program
from weft.backends.compile.analyses.planned import Order, distinct_orders, planned
from weft.backends.compile.analyses.unroll import schedule_in_grains, unrolled
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.lower import Lower
from weft.backends.compile.pipeline import DEFAULT_PASSES
from weft.backends.execute.execute import run_program
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Op, Program
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL, RCCL
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.judge.verify import require_valid
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL as MODEL
from weft.synth.time.schedule_time import simulate

DGX1 = patterns.both(patterns.DGX1)
SHAPES = {
    "ring allgather": lambda: patterns.ring_allgather(4, 1),
    "trees allgather": lambda: patterns.trees_allgather(5, patterns.hub(5), 1),
    "ring allreduce": lambda: patterns.ring_allreduce(4, 1),
    "trees allreduce": lambda: patterns.trees_allreduce(8, DGX1, 1),
    "doubling allreduce": lambda: patterns.doubling_allreduce(8, 3),
    "random allreduce": lambda: patterns.random_allreduce(5, 6, 1),
    "one shot": lambda: patterns.one_shot(4, 2),
}


def good(program: Program) -> None:
    """Proved, and right when it is executed."""
    assert check_program(program) == ()
    done = run_program(program, interleavings=3, seed=1)
    assert done.ok, done.detail


@pytest.mark.parametrize("shape", SHAPES)
def test_slices_are_the_loop_of_the_runtime(shape: str) -> None:
    schedule = SHAPES[shape]()
    for target in (MSCCL, RCCL, EXECUTOR):
        options = CompileOptions(target=target)
        once = lower_schedule(schedule, options)
        assert lower_schedule(replace(schedule, segments=7), options) == once
    good(once)


def test_the_loop_takes_as_long_as_the_slices() -> None:
    """A chain of four GPUs: each hop a slice behind the one before it."""
    chain = topology("line:4")
    link = {(x.src, x.dst): i for i, x in enumerate(chain.links)}
    hops = [Transfer(0, i, i + 1, (link[i, i + 1],), i) for i in range(3)]
    schedule = Schedule.of(chain, make("broadcast", 4), hops)
    size, slices = 512 << 20, 256  # slices of 2 MiB, as the runtime under Simple
    wanted = simulate(replace(schedule, segments=slices), size).time_us
    assert simulate(schedule, size).time_us > 2.5 * wanted
    run = simulate_program(lower_schedule(schedule), chain, size, MODEL)
    assert wanted <= run.time_us < 1.02 * wanted


def test_written_out_slices_overlap_without_loops() -> None:
    """A chunk below the payload is one turn of the loop; pieces of it still overlap."""
    chain = topology("line:4")
    link = {(x.src, x.dst): i for i, x in enumerate(chain.links)}
    hops = [Transfer(0, i, i + 1, (link[i, i + 1],), i) for i in range(3)]
    schedule = Schedule.of(chain, make("broadcast", 4), hops)
    size = 2 << 20
    one, eight = (
        simulate_program(
            lower_schedule(schedule, CompileOptions(segments=k)), chain, size, MODEL
        ).time_us
        for k in (1, 8)
    )
    assert eight < 0.6 * one
    assert lower_schedule(schedule, CompileOptions(segments=8)).message_chunks == 8


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pieces", [2, 5])
def test_written_out_slices_are_right(shape: str, pieces: int) -> None:
    schedule = SHAPES[shape]()
    many = unrolled(schedule, pieces)
    require_valid(many)
    assert len(many) == pieces * len(schedule)
    good(lower_schedule(schedule, CompileOptions(segments=pieces)))


def test_slices_that_cannot_be_written_out() -> None:
    schedule = patterns.ring_allgather(4, 1)
    with pytest.raises(UserError, match="into 0 pieces"):
        lower_schedule(schedule, CompileOptions(segments=0))
    with pytest.raises(UserError, match="too many to write out"):
        lower_schedule(schedule, CompileOptions(segments=1 << 26))


@settings(max_examples=examples(12, 25), deadline=None)
@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 10**6), st.booleans())
def test_allgathers_of_unequal_chunks(n: int, most: int, seed: int, in_place: bool) -> None:
    dice = Random(seed)
    grains = dice.randint(most, 12)
    pieces = [parts(grains, dice.randint(1, most), dice) for _ in range(n)]
    schedule = in_pieces(patterns.ring_allgather(n, 1), pieces)
    require_valid(schedule)
    require_valid(schedule_in_grains(schedule))
    good(lower_schedule(schedule, CompileOptions(in_place=in_place)))
    good(lower_schedule(schedule, CompileOptions(segments=2, target=RCCL)))


@settings(max_examples=examples(12, 25), deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6), st.sampled_from([MSCCL, RCCL, EXECUTOR]))
def test_allreduces_of_unequal_chunks(n: int, seed: int, target: object) -> None:
    dice = Random(seed)
    schedule = with_sizes(patterns.ring_allreduce(n, 1), [dice.randint(1, 9) for _ in range(n)])
    require_valid(schedule)
    good(lower_schedule(schedule, CompileOptions(target=target)))


def test_a_chunk_of_many_grains_is_one_message() -> None:
    """And two where it has more than the runtimes move at once."""
    direct = patterns.direct_alltoall(3, 1)
    for grains, messages in ((20, 1), (71, 1), (72, 2)):
        schedule = in_pieces(direct, [[1, grains - 1]] * 9 if grains > 72 else [[grains]] * 9)
        assert schedule_in_grains(schedule).collective.chunks == 9  # grains of 20 are one
        odd = in_pieces(direct, [[grains], *[[1, grains - 1]] * 8])
        program = lower_schedule(odd)
        sends = [x for r in program.ranks for b in r for x in b.code if x.op is Op.SEND]
        assert len(sends) == 6 * messages
        assert sum(x.count for x in sends) == 6 * grains
        good(program)


def test_the_coarsest_grains_are_taken() -> None:
    plain = make("allgather", 3)
    cut = plain.cut([[6, 9], [3, 12], [15]])
    assert cut.coarsest() == plain.cut([[2, 3], [1, 4], [5]])
    assert plain.coarsest() is plain
    fine = in_pieces(patterns.ring_allgather(3, 1), [[1, 10**7]] * 3)
    with pytest.raises(UserError, match="grains are moved"):
        lower_schedule(fine)


@settings(max_examples=examples(10, 20), deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.integers(1, 9), st.integers(0, 10**6))
def test_any_planned_order_is_right(shape: str, most: int, seed: int) -> None:
    schedule = with_priorities(SHAPES[shape](), most, Random(seed), segments=4, stride=most)
    ordered = planned(schedule)
    require_valid(ordered)
    columns = np.stack([ordered.chunk, ordered.src, ordered.dst])
    assert sorted(columns.T.tolist()) == sorted(
        np.stack([schedule.chunk, schedule.src, schedule.dst]).T.tolist()
    )
    program = lower_schedule(schedule)
    assert check_program(program) == ()
    good(lower_schedule(schedule, CompileOptions(segments=2)))


def test_a_connection_serves_the_least_priority_that_is_ready() -> None:
    """Chunks 0, 1, 2 start on rank 0; chunk 3 comes from rank 2 and is most urgent."""
    line = topology("line:3")
    link = {(x.src, x.dst): i for i, x in enumerate(line.links)}
    plain = make("allgather", 3, chunks=3)
    rows = [Transfer(c, 0, 1, (link[0, 1],), 0) for c in (0, 1, 2)]
    rows += [Transfer(3, 1, 2, (link[1, 2],), 0)]
    rows += [Transfer(c, 1, 2, (link[1, 2],), 1) for c in (0, 1, 2)]
    schedule = Schedule.of(line, plain, rows)
    by_chunk = {0: 2, 1: 1, 2: 0, 3: 9}
    order = np.array([by_chunk[c] for c in schedule.chunk.tolist()], np.int32)
    ordered = planned(replace(schedule, priority=order))
    sent = moved([t for t in ordered if t.src == 0])
    assert [c for c, *_ in sent] == [2, 1, 0]
    # Rank 1 has nothing but chunk 3 at first; what arrives then overtakes nothing, in its order.
    assert [c for c, *_ in moved([t for t in ordered if t.src == 1])] == [3, 2, 1, 0]
    assert ordered.steps == 4


def test_equal_priorities_travel_together_as_before() -> None:
    schedule = patterns.ring_allgather(4, 6)
    same = replace(schedule, priority=np.zeros(len(schedule), np.int32))
    assert lower_schedule(same) == lower_schedule(schedule)


def test_ranks_that_exchange_a_chunk_keep_their_steps() -> None:
    schedule = patterns.doubling_allreduce(8, 1)
    with_order = with_priorities(schedule, 5, Random(3))
    assert planned(with_order) is with_order


def test_long_chunks_keep_a_connection_busy_for_longer() -> None:
    """Rank 1 gets 0 (5 grains) and 1 (1 grain) side by side; what is there first goes on first."""
    fan = topology("full:4")
    link = {(x.src, x.dst): i for i, x in enumerate(fan.links)}
    collective = make("allgather", 4).cut([[5, 1], [6], [1, 5], [6]])
    rows = [
        Transfer(0, 0, 1, (link[0, 1],), 0),
        Transfer(3, 2, 1, (link[2, 1],), 0),
        Transfer(0, 1, 3, (link[1, 3],), 1),
        Transfer(3, 1, 3, (link[1, 3],), 1),
    ]
    schedule = Schedule.of(fan, collective, rows)
    ordered = planned(replace(schedule, priority=np.zeros(4, np.int32)))
    assert [t.chunk for t in ordered if t.src == 1] == [3, 0]


def test_slow_links_keep_a_connection_busy_for_longer() -> None:
    """As before, of equal chunks over links of 10 and of 50 GB/s."""
    links = (*both_ways(0, 1, 10), *both_ways(2, 1, 50), *both_ways(1, 3, 50))
    fan = Topology("fan", tuple(map(gpu, range(4))), links)
    link = {(x.src, x.dst): i for i, x in enumerate(fan.links)}
    rows = [
        Transfer(0, 0, 1, (link[0, 1],), 0),
        Transfer(2, 2, 1, (link[2, 1],), 0),
        Transfer(0, 1, 3, (link[1, 3],), 1),
        Transfer(2, 1, 3, (link[1, 3],), 1),
    ]
    given = Schedule.of(fan, make("allgather", 4), rows)
    schedule = replace(given, priority=np.arange(4, dtype=np.int32))

    def forwarded(order: Order) -> list[int]:
        return [t.chunk for t in planned(schedule, order) if t.src == 1]

    assert forwarded(Order.PRIORITY) == [0, 2]
    assert forwarded(Order.BANDWIDTH) == [2, 0]
    assert planned(schedule, Order.STEPS) is schedule
    assert distinct_orders(schedule) == list(Order)
    assert distinct_orders(given) == [Order.PRIORITY]
    alike = replace(schedule, topology=topology("full:4"))
    assert Order.BANDWIDTH not in distinct_orders(alike)


@pytest.mark.parametrize("order", Order)
def test_an_order_is_an_option_and_one_of_the_pass_that_reads_a_schedule(order: Order) -> None:
    schedule = with_priorities(patterns.ring_allgather(4, 6), 5, Random(3))
    wanted = lower_schedule(planned(schedule, order), CompileOptions(order=Order.STEPS))
    assert lower_schedule(schedule, CompileOptions(order=order)) == wanted
    passes = (Lower(order=order), *DEFAULT_PASSES)
    assert lower_schedule(schedule, CompileOptions(passes=passes)) == wanted
