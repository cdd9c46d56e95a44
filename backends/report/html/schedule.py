"""Views of a schedule at one size (use of links over time, bottleneck), and of two compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.schedule import Schedule
from weft.synth.explain.critical import Binding, gap_words
from weft.synth.fabric.fabric import fabric_of
from weft.synth.time.moves import movements_of
from weft.synth.time.timeline import timeline

from ..sizes import LIMITS
from .code import chunk_names
from .lanes import Bars, LaneRow, Loads, lane, load_facts, row_order, short_name
from .page import byte_words
from .sheet import table_section


@dataclass(frozen=True, slots=True)
class Look:
    """Schedule simulated for a message of a given size in bytes, with its bound."""

    schedule: Schedule
    message_bytes: int
    found: Binding

    @property
    def time_us(self) -> float:
        """Return the time in µs until the last arrival."""
        return self.found.simulation.time_us


def schedule_view(
    look: Look, title: str, most: int = LIMITS.bars, *, full: bool = True
) -> dict[str, Any]:
    """Return the facts of one view: chart, chunks, loads and bottleneck, at the size of the
    look."""
    s, found = look.schedule, look.found
    number = _numbers(s)
    bars, notes = _bars(look, number)
    t = s.topology
    share = found.simulation.busy_us / look.time_us if look.time_us else found.simulation.busy_us
    rows = [
        LaneRow(short_name(t, i), i, float(share[i]))
        for i in range(len(t.links) + len(t.resources))
    ]
    chart = lane(
        "Links and shared resources", "links", rows, bars, look.time_us, most, row_order(t)
    )
    kept = chart["kept"]
    if not chart["whole"]:
        notes.append(
            f"{kept:,} of {chart['items']:,} {_moved(s)} are drawn one by one (those of the first "
            "chunks); shades say how full each row is with all of them."
        )
    table = items(s, number, kept, look.time_us)
    return {
        "title": title,
        "us": look.time_us,
        "bytes": look.message_bytes,
        "tick": LIMITS.ticks,
        "size": byte_words(look.message_bytes),
        "map": 0,
        "share": [round(x, 4) for x in share.tolist()],
        "lanes": [{**chart, "of": 0}],
        "items": [table],
        "chunks": chunk_names(
            s.collective, LIMITS.named_chunks if full else LIMITS.few_named_chunks
        ),
        "pieces": [1],
        "chain": [int(number[x.transfer]) for x in found.chain if number[x.transfer] < kept],
        "loads": load_facts(loads_of(look), look.time_us, found.bound_us, found.certificate),
        "facts": _facts(look),
        "notes": notes,
        **({"moved": _moved(s)} if len(s.casts) else {}),
    }


def _moved(s: Schedule) -> str:
    return "transfers and casts" if len(s.casts) else "transfers"


def _numbers(s: Schedule) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of each transfer, then of each cast, as an item: chunk after chunk, so that
    the first are complete."""
    chunk, step = (
        np.concatenate([own, of_casts])
        for own, of_casts in ((s.chunk, s.casts.chunk), (s.step, s.casts.step))
    )
    number = np.empty(len(chunk), np.int64)
    number[np.lexsort((step, chunk))] = np.arange(len(chunk))
    return number


def _bars(look: Look, number: Any) -> tuple[Bars, list[str]]:
    """Return the bars of each movement's slices; with very many slices, one bar for each
    movement."""
    s, m = look.schedule, movements_of(look.schedule)
    if s.moves * s.segments <= LIMITS.slices:
        run = timeline(s, look.message_bytes)
        passage = np.repeat(np.arange(len(run)), np.diff(run.held_start))
        start, move = run.start_us[passage], run.move[passage]
        return Bars(
            run.held_row,
            start,
            run.held_until_us - start,
            number[m.operation[move]],
            m.reduce[move].astype(np.int64),
        ), []
    whole = look.found.simulation
    of = m.of_link
    start = m.placed(whole.start_us, whole.leg_start_us)
    span = (m.placed(whole.end_us, whole.leg_end_us) - start)[of]
    note = (
        f"Each bar spans all {s.segments} slices of a transfer{' or leg' if len(s.casts) else ''}; "
        "the gaps between them are not "
        "drawn, nor are shared resources."
    )
    return Bars(
        m.route_links.astype(np.int64),
        start[of],
        span,
        number[m.operation[of]],
        m.reduce[of].astype(np.int64),
    ), [note]


def items(s: Schedule, number: Any, kept: int, span: float) -> dict[str, Any]:
    """Return for each item its chunk and route, of a cast its tree; routes with the ticks of
    their α, trees with those of their last leg."""
    scale, links = LIMITS.ticks / span if span else 0.0, s.topology.links
    routes: dict[tuple[int, ...], int] = {}
    late: list[int] = []
    which = [0] * kept
    chunk = [0] * kept
    for i in np.flatnonzero(number < kept).tolist():
        one = None if i < len(s) else s.casts[i - len(s)]
        route = s.route(i) if one is None else one.links
        if route not in routes:
            behind = route if one is None else route[-1:]
            late.append(round(float(sum(links[k].latency for k in behind)) * scale))
        which[number[i]] = routes.setdefault(route, len(routes))
        chunk[number[i]] = int(s.chunk[i]) if one is None else one.chunk
    return {
        "set": chunk,
        "route": which,
        "sets": None,
        "routes": [list(route) for route in routes],
        "late": late,
    }


def loads_of(look: Look) -> Loads:
    """Return the bytes over each link and resource."""
    s, m = look.schedule, movements_of(look.schedule)
    fabric = fabric_of(s.topology)
    moved = np.zeros(fabric.resources)
    grain = look.message_bytes / s.collective.message_chunks
    carried = grain * s.collective.grains[m.chunk[m.of_link]]
    np.add.at(moved, m.route_links.astype(np.int64), carried)
    for row, resource in s.topology.shared_rows():
        moved[row] = moved[list(resource.links)].sum()
    return Loads(s.topology, moved, look.found.simulation.busy_us)


def _facts(look: Look) -> dict[str, Any]:
    s, found = look.schedule, look.found
    run = found.simulation
    return {
        "time_us": run.time_us,
        "bound_us": found.bound_us,
        "of_bound": run.of_bound,
        "algbw_GBps": run.algbw_GBps,
        "busbw_GBps": run.busbw_GBps,
        "certificate": found.certificate.text,
        "certificate_kind": found.certificate.kind,
        "gap": gap_words(found),
        "busiest": found.name,
        "busy_share": found.share,
        "steps": s.steps,
        "transfers": len(s),
        **({"casts": len(s.casts)} if len(s.casts) else {}),
        "segments": s.segments,
        "chain": count(len(found.chain), "transfer") if found.chain else "",
    }


def compare_section(
    one: Sequence[tuple[str, object]], other: Sequence[tuple[str, object]], first: str, second: str
) -> dict[str, Any]:
    """Return both columns of facts; those that only one has are empty in the other."""
    left, right = ({name: str(value) for name, value in facts} for facts in (one, other))
    rows = [
        [name, left.get(name, "–"), right.get(name, "–"), _SAME[left.get(name) == right.get(name)]]
        for name in dict.fromkeys([*left, *right])
    ]
    return table_section("facts", "Facts", ("", f"A: {first}", f"B: {second}", "same"), rows)


_SAME = ("no", "yes")


def difference_section(one: Look, other: Look) -> dict[str, Any]:
    """Return the bytes over each link and resource, those that differ most first."""
    a, b = loads_of(one), loads_of(other)
    change = b.moved - a.moved
    order = [int(i) for i in np.argsort(-np.abs(change), kind="stable") if change[i]]
    rows = [
        [
            short_name(a.topology, i),
            byte_words(a.moved[i]),
            byte_words(b.moved[i]),
            f"{'+' if change[i] > 0 else '−'}{byte_words(abs(change[i]))}",
        ]
        for i in order[: LIMITS.loads]
    ]
    same = len(a.moved) - len(order)
    after = f"{same} of {len(a.moved)} links and resources carry the same in both."
    if len(order) > LIMITS.loads:
        after = f"{len(order) - LIMITS.loads} more differ by less. " + after
    head = ("link or resource", "A", "B", "B − A")
    return table_section("links", "Bytes per link", head, rows, after, numbers=True)
