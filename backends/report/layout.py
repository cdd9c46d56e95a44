"""Layout of a machine's drawing, for pages and for static files: nodes, hosts, curves of links.

Hosts stand side by side, GPUs in a circle or a grid. Positions depend on the machine alone. Units
are those of the drawing; a node is 26 wide.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from weft.dsl.nouns.topology import NodeKind, Topology

NODE = 13.0
"""Radius of a GPU."""

ARROW = 3.0
"""Room for the head of an arrow between the end of a link and its node."""

SPACING = 46.0
"""Distance between neighbours on a circle or grid."""

SHORTEST = 62.0
"""Radius of a circle of few GPUs."""

GAP = 40.0
"""Distance between frames."""

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
    """

    spots: tuple[Spot, ...]
    frames: tuple[HostFrame, ...]
    width: float
    height: float
    grid: bool = False


def layout(topology: Topology) -> MapLayout:
    """Return the layout: nodes of a host together, those that join hosts between them."""
    groups = _groups(topology)
    fabric = [i for i, n in enumerate(topology.nodes) if i not in set().union(*groups.values())]
    spots: dict[int, Spot] = {}
    frames: list[HostFrame] = []
    inner = {host: _inside(topology, nodes) for host, nodes in groups.items()}
    size = max((_extent(x) for x in inner.values()), default=SHORTEST)
    columns = _columns(len(inner))
    rows = -(-len(inner) // columns)
    # The names of nodes outside the circle are wider than GPUs.
    side = 2 * size + (44 if all(node.stores for node in topology.nodes) else 76)
    # Nodes that join the frames stand in a row of their own, in the middle.
    split = rows // 2 if fabric else rows
    band = (GAP + 70.0) if fabric else 0.0
    for at, (host, placed) in enumerate(inner.items()):
        row, column = divmod(at, columns)
        x = 16 + side / 2 + column * (side + GAP)
        y = 16 + side / 2 + row * (side + GAP) + (band if row >= split else 0)
        if len(inner) > 1:
            frames.append(HostFrame(f"host {host}", x - side / 2, y - side / 2, side, side))
        spots.update({i: (x + dx, y + dy) for i, (dx, dy) in placed.items()})
    width = 32 + columns * side + (columns - 1) * GAP
    height = 32 + rows * side + (rows - 1) * GAP + band
    step = width / (len(fabric) + 1)
    middle = 16 + split * (side + GAP) + (band - GAP) / 2 if fabric else 0.0
    if fabric and not split:
        middle = 16 + band / 2 - GAP / 4
    spots.update({i: ((k + 1) * step, middle) for k, i in enumerate(_by_name(topology, fabric))})
    rowed = len(groups) == 1 and _grid(topology, len(topology.nodes)) is not None
    every = tuple(spots[i] for i in range(len(topology.nodes)))
    return MapLayout(every, tuple(frames), width, height, rowed)


def link_paths(topology: Topology, found: MapLayout, links: Iterable[int]) -> dict[int, str]:
    """Return the SVG paths of links by their numbers, with one digit behind the point.

    A link is a curve to the right of the straight line, so that both ways of a cable are seen;
    where several links join two nodes, each further one bends more. It stops at the edge of nodes.
    """
    twins: Counter[tuple[int, int]] = Counter()
    paths = {}
    for number in links:
        link = topology.links[number]
        a, b = (_rounded(found.spots[i]) for i in (link.src, link.dst))
        dx, dy = b[0] - a[0], b[1] - a[1]
        length = math.hypot(dx, dy) or 1.0
        far = 0.2 if found.grid and length > 80 else 0.06 if length > 160 else 0.0
        bend = 5 + 7 * twins[link.src, link.dst] + far * length
        twins[link.src, link.dst] += 1
        middle = (a[0] + b[0]) / 2 - dy / length * bend, (a[1] + b[1]) / 2 + dx / length * bend
        start, end = _towards(a, middle, NODE), _towards(b, middle, NODE + ARROW)
        paths[number] = f"M{_pair(start)}Q{_pair(middle)} {_pair(end)}"
    return paths


def _rounded(spot: Spot) -> Spot:
    return round(spot[0], 1), round(spot[1], 1)


def _towards(spot: Spot, goal: Spot, by: float) -> Spot:
    length = math.hypot(goal[0] - spot[0], goal[1] - spot[1]) or 1.0
    return (
        spot[0] + (goal[0] - spot[0]) / length * by,
        spot[1] + (goal[1] - spot[1]) / length * by,
    )


def _pair(spot: Spot) -> str:
    return f"{spot[0]:.1f} {spot[1]:.1f}"


def _columns(count: int) -> int:
    """Return the number of hosts in a row: wider than high, as screens are."""
    return count if count <= 3 else math.ceil(math.sqrt(1.8 * count))


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
    """Return the positions of a host's nodes around its middle."""
    gpus = [i for i in nodes if topology.nodes[i].stores]
    others = [i for i in nodes if not topology.nodes[i].stores]
    sides = _grid(topology, len(gpus)) if not others else None
    if sides:
        rows, columns = sides
        return {
            i: (
                (k % columns - (columns - 1) / 2) * SPACING * 1.5,
                (k // columns - (rows - 1) / 2) * SPACING * 1.5,
            )
            for k, i in enumerate(gpus)
        }
    radius = max(SHORTEST, len(gpus) * SPACING / (2 * math.pi))
    angle = {i: 2 * math.pi * k / max(1, len(gpus)) - math.pi / 2 for k, i in enumerate(gpus)}
    spots = {i: (radius * math.cos(a), radius * math.sin(a)) for i, a in angle.items()}
    spots.update(_around(topology, others, spots, radius))
    return spots


def _around(
    topology: Topology, others: list[int], spots: dict[int, Spot], radius: float
) -> dict[int, Spot]:
    """Return the positions of switches inside the circle, of NICs and hosts outside, near their
    GPUs."""
    near: dict[int, set[int]] = defaultdict(set)
    for one in topology.links:
        near[one.src].add(one.dst)
        near[one.dst].add(one.src)
    wanted: dict[int, list[tuple[float, int]]] = {0: [], 1: []}
    for i in _by_name(topology, others):
        mine = [spots[j] for j in near[i] if j in spots]
        x, y = (sum(c) / len(mine) for c in zip(*mine, strict=True)) if mine else (0.0, 0.0)
        inner = topology.nodes[i].kind is NodeKind.SWITCH
        wanted[0 if inner else 1].append((math.atan2(y, x) if math.hypot(x, y) > 1 else 9.0, i))
    placed: dict[int, Spot] = {}
    for ring, far in ((0, 0.42 * radius), (1, radius + 36)):
        placed.update(_spread(sorted(wanted[ring]), far))
    return placed


def _spread(wanted: list[tuple[float, int]], far: float) -> dict[int, Spot]:
    """Return positions on a circle near the wanted angles, but apart; without an angle in the
    middle."""
    if len(wanted) == 1 and wanted[0][0] == 9.0:
        return {wanted[0][1]: (0.0, 0.0)}
    count = len(wanted)
    if not count:
        return {}
    apart = min(2 * math.pi / count, 26 / far)
    angles = [a if a != 9.0 else 2 * math.pi * k / count for k, (a, _) in enumerate(wanted)]
    if any(b - a < apart for a, b in pairwise(angles)):
        low = angles[0]
        angles = [low + 2 * math.pi * k / count for k in range(count)]
    return {
        i: (far * math.cos(a), far * math.sin(a)) for a, (_, i) in zip(angles, wanted, strict=True)
    }


def _grid(topology: Topology, gpus: int) -> tuple[int, int] | None:
    """Return rows and columns of a torus or mesh, by its name; a cube's layers side by side."""
    match = re.search(r"(\d+(?:x\d+)+)", topology.name)
    sides = [int(x) for x in match[1].split("x")] if match else []
    if match and math.prod(sides) == gpus and len(sides) == 2:
        return sides[0], sides[1]
    if gpus > 24:
        columns = math.ceil(math.sqrt(gpus))
        return -(-gpus // columns), columns
    return None


def _extent(placed: dict[int, Spot]) -> float:
    return max((max(abs(x), abs(y)) for x, y in placed.values()), default=SHORTEST)
