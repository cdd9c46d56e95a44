"""What authors ask for is done, or refused in words."""

from dataclasses import replace

import numpy as np
import patterns
import pytest
from proof import prove

from weft.backends.compile.analyses.flow import NONE, Flow, Messages
from weft.backends.compile.passes.aggregate import Aggregate
from weft.backends.compile.passes.channels import Channels
from weft.backends.compile.passes.instances import Instances
from weft.backends.compile.passes.lower import Lower
from weft.backends.compile.passes.threadblocks import ThreadBlocks
from weft.backends.compile.passes.weave import Weave
from weft.backends.compile.pipeline import DEFAULT_PASSES, of_form
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import MSCCL, RCCL, Target

Hints = dict[tuple[int, int], tuple[int, int, int]]
"""(source, destination) -> channel, block of the sender, block of the receiver."""


def hinted(flow: Flow, hints: Hints) -> Flow:
    m = flow.messages
    columns = [np.full(len(m), NONE) for _ in range(3)]
    for (src, dst), values in hints.items():
        rows = (m.src == src) & (m.dst == dst)
        for column, value in zip(columns, values, strict=True):
            column[rows] = value
    channel, send, recv = columns
    return replace(flow, messages=replace(m, channel=channel, send_hint=send, recv_hint=recv))


def build(
    schedule: patterns.Schedule, hints: Hints, instances: int = 1, target: Target = MSCCL
) -> Program:
    flow = hinted(Lower().apply(schedule, target), hints)
    flow = Instances(instances).apply(flow, target)
    for one in (Channels(), ThreadBlocks(), Aggregate()):
        flow = one.apply(flow, target)
    program = Weave().apply(flow, target)
    for last in of_form(DEFAULT_PASSES, "program", "program"):
        program = last.apply(program, target)
    prove(program, target)
    return program


def blocks(program: Program, rank: int) -> set[tuple[int, int | None, int | None]]:
    return {
        (b.channel, b.send, b.recv) for b in program.ranks[rank] if (b.send, b.recv) != (None, None)
    }


def test_channels_are_kept() -> None:
    hints = {(r, (r + 1) % 4): (r % 2 * 3, NONE, NONE) for r in range(4)}
    program = build(patterns.ring_allgather(4, 1), hints)
    assert blocks(program, 1) == {(3, 2, None), (0, None, 0)}
    assert program.channels == 4


def test_instances_repeat_channels_beside_each_other() -> None:
    program = build(patterns.ring_allgather(3, 1), {(0, 1): (2, NONE, NONE)}, instances=2)
    assert {c for c, _, recv in blocks(program, 1) if recv == 0} == {2, 5}
    assert program.channels == 6


def test_free_messages_go_their_own_way() -> None:
    program = build(patterns.direct_alltoall(3, 2), {(0, 1): (1, NONE, NONE)})
    assert {c for c, send, _ in blocks(program, 0) if send == 1} == {1}
    assert {c for c, send, _ in blocks(program, 0) if send == 2} == {0}


@pytest.mark.parametrize("target", [MSCCL, RCCL], ids=lambda t: t.name)
def test_ends_of_one_number_share_a_block(target: Target) -> None:
    """Rank 0 talks to 1 and 2; by itself it would pair the ends of each."""
    across = {
        (0, 1): (NONE, 7, NONE),
        (2, 0): (NONE, NONE, 7),
        (0, 2): (NONE, 4, NONE),
        (1, 0): (NONE, NONE, 5),
    }
    program = build(patterns.direct_alltoall(3, 1), across, target=target)
    assert blocks(program, 0) == {(0, 1, 2), (0, 2, None), (0, None, 1)}
    two = build(patterns.direct_alltoall(3, 1), across, instances=2, target=target)
    assert blocks(two, 0) == {(c, s, r) for c in (0, 1) for _, s, r in blocks(program, 0)}


def columns_of(m: Messages, rows: np.ndarray, **values: np.ndarray) -> Messages:
    for name, value in values.items():
        column = getattr(m, name).copy()
        column[rows] = value
        m = replace(m, **{name: column})
    return m


def test_what_no_block_can_be_is_refused() -> None:
    schedule = patterns.direct_alltoall(3, 2)
    with pytest.raises(UserError, match="block 1 of rank 0 has 2 send peers, ranks 1, 2"):
        build(schedule, {(0, 1): (NONE, 1, NONE), (0, 2): (NONE, 1, NONE)})
    with pytest.raises(UserError, match="block 3 of rank 2 has 2 receive peers, ranks 0, 1"):
        build(schedule, {(0, 2): (NONE, NONE, 3), (1, 2): (NONE, NONE, 3)})
    with pytest.raises(UserError, match="block 1 of rank 0 is on channels 0, 2"):
        build(schedule, {(0, 1): (0, 1, NONE), (1, 0): (2, NONE, 1)})
    with pytest.raises(UserError, match="66 channels are needed"):
        build(schedule, {(0, 1): (32, NONE, NONE)}, instances=2)
    flow = Lower().apply(schedule, MSCCL)
    m = flow.messages
    rows = np.flatnonzero((m.src == 0) & (m.dst == 1))
    torn = columns_of(m, rows, send_hint=np.arange(len(rows)))
    flow = Channels().apply(replace(flow, messages=torn), MSCCL)
    with pytest.raises(
        UserError, match="blocks 0 and 1 of rank 0 both send to rank 1 on channel 0"
    ):
        ThreadBlocks().apply(flow, MSCCL)
    apart = columns_of(torn, rows, channel=np.arange(len(rows)))
    flow = Channels().apply(replace(flow, messages=apart), MSCCL)
    assert ThreadBlocks().apply(flow, MSCCL).blocks is not None
