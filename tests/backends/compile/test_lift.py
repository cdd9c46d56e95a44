"""Programs from anywhere become moves, and right programs again, for any target."""

from collections import Counter
from dataclasses import replace

import patterns
import pytest
import strategies as ours
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_files import (
    EACH,
    SAMPLES,
    Gpu,
    Tb,
    algo,
    pairs_allreduce,
    ring_allgather,
    ring_allreduce,
)
from proof import good
from random_moves import moves, random_algorithm

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import (
    CompileOptions,
    lower_algorithm,
    lower_program,
    lower_schedule,
)
from weft.backends.compile.passes.lift import Lift, folded
from weft.backends.compile.passes.trace import Trace
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read import program_of, read_msccl_xml
from weft.backends.formats.msccl.read.collective import collective_of
from weft.backends.formats.msccl.run import run_xml
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import Collective, custom
from weft.dsl.nouns.program import Op, Program, Protocol
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL, RCCL, Target
from weft.dsl.nouns.slots import INPUT, NONE, OUTPUT, SCRATCH

TARGETS = [MSCCL, RCCL, EXECUTOR]


def imported(text: str) -> tuple[Program, Collective]:
    algo = read_msccl_xml(text, "file")
    collective = collective_of(algo)
    return program_of(algo, collective), collective


def judged(program: Program, collective: Collective, target: Target) -> None:
    """The program is proved, so is its file, and the file computes what the collective says."""
    good(program)
    text = emit(program, target)
    assert not errors(check_xml(read_msccl_xml(text, "file"), target.name))
    done = run_xml(text, "file", collective, interleavings=6)
    assert done.ok, done.detail


def lanes(program: Program) -> int:
    """The most channels between two ranks."""
    ends = {
        (r, b.send, b.channel)
        for r, rank in enumerate(program.ranks)
        for b in rank
        if b.send is not None
    }
    return max(Counter((r, to) for r, to, _ in ends).values())


@pytest.mark.parametrize("protocol", [Protocol.SIMPLE, Protocol.LL])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", EACH)
def test_samples_are_compiled_anew(name: str, target: Target, protocol: Protocol) -> None:
    program, collective = imported(SAMPLES[name])
    options = CompileOptions(target, protocol=protocol)
    again = lower_program(program, options)
    judged(again, collective, target)
    assert again.name == program.name
    assert lanes(again) == lanes(program)
    if target.fuses:
        alone = lower_program(program, replace(options, lanes=1))
        assert alone.instructions <= program.instructions


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    "text", [ring_allgather(5), ring_allreduce(4), pairs_allreduce(5)], ids=["ag", "ar", "pairs"]
)
def test_files_written_by_hand(text: str, target: Target) -> None:
    program, collective = imported(text)
    again = lower_program(program, CompileOptions(target))
    judged(again, collective, target)
    if target is not RCCL:
        assert again.instructions <= program.instructions


@pytest.mark.parametrize(
    "make",
    [
        lambda: patterns.ring_allgather(4, 2),
        lambda: patterns.ring_allreduce(4, 1),
        lambda: patterns.ring_reduce_scatter(4, 2),
        lambda: patterns.halving_doubling_allreduce(8, 2),
        lambda: patterns.direct_alltoall(4, 3),
        lambda: patterns.one_shot(4, 2),
        lambda: patterns.trees_allreduce(5, patterns.hub(5), 2),
        lambda: patterns.rotation(4),
    ],
)
@pytest.mark.parametrize("protocol", [Protocol.SIMPLE, Protocol.LL])
def test_what_we_compiled_gets_no_worse(make, protocol: Protocol) -> None:  # type: ignore[no-untyped-def]
    options = CompileOptions(protocol=protocol)
    program = lower_schedule(make(), options)
    again = lower_program(program, options)
    good(again)
    assert again.instructions <= program.instructions
    third = lower_program(again, options)
    good(third)
    assert third.instructions <= again.instructions


def test_unfused_programs_are_fused_again() -> None:
    """From RCCL, which has no fused steps, back to a runtime that has them."""
    schedule = patterns.ring_allreduce(4, 1)
    plain = lower_schedule(schedule, CompileOptions(RCCL, in_place=True))
    fused = lower_schedule(schedule, CompileOptions(MSCCL, in_place=True))
    again = lower_program(plain)
    good(again)
    assert again.instructions == fused.instructions < plain.instructions
    assert {i.op for r in again.ranks for b in r for i in b.code} >= {Op.RECV_REDUCE_SEND}


@settings(max_examples=examples(10, 20), deadline=None)
@given(
    ours.schedules(max_ranks=4),
    st.sampled_from(TARGETS),
    st.sampled_from(TARGETS),
    st.sampled_from([1, 2]),
    st.booleans(),
)
def test_schedules_survive_two_compilers(
    schedule,
    first: Target,
    second: Target,
    instances: int,
    in_place: bool,  # type: ignore[no-untyped-def]
) -> None:
    program = lower_schedule(schedule, CompileOptions(first, instances, in_place=in_place))
    good(lower_program(program, CompileOptions(second)))


@settings(max_examples=examples(10, 20), deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from(TARGETS),
    st.sampled_from(list(Protocol)),
)
def test_moves_survive_two_compilers(
    seed: int,
    ranks: int,
    chunks: int,
    count: int,
    in_place: bool,
    target: Target,
    protocol: Protocol,
) -> None:
    algorithm = random_algorithm(seed, ranks=ranks, chunks=chunks, moves=count, in_place=in_place)
    program = lower_algorithm(algorithm, CompileOptions(target, 2, protocol=protocol))
    good(lower_program(program, CompileOptions(MSCCL, 2)))


def test_sharing_scratch_puts_nothing_in_a_row() -> None:
    """Three chunks through one scratch slot: moved anew, each has its own and they overlap."""
    rows = [
        row
        for k in range(3)
        for row in ((k, 0, INPUT + k, 1, SCRATCH), (k, 1, SCRATCH, 2, OUTPUT + k))
    ]
    c = custom("relay", 3, [(0, k, [0], k) for k in range(3)], [(2, k, [0], k) for k in range(3)])
    serial = Algorithm("relay", c, moves(*rows), [0, 1, 0])
    assert Trace().apply(serial, MSCCL).messages.step.max() == 5
    lifted = Lift().apply(lower_algorithm(serial), MSCCL)
    assert Trace().apply(lifted, MSCCL).messages.step.max() <= 3
    assert lifted.scratch[1] == 3
    good(lower_algorithm(lifted))


def test_a_file_that_hangs_with_long_messages_hangs_no_more() -> None:
    """Both send four chunks before they receive: FIFOs of two operations are full."""
    blocks = [
        (Tb(1 - r, 1 - r).step("s", "i0", f"o{4 * r}", 4).step("r", "i0", f"o{4 - 4 * r}", 4))
        for r in range(2)
    ]
    gpus = [Gpu(4, 8, 0, [block]) for block in blocks]
    text = algo(gpus, "allgather", 8, inplace=1, outofplace=0)
    program, collective = imported(text)
    assert errors(check_program(program))
    judged(lower_program(program), collective, MSCCL)


def test_two_moves_fold_where_nothing_is_in_between() -> None:
    through = (1, SCRATCH)
    arrive, add = (0, OUTPUT, 1, SCRATCH, NONE), (1, SCRATCH, 1, OUTPUT, OUTPUT)
    direct = (0, OUTPUT, 1, OUTPUT, OUTPUT)
    overwrite, read = (0, INPUT, 0, OUTPUT, NONE), (1, OUTPUT, 2, OUTPUT, NONE)
    fold = lambda *rows: folded(list(rows), {through})  # noqa: E731
    assert fold(arrive, read, add) == [read, direct]  # the first waits
    assert fold(arrive, overwrite, add) == [direct, overwrite]  # the second hurries
    assert fold(arrive, overwrite, read, add) == [arrive, overwrite, read, add]  # neither can
    assert fold(arrive, (1, SCRATCH, 2, SCRATCH, NONE), add)[0] == arrive  # two readers
