"""Repeat all echoes, sweep after sweep, each in another order, until they are known well enough.

So what disturbs a machine for a second disturbs one sample of many links, and not all samples of
one: a median over sweeps hardly feels it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.dsl.base.arrays import Floats

from .model import Effort, Session
from .noise import standard_errors
from .probe import Probe

Tell = Callable[[str], None]


def sweep_all(
    probe: Probe, sessions: Sequence[Session], effort: Effort, until: float, seed: int, tell: Tell
) -> Floats:
    """µs of every flow of every echo, in their order, a row for each sweep: shape (sweeps, flows).

    The whole table is known to rank 0 only. ``until``: the clock's seconds when to stop.
    """
    ones = [[1] * len(session) for session in sessions]
    first = probe.collect(probe.sessions(sessions, ones, range(len(sessions))))
    times = probe.share(_times(sessions, first, effort))
    rows: list[Floats] = []
    go_on = True
    while go_on:
        order = np.random.default_rng([seed, len(rows)]).permutation(len(sessions))
        rows.append(probe.collect(probe.sessions(sessions, times, order.tolist())))
        table = np.array(rows)
        go_on = probe.share(not _enough(table, effort, probe.wire.clock() > until))
        if not probe.rank:
            tell(f"sweep {len(rows)}")
    return table


def _enough(table: Floats, effort: Effort, late: bool) -> bool:
    sweeps = len(table)
    if sweeps < effort.least:
        return False
    if late or sweeps >= effort.most:
        return True
    return bool(np.median(standard_errors(np.log(np.maximum(table, 1e-9)).T)) <= effort.error)


def _times(sessions: Sequence[Session], us: Floats, effort: Effort) -> list[list[int]]:
    """How many echoes make a batch of the length that is wanted."""
    at, result = 0, []
    for session in sessions:
        counts = []
        for echo in session:
            longest = float(us[at : at + len(echo.flows)].max(initial=0.0))
            wanted = int(effort.batch_seconds * 1e6 / max(longest, 1e-3))
            counts.append(min(effort.most_in_batch, max(1, wanted)))
            at += len(echo.flows)
        result.append(counts)
    return result
