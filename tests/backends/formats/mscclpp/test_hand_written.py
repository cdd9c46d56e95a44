"""Plans by hand, of what weft does not emit: pipelines, barriers, shares, remote reads."""

from __future__ import annotations

from dataclasses import replace

from plans import put_in

from weft.backends.check.findings import errors
from weft.backends.formats.mscclpp.check import check_plan
from weft.backends.formats.mscclpp.interpret import run_plan
from weft.backends.formats.mscclpp.plan.model import (
    Channel,
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Operand,
    Operation,
    PlanChannels,
    PlanOp,
    RemoteBuffer,
    RemoteChunks,
    ThreadBlock,
)
from weft.backends.formats.mscclpp.plan.read import read_plan
from weft.backends.formats.mscclpp.plan.write import write_plan
from weft.dsl.nouns.program import Buffer

NOP = Operation(PlanOp.NOP)
INPUT, OUTPUT, SCRATCH = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH
MEMORY = Channel.MEMORY


def sync(op: PlanOp) -> Operation:
    return Operation(op, MEMORY, (0,))


def data(op: PlanOp, src: tuple[Operand, ...], dst: tuple[Operand, ...]) -> Operation:
    remote = any(isinstance(x, RemoteChunks) for x in (*src, *dst))
    return Operation(op, MEMORY if remote else None, src=src, dst=dst)


READY = (sync(PlanOp.RELAXED_SIGNAL), sync(PlanOp.RELAXED_WAIT), NOP)
DONE = (NOP, sync(PlanOp.SIGNAL), sync(PlanOp.WAIT), NOP)


def pair(
    collective: str,
    chunks: tuple[int, int, int],
    *code: tuple[Operation, ...],
    buffer: Buffer = OUTPUT,
) -> ExecutionPlan:
    """Two ranks, a block and a memory channel each, and one remote buffer."""
    gpus = tuple(
        GpuPlan(
            *chunks,
            (ThreadBlock(ops, ((MEMORY, (0,)),), ((MEMORY, (0,)),)),),
            (PlanChannels(MEMORY, (1 - r,)),),
            (RemoteBuffer(1 - r, buffer, (MEMORY,)),),
        )
        for r, ops in enumerate(code)
    )
    return ExecutionPlan("by hand", collective, "Simple", False, gpus, max_bytes=1 << 20)


def right(plan: ExecutionPlan) -> bool:
    assert read_plan(write_plan(plan)) == plan
    return not errors(check_plan(plan)) and run_plan(plan, orders=100).ok


def reasons(plan: ExecutionPlan) -> set[str]:
    return {f.check for f in errors(check_plan(plan))}


def pipelined(rank: int) -> tuple[Operation, ...]:
    """An allgather of two chunks each, a chunk at a time."""
    own, there = LocalChunks(INPUT, 0, 2), LocalChunks(OUTPUT, 2 * rank, 2)
    put = data(PlanOp.PUT, (own,), (RemoteChunks(0, 2 * rank, 2),))
    send = Operation(PlanOp.PIPELINE, unit=16, chunks=2, body=(put, NOP, sync(PlanOp.SIGNAL)))
    take = Operation(PlanOp.PIPELINE, unit=16, chunks=2, body=(sync(PlanOp.WAIT), NOP))
    return (*READY, send, data(PlanOp.COPY, (own,), (there,)), take)


def test_a_pipeline_is_its_body_chunk_by_chunk() -> None:
    plan = pair("allgather", (2, 4, 0), pipelined(0), pipelined(1))
    assert right(plan)
    send = plan.gpus[0].blocks[0].ops[3]
    hasty = put_in(plan, (0, 0, 3), replace(send, body=(send.body[0], send.body[2])))
    assert reasons(hasty) == {"ending"}
    assert not run_plan(hasty, orders=100).ok
    assert "signals" in reasons(put_in(plan, (0, 0, 3), replace(send, chunks=1)))


def reading(rank: int) -> tuple[Operation, ...]:
    """An allreduce that reads the peer's input."""
    one = LocalChunks(INPUT, 0, 1)
    return (
        *READY,
        data(PlanOp.READ_REDUCE, (one, RemoteChunks(0, 0, 1)), (LocalChunks(OUTPUT, 0, 1),)),
        *DONE,
    )


def test_a_peer_does_not_end_while_it_is_read() -> None:
    plan = pair("allreduce", (1, 1, 0), reading(0), reading(1), buffer=INPUT)
    assert right(plan)
    early = put_in(put_in(plan, (0, 0, 5)), (1, 0, 6))  # rank 0 does not tell that it has read
    assert reasons(early) == {"ending"}
    assert reasons(put_in(put_in(plan, (0, 0, 1)), (1, 0, 0))) == {"handshake"}


def alone(*blocks: tuple[Operation, ...], scratch: int = 4) -> ExecutionPlan:
    """One GPU, whose allreduce is a copy."""
    made = tuple(ThreadBlock(ops) for ops in blocks)
    return ExecutionPlan(
        "alone", "allreduce", "Simple", False, (GpuPlan(4, 4, scratch, made),), max_bytes=1 << 20
    )


def test_blocks_share_a_range_and_meet_at_a_barrier() -> None:
    whole = LocalChunks(INPUT, 0, 4), LocalChunks(SCRATCH, 0, 4)
    meet = Operation(PlanOp.BARRIER, barrier=(3, 2))

    def half(k: int) -> Operation:
        return replace(data(PlanOp.COPY, whole[:1], whole[1:]), share=(k, 2))

    out = data(PlanOp.COPY, (LocalChunks(SCRATCH, 0, 4),), (LocalChunks(OUTPUT, 0, 4),))
    plan = alone((half(0), meet, out), (half(1), meet))
    assert right(plan)
    apart = alone((half(0), NOP, out), (half(1),))
    assert reasons(apart) == {"races"}
    assert not run_plan(apart, orders=100).ok
    assert reasons(alone((half(0), meet, out), (half(1),))) == {"barriers"}
    assert "a barrier of 2 blocks" in str(errors(check_plan(alone((half(0), meet, out)))))


def test_semaphores_count() -> None:
    """Two releases by two blocks are both needed for the second acquire, not for the first."""

    def piece(k: int) -> tuple[Operation, ...]:
        copy = data(PlanOp.COPY, (LocalChunks(INPUT, 2 * k, 2),), (LocalChunks(SCRATCH, 2 * k, 2),))
        return (copy, NOP, Operation(PlanOp.RELEASE, ids=(0,)))

    take = Operation(PlanOp.ACQUIRE, ids=(0,))
    out = data(PlanOp.COPY, (LocalChunks(SCRATCH, 0, 4),), (LocalChunks(OUTPUT, 0, 4),))

    def gathered(*ops: Operation) -> ExecutionPlan:
        plan = alone(piece(0), piece(1), ops)
        return replace(plan, gpus=(replace(plan.gpus[0], semaphores=(0,)),))

    assert right(gathered(take, take, NOP, out))
    early = gathered(take, NOP, out, NOP, take)
    assert reasons(early) == {"races"}
    assert not run_plan(early, orders=100).ok
