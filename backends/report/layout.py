"""Layout of a machine's drawing, for pages and for static files: nodes, hosts, curves of links.

Hosts stand side by side, GPUs in a circle or a grid. Positions depend on the machine alone. Units
are those of the drawing; a node is 26 wide.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import product

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import NodeKind, Topology

from .sizes import LIMITS, PIXELS

Spot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class HostFrame:
    """Frame of a host: its name, left upper corner, width and height."""

    name: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class MapLayout:
    """Layout of a map: the middle of each node, the frames of hosts, and the total size.

    ``grid``: GPUs stand in rows, so that a link across several of them has to go round.
    ``wraps``: links that go round the ends of a grid, drawn faintly ``lane`` beside the row.
    """

    spots: tuple[Spot, ...]
    frames: tuple[HostFrame, ...]
    width: float
    height: float
    grid: bool = False
    wraps: frozenset[int] = frozenset()
    lane: float = 0.0


def layout(topology: Topology) -> MapLayout:
    """Return the layout: nodes of a host together, those that join hosts between them."""
    sides = grid_of(topology)
    if sides is not None:
        return _grid_map(sides, topology.ranks)
    groups = _groups(topology)
    within = set().union(*groups.values())
    fabric = [i for i in range(len(topology.nodes)) if i not in within]
    inner = {host: _inside(topology, nodes) for host, nodes in groups.items()}
    wide = max((_reach(topology, x, 0) for x in inner.values()), default=PIXELS.circle_radius)
    high = max((_reach(topology, x, 1) for x in inner.values()), default=PIXELS.circle_radius)
    wide, high = 2 * wide + 20, 2 * high + (56 if len(inner) > 1 else 20)
    rows = _balanced(len(inner), wide + PIXELS.frame_gap, high + PIXELS.frame_gap)
    across = max(rows) * (wide + PIXELS.frame_gap) - PIXELS.frame_gap
    lines = _lines(topology, fabric, across)
    band = (PIXELS.frame_gap + 40.0 * len(lines)) if lines else 0.0
    across = max([across, *(_length(topology, line) for line in lines)])
    # Nodes that join the frames stand in rows of their own, in the middle.
    split = len(rows) // 2
    spots: dict[int, Spot] = {}
    frames: list[HostFrame] = []
    placed = iter(inner.items())
    for row, count in enumerate(rows):
        y = 16 + high / 2 + row * (high + PIXELS.frame_gap) + (band if row >= split else 0)
        first = 16 + across / 2 - (count - 1) / 2 * (wide + PIXELS.frame_gap)
        for column in range(count):
            host, at = next(placed)
            x = first + column * (wide + PIXELS.frame_gap)
            if len(inner) > 1:
                frames.append(HostFrame(f"host {host}", x - wide / 2, y - high / 2, wide, high))
            low = 18 if len(inner) > 1 else 0  # below the name of the host
            spots.update({i: (x + dx, y + dy + low / 2) for i, (dx, dy) in at.items()})
    top = 16 + split * (high + PIXELS.frame_gap)
    for at_line, line in enumerate(lines):
        wanted = [(k + 0.5) * across / len(line) + 16 for k in range(len(line))]
        for i, x in zip(line, _apart(topology, line, wanted), strict=True):
            spots[i] = (x, top + 20 + 40 * at_line)
    height = 32 + len(rows) * (high + PIXELS.frame_gap) - PIXELS.frame_gap + band
    every = tuple(spots[i] for i in range(len(topology.nodes)))
    return MapLayout(every, tuple(frames), 32 + across, height)


def half_width(topology: Topology, i: int) -> float:
    """Return half the width of a node as it is drawn: GPUs are circles, others boxes of a name."""
    node = topology.nodes[i]
    return (
        PIXELS.node_radius
        if node.stores
        else max(PIXELS.node_radius, 3.4 * len(node_label(topology, i)) + 5)
    )


def node_label(topology: Topology, i: int) -> str:
    """Return the text inside a node: a GPU's number; else its name, and that of the machine's
    tools."""
    node = topology.nodes[i]
    if node.kind is NodeKind.GPU:
        return str(i)
    own = next((name for name in node.names if ":" not in name and name != node.name), "")
    return f"{node.name} {own}".rstrip()


def _grid_map(sides: GpuGrid, gpus: int) -> MapLayout:
    """Return the layout of a grid: large ones closer, so that numbers stay legible."""
    spacing = 1.5 * PIXELS.spacing if gpus <= 64 else 1.15 * PIXELS.spacing if gpus <= 200 else 40.0
    spacing = spacing if len(sides.sides) == 2 else 0.75 * PIXELS.spacing
    places = sides.places(spacing)
    far = [
        max(spot[axis] for spot in places) + PIXELS.node_radius + spacing / 2 + 8 for axis in (0, 1)
    ]
    spots = tuple((x + far[0], y + far[1]) for x, y in places)
    return MapLayout(spots, (), 2 * far[0], 2 * far[1], True, sides.wraps, 0.4 * spacing)


def _lines(topology: Topology, nodes: list[int], across: float) -> list[list[int]]:
    """Return the nodes between hosts in lines that are not longer than the hosts' rows."""
    if not nodes:
        return []
    ordered = _by_name(topology, nodes)
    count = math.ceil(_length(topology, ordered) / max(across, 600.0))
    each = math.ceil(len(ordered) / count)
    return [ordered[k : k + each] for k in range(0, len(ordered), each)]


def _length(topology: Topology, line: list[int]) -> float:
    return sum(2 * half_width(topology, i) + PIXELS.box_gap for i in line)


def _apart(topology: Topology, line: list[int], wanted: list[float]) -> list[float]:
    """Return positions near the wanted ones, in the same order, at which nodes are apart.

    Pools of adjacent violators: the least sum of squared distances.
    """
    before, ends = 0.0, []
    for i in line:
        before += half_width(topology, i) + PIXELS.box_gap / 2
        ends.append(before)
        before += half_width(topology, i) + PIXELS.box_gap / 2
    pools: list[tuple[float, int]] = []
    for x, at in zip(wanted, ends, strict=True):
        mean, size = x - at, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, size = (mean * size + other * more) / (size + more), size + more
        pools.append((mean, size))
    starts = [mean for mean, size in pools for _ in range(size)]
    return [start + at for start, at in zip(starts, ends, strict=True)]


def _balanced(count: int, width: float, height: float) -> list[int]:
    """Return how many cells each row has: nearly equal, the whole wider than high as screens
    are."""

    def shape(rows: int) -> float:
        return abs(math.log(math.ceil(count / rows) * width / (rows * height) / LIMITS.host_ratio))

    rows = min(range(1, count + 1), key=shape)
    return [count // rows + (k < count % rows) for k in range(rows)]


def link_paths(topology: Topology, found: MapLayout, links: Iterable[int]) -> dict[int, str]:
    """Return the SVG paths of links by their numbers, with one digit behind the point.

    A link is a curve to the right of the straight line, so that both ways of a cable are seen;
    where several links join two nodes, each further one bends more. It stops at the edge of nodes.
    """
    twins: Counter[tuple[int, int]] = Counter()
    paths = {}
    for number in links:
        link = topology.links[number]
        spots = [found.spots[i] for i in (link.src, link.dst)]
        a, b = ((round(x, 1), round(y, 1)) for x, y in spots)
        dx, dy = b[0] - a[0], b[1] - a[1]
        if number in found.wraps:
            paths[number] = _round_path(a, b, found.lane)
            continue
        length = math.hypot(dx, dy) or 1.0
        far = 0.2 if found.grid and length > 80 else 0.06 if length > 160 else 0.0
        bend = 5 + 7 * twins[link.src, link.dst] + far * length
        twins[link.src, link.dst] += 1
        middle = (a[0] + b[0]) / 2 - dy / length * bend, (a[1] + b[1]) / 2 + dx / length * bend
        start, end = (
            _towards(a, middle, PIXELS.node_radius),
            _towards(b, middle, PIXELS.node_radius + PIXELS.arrow),
        )
        paths[number] = f"M{_pair(start)}Q{_pair(middle)} {_pair(end)}"
    return paths


def _round_path(a: Spot, b: Spot, lane: float) -> str:
    """Return the path of a wrap: out of the row, along it in the lane beside it, and back."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy)
    u, v = dx / length, dy / length

    def aside(spot: Spot, along: float) -> Spot:
        return spot[0] + u * along - v * lane, spot[1] + v * along + u * lane

    start, end = aside(a, 0), aside(b, 0)
    out, back = aside(a, lane), aside(b, -lane)
    first = _towards(a, start, min(PIXELS.node_radius, lane - 1))
    last = _towards(b, end, min(PIXELS.node_radius + PIXELS.arrow, lane - 1))
    corner = f"M{_pair(first)}Q{_pair(start)} {_pair(out)}"
    return f"{corner}L{_pair(back)}Q{_pair(end)} {_pair(last)}"


def _towards(spot: Spot, goal: Spot, by: float) -> Spot:
    length = math.hypot(goal[0] - spot[0], goal[1] - spot[1]) or 1.0
    return (
        spot[0] + (goal[0] - spot[0]) / length * by,
        spot[1] + (goal[1] - spot[1]) / length * by,
    )


def _pair(spot: Spot) -> str:
    return f"{spot[0]:.1f} {spot[1]:.1f}"


def _groups(topology: Topology) -> dict[int, list[int]]:
    """Return the nodes by host; one group of all GPUs where hosts are not known."""
    groups: dict[int, list[int]] = defaultdict(list)
    known = all(host is not None for host in topology.host_of)
    for i, node in enumerate(topology.nodes):
        if known and node.host is not None:
            groups[node.host].append(i)
        elif not known and node.stores:
            groups[0].append(i)
    if len(groups) == 1:  # a single host holds its switches, too
        return {0: list(range(len(topology.nodes)))}
    return dict(sorted(groups.items()))


def _by_name(topology: Topology, nodes: list[int]) -> list[int]:
    def key(i: int) -> list[tuple[int, str]]:
        parts = re.findall(r"\d+|\D+", topology.nodes[i].name)
        return [(int(x), "") if x.isdigit() else (0, x) for x in parts]

    return sorted(nodes, key=key)


def _inside(topology: Topology, nodes: list[int]) -> dict[int, Spot]:
    """Return the positions of a host's nodes around its middle.

    GPUs stand in a circle, many or unlinked ones in rows; switches in lines in the middle, NICs in
    lines above and below, near their GPUs.
    """
    gpus = [i for i in nodes if topology.nodes[i].stores]
    others = _by_name(topology, [i for i in nodes if not topology.nodes[i].stores])
    inner = [i for i in others if topology.nodes[i].kind is NodeKind.SWITCH]
    outer = [i for i in others if topology.nodes[i].kind is not NodeKind.SWITCH]
    most = max((_length(topology, line) for line in _lines(topology, inner, 0)), default=0.0)
    held = set(gpus)
    linked = any(x.src in held and x.dst in held for x in topology.links)
    if linked and len(gpus) <= LIMITS.circle_gpus:
        count = len(_lines(topology, inner, 0))
        needed = math.hypot(most / 2, 20.0 * count) + 2 * PIXELS.node_radius if inner else 0.0
        radius = max(PIXELS.circle_radius, len(gpus) * PIXELS.spacing / (2 * math.pi), needed)
        angles = [2 * math.pi * (k + 0.5) / len(gpus) - math.pi / 2 for k in range(len(gpus))]
        spots = {
            i: (radius * math.cos(a), radius * math.sin(a))
            for i, a in zip(gpus, angles, strict=True)
        }
        _stack(topology, _lines(topology, inner, 0), spots, -20.0 * (count - 1), centred=True)
    else:
        spots = _in_rows(topology, gpus, inner)
    _outside(topology, outer, spots)
    return spots


def _in_rows(topology: Topology, gpus: list[int], inner: list[int]) -> dict[int, Spot]:
    """Return positions in balanced rows, switches in lines between the upper and the lower half."""
    spots: dict[int, Spot] = {}
    rows = _balanced(len(gpus), PIXELS.spacing, PIXELS.spacing) if gpus else []
    lines = _lines(topology, inner, max(rows, default=1) * PIXELS.spacing)
    split = len(rows) // 2
    band = 40.0 * len(lines)
    numbers = iter(gpus)
    for row, count in enumerate(rows):
        y = row * PIXELS.spacing + (band if row >= split else 0.0)
        for column in range(count):
            spots[next(numbers)] = ((column - (count - 1) / 2) * PIXELS.spacing, y)
    _stack(topology, lines, spots, (split - 1) * PIXELS.spacing + (PIXELS.spacing + 40.0) / 2)
    middle = ((len(rows) - 1) * PIXELS.spacing + band) / 2
    return {i: (x, y - middle) for i, (x, y) in spots.items()}


def _stack(
    topology: Topology,
    lines: list[list[int]],
    spots: dict[int, Spot],
    first: float,
    *,
    centred: bool = False,
) -> None:
    """Place lines of nodes below each other, near the nodes they are linked with.

    ``centred``: only their order follows those, as inside of a circle.
    """
    near = _neighbours(topology)
    for k, line in enumerate(lines):
        wanted = []
        for i in line:
            mine = [spots[j][0] for j in near[i] if j in spots]
            wanted.append(sum(mine) / len(mine) if mine else 0.0)
        ordered = sorted(range(len(line)), key=lambda at: wanted[at])
        nodes = [line[at] for at in ordered]
        goals = [0.0 if centred else wanted[at] for at in ordered]
        found = _apart(topology, nodes, goals)
        spots.update({i: (x, first + 40 * k) for i, x in zip(nodes, found, strict=True)})


def _outside(topology: Topology, outer: list[int], spots: dict[int, Spot]) -> None:
    """Place NICs above or below the GPUs, on the side of those they serve."""
    if not outer:
        return
    near = _neighbours(topology)
    top = min((y for _, y in spots.values()), default=0.0)
    bottom = max((y for _, y in spots.values()), default=0.0)

    def height(i: int) -> float:
        mine = [spots[j][1] for j in near[i] if j in spots]
        return sum(mine) / len(mine) if mine else bottom

    middle = (top + bottom) / 2
    upper = [i for i in outer if height(i) < middle - 1]
    lower = [i for i in outer if i not in set(upper)]
    above, below = (_lines(topology, half, 0) for half in (upper, lower))
    _stack(topology, above, spots, top - 40.0 * len(above))
    _stack(topology, below, spots, bottom + 40.0)


def _neighbours(topology: Topology) -> dict[int, set[int]]:
    near: dict[int, set[int]] = defaultdict(set)
    for one in topology.links:
        near[one.src].add(one.dst)
        near[one.dst].add(one.src)
    return near


def _reach(topology: Topology, placed: dict[int, Spot], axis: int) -> float:
    """Return how far nodes reach from the middle of their host, across or down."""
    return max(
        (
            abs(spot[axis]) + (PIXELS.node_radius if axis else half_width(topology, i))
            for i, spot in placed.items()
        ),
        default=PIXELS.circle_radius,
    )


# Machines that are grids: their sides by their links, and where their GPUs are drawn.
#
# A name says nothing about a file or a machine with dead cables, so the sides are found by the
# links: every link joins neighbours of the grid, or the two ends of a row (a wrap).


@dataclass(frozen=True, slots=True)
class GpuGrid:
    """Sides of a grid, first coordinate fastest, and its links that go round the ends."""

    sides: tuple[int, ...]
    wraps: frozenset[int]

    def places(self, spacing: float) -> list[tuple[float, float]]:
        """Return the positions of all GPUs around the middle of the drawing.

        The first side is horizontal, unless the other is at least twice as long: screens are wide.
        The layers of a third side are shifted along the diagonal, so that no straight link crosses
        a GPU of another layer.
        """
        across, down, *deep = self.sides
        layers = math.prod(deep)
        turned = down >= 2 * across
        cell = spacing * max(1, layers)
        ends = [(x, y) for x, y in ((across, down), (down, across))][turned]
        found = []
        for z, y, x in product(range(layers), range(down), range(across)):
            column, row = (y, x) if turned else (x, y)
            shift = z / layers
            found.append(
                (
                    (column + shift - (ends[0] - 1 + (layers - 1) / layers) / 2) * cell,
                    (row + shift - (ends[1] - 1 + (layers - 1) / layers) / 2) * cell,
                )
            )
        return found


def grid_of(topology: Topology) -> GpuGrid | None:
    """Return the sides of a machine that is a grid or torus of two or three; None of any other."""
    gpus = topology.ranks
    if gpus != len(topology.nodes) or not 4 <= gpus <= LIMITS.grid_gpus or not topology.links:
        return None
    ends = topology.link_ends()
    for sides in _shapes(gpus):
        wraps = _wraps(ends, sides)
        if wraps is not None:
            return GpuGrid(sides, wraps)
    return None


def _shapes(gpus: int) -> list[tuple[int, ...]]:
    """Return the shapes of two and of three sides, those of two first."""
    divisors = [d for d in range(2, gpus // 2 + 1) if gpus % d == 0]
    flat: list[tuple[int, ...]] = [(d, gpus // d) for d in divisors]
    solid = [(d, e, gpus // d // e) for d in divisors for e in divisors if gpus // d % e == 0]
    return [*flat, *(shape for shape in solid if shape[2] > 1)]


def _wraps(ends: Ints, sides: tuple[int, ...]) -> frozenset[int] | None:
    """Return the links that go round if all links are of such a grid and few are missing."""
    strides = np.cumprod([1, *sides[:-1]])
    at = ends[:, :, None] // strides % np.array(sides)
    far = np.abs(at[:, 0] - at[:, 1])
    long = np.array(sides) - 1
    near, round_ = far == 1, (far == long) & (long > 1)
    fits = ((far > 0).sum(axis=1) == 1) & (near | round_).any(axis=1)
    if not fits.all():
        return None
    joined = {tuple(sorted(pair)) for pair in ends.tolist()}
    size = math.prod(sides)
    cables = sum(size - size // side for side in sides)
    wraps = frozenset(np.flatnonzero((round_ & ~near).any(axis=1)).tolist())
    around = {tuple(sorted(ends[i].tolist())) for i in wraps}
    return wraps if len(joined - around) >= LIMITS.cable_share * cables else None
