"""A plan as JSON text, as the loader of MSCCL++ reads it."""

from __future__ import annotations

import json
from typing import Any

from .model import (
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Multicast,
    Operand,
    Operation,
    PlanChannels,
    PlanOp,
    RemoteBuffer,
    ThreadBlock,
)


def write_plan(plan: ExecutionPlan) -> str:
    """One line per operation, so that people and ``diff`` can read it."""
    head = {
        "name": plan.name,
        "collective": plan.collective,
        "protocol": plan.protocol,
        "inplace": plan.in_place,
        "reuse_resources": plan.reuse_resources,
    }
    tail = {
        "num_threads_per_block": plan.threads,
        "use_double_scratch_buffer": plan.double_scratch,
        "buffer_alignment": plan.alignment,
        "min_message_size": plan.min_bytes,
        "max_message_size": plan.max_bytes,
    }
    gpus = ",\n".join(_gpu(r, gpu) for r, gpu in enumerate(plan.gpus))
    return f'{{{_inside(head)},\n "gpus":[\n{gpus}\n ],\n {_inside(tail)}}}\n'


def _inside(data: dict[str, Any]) -> str:
    return _compact(data)[1:-1]


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _gpu(rank: int, gpu: GpuPlan) -> str:
    head = {
        "id": rank,
        "input_chunks": gpu.input_chunks,
        "output_chunks": gpu.output_chunks,
        "scratch_chunks": gpu.scratch_chunks,
    }
    tail = {
        "channels": [_channels(c) for c in gpu.channels],
        "remote_buffers": [_remote(b) for b in gpu.remote],
        "semaphores": [{"init_value": v} for v in gpu.semaphores],
    }
    blocks = ",\n".join(_block(t, block) for t, block in enumerate(gpu.blocks))
    return f'  {{{_inside(head)},"threadblocks":[\n{blocks}],\n   {_inside(tail)}}}'


def _block(number: int, block: ThreadBlock) -> str:
    ops = ",\n".join(f"      {_compact(operation_json(op))}" for op in block.ops)
    lists = {
        "channels": [{"channel_type": str(k), "channel_ids": list(i)} for k, i in block.channels],
        "remote_buffer_refs": [
            {"access_channel_type": str(k), "remote_buffer_ids": list(i)} for k, i in block.remote
        ],
    }
    return f'   {{"id":{number},"ops":[\n{ops}],\n    {_inside(lists)}}}'


def operation_json(op: Operation) -> dict[str, Any]:
    """Return the JSON object of one operation; a key only where it says something."""
    data: dict[str, Any] = {"name": str(op.op)}
    if op.op in (PlanOp.ACQUIRE, PlanOp.RELEASE):
        data["semaphore_ids"] = list(op.ids)
    elif op.ids:
        data["channel_ids"] = list(op.ids)
    if op.channel is not None:
        data["channel_type"] = str(op.channel)
    if op.src:
        data["src_buff"] = [_operand(x) for x in op.src]
    if op.dst:
        data["dst_buff"] = [_operand(x) for x in op.dst]
    if op.barrier:
        data["barrier_id"], data["num_threadblocks"] = op.barrier
    if op.share:
        data["tbg_info"] = {"tb_id": op.share[0], "tbg_size": op.share[1]}
    if op.reduce_op is not None:
        data["reduce_op"] = op.reduce_op
    if op.op is PlanOp.PIPELINE:
        data["iter_context"] = {"unit_size": op.unit, "num_chunks": op.chunks}
        data["ops"] = [operation_json(one) for one in op.body]
    return data


def _operand(x: Operand) -> dict[str, Any]:
    if isinstance(x, LocalChunks):
        return {"type": str(x.buffer), "index": x.index, "size": x.size}
    if isinstance(x, Multicast):
        return {"switch_channel_id": x.channel_id, "index": x.index, "size": x.size}
    return {"buffer_id": x.buffer_id, "index": x.index, "size": x.size}


def _channels(c: PlanChannels) -> dict[str, Any]:
    if c.buffer is not None:
        groups = [{"size": len(g), "ranks": list(g)} for g in c.groups]
        return {"channel_type": str(c.kind), "buffer_type": str(c.buffer), "rank_groups": groups}
    return {"channel_type": str(c.kind), "connected_to": list(c.peers)}


def _remote(b: RemoteBuffer) -> dict[str, Any]:
    access = [str(k) for k in b.access]
    return {"rank": b.rank, "type": str(b.buffer), "access_channel_types": access}
