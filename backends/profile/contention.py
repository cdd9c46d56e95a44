"""Shared bandwidths, from what is slower together than alone."""

from __future__ import annotations

from collections.abc import Mapping

from .model import Flow, Line, Shared, Timing

SLOWED = 1.25
"""Flows that take so many times longer together share something."""


def shared(
    alone: Mapping[Flow, Line], together: Mapping[str, Timing]
) -> tuple[list[Shared], list[str]]:
    """What flows share, narrow before wide, and what could not be told apart, in words."""
    found: list[Shared] = []
    open_questions: list[str] = []
    for name, timing in together.items():
        flows = timing.echo.flows
        slowed = max(
            us / _alone(alone, flow, timing.echo.bytes)
            for flow, us in zip(flows, timing.us, strict=True)
        )
        if slowed < SLOWED:
            continue
        rate = timing.rate()
        narrower = _explained(found, flows)
        if narrower is not None and narrower <= rate * SLOWED:
            continue  # what they share is known already
        found.append(Shared(name, _members(name, flows, alone), rate))
    whole = next((s for s in found if s.name == "everybody"), None)
    if whole is not None:
        kept = [s for s in found if s is whole or s.rate * SLOWED < whole.rate]
        gone = [s.name for s in found if s not in kept]
        if gone:
            open_questions.append(
                f"{', '.join(gone)}: as fast as everybody together, so one bandwidth that all "
                "share explains it"
            )
        found = kept
    return found, open_questions


def _alone(alone: Mapping[Flow, Line], flow: Flow, size: int) -> float:
    """What the echo of a flow takes by itself."""
    back = alone.get(flow[::-1], alone[flow])
    return alone[flow].us(size) + back.alpha


def _members(name: str, flows: tuple[Flow, ...], alone: Mapping[Flow, Line]) -> frozenset[Flow]:
    """All flows that use what some of them were seen to share."""
    if name.startswith("out of"):
        sources = {a for a, _ in flows}
        targets_in = sources if name.startswith("out of group") else set()
        return frozenset(f for f in alone if f[0] in sources and f[1] not in targets_in)
    if name.startswith("into"):
        targets = {b for _, b in flows}
        sources_in = targets if name.startswith("into group") else set()
        return frozenset(f for f in alone if f[1] in targets and f[0] not in sources_in)
    if name == "everybody":
        return frozenset(alone)
    return frozenset(flows)


def _explained(found: list[Shared], flows: tuple[Flow, ...]) -> float | None:
    """The rate to which what is known limits all of the flows; None if it does not."""
    limits = [s.rate for s in found if set(flows) <= s.flows]
    return min(limits, default=None)
