"""Plans by hand that sum and copy in a switch."""

from weft.backends.formats.mscclpp.plan.model import (
    Channel,
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Multicast,
    Operation,
    PlanChannels,
    PlanOp,
    ThreadBlock,
)
from weft.dsl.nouns.program import Buffer

INPUT, OUTPUT, SCRATCH = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH
NOP = Operation(PlanOp.NOP)
RANKS = 3


def peers(op: PlanOp) -> Operation:
    """A signal to, or a wait for, every other rank."""
    return Operation(op, Channel.MEMORY, tuple(range(RANKS - 1)))


OPENING = (peers(PlanOp.RELAXED_SIGNAL), peers(PlanOp.RELAXED_WAIT), NOP)
CLOSING = (NOP, peers(PlanOp.SIGNAL), peers(PlanOp.WAIT), NOP)


def switch(op: PlanOp, src: LocalChunks | Multicast, dst: Multicast) -> Operation:
    return Operation(op, Channel.SWITCH, src=(src,), dst=(dst,))


def group(*ranks: int, buffer: Buffer = OUTPUT) -> PlanChannels:
    return PlanChannels(Channel.SWITCH, (), buffer, (ranks or tuple(range(RANKS)),))


def plan(
    collective: str,
    chunks: tuple[int, int, int],
    *code: tuple[Operation, ...],
    groups: tuple[PlanChannels, ...] = (group(),),
    in_place: bool = False,
    protocol: str = "Simple",
) -> ExecutionPlan:
    """Three ranks with a block, memory channels to the others and the groups on each."""
    gpus = []
    for r, ops in enumerate(code):
        others = tuple(p for p in range(RANKS) if p != r)
        ids = (Channel.MEMORY, (0, 1)), (Channel.SWITCH, tuple(range(len(groups))))
        channels = (PlanChannels(Channel.MEMORY, others), *groups)
        gpus.append(GpuPlan(*chunks, (ThreadBlock(ops, ids),), channels))
    made = tuple(gpus)
    double = protocol == "LL"
    return ExecutionPlan(
        "by hand", collective, protocol, in_place, made, double_scratch=double, max_bytes=1 << 20
    )


def allreduce(in_place: bool) -> ExecutionPlan:
    """Every rank sums a chunk of all and stores it on all; out of place from ``i`` to ``o``."""
    source = 0 if in_place else 1
    groups = (group(),) if in_place else (group(), group(buffer=INPUT))

    def code(r: int) -> tuple[Operation, ...]:
        sum_ = switch(PlanOp.MULTICAST_REDUCE_STORE, Multicast(source, r, 1), Multicast(0, r, 1))
        return (*OPENING, sum_, *CLOSING)

    return plan("allreduce", (3, 3, 0), *map(code, range(3)), groups=groups, in_place=in_place)


def allgather() -> ExecutionPlan:
    def code(r: int) -> tuple[Operation, ...]:
        store = switch(PlanOp.MULTICAST_STORE, LocalChunks(INPUT, 0, 1), Multicast(0, r, 1))
        return (*OPENING, store, *CLOSING)

    return plan("allgather", (1, 3, 0), *map(code, range(3)))


def packets() -> ExecutionPlan:
    """An allgather by packets: double scratch, and nobody may be two launches ahead."""
    unpacked = LocalChunks(OUTPUT, 0, 3)

    def code(r: int) -> tuple[Operation, ...]:
        own, packed = LocalChunks(INPUT, 0, 1), LocalChunks(SCRATCH, 3, 1)
        return (
            *OPENING,
            Operation(PlanOp.COPY_PACKETS, src=(own,), dst=(packed,)),
            NOP,
            switch(PlanOp.MULTICAST_STORE_PACKETS, packed, Multicast(0, r, 1)),
            Operation(PlanOp.UNPACK, src=(LocalChunks(SCRATCH, 0, 3),), dst=(unpacked,)),
        )

    groups = (group(buffer=SCRATCH),)
    return plan("allgather", (1, 3, 4), *map(code, range(3)), groups=groups, protocol="LL")
