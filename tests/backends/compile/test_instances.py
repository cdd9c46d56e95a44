"""Replication: both policies keep every collective's meaning."""

import patterns
import pytest
from proof import prove

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.instances import Instances, Replication
from weft.backends.compile.passes.lower import Lower
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.program import Buffer, Program
from weft.dsl.nouns.runtime import MSCCL, RCCL
from weft.dsl.nouns.slots import SCRATCH

RING, HUB = patterns.both(patterns.ring(4)), patterns.hub(4)
TWO = [1, 3]

KINDS = {
    Kind.ALLREDUCE: lambda: patterns.ring_allreduce(4, 2),
    Kind.ALLGATHER: lambda: patterns.ring_allgather(4, 2),
    Kind.REDUCE_SCATTER: lambda: patterns.ring_reduce_scatter(4, 2),
    Kind.ALLTOALL: lambda: patterns.routed("alltoall", 4, RING, 2),
    Kind.BROADCAST: lambda: patterns.tree_broadcast(4, RING, 2, root=1),
    Kind.REDUCE: lambda: patterns.tree_reduce(4, RING, 2, root=1),
    Kind.GATHER: lambda: patterns.routed("gather", 4, RING, 2, roots=[1]),
    Kind.SCATTER: lambda: patterns.routed("scatter", 4, RING, 2, roots=[1]),
    Kind.ALLTONEXT: lambda: patterns.routed("alltonext", 4, RING, 2),
    Kind.MULTIROOT_BROADCAST: lambda: patterns.routed("multiroot_broadcast", 4, HUB, 2, roots=TWO),
    Kind.MULTIROOT_GATHER: lambda: patterns.routed("multiroot_gather", 4, HUB, 2, roots=TWO),
    Kind.MULTIROOT_SCATTER: lambda: patterns.routed("multiroot_scatter", 4, HUB, 2, roots=TWO),
    Kind.CUSTOM: lambda: patterns.rotation(4),
}


PORTABLE = (Kind.ALLREDUCE, Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.BROADCAST, Kind.REDUCE)


def test_every_kind_is_here() -> None:
    assert set(KINDS) == set(Kind)
    assert all(build().collective.kind is kind for kind, build in KINDS.items())


@pytest.mark.parametrize("policy", Replication)
@pytest.mark.parametrize("kind", KINDS)
def test_both_policies_keep_the_meaning(kind: Kind, policy: Replication) -> None:
    schedule = KINDS[kind]()
    for count in (2, 3):
        options = CompileOptions(instances=count, replication=policy)
        program = lower_schedule(schedule, options)
        assert program.message_chunks == count * schedule.collective.message_chunks
        prove(program, MSCCL)
    if kind in PORTABLE:
        options = CompileOptions(instances=2, replication=policy, in_place=True, target=RCCL)
        prove(lower_schedule(schedule, options), RCCL)


@pytest.mark.parametrize("policy", Replication)
def test_one_shot_sums_its_own_instances(policy: Replication) -> None:
    schedule = patterns.one_shot(3, 2)
    prove(lower_schedule(schedule, CompileOptions(instances=2, replication=policy)), MSCCL)


def touched(program: Program, rank: int, channel: int) -> set[int]:
    """Output chunks that the connections of a channel bring to a rank."""
    return {
        x.dst.offset + k
        for block in program.ranks[rank]
        if block.channel == channel and block.recv is not None
        for x in block.code
        if x.op.receives and x.dst.buffer is Buffer.OUTPUT
        for k in range(x.count)
    }


def test_who_takes_which_chunks() -> None:
    """MSCCLang's meaning: i·len + k batched, k·n + i interleaved, within what a pair exchanges."""
    schedule = patterns.tree_broadcast(2, patterns.both([(0, 1)]), 3)
    taken = {
        policy: [
            touched(lower_schedule(schedule, CompileOptions(instances=2, replication=policy)), 1, i)
            for i in range(2)
        ]
        for policy in Replication
    }
    assert taken[Replication.BATCHED] == [{0, 1, 2}, {3, 4, 5}]
    assert taken[Replication.INTERLEAVED] == [{0, 2, 4}, {1, 3, 5}]
    # An allgather's output is one unit per rank: nobody reaches into the unit of another.
    schedule = patterns.direct_alltoall(2, 2)
    program = lower_schedule(schedule, CompileOptions(instances=2))
    assert [touched(program, 1, i) for i in range(2)] == [{0, 1}, {2, 3}]


def test_scratch_is_batched_always() -> None:
    flow = Lower().apply(KINDS[Kind.ALLTOALL](), MSCCL)
    size = int(flow.scratch.max())
    for policy in Replication:
        m = Instances(2, policy).apply(flow, MSCCL).messages
        slots = m.recv[(m.recv >= SCRATCH) & (m.instance == 1)] - SCRATCH
        assert slots.min() == size
        assert slots.max() == 2 * size - 1
