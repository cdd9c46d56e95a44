"""Draw the folders of the code and their imports: ``python tests/support/architecture.py``.

One box for each folder below dsl, synth and backends, above the folders that it imports; an arrow
for each import that does not follow from others (the transitive reduction). The picture is
`docs/pictures/architecture.svg`; a test holds it to the imports of today.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

import networkx as nx

from sources import CODE_FOLDERS, ROOT, Source, code, imports

PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
EXPANDED = {"synth/engines", "backends/formats"}  # their folders get boxes of their own
COLORS = {"dsl": "#dce9f7", "synth": "#e2f2df", "backends": "#fbe9d3"}
WIDTH, HEIGHT = 118, 26  # pixels, of a box
GAP_X, GAP_Y = 14, 34  # pixels, between boxes
MARGIN = 16
PER_ROW = 8


def folder_of(module: str) -> str:
    """Return the box of a module: weft.synth.engines.exact.engine is synth/engines/exact."""
    parts = module.split(".")[1:]
    depth = 3 if "/".join(parts[:2]) in EXPANDED else 2
    return "/".join(parts[:depth])


def edges(files: tuple[Source, ...]) -> nx.DiGraph:
    """Return which folder imports which within one top folder, lazy and type imports counted."""
    packages = {source.package for source in files}
    modules = {source.module for source in files}
    graph = nx.DiGraph()
    for source in files:
        here = folder_of(source.package)
        if "/" not in here or here in EXPANDED:
            continue  # api.py and its like sit above everything
        graph.add_node(here)
        for imp in imports(source):
            full = f"{imp.module}.{imp.name}"
            target = full if full in modules else imp.module
            package = target if target in packages else target.rpartition(".")[0]
            there = folder_of(package)
            same = there.partition("/")[0] == here.partition("/")[0]
            if target in modules and there not in {here, *EXPANDED} and "/" in there and same:
                graph.add_edge(here, there)
    return graph


@dataclass(frozen=True)
class Band:
    """The folders of one top folder, in rows: a folder stands above all that it imports."""

    name: str
    rows: tuple[tuple[str, ...], ...]
    arrows: tuple[tuple[str, str], ...]


def band_of(name: str, graph: nx.DiGraph) -> Band:
    """Place the folders of one top folder by the longest chain of imports below them."""
    condensed = nx.condensation(graph)  # folders that import each other share a level
    level: dict[str, int] = {}
    for group in reversed(list(nx.topological_sort(condensed))):
        members = condensed.nodes[group]["members"]
        below = [level[t] for m in members for t in graph[m] if t not in members]
        level.update(dict.fromkeys(members, 1 + max(below, default=-1)))
    rows: dict[int, list[str]] = defaultdict(list)
    for folder in sorted(graph):
        rows[level[folder]].append(folder)
    split = [
        tuple(found[i : i + PER_ROW])
        for number in sorted(rows, reverse=True)
        for found in [rows[number]]
        for i in range(0, len(found), PER_ROW)
    ]
    acyclic = nx.is_directed_acyclic_graph(graph)
    arrows = nx.transitive_reduction(graph).edges if acyclic else graph.edges
    return Band(name, tuple(split), tuple(sorted(arrows)))


def drawing(bands: list[Band]) -> str:
    """Return the SVG of the bands, the top of the import order first."""
    wide = 2 * MARGIN + PER_ROW * (WIDTH + GAP_X) + GAP_X
    parts: list[str] = []
    top = MARGIN
    for band in bands:
        height = len(band.rows) * (HEIGHT + GAP_Y) + 24
        parts.append(
            f'<rect x="{MARGIN}" y="{top}" width="{wide - 2 * MARGIN}" height="{height}" '
            f'rx="8" fill="{COLORS[band.name]}"/>'
            f'<text x="{MARGIN + 10}" y="{top + 18}" font-weight="bold">{band.name}</text>'
        )
        places = _places(band, top + 28, wide)
        parts += [_arrow(places, a, b) for a, b in band.arrows]
        parts += [_box(folder, x, y) for folder, (x, y) in places.items()]
        top += height + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {top}" '
        'font-family="sans-serif" font-size="12">\n'
        "<title>Folders of weft; an arrow points to what a folder imports</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#557"/></marker></defs>\n'
        f'<rect width="{wide}" height="{top}" fill="white"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def _places(band: Band, top: int, wide: int) -> dict[str, tuple[int, int]]:
    """The upper left corner of every box; rows are centred."""
    places = {}
    for number, row in enumerate(band.rows):
        left = (wide - len(row) * (WIDTH + GAP_X) + GAP_X) // 2
        for i, folder in enumerate(row):
            places[folder] = (left + i * (WIDTH + GAP_X), top + number * (HEIGHT + GAP_Y))
    return places


def _arrow(places: Mapping[str, tuple[int, int]], a: str, b: str) -> str:
    (x, y), (u, v) = places[a], places[b]
    x, u = x + WIDTH // 2, u + WIDTH // 2
    if v > y:
        y += HEIGHT
    else:  # a row that was split, or folders that import each other
        v += HEIGHT
    bend = (v - y) // 2
    return (
        f'<path d="M{x} {y}C{x} {y + bend} {u} {v - bend} {u} {v}" fill="none" stroke="#557" '
        f'stroke-opacity="0.55" marker-end="url(#tip)"/>'
    )


def _box(folder: str, x: int, y: int) -> str:
    label = escape(folder.partition("/")[2])
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="white" '
        f'stroke="#557"/><text x="{x + WIDTH // 2}" y="{y + 17}" text-anchor="middle">'
        f"{label}</text>"
    )


def picture() -> str:
    """Return the SVG of the code as it is."""
    graph = edges(code())
    return drawing(
        [
            band_of(top, graph.subgraph([f for f in graph if f.startswith(f"{top}/")]))
            for top in reversed(CODE_FOLDERS)
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
