"""Files for torch symmetric memory: read back, proved, executed as they stand, and refused."""

import random

import plans
import pytest
import symm_files
from random_moves import random_algorithm

from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.backends.formats.format import ExecutionRequest
from weft.backends.formats.mscclpp.lower.emit import plan_of
from weft.backends.formats.torch_symm.emit import require_operator
from weft.backends.formats.torch_symm.format import TorchSymm, domains
from weft.backends.formats.torch_symm.judge import findings, judge
from weft.backends.formats.torch_symm.model.machine import run_kernel
from weft.backends.formats.torch_symm.program import steps_of
from weft.backends.formats.torch_symm.read import read_program
from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCL, UNLIMITED
from weft.synth.engines.classic.flat import classic_algorithm

NAMES = ["ring", "one shot", "broadcast", "reduce_scatter"]
SIMPLE, LL = Protocol.SIMPLE, Protocol.LL


@pytest.mark.parametrize("protocol", [SIMPLE, LL])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_reads_back_as_its_plan(name: str, protocol: Protocol) -> None:
    program = plans.program(name, protocol)
    plan = plan_of(program, longest=UNLIMITED)
    text = symm_files.file(name, protocol)
    read = read_program(text, "file")
    assert steps_of(read.plan) == steps_of(plan)
    assert [g.scratch_chunks for g in read.plan.gpus] == [g.scratch_chunks for g in plan.gpus]
    assert judge(text, "file")[1] == []


@pytest.mark.parametrize(
    ("name", "protocol", "in_place"),
    [
        ("ring", SIMPLE, False),
        ("one shot", LL, False),
        ("two shot", SIMPLE, True),
        ("reduce_scatter", SIMPLE, True),
        ("broadcast", LL, False),
        ("hierarchical", LL, False),
    ],
)
def test_a_file_computes_its_collective(name: str, protocol: Protocol, in_place: bool) -> None:
    text = symm_files.file(name, protocol, in_place=in_place)
    request = ExecutionRequest(("int32", "float16", "float32"), interleavings=6)
    done = TorchSymm().execute(text, "file", request)
    assert done.ok, done.detail
    assert "by the memory model in 1 order" in done.detail


def test_fewer_operations_give_fewer_orders() -> None:
    request = ExecutionRequest(("int32",), 12, steps=1)
    done = TorchSymm().execute(symm_files.file("ring", SIMPLE), "file", request)
    assert done.ok, done.detail
    assert ", 2 orders of 3 launches" in done.detail


def test_a_rank_may_have_nothing_to_do() -> None:
    noun = random_algorithm(0, ranks=5, chunks=4, moves=5, in_place=False)
    text = TorchSymm().emit(lower_algorithm(noun), MSCCL, None)
    assert [len(g.blocks) for g in read_program(text, "file").plan.gpus].count(0)
    assert symm_files.problem(text, 2) is None


@pytest.mark.parametrize("specialised", [False, True])
def test_no_rank_may_have_anything_to_do(specialised: bool) -> None:
    """A launch of no blocks is an error on a GPU, so one block runs and counts the launch."""
    noun = random_algorithm(113, ranks=2, chunks=3, moves=0, in_place=True)
    text = TorchSymm(specialised=specialised).emit(lower_algorithm(noun), MSCCL, None)
    assert symm_files.problem(text, 2) is None


def test_a_specialised_kernel_computes_the_same() -> None:
    text = symm_files.file("two shot", SIMPLE, specialised=True)
    assert "begins" not in text
    assert symm_files.problem(text, 2) is None


def test_a_file_has_less_than_400_lines_for_8_ranks_of_8_blocks() -> None:
    """A block is a line or less; what is around them does not grow."""
    for protocol in (SIMPLE, LL):
        text = symm_files.file("dgx1 allreduce", protocol)
        blocks = sum(len(g.blocks) for g in read_program(text, "file").plan.gpus)
        assert blocks == 60
        assert text.count("\n") < 398  # and two lines of provenance


def test_short_blocks_share_a_line_and_are_read_back() -> None:
    noun = classic_algorithm("one_shot", Kind.ALLREDUCE, 8)
    program = lower_algorithm(noun, CompileOptions(protocol=LL))
    text = TorchSymm().emit(program, MSCCL, None)
    assert '"0: ppkt i[0] -> 4.s[4] | ppkt i[0] -> 5.s[4] | ' in text
    assert text.count("\n") < 400
    read = read_program(text, "file")
    assert steps_of(read.plan) == steps_of(plan_of(program, longest=UNLIMITED))
    assert [len(blocks) for blocks in symm_files.assembled(text)] == [15] * 8
    assert symm_files.problem(text, 1) is None


@pytest.mark.parametrize("fence", symm_files.FENCES)
def test_a_kernel_without_a_fence_is_found_wrong(fence: str) -> None:
    one = symm_files.FENCES[fence]
    text = symm_files.file(one.program, one.protocol)
    assert one.before in text
    assert symm_files.right(one.program, one.protocol)
    assert symm_files.problem(text.replace(one.before, one.after), 60)


@pytest.mark.parametrize("line", ["    not_there\n", "    1 - print\n"])
def test_a_kernel_that_cannot_be_executed_is_wrong(line: str) -> None:
    text = symm_files.file("ring", SIMPLE)
    head = text.index(":\n", text.index("def assembled(")) + 2
    plan = plan_of(plans.program("ring"), longest=UNLIMITED)
    edited = text[:head] + line + text[head:]
    found = run_kernel(edited, plan, plans.program("ring").collective, orders=1)
    assert not found.ok
    assert "Error: " in found.detail


def test_a_program_with_a_mistake_is_found_wrong() -> None:
    """By the reader, the checker, the plan interpreter or the memory model."""
    rng, left = random.Random(7), 12
    texts = [symm_files.file("ring", SIMPLE), symm_files.file("two shot", LL)]
    while left:
        made = symm_files.mutated(rng.choice(texts), rng)
        if made is None:
            continue
        text, what = made
        left -= 1
        try:
            found = errors(judge(text, "file")[1])
        except BadFile:
            continue
        if not found:
            done = TorchSymm().execute(text, "file", ExecutionRequest(("int32",), 12))
            harmless = done.ok and steps_of(read_program(text, "file").plan)
            assert not harmless or what.startswith(("swap", "drop: nop")), what


def test_counters_of_two_blocks_are_refused() -> None:
    text = symm_files.file("ring", SIMPLE)
    line = next(x for x in text.splitlines() if '"0: rlxsignal' in x).strip(" ,")
    doubled = text.replace(line, f"{line}, {line}", 1)
    assert errors(findings(read_program(doubled, "file").plan))


@pytest.mark.parametrize(
    "change",
    [
        ("RANKS, MIN_BYTES", "RANKS, LOW"),
        ("put ", "pull "),
        ("'weft': 'torch-symm'", "'weft': 'torch-symn'"),
        ("PROGRAM = (", "PROGRAM = PROGRAM = ("),
        ("CHUNKS, MESSAGE = (4", "CHUNKS, MESSAGE = (5"),
        ("'chunks': ((4", "'chunks': ((5"),
    ],
)
def test_a_damaged_file_is_refused(change: tuple[str, str]) -> None:
    text = symm_files.file("ring", SIMPLE)
    assert change[0] in text
    with pytest.raises(BadFile):
        read_program(text.replace(*change), "file")


def test_an_edited_kernel_is_told() -> None:
    text = symm_files.file("ring", SIMPLE)
    assert "edited" in judge(text.replace("WARPS = 8192, 16", "WARPS = 1024, 4"), "file")[1][0].told


def test_types_and_operators_without_a_kernel_are_refused() -> None:
    program = plans.program("ring")
    with pytest.raises(UserError, match="port channels"):
        TorchSymm(nodes=(0, 0, 1, 1)).emit(program, MSCCL, None)
    with pytest.raises(UserError, match="vllm=true: expected an allreduce"):
        TorchSymm(vllm=True).emit(plans.program("dgx1 allgather"), MSCCL, None)
    plan, packed = plan_of(program), plan_of(plans.program("ring", LL))
    for one, dtype, op in ((plan, "bool", "sum"), (packed, "float64", "sum"), (plan, "", "avg")):
        with pytest.raises(UserError, match=r"torch-symm cannot do|expected an operator"):
            require_operator(one, dtype, op)
    require_operator(plan_of(plans.program("broadcast", LL)), "float64", "sum")


def test_a_rack_is_one_domain_and_boxes_are_not() -> None:
    assert len(set(domains(topology("gb200-nvl72")))) == 1
    assert len(set(domains(topology("dgx-h100:nodes=2")))) == 2
