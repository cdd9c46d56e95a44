"""Files in which the switch sums and copies: read back, proved, executed, mutants, refusals."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import switch_mutants
import symm_files
from casts import spread_all, sums_alone, two_level, two_shot

from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact
from weft.backends.formats.format import ExecutionRequest
from weft.backends.formats.mscclpp.casts.emit import cast_plan
from weft.backends.formats.torch_symm.casts import SUMS
from weft.backends.formats.torch_symm.emit import emit
from weft.backends.formats.torch_symm.format import TorchSymm
from weft.backends.formats.torch_symm.judge import judge
from weft.backends.formats.torch_symm.program import steps_of
from weft.backends.formats.torch_symm.read import read_program
from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.schedule import Schedule

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "allreduce": lambda: two_shot(3),
    "allgather": lambda: spread_all(4),
    "broadcast": lambda: spread_all(3, "broadcast"),
    "reduce_scatter": lambda: sums_alone(4),
    "reduce": lambda: sums_alone(3, "reduce"),
}


@cache
def file(name: str, lanes: int = 1, in_place: bool = False, options: str = "") -> str:
    wanted = CompileOptions(instances=lanes, in_place=in_place)
    return artefact(SCHEDULES[name](), f"torch-symm{options}", wanted).text


def executed(text: str, orders: int = 6) -> str | None:
    """What is wrong with a file, by its judge or by execution."""
    try:
        if found := errors(judge(text, "file")[1]):
            return str(found[0])
    except (BadFile, UserError) as error:
        return error.message
    done = TorchSymm().execute(text, "file", ExecutionRequest(("int32",), orders))
    return None if done.ok else done.detail


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_file_reads_back_as_its_plan_and_computes_its_collective(
    name: str, in_place: bool
) -> None:
    text = file(name, 1, in_place)
    plan = cast_plan(SCHEDULES[name](), "any", None, in_place=in_place, lanes=1)
    assert steps_of(read_program(text, "file").plan) == steps_of(plan)
    assert judge(text, "file")[1] == []
    assert executed(text) is None


def test_an_allreduce_is_a_line_per_lane_of_a_rank() -> None:
    text = file("allreduce", 2)
    line = "0: rlxsignal 1.0, 2.0; rlxwait 1.0, 2.0; nop; glres *.i[0] -> *.o[0]; nop; signal 1.0"
    assert line in text
    assert "nop; glres *.i[0] -> 0+1.s[" in file("reduce_scatter")
    assert "gstore i[0] -> *.o[0]" in file("allgather")
    assert executed(file("allreduce", 1, options="{specialised=true}")) is None


def test_mutants_of_plans_are_rejected() -> None:
    """No signal, a relaxed one, no nop, another chunk or group, a sum left out or made twice."""
    schedule = two_shot(3)
    plan = cast_plan(schedule, "any", None, in_place=False, lanes=1)
    found = list(switch_mutants.mutants(plan))
    for name, mutant in found[:: len(found) // 12]:
        if name.startswith("relaxed"):
            continue  # the kernel's relaxed signals are releases
        try:
            text = emit(mutant, schedule.collective.in_grains(), sums=SUMS)
        except UserError:
            continue
        assert executed(text, 24), name


def test_a_program_with_a_mistake_is_found_wrong() -> None:
    rng, left = random.Random(3), 6
    while left:
        made = symm_files.mutated(file("allreduce"), rng)
        if made is not None:
            left -= 1
            assert executed(made[0], 24) or made[1].startswith(("swap", "drop: nop")), made[1]


KERNEL = {
    "a signal releases": ('sem="release", scope="sys"', 'sem="relaxed", scope="sys"'),
    "a wait acquires": ('sem="acquire", scope=SCOPE', 'sem="relaxed", scope=SCOPE'),
    "a wait is for all GPUs": ('reached(flag, value, "sys")', 'reached(flag, value, "gpu")'),
    "threads meet": ("MEET:\n            tl.debug_barrier()", "MEET:\n            pass"),
    "all ranks are summed": ('range(RANKS) if whose == "*"', 'range(RANKS - 1) if whose == "*"'),
    "signals go on": ("value = turn *", "value = 0 *"),
}


@pytest.mark.parametrize("name", KERNEL)
def test_a_kernel_without_a_fence_is_found_wrong(name: str) -> None:
    """Races between a load of all ranks' memory and what its owner or another writes there."""
    text, (before, after) = file("allreduce"), KERNEL[name]
    assert before in text
    assert symm_files.problem(text, 4) is None
    assert symm_files.problem(text.replace(before, after), 60)


# --- what is refused ------------------------------------------------------------------------------


def real() -> Schedule:
    """An allreduce of 8 ranks by a switch with the limits of an NVSwitch."""
    schedule, node = two_shot(8), topology("dgx-h100:nvls=on").nodes[-1]
    t = schedule.topology
    return replace(schedule, topology=replace(t, nodes=(*t.nodes[:-1], node), symmetries=()))


REFUSED: dict[str, tuple[Callable[[], Schedule], str, str]] = {
    # schedule, options, words
    "a maximum of the machine's switch": (real, "op=max", "makes a max of no type"),
    "a maximum without an instruction": (real, "dtype=float32,op=max", "no max of float32"),
    "a product": (real, "op=prod", "a switch makes no prod of bfloat16"),
    "a type": (real, "dtype=bool", "a switch makes no sum of bool"),
    "several domains": (real, "domain=4", "its ranks are on several nodes"),
    "sums of some ranks": (lambda: two_level(2), "domain=4", "is of all ranks"),
    "another collective for vLLM": (
        lambda: spread_all(3),
        "vllm=true",
        "expected an allreduce, got allgather",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_switch_does_not_do_is_refused(name: str) -> None:
    schedule, options, words = REFUSED[name]
    with pytest.raises(UserError, match=words):
        artefact(schedule(), f"torch-symm{{{options}}}")


@pytest.mark.parametrize(
    "change",
    [
        ("glres *.", "glres 0+1."),
        ("glres *.", "glres "),
        ("-> *.o", "-> 9+8.o"),
        ("glres", "gstore"),
    ],
)
def test_a_damaged_operation_is_refused(change: tuple[str, str]) -> None:
    assert executed(file("allreduce").replace(*change))
