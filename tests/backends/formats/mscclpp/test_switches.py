"""Plans that sum and copy in a switch: read, judged and executed; spoiled ones are rejected."""

from dataclasses import replace

import pytest
import switch_plans
from plans import put_in, with_gpu
from switch_plans import INPUT, NOP, OUTPUT, SCRATCH, group

from weft.backends.check.findings import Severity, errors
from weft.backends.formats.mscclpp.check import check_plan
from weft.backends.formats.mscclpp.interpret import run_plan
from weft.backends.formats.mscclpp.plan.model import (
    Channel,
    ExecutionPlan,
    LocalChunks,
    Multicast,
    Operation,
    PlanChannels,
    PlanOp,
)
from weft.backends.formats.mscclpp.plan.read import read_plan
from weft.backends.formats.mscclpp.plan.write import write_plan

IN_PLACE = switch_plans.allreduce(in_place=True)
APART = switch_plans.allreduce(in_place=False)
GATHER = switch_plans.allgather()
PACKETS = switch_plans.packets()


def without(plan: ExecutionPlan, rank: int, *steps: int) -> ExecutionPlan:
    for k in sorted(steps, reverse=True):
        plan = put_in(plan, (rank, 0, k))
    return plan


def from_own_place(plan: ExecutionPlan) -> ExecutionPlan:
    """Each rank packs where all read it, so that its multicast stores onto its own source."""
    for rank in range(3):
        ops = plan.gpus[rank].blocks[0].ops
        own = LocalChunks(SCRATCH, rank, 1)
        plan = put_in(plan, (rank, 0, 5), replace(ops[5], src=(own,)))
        plan = put_in(plan, (rank, 0, 3), replace(ops[3], dst=(own,)))
    return plan


@pytest.mark.parametrize(
    "plan",
    [
        IN_PLACE,
        APART,
        GATHER,
        PACKETS,
        without(without(PACKETS, 0, 4), 1, 4),  # the multicast waits for its packets by their flags
        from_own_place(PACKETS),
    ],
)
def test_good_plans_are_proved_and_executed(plan: ExecutionPlan) -> None:
    assert read_plan(write_plan(plan)) == plan
    found = check_plan(plan)
    assert not errors(found)
    assert any("sm_90" in f.message for f in found if f.severity is Severity.WARNING)
    done = run_plan(plan, orders=60)
    assert done.ok, done.detail


def dst(plan: ExecutionPlan, rank: int, x: Multicast) -> ExecutionPlan:
    return cast(plan, rank, dst=(x,))


def channels(plan: ExecutionPlan, rank: int, *groups: PlanChannels) -> ExecutionPlan:
    return with_gpu(plan, rank, lambda g: replace(g, channels=(g.channels[0], *groups)))


def ids(plan: ExecutionPlan, rank: int, step: int, *ids: int) -> ExecutionPlan:
    old = plan.gpus[rank].blocks[0].ops[step]
    return put_in(plan, (rank, 0, step), replace(old, ids=ids))


def untold(plan: ExecutionPlan, rank: int, step: int) -> ExecutionPlan:
    """A rank does not tell the others (before step 1: its launch; before 6: that it has stored)."""
    plan = put_in(plan, (rank, 0, step - 1))
    for r in {0, 1, 2} - {rank}:
        others = sorted({0, 1, 2} - {r})
        plan = ids(plan, r, step, next(k for k, p in enumerate(others) if p != rank))
    return plan


def cast(plan: ExecutionPlan, rank: int, **fields: object) -> ExecutionPlan:
    """With other fields of a rank's cast."""
    return put_in(plan, (rank, 0, 3), replace(plan.gpus[rank].blocks[0].ops[3], **fields))


def moving(plan: ExecutionPlan, *groups: PlanChannels) -> ExecutionPlan:
    """With these groups on each rank."""
    return replace(
        plan, gpus=tuple(replace(g, channels=(g.channels[0], *groups)) for g in plan.gpus)
    )


PLAIN = switch_plans.switch(PlanOp.MULTICAST_STORE, LocalChunks(INPUT, 0, 1), Multicast(0, 0, 1))

WRONG: dict[str, tuple[ExecutionPlan, str, str]] = {
    # the plan, the check that must find it, words of its message
    "a member has not begun": (untold(IN_PLACE, 1, 1), "handshake", "begun"),
    "a member may end before the store": (untold(IN_PLACE, 2, 6), "ending", "may end"),
    "no nop before the sum": (without(IN_PLACE, 0, 2), "handshake", "begun"),
    "no nop after the store": (without(IN_PLACE, 0, 4), "ending", "may end"),
    "two stores overlap": (dst(IN_PLACE, 1, Multicast(0, 0, 1)), "races", "unordered"),
    "a sum reads what another stores": (
        cast(IN_PLACE, 1, src=(Multicast(0, 0, 1),)),
        "races",
        "unordered",
    ),
    "beyond the buffer of all": (dst(APART, 0, Multicast(0, 3, 1)), "bounds", "3 chunks"),
    "no such channel": (dst(APART, 0, Multicast(2, 0, 1)), "ids", "the block has 2"),
    "a smaller buffer on one member": (
        with_gpu(APART, 2, lambda g: replace(g, output_chunks=2)),
        "bounds",
        "that of rank 2",
    ),
    "a group without its issuer": (
        channels(IN_PLACE, 0, group(1, 2)),
        "ids",
        "rank 0 is not a member",
    ),
    "a group of one": (channels(IN_PLACE, 0, group(0)), "form", "a group of 1"),
    "a rank twice": (channels(IN_PLACE, 0, group(0, 1, 1)), "ids", "twice"),
    "a rank that is not there": (channels(IN_PLACE, 0, group(0, 1, 7)), "ids", "rank 7"),
    "a member does not make it": (channels(IN_PLACE, 2), "ids", "GPU's 0, got"),
    "another order of set-up": (
        channels(APART, 2, group(buffer=INPUT), group()),
        "set-up",
        "never made",
    ),
    "other members": (channels(IN_PLACE, 2, group(1, 2)), "set-up", "`o` of ranks 1, 2"),
    "a group more": (channels(IN_PLACE, 2, group(), group()), "set-up", "nothing more in its turn"),
    "another buffer on one rank": (
        channels(IN_PLACE, 1, group(buffer=INPUT)),
        "set-up",
        "has `i` of",
    ),
    "a buffer that moves in place": (
        replace(moving(GATHER, group(buffer=INPUT)), in_place=True),
        "placement",
        "another offset",
    ),
    "a load-reduce from its own memory": (
        cast(GATHER, 0, op=PlanOp.MULTICAST_REDUCE_STORE),
        "form",
        "src_buff",
    ),
    "ranges of two sizes": (dst(GATHER, 0, Multicast(0, 0, 2)), "form", "sources' sizes"),
    "packets without room for flags": (replace(PACKETS, protocol="Simple"), "traps", "lacks room"),
    "packets that nobody makes": (without(PACKETS, 0, 3), "deadlock", "never written"),
    "packets into the output": (moving(PACKETS, group()), "traps", "live in scratch"),
    "plain stores into double scratch": (put_in(PACKETS, (0, 0, 5), PLAIN), "traps", "first half"),
    "a maximum": (cast(IN_PLACE, 0, reduce_op="max"), "traps", "always adds"),
}


@pytest.mark.parametrize("name", WRONG)
def test_spoiled_plans_are_rejected(name: str) -> None:
    plan, check, words = WRONG[name]
    found = errors(check_plan(plan))
    assert check in {f.check for f in found}, [str(f) for f in found]
    assert any(words in f.message for f in found if f.check == check), [str(f) for f in found]


def test_what_it_stored_comes_back_to_the_issuer_late() -> None:
    """An own copy may be read after a release, not after a nop alone."""
    take = Operation(
        PlanOp.COPY, src=(LocalChunks(SCRATCH, 0, 1),), dst=(LocalChunks(OUTPUT, 0, 1),)
    )
    sum_ = switch_plans.switch(
        PlanOp.MULTICAST_REDUCE_STORE, Multicast(0, 0, 1), Multicast(1, 0, 1)
    )
    issue = (*switch_plans.OPENING, sum_)
    first = (*issue, *switch_plans.CLOSING, take)
    rest = (*switch_plans.OPENING, *switch_plans.CLOSING, take)
    groups = group(buffer=INPUT), group(buffer=SCRATCH)
    good = switch_plans.plan("allreduce", (1, 1, 1), first, rest, rest, groups=groups)
    assert not errors(check_plan(good))
    assert run_plan(good, orders=60).ok
    early = put_in(put_in(good, (0, 0, 8)), (0, 0, 4), NOP, take)
    assert {f.check for f in errors(check_plan(early))} == {"races"}
    assert not run_plan(early, orders=60).ok


def test_the_interpreter_shows_a_missing_handshake_too() -> None:
    assert not run_plan(untold(IN_PLACE, 1, 1), orders=100).ok
    assert not run_plan(untold(IN_PLACE, 2, 6), orders=100).ok
    assert not run_plan(channels(IN_PLACE, 2, group(1, 2)), orders=2).ok


def test_switch_channels_have_their_own_limits() -> None:
    many = tuple(group() for _ in range(17))
    plan = replace(
        IN_PLACE,
        gpus=tuple(
            replace(
                g,
                channels=(g.channels[0], *many),
                blocks=(
                    replace(
                        g.blocks[0],
                        channels=(g.blocks[0].channels[0], (Channel.SWITCH, tuple(range(17)))),
                    ),
                ),
            )
            for g in IN_PLACE.gpus
        ),
    )
    assert any("switch channels: expected" in f.message for f in errors(check_plan(plan)))


@pytest.mark.parametrize("op", [PlanOp.SIGNAL, PlanOp.WAIT, PlanOp.FLUSH])
def test_synchronization_through_a_switch_channel_is_refused_when_run(op: PlanOp) -> None:
    last = len(GATHER.gpus[0].blocks[0].ops) - 1
    plan = put_in(GATHER, (0, 0, last), NOP, Operation(op, Channel.SWITCH, (0,)))
    assert "no switch channel 0" in run_plan(plan, orders=1).detail
