"""Verdict on a job: times and results, or the ranks that failed and those that wait for them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence

from weft.dsl.base.errors import CheckFailed, Missing
from weft.dsl.base.lazy_dataclass import dataclass

from .job import Case, RankJob, RankReport
from .launcher import LaunchResult

MOST_TOLD = 8
"""Ranks that a message names."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one case: errors, if any, and µs of its calls, each that of the slowest
    rank."""

    case: Case
    wrong: tuple[str, ...]
    us: tuple[float, ...]

    @property
    def median_us(self) -> float | None:
        """The usual time of a call."""
        return statistics.median(self.us) if self.us else None

    @property
    def least_us(self) -> float | None:
        """The best time."""
        return min(self.us) if self.us else None


def results(job: RankJob, reports: Mapping[int, RankReport]) -> tuple[CaseResult, ...]:
    """Return the results of all cases, if every rank did all of them.

    Raises:
        CheckFailed: some did not.
    """
    failed = {rank: one.failure for rank, one in sorted(reports.items()) if one.failure}
    if failed or len(reports) < job.ranks:
        require_whole(job, LaunchResult(dict(reports), {}, {}, False, None, ""))
    found = []
    for number, case in enumerate(job.cases):
        done = [one for r in sorted(reports) if (one := reports[r].done[number]) is not None]
        slowest = tuple(1e6 * max(turn) for turn in zip(*(x.seconds for x in done), strict=True))
        found.append(CaseResult(case, tuple(x.wrong for x in done if x.wrong), slowest))
    return tuple(found)


def require_whole(job: RankJob, ending: LaunchResult) -> None:
    """Raise, with all that is known, unless every rank did all its cases.

    Raises:
        CheckFailed: ranks are lost, failed, or wait for each other.
        Missing: a rank lacks what it needs.
    """
    failures = {rank: one.failure for rank, one in ending.reports.items() if one.failure}
    lacking = next((one for one in failures.values() if one.kind == Missing.__name__), None)
    if lacking is not None:
        raise Missing(lacking.text, hint=lacking.hint)
    waiting = {rank: one.text for rank, one in failures.items() if one.waiting}
    raised = {rank: one.text for rank, one in failures.items() if not one.waiting}
    missing = [r for r in range(job.ranks) if r not in ending.reports and r not in ending.lost]
    if not (failures or ending.lost or missing or ending.silent):
        return
    lines = [
        f"rank {rank} was ended by {how}{_while(ending, rank)}"
        for rank, how in sorted(ending.lost.items())
    ]
    if not ending.lost:  # else they only say that it is gone
        lines += _alike(ending, raised)
    causes = bool(lines)
    if not causes:
        lines += _several(_idle(job, ending, missing, waiting))
        first = sorted(waiting.items(), key=lambda item: (_round(item[1]), item[0]))
        lines += _several([_named(rank, text) for rank, text in first])
    raise CheckFailed("; ".join(lines) or "the ranks did not start", hint=_hint(ending, causes))


def _round(text: str) -> float:
    """The round in which a rank waits; at a barrier, a later one. The first is near the cause."""
    found = re.search(r"round (\d+)", text)
    return float(found[1]) if found else math.inf


def _named(rank: int, text: str) -> str:
    return text if f"rank {rank}" in text[:12] else f"rank {rank}: {text}"


def _alike(ending: LaunchResult, raised: Mapping[int, str]) -> list[str]:
    """Return the errors of ranks, each text once, with the first rank that raised it."""
    lines = []
    for text in dict.fromkeys(raised.values()):
        first, *others = (rank for rank, own in sorted(raised.items()) if own == text)
        also = f", and {_ranks(others)} too" if others else ""
        lines.append(_named(first, text) + _while(ending, first) + also)
    return _several(lines, "errors")


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join([*map(str, ranks[:MOST_TOLD]), *["…"] * (len(ranks) > MOST_TOLD)])
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _while(ending: LaunchResult, rank: int) -> str:
    state = ending.states.get(rank)
    return f" (it {state})" if state else ""


def _idle(
    job: RankJob, ending: LaunchResult, missing: Sequence[int], waiting: Mapping[int, str]
) -> list[str]:
    """Return the last states of ranks without a report, while others waited or none progressed."""
    lines = []
    for rank in missing:
        state = ending.states.get(rank)
        lines.append(f"rank {rank} {state}" if state else f"rank {rank} never started")
    if waiting:
        done = [r for r, one in sorted(ending.reports.items()) if not one.failure]
        lines += [f"rank {r} is through with all its calls" for r in done]
    return [f"after {job.timeout:g} s: {lines[0]}", *lines[1:]] if lines and not waiting else lines


def _several(lines: list[str], noun: str = "ranks") -> list[str]:
    more = len(lines) - MOST_TOLD
    return [*lines[:MOST_TOLD], f"and {more} {noun} more"] if more > 0 else lines


def _hint(ending: LaunchResult, causes: bool) -> str:
    """Return the usual cause of such an ending, or the end of stderr where none is known."""
    if any("SIGABRT" in how for how in ending.lost.values()):
        return (
            "gloo ends a process that gets more than it expects: do all ranks call with the "
            "same sizes?"
        )
    if causes or any(one.failure for one in ending.reports.values()):
        return ""
    words = [line.strip() for line in ending.stderr.splitlines() if line.strip()]
    return f"the ranks' standard error ends: {words[-1][:200]}" if words else ""
