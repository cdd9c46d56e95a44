"""Find shared bandwidths, from flows that are slower together than alone.

k flows that together take b µs for each byte of one of them get k/b bytes per µs. What is slower
together than the best of them alone shares something, unless something wider or narrower that is
known explains it: so of all that could be shared, the fewest are kept that explain every trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import bdtrc

from weft.dsl.base.arrays import Floats, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass

from .model import AlphaBeta, Flow, Shared
from .noise import Known, classes, pooled, standard_errors
from .plan import ContentionTrial

SLOWED = 1.25
"""Least slow-down of flows when together that shows that they share a resource."""


OFTEN = 0.005
"""The probability with which samples that only vary are all slower than they should be."""


@dataclass(frozen=True, slots=True)
class _TrialGroup:
    """Trials that are alike: µs per byte when together, and how many times that of one alone."""

    trials: tuple[ContentionTrial, ...]
    slope: Known
    slowed: Known
    certain: bool

    @property
    def flows(self) -> int:
        return len(self.trials[0].flows)

    @property
    def rate(self) -> float:
        return self.flows / self.slope.value

    def members(self, trial: ContentionTrial) -> Iterator[tuple[str, frozenset[Flow]]]:
        yield from trial.like or ((trial.name, trial.members),)


def shared(
    trials: Sequence[ContentionTrial],
    alone: Floats,
    together: Floats,
    lines: dict[Flow, AlphaBeta],
    *,
    crowded: bool = False,
) -> tuple[list[Shared], list[str]]:
    """Return the resources that flows share, and texts on the cases that remained undecided.

    ``crowded``: all ranks are in each other's way with small messages, so the whole is one of the
    shared things, whatever else explains its bandwidth.

    ``alone``, ``together``: µs per byte of each trial, shape (sweeps, trials).
    """
    candidates = list(_candidates(trials, np.log(alone).T, np.log(together).T))
    whole = [c for c in candidates if crowded and c.trials[0].kind == "everybody"]
    kept = [c for c in candidates if c.certain or c in whole]
    remarks = [
        f"{_name(c)}: {c.slowed.value:.1f} times slower together, which is within the noise"
        for c in candidates
        if c not in kept and c.slowed.value > SLOWED
    ]
    gone: list[_TrialGroup] = []
    for one in reversed(tuple(kept)):  # wide before narrow: mixtures go first
        rest = [c for c in kept if c is not one]
        if one not in whole and all(_explained(trial, one, rest, lines) for trial in one.trials):
            kept, gone = rest, [*gone, one]
    if gone:
        remarks.append(
            f"{', '.join(map(_name, gone))}: slower together, as "
            f"{', '.join(map(_name, kept))} explains"
        )
    found: dict[str, Shared] = {}
    for c in kept:
        for name, flows in (x for trial in c.trials for x in c.members(trial)):
            found.setdefault(name, Shared(name, flows, c.rate, c.slope.error))
    return list(found.values()), remarks


def _candidates(
    trials: Sequence[ContentionTrial], alone: Floats, together: Floats
) -> Iterator[_TrialGroup]:
    """Yield candidates by kind and number of flows, and within these by classes of like values."""
    kinds: dict[tuple[str, int], list[int]] = {}
    for i, trial in enumerate(trials):
        kinds.setdefault((trial.kind, len(trial.flows)), []).append(i)
    slower = together - alone
    usual = float(np.median(standard_errors(slower))) if len(slower) else 0.0
    for rows in kinds.values():
        label = classes(together[rows], SLOWED - 1)
        for name in distinct_values(label):
            some = [rows[i] for i in np.flatnonzero(label == name)]
            slowed = pooled(slower[some]).at_least(usual / np.sqrt(len(some)))
            certain = _certain(slower[some], slowed)
            yield _TrialGroup(
                tuple(trials[i] for i in some), pooled(together[some]), slowed, certain
            )


def _certain(slower: Floats, slowed: Known) -> bool:
    """Return True if most samples are slower, and significantly by their size or their number."""
    least = np.log(SLOWED) / 2
    if slowed.value < SLOWED or np.quantile(slower, 0.2) < least:
        return False
    # Of fair coins as many as samples, so many or more fall like this: the test of signs.
    often = bdtrc(int((slower > least).sum()) - 1, slower.size, 0.5)
    return slowed.above(least, slower.shape[1]) or bool(often < OFTEN)


def _explained(
    trial: ContentionTrial,
    one: _TrialGroup,
    rest: Sequence[_TrialGroup],
    lines: dict[Flow, AlphaBeta],
) -> bool:
    """Return True if the other candidates alone explain the slowness of a trial."""
    slope = max(lines[flow].beta for flow in trial.flows)
    for other in rest:
        for something in other.trials:
            for _, flows in other.members(something):
                slope = max(slope, sum(f in flows for f in trial.flows) / other.rate)
    return slope * SLOWED > one.slope.value


def _name(c: _TrialGroup) -> str:
    first = c.trials[0]
    if first.like:
        return (
            f"the two directions of {len(first.like)} pairs" if len(first.like) > 1 else first.name
        )
    return first.name if len(c.trials) == 1 else f"{first.kind} ({len(c.trials)})"
