"""A recorded call as a trace: ranks are processes, rounds slices; arrows are messages."""

from __future__ import annotations

from collections import defaultdict

from ..ranks.recording import Call
from .trace import Mark, Trace


def add_measured(trace: Trace, call: Call, group: str = "measured: ") -> None:
    """Put a call into a trace; times are from when its ranks left their barrier."""
    marks: list[list[Mark]] = []
    for rank, watch in enumerate(call.ranks):
        process = trace.process(f"{group}rank {rank}")
        whole = trace.track(process, "the call")
        trace.slice(
            whole,
            0.0,
            watch.us,
            f"call of {call.bytes} bytes of {call.dtype}",
            "call",
            {"bytes": call.bytes, "rounds": len(watch.rounds)},
        )
        place = trace.track(process, "rounds")
        marks.append([])
        for one in watch.rounds:
            facts = {"round": one.round, "to": list(one.to), "from": list(one.source)}
            marks[rank].append(
                trace.slice(
                    place, one.start_us, one.end_us, _name(one.to, one.source), "round", facts
                )
            )
    _add_arrows(trace, call, marks)


def _name(to: tuple[int, ...], source: tuple[int, ...]) -> str:
    """``to 1, from 3``; many are counted."""
    parts = [
        f"{word} {','.join(map(str, peers)) if len(peers) <= 3 else f'{len(peers)} ranks'}"
        for word, peers in (("to", to), ("from", source))
        if peers
    ]
    return ", ".join(parts) or "nothing"


def _add_arrows(trace: Trace, call: Call, marks: list[list[Mark]]) -> None:
    """From the round before a message is sent to the round in which it is there.

    The two rounds of a message overlap in time, so no arrow can lead between them: it starts at
    the round that its sender had done before, whose results it may send. There is none where the
    receiver was in its round before that one ended: it waited.
    """
    rounds = [{one.round: i for i, one in enumerate(watch.rounds)} for watch in call.ranks]
    seen: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for rank, watch in enumerate(call.ranks):
        for i, one in enumerate(watch.rounds):
            for peer in one.source:
                at = rounds[peer].get(one.round, 0)
                if at and peer not in seen[rank, i]:
                    seen[rank, i].add(peer)
                    trace.arrow(marks[peer][at - 1], marks[rank][i], "message")
