"""Judge an emitted file by its text: the plan in it, the kernel's requirements, and its code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from weft.dsl.nouns.runtime import UNLIMITED

from ...check.findings import Finding, Severity, errors
from ..mscclpp.check import check_plan
from ..mscclpp.check.form import OLD_GPUS
from ..mscclpp.plan.model import ExecutionPlan, PlanOp
from .emit import emit
from .program import KERNEL_LIMITS, steps_of
from .read import SymmProgram, read_program
from .text import SEMAPHORES, SIGNALS


def judge(text: str, where: str) -> tuple[SymmProgram, list[Finding]]:
    """Return the program of a file, and its faults.

    The plan is proved. The kernel's code is not proved here: a warning says so where it is not word
    for word what weft writes for this plan.

    Raises:
        BadFile: not an emitted file.
    """
    program = read_program(text, where)
    found = findings(program.plan)
    if not errors(found) and _code(text) != _code(own_text(program)):
        words = "the code around the program was edited, or is of another version of weft"
        found.append(Finding("code", Severity.WARNING, f"{words}: it is not judged"))
    return program, found


def own_text(program: SymmProgram) -> str:
    """Return the text that weft writes for a program."""
    return emit(
        program.plan,
        program.collective,
        specialised=program.specialised,
        vllm=program.vllm,
        sums=program.sums,
    )


def findings(plan: ExecutionPlan) -> list[Finding]:
    """Return the faults of a plan for the kernel."""
    found = [one for one in check_plan(plan, UNLIMITED) if one.message != OLD_GPUS]  # files refuse
    if not errors(found):
        found += counters(plan)
        found += _blocks(plan)
    return sorted(found, key=lambda one: list(Severity).index(one.severity))


def _blocks(plan: ExecutionPlan) -> Iterator[Finding]:
    for rank, gpu in enumerate(plan.gpus):
        if len(gpu.blocks) > KERNEL_LIMITS.gpu_blocks:
            runs = f"an H100 runs {KERNEL_LIMITS.gpu_blocks}"
            text = f"{len(gpu.blocks)} thread blocks wait for each other; {runs}"
            yield Finding("blocks", Severity.WARNING, text, rank)


def counters(plan: ExecutionPlan) -> Iterator[Finding]:
    """Yield a finding for every counter that several blocks of a rank raise, or wait for.

    The kernel compares a flag with the number of signals so far, which it knows only where one
    block gives them in its order, and one takes them.
    """
    for rank, blocks in enumerate(steps_of(plan)):
        users: dict[tuple[str, tuple[int, int]], dict[int, set[PlanOp]]] = defaultdict(
            lambda: defaultdict(set)
        )
        for number, block in enumerate(blocks):
            for step in block:
                for end in step.ends if step.op in SIGNALS | SEMAPHORES else ():
                    side = str(step.op).removeprefix("rlx")
                    users[side, end][number].add(step.op)
        for (side, (peer, number)), who in users.items():
            signals = side in ("signal", "wait")
            name = f"channel {number} to rank {peer}" if signals else f"semaphore {number}"
            if len(who) > 1:
                text = f"`{side}` on {name} by blocks {sorted(who)}: the kernel takes one"
                yield Finding("counters", Severity.ERROR, text, rank)


def _code(text: str) -> str:
    """Return the code without docstring and defaults, which depend on the origin of the program."""
    body = text.split('"""', 2)[-1]
    lines = [line for line in body.splitlines() if "def __init__(self, dtype=" not in line]
    return "\n".join(lines).split('if __name__ == "__main__":')[0].strip()
