"""Times of whole calls, on machines of planted α in their own time."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_wire import Machine, VirtualHub, VirtualWire, flat

from weft.backends.ranks.profile.calls import WireCaller, call_times
from weft.backends.ranks.profile.model import CallPath, CallStep, CallTime
from weft.backends.ranks.profile.probe import Probe

START = 5.0


class SlowStart(VirtualWire):
    """A rank that takes its time before the first round of a call, when it gets its scratch."""

    def empty(self, count, like):
        self.time += START
        return super().empty(count, like)


def timed(machine: Machine, groups: list[list[int]]) -> dict[tuple[CallStep, CallPath, int], float]:
    found: list[CallTime] = []

    def main(wire: VirtualWire) -> None:
        own = SlowStart(wire.hub, wire.rank)
        probe = Probe(own, own, np.copy, np.copy, batches=2)
        found.extend(call_times(probe, WireCaller(probe), groups, lambda _: None))

    VirtualHub(machine).run(main)
    return {(one.step, one.way, one.count): one.us for one in found}


def test_rings_take_the_start_and_their_steps() -> None:
    found = timed(flat(4, alpha=2.0), [[0, 1, 2, 3]])
    starts = found[CallStep.EMPTY, CallPath.NONE, 1]
    assert starts == pytest.approx(START, rel=0.01)
    for ranks in (2, 3, 4):
        us = found[CallStep.RING, CallPath.INSIDE, ranks]
        assert us == pytest.approx(starts + 2 * (ranks - 1) * 2.0, rel=0.02)
    assert not any(step is CallStep.FAN for step, _, _ in found)


def test_rings_between_groups_and_messages_that_leave_by_one_nic() -> None:
    group = np.arange(6) // 2
    same = group[:, None] == group[None, :]
    remote = {(0, b): ("nic",) for b in range(2, 6)}
    machine = Machine(np.where(same, 1.0, 8.0), np.full((6, 6), 1e-6), remote, {"nic": 0.25})
    found = timed(machine, [[0, 1], [2, 3], [4, 5]])
    us = [found[CallStep.RING, CallPath.BETWEEN, ranks] for ranks in (2, 3)]
    # Each of the two more steps has a message of rank 0, which the NIC holds for so long.
    assert us[1] - us[0] == pytest.approx(2 * (8.0 + 8 * 0.25), rel=0.01)
    fans = [found[CallStep.FAN, CallPath.BETWEEN, count] for count in (1, 2, 4)]
    assert fans[2] - fans[1] == pytest.approx(2 * 8 * 0.25, rel=0.05)
    assert (CallStep.RING, CallPath.INSIDE, 3) not in found
