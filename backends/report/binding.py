"""What binds a schedule, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import count, facts, microseconds, number, table
from weft.dsl.base.units import format_bytes

if TYPE_CHECKING:
    from weft.synth.explain.critical import Binding, Link

LONGEST = 40
"""Transfers of a chain that are shown: the first and the last ones of more."""


def binding_text(found: Binding) -> str:
    """Time, bound, busiest resource, the gap in words, and the chain."""
    from weft.synth.explain.critical import gap_words

    s, time = found.schedule, found.simulation.time_us
    head = facts(
        [
            (
                "schedule",
                f"{s.collective} on {s.topology.name}, "
                f"{format_bytes(found.simulation.message_bytes)}",
            ),
            ("time", f"{microseconds(time)} µs"),
            (
                "busiest",
                f"{found.name}: {microseconds(found.busy_us)} µs, {found.share:.1%} of the time",
            ),
            ("bound", f"{microseconds(found.bound_us)} µs"),
            ("", found.certificate.text),
            *(("gap" if i == 0 else "", line) for i, line in enumerate(gap_words(found))),
        ]
    )
    if not found.chain:
        return f"{head}\n\nno single chain: each transfer is made in {count(s.segments, 'slice')}"
    rows = [_row(found, link) for link in found.chain]
    if len(rows) > LONGEST:
        half = LONGEST // 2
        rows = [*rows[:half], ("…", "", "", "", ""), *rows[-half:]]
    title = f"what the time is made of, {count(len(found.chain), 'transfer')}:"
    return f"{head}\n\n{title}\n" + table(("from µs", "to µs", "chunk", "hop", "starts when"), rows)


def _row(found: Binding, link: Link) -> tuple[object, ...]:
    s, i = found.schedule, link.transfer
    return (
        microseconds(link.start_us),
        microseconds(link.end_us),
        int(s.chunk[i]),
        f"{s.src[i]} -> {s.dst[i]}",
        _why(found, link),
    )


def _why(found: Binding, link: Link) -> str:
    from weft.synth.explain.critical import Waits
    from weft.synth.fabric.occupancy import row_name

    s, j = found.schedule, link.freed_by
    if link.waits is Waits.START:
        return "the clock starts"
    if link.waits is Waits.DATA:
        return f"its data has come from {s.src[j]}"
    hop = f"{s.src[j]} -> {s.dst[j]}"
    return f"chunk {s.chunk[j]} ({hop}) has left {row_name(s.topology, link.row)}"


def binding_json(found: Binding) -> dict[str, Any]:
    """One entry of ``sizes``."""
    from weft.synth.explain.critical import gap_words

    run = found.simulation
    return {
        "bytes": run.message_bytes,
        "us": number(run.time_us),
        "bound_us": number(found.bound_us),
        "of_bound": number(run.of_bound),
        "certificate": {"kind": found.certificate.kind, "text": found.certificate.text},
        "busiest": {"name": found.name, "us": number(found.busy_us), "share": number(found.share)},
        "gap": gap_words(found),
        "chain": [_link(found, link) for link in found.chain],
    }


def _link(found: Binding, link: Link) -> dict[str, Any]:
    from weft.synth.fabric.occupancy import row_name

    s, i = found.schedule, link.transfer
    return {
        "transfer": i,
        "chunk": int(s.chunk[i]),
        "src": int(s.src[i]),
        "dst": int(s.dst[i]),
        "start_us": number(link.start_us),
        "end_us": number(link.end_us),
        "waits": str(link.waits),
        "for": row_name(s.topology, link.row) if link.row >= 0 else None,
        "after": link.freed_by if link.freed_by >= 0 else None,
    }
