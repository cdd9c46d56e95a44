"""Streams of transfers as files: header and replay."""

from __future__ import annotations

from typing import Any

from weft.dsl.base.tables import count, facts, microseconds, number
from weft.dsl.base.units import format_bytes
from weft.synth.engines.greedy.stream import read, read_header

from ...check.checks import Check
from ..flags.files import CheckFlags
from ..output.console import Console
from .noun import FileKind, Noun, Subject


class StreamNoun(Noun):
    """Streams of transfers: folders of the engine ``greedy``, never loaded completely."""

    kind = FileKind.STREAM

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Replay the stream."""
        judge, blocks = read(subject.where)
        for block in blocks:
            if not judge.feed(block):
                break
        verdict = judge.finish()
        machine = judge.topology
        size = f"{count(verdict.transfers, 'transfer')}, allgather on {machine.ranks} ranks"
        found = "achieves its collective" if verdict.ok else verdict.problem
        return [
            Check("form", True, f"{size} of {machine.name}"),
            Check("stream", verdict.ok, found),
        ]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the header; the transfers are not read."""
        head = read_header(subject.where)
        bound, machine = head.bound_us, head.topology
        of_bound = bound / head.time_us if head.time_us else 1.0
        text = facts(
            [
                ("stream", f"allgather on {machine.name}"),
                ("ranks", machine.ranks),
                ("transfers", head.transfers),
                (
                    "message",
                    f"{format_bytes(head.message_bytes)}, {count(head.pieces, 'piece')} per rank",
                ),
                ("time", f"{microseconds(head.time_us)} µs"),
                ("bound", f"{microseconds(bound)} µs ({of_bound:.1%})"),
                ("verified", head.verified),
                ("seed", head.seed),
            ]
        )
        return text, {
            "topology": machine.name,
            "collective": "allgather",
            "ranks": machine.ranks,
            "bytes": head.message_bytes,
            "transfers": head.transfers,
            "value": number(head.time_us),
            "bound_us": number(bound),
            "of_bound": of_bound,
            "verified": head.verified,
        }
