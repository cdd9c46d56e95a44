"""Static drawings for papers: a machine with the use of its links, and Gantt charts of runs, as
SVG; a machine as Graphviz text.

Plain SVG without styles from outside or scripts. The same input gives the same text. Links that
share something are dashed, and what they share is listed with its use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import numpy as np

from weft.dsl.base.arrays import Floats, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.synth.fabric.occupancy import resource_name
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline
from weft.synth.time.timeline import Timeline

from .layout import MapLayout, half_width, layout, link_paths, node_label
from .sizes import LIMITS, PIXELS
from .trace_runs import move_name

# Colour scale of use in all drawings: pale grey to dark blue. Its steps differ in lightness, so
# that they are distinct in print and by colour-blind readers.

_PALE, _DARK = (0xD0, 0xD0, 0xD0), (0x10, 0x46, 0x7C)

OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#555555")
"""Colours that are distinguishable with colour blindness (Okabe and Ito, 2008)."""


def shade(share: float) -> str:
    """Return the colour of a share of 0 … 1."""
    inside = min(1.0, max(0.0, share))
    mixed = (round(a + (b - a) * inside) for a, b in zip(_PALE, _DARK, strict=True))
    return "#" + "".join(f"{x:02x}" for x in mixed)


def share_words(share: float) -> str:
    """Return ``87%``; a share of nearly 1 is never rounded to 100%."""
    nearly = 0 < 1 - share < 0.005
    return f"{share:.1%}" if nearly or 0 < share < 0.01 else f"{share:.0%}"


@dataclass(frozen=True, slots=True)
class SvgPart:
    """Part of a drawing: its elements, from (0, 0), and its size."""

    elements: tuple[str, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class GanttRow:
    """Row of a chart: its name, and stretches of time (start, end, colour, words) in µs."""

    name: str
    bars: Sequence[tuple[float, float, str, str]]


def drawing(title: str, pieces: Iterable[SvgPart]) -> str:
    """Return the file: pieces below each other."""
    parts, y = [], 34.0
    shown = list(pieces)
    width = max((p.width for p in shown), default=0.0) + 20
    for piece in shown:
        parts.append(f'<g transform="translate(10 {_n(y)})">')
        parts += piece.elements
        parts.append("</g>")
        y += piece.height + 24
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(y)}" '
        f'viewBox="0 0 {_n(width)} {_n(y)}" font-family="Helvetica, Arial, sans-serif">'
    )
    lines = [
        head,
        f"<title>{escape(title)}</title>",
        f'<rect width="{_n(width)}" height="{_n(y)}" fill="white"/>',
        _text(10, 20, title, size=13, anchor="start"),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# --- machines -------------------------------------------------------------------------------------


def machine_piece(topology: Topology, use: Floats | None = None) -> SvgPart:
    """Return the drawing of a machine; ``use``: share of the time each link and resource is
    occupied."""
    whole = plain_machine(topology)
    topology, use = whole.machine, None if use is None else whole.shares(use)
    found = layout(topology)
    lines = [
        f'<rect x="{_n(b.x)}" y="{_n(b.y)}" width="{_n(b.width)}" height="{_n(b.height)}" rx="8" '
        f'fill="none" stroke="#bbb"/>' + _text(b.x + 8, b.y + 14, b.name, anchor="start")
        for b in found.frames
    ]
    lines += _links(topology, found, use)
    lines += [_node(topology, i, *spot) for i, spot in enumerate(found.spots)]
    legend = _legend(topology, use, found.width + 20)
    height = max(found.height, 20.0 + 16 * len(legend))
    return SvgPart((*lines, *legend), found.width + (230 if legend else 0), height)


def _links(topology: Topology, found: MapLayout, use: Floats | None) -> list[str]:
    """Return a line for the links from one node to another; the busiest on top."""
    shared = {i for r in topology.resources for i in r.links}
    of: dict[tuple[int, int], list[int]] = {}
    for i, x in enumerate(topology.links):
        of.setdefault((x.src, x.dst), []).append(i)
    paths = link_paths(topology, found, (links[0] for links in of.values()))
    drawn = []
    for (src, dst), links in of.items():
        share = 0.0 if use is None else float(max(use[i] for i in links))
        width = sum(float(topology.links[i].bandwidth) for i in links)
        own = dict.fromkeys(name for i in links for name in topology.links[i].names)
        words = f"{topology.nodes[src].name} to {topology.nodes[dst].name}"
        words += f" ({', '.join(own)})" if own else ""
        words += f": {width:.4g} GB/s"
        words += "" if use is None else f", in use {share_words(share)}"
        faint = ' stroke-opacity="0.35"' if links[0] in found.wraps else ""
        dashes = ' stroke-dasharray="5 3"' if any(i in shared for i in links) else ""
        colour = "#888" if use is None else shade(share)
        thick = 1.2 if use is None else 1.0 + 2.5 * share
        line = (
            f'<path d="{paths[links[0]]}" fill="none" stroke="{colour}" '
            f'stroke-width="{_n(thick)}"{dashes}{faint}>'
            f"<title>{escape(words)}</title></path>"
        )
        drawn.append((share, line))
    return [line for _, line in sorted(drawn, key=lambda entry: entry[0])]


def _node(topology: Topology, i: int, x: float, y: float) -> str:
    node = topology.nodes[i]
    look = 'fill="white" stroke="#333"'
    if node.kind is NodeKind.GPU:
        shape = f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(PIXELS.node_radius)}" {look}/>'
    else:
        half = half_width(topology, i)
        shape = (
            f'<rect x="{_n(x - half)}" y="{_n(y - 10)}" width="{_n(2 * half)}" height="20" {look}/>'
        )
    label = node_label(topology, i)
    words = f"{node.name} ({', '.join(node.names)})" if node.names else node.name
    named = f"<title>{escape(words)}</title>"
    return f"<g>{named}{shape}{_text(x, y + 3.5, label)}</g>"


def _legend(topology: Topology, use: Floats | None, x: float) -> list[str]:
    links = len(topology.links)
    order = list(range(len(topology.resources)))
    if use is not None:
        order.sort(key=lambda at: -float(use[links + at]))
    lines = []
    for row, at in enumerate(order[: LIMITS.listed_resources]):
        resource, y = topology.resources[at], 14.0 + 16 * row
        words = f"{resource.name}: {float(resource.bandwidth):.4g} GB/s shared"
        if use is not None:
            share = float(use[links + at])
            lines.append(
                f'<rect x="{_n(x)}" y="{_n(y + 2)}" width="{_n(180 * share)}" height="3" '
                f'fill="{shade(share)}"/>'
            )
            words += f", in use {share_words(share)}"
        lines.append(_text(x, y, words, anchor="start"))
    if len(order) > LIMITS.listed_resources:
        more = f"… and {len(order) - LIMITS.listed_resources} more"
        lines.append(_text(x, 14.0 + 16 * LIMITS.listed_resources, more, anchor="start"))
    return lines


# --- charts ---------------------------------------------------------------------------------------


def gantt_piece(rows: Sequence[GanttRow], time_us: float, more: str = "") -> SvgPart:
    """Return a chart with a row for each worker and its activities; ``more``: note on omissions."""
    scale = PIXELS.time_axis / time_us if time_us else 0.0
    height = PIXELS.row * len(rows)
    lines = []
    for tick in _ticks(time_us):
        x = PIXELS.labels + tick * scale
        lines.append(f'<path d="M{_n(x)} 0V{_n(height)}" stroke="#ddd"/>')
        lines.append(_text(x, height + 12, f"{tick:,.6g}"))
    lines.append(_text(PIXELS.labels + PIXELS.time_axis + 4, height + 12, "µs", anchor="start"))
    for at, row in enumerate(rows):
        y = at * PIXELS.row
        lines.append(_text(PIXELS.labels - 6, y + 10, row.name, anchor="end", size=8))
        for start, end, colour, words in row.bars:
            wide = max(0.2, (end - start) * scale)
            title = f"<title>{escape(words)}</title>" if words else ""
            lines.append(
                f'<rect x="{_n(PIXELS.labels + start * scale)}" y="{_n(y + 2)}" width="{_n(wide)}" '
                f'height="{_n(PIXELS.row - 4)}" fill="{colour}">{title}</rect>'
            )
    if more:
        lines.append(_text(PIXELS.labels, height + 26, more, anchor="start"))
    return SvgPart(tuple(lines), PIXELS.labels + PIXELS.time_axis + 30, height + 34)


def _ticks(time_us: float) -> list[float]:
    if time_us <= 0:
        return [0.0]
    step = 10.0 ** math.floor(math.log10(time_us / 5))
    step *= next(k for k in (1, 2, 5, 10) if time_us / (step * k) <= 10)
    return [i * step for i in range(int(time_us / step + 1e-9) + 1)]


def joined(
    bars: Sequence[tuple[float, float, str, str]], time_us: float
) -> list[tuple[float, float, str, str]]:
    """Return bars with those nearer than half a pixel merged: without words, and grey."""
    least = time_us / PIXELS.time_axis / 2
    found: list[tuple[float, float, str, str]] = []
    for start, end, *_ in sorted(bars):
        if found and start - found[-1][1] < least:
            found[-1] = (found[-1][0], max(end, found[-1][1]), "#777777", "")
        else:
            found.append((start, end, "#777777", ""))
    return found


def _text(x: float, y: float, words: str, *, size: int = 9, anchor: str = "middle") -> str:
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def _n(value: float) -> str:
    short = f"{np.round(value, 2):.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


COLOURS = {
    Activity.SENDING: OKABE_ITO[0],
    Activity.LOCAL: OKABE_ITO[2],
    Activity.LINK: OKABE_ITO[1],
    Activity.MESSAGE: "#dddddd",
    Activity.SLOT: "#c8b8c8",
    Activity.BLOCK: "#b8c8c8",
}
"""Activities of a thread block in words."""


def schedule_chart(run: Timeline) -> SvgPart:
    """Return the chart of all held links and shared resources, the busiest first; a colour per
    step."""
    s = run.schedule
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    hold = run.held_until_us - run.start_us[owner]
    busy = np.zeros(len(s.topology.links) + len(s.topology.resources))
    np.add.at(busy, run.held_row, hold)
    used = [int(row) for row in np.argsort(-busy, kind="stable") if busy[row] > 0]
    rows = []
    for row in sorted(used[: LIMITS.gantt_rows]):
        bars = []
        for at in np.flatnonzero(run.held_row == row).tolist():
            passage = int(owner[at])
            i, moves = int(run.move[passage]), run.moves
            colour = OKABE_ITO[int(moves.step[i]) % len(OKABE_ITO)]
            words = f"{move_name(s.topology, moves, i)}, step {moves.step[i] + 1}"
            bars.append((float(run.start_us[passage]), float(run.held_until_us[at]), colour, words))
        if len(owner) > LIMITS.gantt_bars:
            bars = joined(bars, run.time_us)
        name = resource_name(s.topology, row)
        inside = name.partition("(")[2].rstrip(")")  # of ``link 3 (gpu0 -> gpu1)``
        rows.append(GanttRow(inside or name.removeprefix("resource "), bars))
    hidden = len(used) - len(rows)
    more = f"… and {count(hidden, 'row')} less busy" if hidden > 0 else ""
    return gantt_piece(rows, run.time_us, more)


def program_chart(run: ProgramTimeline) -> SvgPart:
    """Return the chart of thread blocks, with their activities and waits."""
    blocks = distinct_values(run.block).tolist()
    large = len(run.phase) > LIMITS.gantt_bars
    rows = []
    for block in blocks[: LIMITS.gantt_rows]:
        bars = []
        for at in np.flatnonzero(run.block[run.phase_of] == block).tolist():
            activity = Activity(run.phase[at])
            if large and activity not in (Activity.SENDING, Activity.LOCAL):
                continue
            bars.append(
                (
                    float(run.phase_start_us[at]),
                    float(run.phase_end_us[at]),
                    COLOURS[activity],
                    activity.words,
                )
            )
        program = run.table.program
        name = f"rank {program.block_rank[block]} block {program.block_index[block]}"
        rows.append(GanttRow(name, joined(bars, run.time_us) if large else bars))
    hidden = len(blocks) - len(rows)
    said = [f"… and {count(hidden, 'thread block')} more"] if hidden > 0 else []
    if run.skipped:
        said.append("iterations that repeat those before are not drawn")
    return gantt_piece(rows, run.time_us, "; ".join(said))


# --- Graphviz: nodes by host, links with their bandwidth; any name is safe ------------------------

_SHAPES = {NodeKind.GPU: "circle", NodeKind.SWITCH: "box", NodeKind.NIC: "hexagon"}


def machine_dot(topology: Topology, use: Floats | None = None, title: str = "") -> str:
    """Return the graph of a machine; ``use``: share of the time each link and resource is occupied.

    Without it, the two directions of a cable are one line.
    """
    whole = plain_machine(topology)
    topology, use = whole.machine, None if use is None else whole.shares(use)
    lines = [
        f"digraph {quoted(topology.name)} {{",
        f"  graph [label={quoted(title or topology.name)}, labelloc=t, fontname=Helvetica];",
        "  node [fontname=Helvetica, fontsize=10, margin=0.03];",
        "  edge [fontname=Helvetica, fontsize=8, arrowsize=0.6];",
        *_dot_nodes(topology),
        *(_dot_cables(topology) if use is None else _dot_links(topology, use)),
        *_dot_resources(topology, use),
        "}",
    ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a string literal of the language: only backslashes and quotes are escaped."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "\\n".join(plain.splitlines()) + '"'


def _dot_nodes(topology: Topology) -> Iterator[str]:
    """Yield all nodes, those of a host in a frame where there are several."""
    framed = topology.hosts > 1
    for host in sorted({n.host for n in topology.nodes if n.host is not None}) if framed else ():
        yield f"  subgraph cluster_{host} {{"
        yield f"    label={quoted(f'host {host}')}; color=gray60;"
        for i, node in enumerate(topology.nodes):
            if node.host == host:
                yield f"    {_dot_node(topology, i)}"
        yield "  }"
    for i, node in enumerate(topology.nodes):
        if not framed or node.host is None:
            yield f"  {_dot_node(topology, i)}"


def _dot_node(topology: Topology, i: int) -> str:
    node = topology.nodes[i]
    return f"n{i} [label={quoted(node.name)}, shape={_SHAPES.get(node.kind, 'box3d')}];"


def _dot_cables(topology: Topology) -> Iterator[str]:
    """Yield similar links between two nodes as one line, with arrows both ways if there are
    both."""
    count: dict[tuple[int, int, object], int] = {}
    for x in topology.links:
        key = (x.src, x.dst, x.bandwidth)
        count[key] = count.get(key, 0) + 1
    for (src, dst, bandwidth), times in count.items():
        both = count.get((dst, src, bandwidth)) == times
        if both and src > dst:
            continue
        label = f"{times} x " if times > 1 else ""
        label += f"{float(bandwidth):.4g} GB/s"  # type: ignore[arg-type]
        way = ", dir=both" if both else ""
        yield f"  n{src} -> n{dst} [label={quoted(label)}{way}];"


def _dot_links(topology: Topology, use: Floats) -> Iterator[str]:
    """Yield every link that is used, darker and thicker with its use; the others pale."""
    for x, share in zip(topology.links, use.tolist(), strict=False):
        label = f"{float(x.bandwidth):.4g} GB/s, {share_words(share)}"
        shown = (
            f"label={quoted(label)}, penwidth={0.5 + 3 * share:.2f}" if share else "style=dotted"
        )
        yield f'  n{x.src} -> n{x.dst} [{shown}, color="{shade(share)}"];'


def _dot_resources(topology: Topology, use: Floats | None) -> Iterator[str]:
    """Yield a note for each shared resource, tied to the nodes that send through it."""
    for row, resource in topology.shared_rows():
        at = row - len(topology.links)
        label = f"{resource.name}: {float(resource.bandwidth):.4g} GB/s shared"
        colour = "gray40"
        if use is not None:
            share = float(use[row])
            label, colour = f"{label}, {share_words(share)}", shade(share)
        yield f'  r{at} [label={quoted(label)}, shape=note, fontsize=8, color="{colour}"];'
        for node in sorted({topology.links[i].src for i in resource.links}):
            yield f"  r{at} -> n{node} [dir=none, style=dashed, color=gray70];"
