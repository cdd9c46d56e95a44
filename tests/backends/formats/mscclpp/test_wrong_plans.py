"""Spoiled plans are rejected, each for the right reason; execution shows that they are wrong."""

from dataclasses import replace

import patterns
import plans
import pytest
from plans import operations, put_in, with_block, with_gpu

from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.formats.mscclpp.check import check_plan
from weft.backends.formats.mscclpp.interpret import run_plan
from weft.backends.formats.mscclpp.lower.emit import plan_of
from weft.backends.formats.mscclpp.plan.model import (
    Channel,
    ExecutionPlan,
    LocalChunks,
    Multicast,
    Operation,
    PlanChannels,
    PlanOp,
    RemoteBuffer,
    RemoteChunks,
)
from weft.dsl.nouns.program import Buffer, Protocol

RING = plan_of(plans.program("ring"))
PORTS = plan_of(plans.program("ring"), (0, 1, 2, 3))
SHOTS = plan_of(plans.program("two shot"))
PACKETS = plan_of(plans.program("ring", Protocol.LL))
NOP = Operation(PlanOp.NOP)


def first(plan: ExecutionPlan, *ops: PlanOp, nth: int = 0) -> tuple[plans.Where, Operation]:
    return list(operations(plan, *ops))[nth]


def drop(plan: ExecutionPlan, *ops: PlanOp, nth: int = 0) -> ExecutionPlan:
    return put_in(plan, first(plan, *ops, nth=nth)[0])


def change(plan: ExecutionPlan, kind: PlanOp, **fields: object) -> ExecutionPlan:
    where, old = first(plan, kind)
    return put_in(plan, where, replace(old, **fields))


def nop_before(plan: ExecutionPlan, op: PlanOp) -> ExecutionPlan:
    """Without the nop that stands right before the first operation of a kind."""
    for (r, b, k), _ in operations(plan, op):
        if k and plan.gpus[r].blocks[b].ops[k - 1] == NOP:
            return put_in(plan, (r, b, k - 1))
    raise AssertionError(f"no nop before {op}")


def moved(x: LocalChunks, by: int) -> LocalChunks:
    return replace(x, index=x.index + by)


def many(plan: ExecutionPlan, count: int) -> ExecutionPlan:
    return with_block(plan, 0, 0, lambda t: replace(t, ops=(*t.ops, *[NOP] * (count - len(t.ops)))))


def swap_channels(plan: ExecutionPlan) -> ExecutionPlan:
    def swapped(t: plans.ThreadBlock) -> plans.ThreadBlock:
        return replace(t, channels=tuple((k, ids[::-1]) for k, ids in t.channels))

    return with_block(plan, 0, 0, swapped)


def swap_buffers(plan: ExecutionPlan) -> ExecutionPlan:
    def swapped(t: plans.ThreadBlock) -> plans.ThreadBlock:
        return replace(t, remote=tuple((k, ids[::-1]) for k, ids in t.remote))

    return with_block(plan, 0, 0, swapped)


def mine(index: int, size: int = 1) -> LocalChunks:
    return LocalChunks(Buffer.INPUT, index, size)


def theirs(buffer: int, index: int, size: int = 1) -> RemoteChunks:
    return RemoteChunks(buffer, index, size)


def gpu(plan: ExecutionPlan, **fields: object) -> ExecutionPlan:
    """With other fields of rank 0."""
    return with_gpu(plan, 0, lambda g: replace(g, **fields))


def channels_to(*ranks: int) -> ExecutionPlan:
    """The ring, whose rank 0 has channels to these ranks."""
    return gpu(RING, channels=(PlanChannels(Channel.MEMORY, ranks),))


def at_put(*ops: Operation) -> ExecutionPlan:
    """The ring with other operations in the place of its put."""
    return put_in(RING, (0, 0, 3), *ops)


def pipeline(chunks: int, *body: Operation) -> Operation:
    return Operation(PlanOp.PIPELINE, unit=16, chunks=chunks, body=body)


PUT = first(RING, PlanOp.PUT)[1]
ONE, TWO = mine(0), LocalChunks(Buffer.OUTPUT, 0, 1)


def crossed() -> ExecutionPlan:
    """Every rank waits for its left neighbour before it signals to its right one."""
    plan = RING
    for r in range(4):
        ops = plan.gpus[r].blocks[0].ops
        k = next(k for k, op in enumerate(ops) if op.op is PlanOp.WAIT)
        put = next(k for k, op in enumerate(ops) if op.op is PlanOp.PUT)
        order = (*ops[:put], ops[k], *ops[put:k], *ops[k + 1 :])
        plan = with_block(plan, r, 0, lambda t, order=order: replace(t, ops=order))
    return plan


def unflushed() -> ExecutionPlan:
    """The source of a port put is overwritten after a flush that does nothing."""
    where, op = first(PORTS, PlanOp.PUT_SIGNAL)
    source = op.src[0]
    return put_in(
        PORTS,
        where,
        op,
        Operation(PlanOp.FLUSH, Channel.PORT, (0,)),
        NOP,
        Operation(PlanOp.COPY, src=(TWO,), dst=(source,)),
    )


def twice() -> ExecutionPlan:
    where, op = first(PACKETS, PlanOp.PUT_PACKETS)
    return put_in(PACKETS, where, op, NOP, op)


def mixed() -> ExecutionPlan:
    where, op = first(PACKETS, PlanOp.UNPACK)
    copy = Operation(PlanOp.COPY, src=(TWO,), dst=(LocalChunks(Buffer.SCRATCH, 2, 1),))
    return put_in(PACKETS, where, op, NOP, copy)


def port_packets() -> ExecutionPlan:
    plan = plan_of(plans.program("ring", Protocol.LL), (0, 1, 2, 3))
    return change(plan, PlanOp.READ_PUT_PACKETS, op=PlanOp.PUT_PACKETS)


def moving() -> ExecutionPlan:
    program = lower_schedule(patterns.ring_allgather(3, 1), CompileOptions(in_place=True))
    plan = plan_of(program)
    buffers = (replace(plan.gpus[0].remote[0], buffer=Buffer.INPUT), *plan.gpus[0].remote[1:])
    return with_gpu(plan, 0, lambda g: replace(g, remote=buffers))


def unready() -> ExecutionPlan:
    return drop(drop(RING, PlanOp.RELAXED_WAIT), PlanOp.RELAXED_SIGNAL, nth=1)


def semaphores(first: int) -> ExecutionPlan:
    return with_gpu(SHOTS, 0, lambda g: replace(g, semaphores=(first,) * len(g.semaphores)))


def seventeen() -> ExecutionPlan:
    lists = ((Channel.MEMORY, (0, 1) * 8 + (0,)),)
    return with_block(RING, 0, 0, lambda t: replace(t, channels=lists))


def barrier(number: int, blocks: int) -> Operation:
    return Operation(PlanOp.BARRIER, barrier=(number, blocks))


def strange_buffer() -> ExecutionPlan:
    strange = RemoteBuffer(7, Buffer.OUTPUT, (Channel.MEMORY,))
    return gpu(RING, remote=(strange, *RING.gpus[0].remote[1:]))


def get_elsewhere() -> Operation:
    to = LocalChunks(Buffer.OUTPUT, 1, 1)
    return Operation(PlanOp.GET, Channel.MEMORY, src=(theirs(0, 0),), dst=(to,))


WRONG: dict[str, tuple[ExecutionPlan, str, str]] = {
    # the plan, the check that must find it, words of its message
    "a signal is missing": (drop(RING, PlanOp.SIGNAL), "signals", "a wait never ends"),
    "a wait is missing": (drop(RING, PlanOp.WAIT), "signals", "next launch"),
    "nobody tells that it is ready": (drop(RING, PlanOp.RELAXED_SIGNAL), "signals", "never"),
    "no handshake at all": (unready(), "handshake", "begun"),
    "no nop before a signal": (nop_before(RING, PlanOp.SIGNAL), "races", "unordered"),
    "no nop after a wait": (nop_before(RING, PlanOp.REDUCE_SEND), "races", "unordered"),
    "no nop before a put": (nop_before(RING, PlanOp.PUT), "handshake", "begun"),
    "no nop before a release": (nop_before(SHOTS, PlanOp.RELEASE), "races", "unordered"),
    "a relaxed signal for data": (
        change(RING, PlanOp.SIGNAL, op=PlanOp.RELAXED_SIGNAL),
        "races",
        "unordered",
    ),
    "a relaxed wait for data": (
        change(RING, PlanOp.WAIT, op=PlanOp.RELAXED_WAIT),
        "races",
        "unordered",
    ),
    "a release is missing": (drop(SHOTS, PlanOp.RELEASE), "semaphores", "a wait never ends"),
    "an acquire is missing": (drop(SHOTS, PlanOp.ACQUIRE), "semaphores", "another value"),
    "a semaphore begins with one": (semaphores(1), "races", "unordered"),
    "a semaphore begins below zero": (
        semaphores(-1),
        "semaphores",
        "begins at -1: a wait never ends",
    ),
    "waits before signals on both sides": (crossed(), "deadlock", "cycle of waits"),
    "65 operations": (many(RING, 65), "limits", "operations: expected at most 64"),
    "nine channels at once": (change(RING, PlanOp.SIGNAL, ids=(0,) * 9), "limits", "got 9"),
    "seventeen semaphores": (change(SHOTS, PlanOp.ACQUIRE, ids=(0,) * 17), "limits", "at most 16"),
    "eleven operands": (change(RING, PlanOp.REDUCE_SEND, src=(ONE,) * 11), "limits", "11 operands"),
    "seventeen channels": (seventeen(), "limits", "memory channels: expected at most"),
    "barrier 16": (put_in(RING, (0, 0, 0), barrier(16, 1)), "limits", "below 16, got 16"),
    "a barrier one block never reaches": (
        put_in(SHOTS, (0, 0, 0), barrier(0, 2), SHOTS.gpus[0].blocks[0].ops[0]),
        "barriers",
        "used by 1",
    ),
    "an index beyond the buffer": (change(RING, PlanOp.PUT, src=(mine(4),)), "bounds", "i[4"),
    "a remote index beyond the buffer": (
        change(RING, PlanOp.PUT, dst=(theirs(0, 9),)),
        "bounds",
        "rank 1 s[9",
    ),
    "a size beyond the buffer": (
        change(RING, PlanOp.PUT, src=(mine(3, 2),), dst=(theirs(0, 0, 2),)),
        "bounds",
        "i[3",
    ),
    "a negative index": (change(RING, PlanOp.PUT, src=(mine(-1),)), "bounds", "i[-1"),
    "a channel beyond the list": (
        change(RING, PlanOp.WAIT, ids=(2,)),
        "ids",
        "channel below 2, got 2",
    ),
    "a remote buffer beyond the list": (
        change(RING, PlanOp.PUT, dst=(theirs(5, 0),)),
        "ids",
        "remote buffer 5",
    ),
    "a semaphore beyond the list": (
        change(SHOTS, PlanOp.ACQUIRE, ids=(40,)),
        "ids",
        "semaphore below 4, got 40",
    ),
    "a channel to oneself": (channels_to(0, 3), "ids", "expected another rank"),
    "a buffer of nobody": (strange_buffer(), "ids", "another rank, got 7"),
    "swapped channels": (swap_channels(RING), "signals", "signals to"),
    "swapped buffers": (swap_buffers(RING), "bounds", "rank 1 s[3"),
    "one channel fewer": (channels_to(1), "ids", "of the GPU's 1"),
    "a channel with no other end": (channels_to(2, 3), "signals", "other end is missing"),
    "unequal sizes": (
        change(RING, PlanOp.PUT, src=(mine(0, 2),)),
        "form",
        "expected destinations of the sources' sizes",
    ),
    "a put without destination": (change(RING, PlanOp.PUT, dst=()), "form", "dst_buff"),
    "a sum of one": (change(RING, PlanOp.REDUCE_SEND, src=(ONE,)), "form", "src_buff"),
    "a put from two buffers": (
        change(RING, PlanOp.PUT, src=(ONE, TWO), dst=(*PUT.dst, theirs(0, 1))),
        "traps",
        "buffer of the first",
    ),
    "a port put on one channel for two": (
        change(PORTS, PlanOp.PUT_SIGNAL, src=(ONE, ONE), dst=(theirs(0, 0), theirs(0, 1))),
        "form",
        "a channel for each",
    ),
    "a port put to another than its channel": (
        change(PORTS, PlanOp.PUT_SIGNAL, ids=(1,)),
        "ids",
        "through a channel to",
    ),
    "nobody hears that the network is done": (
        drop(drop(PORTS, PlanOp.WAIT, nth=6), PlanOp.SIGNAL, nth=1),
        "ending",
        "network",
    ),
    "a flush of nothing": (unflushed(), "races", "unordered"),
    "a get with other offsets": (at_put(get_elsewhere()), "traps", "swaps"),
    "a maximum": (change(RING, PlanOp.REDUCE_SEND, reduce_op="max"), "traps", "always adds"),
    "another protocol": (replace(RING, protocol="ll"), "form", "'ll'"),
    "no input chunks": (gpu(RING, input_chunks=0), "form", "input_chunks: expected 1 or more"),
    "odd alignment": (replace(RING, alignment=4), "form", "alignment"),
    "too many threads": (replace(RING, threads=2048), "form", "2048"),
    "sizes upside down": (replace(RING, min_bytes=1 << 31), "form", "min_message_size"),
    "packets under Simple": (replace(PACKETS, protocol="Simple"), "traps", "packets"),
    "packets without the second half": (
        replace(PACKETS, double_scratch=False),
        "handshake",
        "packets",
    ),
    "double scratch for plain puts": (replace(RING, double_scratch=True), "traps", "first half"),
    "packets nobody sends": (drop(PACKETS, PlanOp.PUT_PACKETS), "deadlock", "never written"),
    "packets written twice": (twice(), "packets", "twice"),
    "packets over plain data": (mixed(), "races", "plain data"),
    "a packet put through a port": (port_packets(), "traps", "rppkt"),
    "stale scratch": (drop(RING, PlanOp.PUT), "stale", "never written before"),
    "a nested pipeline": (at_put(pipeline(1, pipeline(1))), "form", "inside a pipeline"),
    "a pipeline over short operands": (at_put(pipeline(2, PUT)), "bounds", "run past"),
    "the input of an in-place allgather": (moving(), "placement", "another offset"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_plan_is_rejected_for_the_right_reason(name: str) -> None:
    plan, check, words = WRONG[name]
    found = errors(check_plan(plan))
    assert any(f.check == check and words in f.message for f in found), found[:4]


@pytest.mark.parametrize("initial", [0, -1])
def test_a_semaphore_below_zero_lets_one_acquire_wait_for_ever(initial: int) -> None:
    """As many releases as acquires are one too few; execution says the same."""
    op = Operation(PlanOp.RELEASE, ids=(0,)), Operation(PlanOp.ACQUIRE, ids=(0,))
    blocks = tuple(plans.ThreadBlock((one,), (), ()) for one in op)
    plan = with_gpu(
        SMALL["ring"], 0, lambda g: replace(g, semaphores=(initial,), blocks=(*g.blocks, *blocks))
    )
    assert (not errors(check_plan(plan))) == run_plan(plan, orders=6).ok == (initial == 0)


def test_plain_data_has_the_room_of_packets() -> None:
    """Under LL scratch is twice as large: the checker and the interpreter agree how large."""
    have = PACKETS.gpus[0].scratch_chunks
    for last, right in ((2 * have + 3, True), (2 * have + 4, False)):
        copy = Operation(PlanOp.COPY, src=(ONE,), dst=(LocalChunks(Buffer.SCRATCH, last, 1),))
        plan = with_gpu(
            PACKETS,
            0,
            lambda g, op=copy: replace(
                g, scratch_chunks=have + 2, blocks=(*g.blocks, plans.ThreadBlock((op,)))
            ),
        )
        assert (not errors(check_plan(plan))) == run_plan(plan, orders=6).ok == right


def test_a_store_through_a_switch_needs_a_channel() -> None:
    store = Operation(PlanOp.MULTICAST_STORE, Channel.SWITCH, src=(ONE,), dst=(Multicast(0, 0, 1),))
    plan = put_in(RING, (0, 0, 3), store)
    assert any("the block has 0" in f.message for f in errors(check_plan(plan)))
    assert "no switch channel 0" in run_plan(plan, orders=1).detail


# --- what the checker accepts is right, and what execution shows wrong is rejected ----------------

SMALL = {
    "ring": plan_of(lower_schedule(patterns.ring_allreduce(3, 1))),
    "ring, ports": plan_of(lower_schedule(patterns.ring_allreduce(3, 1)), (0, 0, 1)),
    "ring, packets": plan_of(
        lower_schedule(patterns.ring_allreduce(3, 1), CompileOptions(protocol=Protocol.LL))
    ),
    "hub": plan_of(lower_schedule(patterns.tree_reduce(3, patterns.hub(3), 2)), (0, 0, 1)),
    "shots": plan_of(lower_schedule(patterns.trees_allreduce(3, patterns.full(3), 1)), (0, 1, 0)),
}
SYNCHRONIZES = frozenset(
    {
        PlanOp.NOP,
        PlanOp.SIGNAL,
        PlanOp.WAIT,
        PlanOp.RELAXED_SIGNAL,
        PlanOp.RELAXED_WAIT,
        PlanOp.ACQUIRE,
        PlanOp.RELEASE,
        PlanOp.PUT_SIGNAL,
    }
)


@pytest.mark.parametrize("name", SMALL)
def test_whatever_synchronization_is_dropped_is_missed_or_was_not_needed(name: str) -> None:
    """Without any one nop, signal, wait, acquire or release: rejected, or still right."""
    plan, rejected, kept = SMALL[name], 0, 0
    for where, op in operations(plan):
        if where[0] > 1 or op.op not in SYNCHRONIZES:
            continue
        spoiled = put_in(plan, where)
        if errors(check_plan(spoiled)):
            rejected += 1
        else:
            kept += 1
            assert op == NOP
            assert run_plan(spoiled, orders=24).ok
    assert rejected > 4 * kept or name == "ring, packets"


@pytest.mark.parametrize("name", SMALL)
def test_execution_shows_a_missing_signal_wait_or_data_movement(name: str) -> None:
    """It hangs, leaves signals over, or computes something else: in one order of 24 at least."""
    plan = SMALL[name]
    for where, op in operations(plan):
        if where[0] == 0 and op != NOP:
            assert not run_plan(put_in(plan, where), orders=24).ok, (where, op.op)


def test_execution_shows_races_that_a_missing_nop_makes() -> None:
    plan, shown = SMALL["ring"], 0
    for where, _ in operations(plan, PlanOp.NOP):
        shown += where[0] == 0 and not run_plan(put_in(plan, where), orders=200).ok
    assert shown >= 6


def test_execution_sees_unready_peers_and_late_networks() -> None:
    ring = SMALL["ring, ports"]
    unready = drop(ring, PlanOp.RELAXED_WAIT)
    r = first(ring, PlanOp.RELAXED_WAIT)[0][0]
    assert r == 0
    assert not run_plan(unready, orders=24).ok
    stuck = run_plan(drop(SMALL["ring"], PlanOp.SIGNAL), orders=1)
    assert "deadlock" in stuck.detail
    assert "waits for a signal on memory channel" in stuck.detail
