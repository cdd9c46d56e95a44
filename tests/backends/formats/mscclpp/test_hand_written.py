"""Plans by hand, of what weft does not emit: pipelines, barriers, shares, remote reads."""

from dataclasses import replace

import pytest
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


def copies(share: tuple[int, int], *places: tuple[Buffer, int, int]) -> Operation:
    """The share of a block in a copy from one place (buffer, index, size) to another."""
    source, sink = (LocalChunks(*place) for place in places)
    return replace(data(PlanOp.COPY, (source,), (sink,)), share=share)


MEET = Operation(PlanOp.BARRIER, barrier=(3, 2))


@pytest.mark.parametrize("parts", [(2, 2), (2, 3), (3, 2), (1, 5)])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_blocks_share_bytes_and_meet_at_a_barrier(size: int, parts: tuple[int, int]) -> None:
    """Each of two blocks copies some of the shares, of a chunk or of several."""

    def code(block: int, meet: Operation) -> tuple[Operation, ...]:
        where = (INPUT, 0, size), (SCRATCH, 0, size), (OUTPUT, 0, size)
        into, out = (
            [
                copies((k, n), where[side], where[side + 1])
                for k in range(n)
                if (k + side) % 2 == block
            ]
            for side, n in enumerate(parts)
        )
        return (*into, meet, *out)

    def plan(meet: Operation) -> ExecutionPlan:
        made = alone(code(0, meet), code(1, meet), scratch=size)
        return replace(made, gpus=(replace(made.gpus[0], input_chunks=size, output_chunks=size),))

    assert right(plan(MEET))
    apart = plan(NOP)
    assert reasons(apart) == {"races"}
    assert not run_plan(apart, orders=100).ok
    assert reasons(alone(code(0, MEET), code(1, NOP))) == {"barriers"}


def halves(first: int, second: int) -> ExecutionPlan:
    """An allgather by packets: two blocks send, and two unpack, a share of one chunk each."""
    blocks = (ThreadBlock, ((MEMORY, (0,)),), ((MEMORY, (0,)),))

    def gpu(r: int) -> GpuPlan:
        send = Operation(
            PlanOp.PUT_PACKETS,
            MEMORY,
            src=(LocalChunks(OUTPUT, r, 1),),
            dst=(RemoteChunks(0, 0, 1),),
        )
        take = data(PlanOp.UNPACK, (LocalChunks(SCRATCH, 0, 1),), (LocalChunks(OUTPUT, 1 - r, 1),))
        made = [
            blocks[0]((replace(op, share=(k, 2)),), blocks[1], blocks[2])
            for op, ks in ((send, (first, second)), (take, (0, 1)))
            for k in ks
        ]
        peer = (PlanChannels(MEMORY, (1 - r,)),), (RemoteBuffer(1 - r, SCRATCH, (MEMORY,)),)
        return GpuPlan(1, 2, 1, tuple(made), *peer)

    return ExecutionPlan(
        "halves", "allgather", "LL", True, (gpu(0), gpu(1)), double_scratch=True, max_bytes=1 << 20
    )


def test_half_a_chunk_is_a_share_and_the_same_half_twice_is_not() -> None:
    assert right(halves(0, 1))
    assert reasons(halves(0, 0)) == {"packets", "deadlock"}
    assert reasons(halves(1, 1)) == {"packets", "deadlock"}


def test_what_only_some_sizes_break_is_found_and_named() -> None:
    """Of an odd number of units the first of two blocks gets one more than the other."""
    first = copies((0, 2), (INPUT, 0, 3), (SCRATCH, 0, 3)), NOP
    second = copies((1, 2), (INPUT, 0, 3), (SCRATCH, 0, 3)), NOP
    out = copies((0, 4), (SCRATCH, 0, 3), (OUTPUT, 0, 3))
    rest = [copies((k, 4), (SCRATCH, 0, 3), (OUTPUT, 0, 3)) for k in (1, 2, 3)]
    plan = alone((*first, out, rest[0]), (*second, *rest[1:]), scratch=3)
    plan = replace(plan, gpus=(replace(plan.gpus[0], input_chunks=3, output_chunks=3),))
    assert "for instance where a chunk has" in str(errors(check_plan(plan)))
    even = replace(plan, min_bytes=4 * 3 * 16, max_bytes=4 * 3 * 16)
    assert right(even)


def test_bounds_are_those_of_the_bytes_a_block_touches() -> None:
    """An operand may be longer than its buffer if the block's own share is not."""
    within = copies((0, 2), (INPUT, 0, 4), (OUTPUT, 0, 8))
    within = replace(within, src=(LocalChunks(INPUT, 0, 8),))
    assert right(alone((within,)))
    assert reasons(alone((replace(within, share=(1, 2)),))) == {"bounds"}


def test_shares_in_a_pipeline_take_turns_of_their_own() -> None:
    def line(k: int, chunks: int = 2) -> tuple[Operation, ...]:
        body = copies((k, 2), (INPUT, 0, 4), (OUTPUT, 0, 4))
        return (Operation(PlanOp.PIPELINE, unit=16, chunks=chunks, body=(body,)),)

    assert right(alone(line(0), line(1)))
    assert reasons(alone(line(0), line(0))) == {"races"}
    assert reasons(alone(line(0, 3), line(1, 3))) == {"bounds"}


@pytest.mark.parametrize("op", [PlanOp.COPY, PlanOp.REDUCE])
def test_one_operation_in_place_does_not_race_with_itself(op: PlanOp) -> None:
    """It reads an element before it writes it; at another offset, another thread may not have."""

    def plan(source: int) -> ExecutionPlan:
        src = tuple(LocalChunks(INPUT, source, 2) for _ in range(1 + (op is PlanOp.REDUCE)))
        ops = (data(op, src, (LocalChunks(OUTPUT, 0, 2),)),)
        return replace(alone(ops), in_place=True)

    assert not errors(check_plan(plan(0)))
    assert reasons(plan(1)) == {"races"}


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
