"""The whole measurement, as every rank runs it; rank 0 draws the conclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.dsl.base.arrays import Floats

from .calls import Caller, call_times
from .contention import shared
from .fit import link_classes
from .locality import groups_of
from .model import AlphaBeta, Echo, Findings, Flow, LinkClass, ProbeLimits
from .noise import spread as noise_of
from .plan import SMALL, ContentionTrial, ladder, pairs, session_of, trial_sizes, trials
from .probe import Probe, Tell, sweep_all

ALPHA_SHARE = 0.05
"""The largest message is to take so long that both α are at most this share of it."""

FIRST_LARGE = 1 << 18

CROWDS = 15
"""Times that all ranks are asked for small messages at once."""

CROWDED = 3.0
"""Slow-down of small messages when all ranks send above which they delay each other."""

FOR_PAIRS = 0.6
"""Share of the time that pairs get."""


def survey(
    probe: Probe, effort: ProbeLimits, seed: int, tell: Tell, caller: Caller | None = None
) -> Findings | None:
    """Measure; what was found, on rank 0.

    ``caller``: whose calls are timed as well; None: nobody's.

    Raises:
        TimeoutError, RuntimeError: of the wire.
    """
    begin = probe.wire.clock()
    rate = probe.sum_rate() if not probe.rank else None
    tell("message sizes")
    largest = _largest(probe, effort)
    sizes = ladder(largest)
    tell("pairs")
    us = sweep_all(
        probe, pairs(probe.ranks, sizes), effort, begin + FOR_PAIRS * effort.seconds, seed, tell
    )
    flows, us = _by_flow(us, probe.ranks, sizes)
    classes: tuple[LinkClass, ...] = ()
    remark: str | None = None
    asked: list[ContentionTrial] = []
    if not probe.rank:
        classes = link_classes(flows, sizes, us)
        lines = {flow: one.line for one in classes for flow in one.flows}
        groups, remark = groups_of(lines, probe.ranks, largest)
        asked = trials(groups, classes)
    sessions = probe.share([[(e.flows, e.bytes) for e in session_of(t, largest)] for t in asked])
    tell("what they share")
    known = [
        tuple(Echo(tuple((a, b) for a, b in f), size) for f, size in session)
        for session in sessions
    ]
    table = sweep_all(probe, known, effort, begin + effort.seconds, seed + 1, tell)
    small = _crowd(probe)
    near = probe.share([] if probe.rank else [list(group) for group in groups])
    calls = call_times(probe, caller, near, tell) if caller else ()
    if probe.rank:
        return None
    alone, together = _slopes(asked, table, trial_sizes(largest))
    overhead = _overhead(small, lines, probe.ranks)
    found, remarks = shared(asked, alone, together, lines, crowded=overhead > 0)
    remarks += [remark] if remark else []
    noise = noise_of(np.log(np.maximum(us.reshape(len(us), -1), 1e-6)).T)
    return Findings(
        probe.ranks,
        classes,
        groups,
        tuple(found),
        noise,
        (len(us), len(table)),
        rate,
        overhead,
        tuple(remarks),
        calls,
    )


def _largest(probe: Probe, effort: ProbeLimits) -> int:
    """A size that takes long against an empty message between the first ranks and the last."""
    ends = tuple(dict.fromkeys(((0, 1), (0, probe.ranks - 1))))

    def us(size: int) -> float:
        sessions = [(Echo((flow,), size),) for flow in ends]
        row = probe.sessions(sessions, [[3]] * len(ends), range(len(ends)))
        return float(probe.collect(row).max())

    size, empty = FIRST_LARGE, us(SMALL)
    while probe.share(us(size) * ALPHA_SHARE < empty and size * 4 <= effort.largest):
        size *= 4
    return size


def _by_flow(table: Floats, ranks: int, sizes: Sequence[int]) -> tuple[list[Flow], Floats]:
    """Return the directions, and their times, shape (sweeps, flows, sizes)."""
    flows = [e.flows[0] for s in pairs(ranks, sizes) for e in s if e.bytes == sizes[0]]
    return flows, table.reshape(len(table), len(flows), len(sizes))


def _slopes(
    asked: Sequence[ContentionTrial], table: Floats, sizes: tuple[int, int]
) -> tuple[Floats, Floats]:
    """µs per byte of each trial's first flow alone, and of all its flows together (the slowest)."""
    at = 0
    columns: list[Floats] = []
    for trial in asked:
        for flows in (1, len(trial.flows)):
            few, many = table[:, at : at + flows], table[:, at + flows : at + 2 * flows]
            at += 2 * flows
            last = many.max(axis=1)  # flows end one by one where they queue
            gain = np.maximum(last - few.max(axis=1), 0.05 * last)
            columns.append(gain / (sizes[1] - sizes[0]))
    both = np.maximum(np.array(columns).T.reshape(len(table), len(asked), 2), 1e-9)
    return both[:, :, 0], both[:, :, 1]


def _crowd(probe: Probe) -> float:
    """µs of a small echo when all ranks send one round the ring; on rank 0."""
    if probe.ranks < 3:
        return 0.0
    ring = tuple((r, (r + 1) % probe.ranks) for r in range(probe.ranks))
    rows = [probe.collect(probe.session((Echo(ring, SMALL),), [4])[0]) for _ in range(CROWDS)]
    return float(np.max(rows, axis=1).min())  # the slowest of many ranks is often unlucky


def _overhead(us: float, lines: Mapping[Flow, AlphaBeta], ranks: int) -> float:
    """µs of a message of all at once beyond its α; 0 if that hardly counts.

    There and back, ``ranks`` messages pass through the machine one after the other.
    """
    alone = float(np.median([2 * line.alpha for line in lines.values()]))
    return (us - alone) / (2 * ranks) if us > CROWDED * alone else 0.0
