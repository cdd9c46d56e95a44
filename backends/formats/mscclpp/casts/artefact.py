"""The artefact of a schedule with casts: its plan, judged from its text, and words about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule

from ....check.checks import Check
from ....check.findings import require_good
from ....compile.compile import CompileOptions, label
from ....compile.request import ProvedArtefact, Request
from ..check.checker import check_plan
from ..plan.model import Channel, ExecutionPlan, Multicast, Operation, PlanOp
from ..plan.read import read_plan
from ..plan.write import write_plan
from .emit import cast_plan
from .fit import Hardware, refuse_hardware

__all__ = ["Hardware", "cast_artefact"]


def cast_artefact(
    request: Request, schedule: Schedule, nodes: Sequence[int] | None, asked: Hardware
) -> ProvedArtefact:
    """Return the plan of a schedule with casts, proved by the checker of plans.

    Raises:
        CheckFailed: the checker rejects the plan.
        UserError: no plan can express it, or the hardware cannot do it.
    """
    refuse_hardware(asked, request.where or "--to")
    plan = requested_plan(request, schedule, nodes, asked.dtype, asked.op)
    text = write_plan(plan)
    require_good(check_plan(read_plan(text, "the artefact")), "artefact")
    return proved(request, schedule.collective, plan, text)


def requested_plan(
    request: Request, schedule: Schedule, nodes: Sequence[int] | None, dtype: str, op: str
) -> ExecutionPlan:
    """Return the plan of a schedule with casts as a request wants it, not yet proved.

    Raises:
        UserError: no plan can express it.
    """
    c = schedule.collective
    words = [schedule.topology.name, str(c.kind)]
    return cast_plan(
        schedule,
        request.name or label(words, c, CompileOptions(instances=request.instances or 1)),
        nodes,
        in_place=request.in_place,
        lanes=request.instances,
        sizes=request.sizes,
        dtype=dtype,
        op=op,
    )


def proved(request: Request, c: Collective, plan: ExecutionPlan, text: str) -> ProvedArtefact:
    """Return the artefact of a plan with casts that a checker has found good in its text."""
    facts = facts_of(plan)
    named = {"collective": c.name or str(c.kind), "ranks": c.ranks, "to": request.to}
    lowered = (
        f"{count(facts['operations'], 'operation')}, "
        f"at most {count(facts['thread_blocks'], 'thread block')} per rank"
    )
    return ProvedArtefact(
        text,
        plan,
        lowered,
        "schedule and plan",
        Check("plan", True, "no error found"),
        {**named, **facts},
        told_of(plan),
    )


def facts_of(plan: ExecutionPlan) -> dict[str, Any]:
    """Return counts of a plan for ``--json``."""
    ops = [op.op for g in plan.gpus for b in g.blocks for op in b.ops]
    return {
        "protocol": plan.protocol,
        "in_place": plan.in_place,
        "chunks": plan.gpus[0].input_chunks,
        "thread_blocks": max(len(g.blocks) for g in plan.gpus),
        "operations": len(ops),
        "load_reduces": ops.count(PlanOp.MULTICAST_REDUCE_STORE),
        "multicast_stores": ops.count(PlanOp.MULTICAST_STORE),
        "multicast_objects": len({g for gpu in plan.gpus for g in gpu.groups()}),
    }


def told_of(plan: ExecutionPlan) -> tuple[tuple[str, str], ...]:
    """Return lines for people on the casts of a plan."""
    facts = facts_of(plan)
    told = (
        f"{facts['load_reduces']} load-reduce-stores and {facts['multicast_stores']} multicast "
        f"stores over {count(facts['multicast_objects'], 'multicast object')}"
    )
    if facts["load_reduces"]:
        told += "; sums are made in the switch, in an order of its own"
    pairs = sum(len(op.dst) for op in _to_pairs(plan))
    lines = [("Switches", told)]
    if pairs:
        text = f"{pairs} sums are also stored on a neighbour: plans cannot load-reduce alone"
        lines.append(("Switches", text))
    return tuple(lines)


def _to_pairs(plan: ExecutionPlan) -> Iterator[Operation]:
    """Yield the load-reduces whose sum goes to fewer ranks than it is of."""
    for gpu in plan.gpus:
        groups = gpu.groups()
        for block in gpu.blocks:
            known = block.channel_ids(Channel.SWITCH)
            for op in (o for o in block.ops if o.op is PlanOp.MULTICAST_REDUCE_STORE):
                ends = [x for x in (*op.src, *op.dst) if isinstance(x, Multicast)]
                source, target = (groups[known[x.channel_id]].ranks for x in ends)
                if len(target) < len(source):
                    yield op
