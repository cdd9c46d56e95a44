"""Form of a plan's switch channels: groups, what their members must agree on, and their set-up.

Each entry of a ``rank_groups`` is one multicast object over the whole buffer of all its members.
Making one is a call of all of them together that blocks and carries no tag: every rank makes those
of its list in their order, so that the lists of all must fit one global order.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....check.findings import Finding, Severity
from ..plan.model import ExecutionPlan, SwitchGroup

LEAST_MEMBERS = 2
"""``cuMulticastCreate`` refuses one device."""

MOST_OBJECTS = 1024
"""Multicast objects of all jobs of a rack of GB200."""


def switch_groups(plan: ExecutionPlan) -> Iterator[Finding]:
    """Yield the faults of the groups of a plan, first each by itself, then their set-up."""
    wrong = False
    for rank, gpu in enumerate(plan.gpus):
        for number, group in enumerate(gpu.groups()):
            for check, text in _one(plan, rank, group):
                wrong = True
                yield Finding(check, Severity.ERROR, f"switch channel {number}: {text}", rank)
    if not wrong:
        yield from _set_up(plan)


def _one(plan: ExecutionPlan, rank: int, group: SwitchGroup) -> Iterator[tuple[str, str]]:
    ranks = group.ranks
    if len(ranks) < LEAST_MEMBERS:
        yield "form", f"a group of {len(ranks)}; CUDA makes none of fewer than {LEAST_MEMBERS}"
    if len(set(ranks)) < len(ranks):
        yield "ids", "its group lists a rank twice"
    for r in ranks:
        if not 0 <= r < len(plan.gpus):
            yield "ids", f"its group has rank {r}, of {len(plan.gpus)}"
    if rank not in ranks:
        yield "ids", f"rank {rank} is no member of its group, and the set-up fails"
    if group.buffer is plan.moving:
        text = f"in place, `{group.buffer}` of an {plan.collective} lies at another offset"
        yield "placement", f"{text} on every rank, and a group has one"


def _set_up(plan: ExecutionPlan) -> Iterator[Finding]:
    """Make the objects as the ranks do: each the next of its list, once all members are there."""
    lists = [gpu.groups() for gpu in plan.gpus]
    at = [0] * len(lists)
    made, moved = 0, True

    def head(rank: int) -> SwitchGroup | None:
        return lists[rank][at[rank]] if at[rank] < len(lists[rank]) else None

    while moved:
        moved = False
        for rank in range(len(lists)):
            group = head(rank)
            if group is None or any(head(r) != group for r in group.ranks):
                continue
            for r in group.ranks:
                at[r] += 1
            made, moved = made + 1, True
    for rank in range(len(lists)):
        if (group := head(rank)) is not None:
            other = next(r for r in group.ranks if head(r) != group)
            yield Finding(
                "set-up",
                Severity.ERROR,
                f"switch channel {at[rank]} of rank {rank} ({_named(group)}) is never made: "
                f"rank {other} has {_named(head(other))} in its turn",
                rank,
            )
            return
    if made > MOST_OBJECTS:
        text = f"{made} multicast objects; there are {MOST_OBJECTS} for all jobs of a rack"
        yield Finding("limits", Severity.ERROR, text)


def _named(group: SwitchGroup | None) -> str:
    if group is None:
        return "nothing more"
    return f"`{group.buffer}` of ranks {', '.join(map(str, group.ranks))}"
