"""The text of the files: two golden ones, and what the format cannot hold."""

import os
from dataclasses import replace
from pathlib import Path

import patterns
import pytest
import xml_runtime as runtime

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.formats.msccl.emit import emit, require_fit
from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, Protocol, RankProgram, Slice
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL, RCCL, TARGETS, Target, target

GOLDEN = Path(__file__).parents[3] / "golden"


def output(offset: int) -> Slice:
    return Slice(Buffer.OUTPUT, offset)


def scratch(offset: int) -> Slice:
    return Slice(Buffer.SCRATCH, offset)


def alone(*blocks: list[Instr], protocol: Protocol = Protocol.SIMPLE) -> Program:
    """A program of one rank; what it computes does not matter here."""
    code = tuple(Block(0, None, None, tuple(b)) for b in blocks)
    rank = RankProgram(code, 40, 40, 40)
    return Program.of("p", make("allreduce", 1, chunks=40), (rank,), 40, protocol=protocol)


@pytest.mark.parametrize(
    ("name", "schedule", "options"),
    [
        ("allgather_pair.xml", patterns.ring_allgather(2, 1), CompileOptions(name="pair")),
        (
            "allreduce_ring3_in_place_rccl.xml",
            patterns.ring_allreduce(3, 1),
            CompileOptions(target=RCCL, in_place=True, name="ring3", protocol=Protocol.SIMPLE),
        ),
    ],
)
def test_golden(name: str, schedule: patterns.Schedule, options: CompileOptions) -> None:
    """WEFT_GOLDEN=write rewrites them; read the difference before you commit it."""
    text = emit(lower_schedule(schedule, options), options.target, max_bytes=1 << 20)
    if os.environ.get("WEFT_GOLDEN") == "write":
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_each_runtime_has_its_own_word_for_reduce_scatter() -> None:
    schedule = patterns.ring_reduce_scatter(3, 1)
    words = []
    for t in (MSCCL, RCCL, EXECUTOR):
        text = emit(lower_schedule(schedule, CompileOptions(target=t)), t)
        words.append(runtime.read(text).algo["coll"])
    assert words == ["reduce_scatter", "reducescatter", "reducescatter"]


def test_the_header() -> None:
    program = lower_schedule(
        patterns.ring_allgather(3, 2), CompileOptions(instances=2, protocol=Protocol.LL128)
    )
    text = emit(program, MSCCL, name="my ring", min_bytes=1024, max_bytes=4096)
    assert text.split("\n")[0] == (
        '<algo name="my ring" proto="LL128" nchannels="2" nchunksperloop="12" ngpus="3" '
        'coll="allgather" inplace="0" outofplace="1" minBytes="1024" maxBytes="4096">'
    )
    assert text.endswith("  </gpu>\n</algo>\n")


@pytest.mark.parametrize("name", ["", 'a"b', "a<b", "x" * 64, "a\nb", "a&b", "a=b"])
def test_names_that_the_format_cannot_hold(name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name"):
        emit(alone([]), MSCCL, name=name)


@pytest.mark.parametrize("sizes", [(-1, 5), (5, 5), (9, 3), (0, 1 << 63)])
def test_empty_size_ranges(sizes: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="no message has"):
        emit(alone([]), MSCCL, min_bytes=sizes[0], max_bytes=sizes[1])


def test_further_dependences_become_nops_that_count() -> None:
    copy = Instr(Op.COPY, output(0), output(1))
    waiting = replace(copy, waits=((0, 0), (1, 1), (2, 0)))
    program = alone([copy], [copy, copy], [copy], [copy, waiting], [replace(copy, waits=((3, 1),))])
    m = runtime.read(emit(program, MSCCL))
    first, second = m.blocks[0][3][3]
    assert first.needs == []
    assert second.needs == [(0, 0), (1, 1), (2, 0)]
    assert second.flag == 3  # two nops before it
    assert m.blocks[0][4][3][0].needs == [(3, 3)]
    assert [t.publishes for t in m.blocks[0][1][3]] == [False, True]


@pytest.mark.parametrize("sums", [1, 15, 16, 17, 31, 40])
def test_chains_of_reductions_stay_below_what_runtimes_can_fuse(sums: int) -> None:
    code = [Instr(Op.REDUCE, scratch(i), output(0)) for i in range(sums)]
    m = runtime.read(emit(alone(code), MSCCL))
    chains = [1 + len(t.more) for t in m.blocks[0][0][3]]
    assert sum(chains) == sums
    assert max(chains) <= 15
    assert len(chains) == -(-sums // 15)


def test_reductions_of_different_counts_are_kept_apart() -> None:
    code = [Instr(Op.REDUCE, scratch(4 * i), output(0), count) for i, count in enumerate((2, 2, 3))]
    m = runtime.read(emit(alone(code), MSCCL))
    assert [(1 + len(t.more), t.count) for t in m.blocks[0][0][3]] == [(2, 2), (1, 3)]


def test_a_dependence_inside_a_chain_is_waited_for_in_time() -> None:
    code = [Instr(Op.REDUCE, scratch(i), output(0)) for i in range(3)]
    code[1] = replace(code[1], waits=((1, 0), (2, 0)))
    copy = Instr(Op.COPY, output(2), scratch(1))
    m = runtime.read(emit(alone(code, [copy], [copy]), MSCCL))
    assert [t.needs for t in m.blocks[0][0][3]] == [[], [(1, 0), (2, 0)]]


def test_blocks_waited_for_get_numbers_that_fit() -> None:
    """Block numbers are signed bytes in the runtimes: 150 is out of reach, 0 is not."""
    copy = Instr(Op.COPY, output(0), output(1))
    blocks = [[copy] for _ in range(200)]
    blocks[3] = [replace(copy, waits=((150, 0), (199, 0)))]
    m = runtime.read(emit(alone(*blocks), MSCCL))
    runtime.check_shape(m, {"steps": 256, "tbs": 216, "depid": 127, "ops": ("cpy",)})
    needs = [t.needs for *_, code in m.blocks[0] for t in code if t.needs]
    assert needs == [[(0, 0), (1, 0)]]


COPY = Instr(Op.COPY, output(0), output(1))


@pytest.mark.parametrize(
    ("program", "runtime_target", "words"),
    [
        (alone([COPY] * 65), RCCL, "65 steps in block 0 on rank 0; rccl takes 64"),
        (alone([COPY] * 257), MSCCL, "257 steps in block 0 on rank 0; msccl takes 256"),
        (alone(*[[COPY]] * 65), RCCL, "65 thread blocks on rank 0; rccl takes 64"),
        (alone(*[[COPY] * 256] * 16), MSCCL, "XML elements on rank 0; msccl takes 4095"),
        (
            alone([replace(COPY, count=72)]),
            MSCCL,
            "72 chunks in one step on rank 0; msccl takes 71",
        ),
        (alone([replace(COPY, count=0)]), MSCCL, "moves 0 chunks"),
        (alone([replace(COPY, dst=output(32768))]), MSCCL, "32768 as a chunk offset"),
        (
            alone([Instr(Op.RECV_COPY_SEND, output(0), output(0))]),
            RCCL,
            "rccl does not execute rcs",
        ),
        (alone(*[[COPY, replace(COPY, waits=((130, 0),))]] * 128, *[[COPY]] * 3), MSCCL, None),
    ],
)
def test_limits(program: Program, runtime_target: Target, words: str | None) -> None:
    for judge in (emit, require_fit):
        if words is None:
            judge(program, runtime_target)
            continue
        with pytest.raises(UserError, match=words):
            judge(program, runtime_target)


def test_too_many_channels_and_blocks_waited_for() -> None:
    rank = RankProgram((Block(32, None, None, ()),), 1, 1, 0)
    with pytest.raises(UserError, match="33 channels; msccl takes 32"):
        emit(Program.of("p", make("allgather", 1), (rank,), 1), MSCCL)
    ring = [[replace(COPY, waits=(((b + 1) % 150, 0),))] for b in range(150)]
    for judge in (emit, require_fit):
        with pytest.raises(UserError, match="149 as the number of a block waited for"):
            judge(alone(*ring), MSCCL)


def test_numbers_of_blocks_waited_for_are_judged_without_instructions() -> None:
    """Those that the file will have: 128 blocks of 216 are waited for, and no instruction is seen.

    Of programs of hundreds of blocks the instructions took a tenth of the time of a tune.
    """
    waiting = [replace(COPY, waits=((88 + b, 0),)) for b in range(128)]
    program = alone(waiting, *[[COPY]] * 215)
    require_fit(program, MSCCL)
    assert "ranks" not in vars(program)
    emit(program, MSCCL)


def test_targets_by_name() -> None:
    assert all(target(name).name == name for name in TARGETS)
    with pytest.raises(UnknownName, match="unknown target"):
        target("nccl")
