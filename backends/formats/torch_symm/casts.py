"""Files in which switches sum and copy: fields of the instructions, and refusals.

Torch gives one multicast address, of the memory of all ranks of the group. ``multimem.ld_reduce``
and ``multimem.st`` (PTX 8.1, sm_90) are 16 bytes wide here; chunks begin at multiples of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from weft.dsl.base.errors import UserError
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.nouns.schedule import Schedule

from ...check.findings import require_good
from ...compile.request import ProvedArtefact, Request
from ..mscclpp.casts.artefact import proved, requested_plan
from ..mscclpp.casts.fit import ELSEWHERE, refuse_gpus, summing
from .emit import USUAL_TYPE, Sums, emit
from .judge import judge

ANY_ORDER = ("sum", "max", "min")

SUMS: Sums = MappingProxyType(
    {
        "float32": ("sum",),
        "int32": ANY_ORDER,
        "float16": ANY_ORDER,
        "bfloat16": ANY_ORDER,
        "float64": ("sum",),
        "int64": ANY_ORDER,
    }
)
"""Operators of ``multimem.ld_reduce`` by type of the kernel (PTX ISA; as ``ptxas`` takes them)."""


def cast_file(
    request: Request,
    nodes: Sequence[int] | None,
    *,
    specialised: bool,
    vllm: bool,
    dtype: str,
    op: str,
    tell: ProgressCallback = silent,
) -> ProvedArtefact:
    """Return the file of a schedule with casts, judged from its text; options as of the format.

    Raises:
        CheckFailed: a checker rejects the plan.
        UserError: no file can express it, or the hardware cannot do it.
    """
    schedule: Schedule = request.noun
    refuse_gpus(schedule.topology.timing.family, 0, request.where or "--to")
    used = dtype or USUAL_TYPE
    adds = any(len(one.sources) > 1 for one in schedule.casts)
    if adds and op not in SUMS.get(used, ()):
        able = ", ".join(f"{'|'.join(ops)} of {name}" for name, ops in SUMS.items())
        raise UserError(
            f"a switch makes no {op} of {used}; a load-reduce has {able}",
            where="--to",
            hint=f"dtype= and op= name another; {ELSEWHERE}",
        )
    plan = requested_plan(request, schedule, nodes, used, op)
    c = schedule.collective.coarsest().in_grains()
    tell("emit")
    text = emit(
        plan,
        c.split(plan.gpus[0].input_chunks // c.input_chunks),
        specialised=specialised,
        vllm=vllm,
        dtype=dtype,
        op=op,
        provenance=request.provenance,
        module=request.module,
        sums=sums_of(schedule),
    )
    tell("check artefact")
    require_good(judge(text, "the artefact")[1], "artefact")
    return proved(request, schedule.collective, plan, text)


def sums_of(schedule: Schedule) -> Sums:
    """Return by type the operators that the instruction and all switches of a schedule have."""
    nodes = {n for one in schedule.casts for n in summing(schedule.topology, one)}
    found = {
        name: tuple(op for op in ops if all(n.limits.computes(op, name) for n in nodes))
        for name, ops in SUMS.items()
    }
    return {name: ops for name, ops in found.items() if ops}
