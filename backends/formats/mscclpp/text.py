"""MSCCL++ execution plans as listings."""

from __future__ import annotations

from weft.dsl.base.tables import count, facts, listing

from .plan.model import (
    FACTS,
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Multicast,
    Operand,
    Operation,
    ThreadBlock,
)


def plan_text(plan: ExecutionPlan) -> str:
    """Facts, then the operations of every thread block, with peers instead of numbers."""
    upper = "any" if plan.max_bytes == FACTS.largest_message_bytes else f"{plan.max_bytes} bytes"
    head = facts(
        [
            ("plan", plan.name),
            ("collective", plan.collective),
            ("ranks", len(plan.gpus)),
            ("valid", "in place" if plan.in_place else "out of place"),
            ("sizes", f"{plan.min_bytes} … {upper}"),
            ("protocol", plan.protocol),
            ("scratch", "two halves" if plan.double_scratch else ""),
        ]
    )
    lines = [f"remark: {remark}" for remark in plan.remarks]
    for rank, gpu in enumerate(plan.gpus):
        lines += [
            "",
            f"rank {rank}: input {gpu.input_chunks}, output {gpu.output_chunks}, "
            f"scratch {count(gpu.scratch_chunks, 'chunk')}",
        ]
        for number, block in enumerate(gpu.blocks):
            lines.append(f"  block {number}")
            lines += [f"    {k:3} {_operation(gpu, block, op)}" for k, op in enumerate(block.ops)]
    return listing(head, lines)


def _operation(gpu: GpuPlan, block: ThreadBlock, op: Operation) -> str:
    def place(x: Operand) -> str:
        if isinstance(x, LocalChunks):
            name = str(x.buffer)
        elif isinstance(x, Multicast):
            name = f"switch {x.channel_id} "
        else:
            known = block.buffer_ids(op.channel) if op.channel else ()
            number = known[x.buffer_id] if 0 <= x.buffer_id < len(known) else -1
            there = 0 <= number < len(gpu.remote)
            name = f"rank {gpu.remote[number].rank} {gpu.remote[number].buffer}" if there else "?"
        size = f" x{x.size}" if x.size != 1 else ""
        return f"{name}[{x.index}]{size}"

    ids = " ".join(map(str, op.ids))
    kind = f"{op.channel} " if op.channel and op.ids else ""
    parts = [f"{op.op:<11}", f"{kind}{ids}", " + ".join(map(place, op.src))]
    if op.dst:
        parts.append("-> " + ", ".join(map(place, op.dst)))
    if op.barrier:
        parts.append("{} of {} blocks".format(*op.barrier))
    if op.share:
        parts.append(f"(part {op.share[0]} of {op.share[1]})")
    if op.body:
        parts.append("; ".join(str(one.op) for one in op.body))
    return " ".join(p for p in parts if p).rstrip()
