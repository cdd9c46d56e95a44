"""Machines as edge lists, written from their data sheets and the textbook without weft.

An edge is source, destination, GB/s and µs of one direction. Tests hold the catalogue, the importer
of edge lists and the bounds to them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

Edge = tuple[str, str, float, float]

GiB = (1 << 30) / 10**9
"""GB/s of one GiB/s."""

DOUBLE = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
"""Pairs with two NVLinks in a hybrid cube mesh of eight V100."""

SINGLE = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))
"""Pairs with one NVLink there."""

GCDS = {
    4: ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)),
    2: ((0, 4), (3, 7), (8, 12), (11, 15)),
    1: (
        *((0, 8), (1, 5), (1, 9), (1, 10), (2, 6), (2, 9), (2, 10), (3, 11)),
        *((4, 6), (5, 6), (5, 7), (9, 13), (10, 14), (12, 14), (13, 14), (13, 15)),
    ),
}
"""Pairs of the sixteen dies of an MI250 server, by their xGMI links."""


@dataclass(frozen=True)
class Graph:
    """GPUs by rank, and directed edges."""

    gpus: tuple[str, ...]
    edges: tuple[Edge, ...]

    def json(self) -> dict[str, object]:
        """Return the content of the file, as the importer of edge lists reads it."""
        return {"gpu_ids": list(self.gpus), "edges": [list(e) for e in self.edges]}


def cables(pairs: Iterable[tuple[object, object]], rate: float, alpha: float) -> Iterator[Edge]:
    """Full-duplex cables."""
    for a, b in pairs:
        yield str(a), str(b), rate, alpha
        yield str(b), str(a), rate, alpha


def graph(ranks: int, edges: Iterable[Edge]) -> Graph:
    exact = tuple((a, b, float(rate), float(alpha)) for a, b, rate, alpha in edges)
    return Graph(tuple(map(str, range(ranks))), exact)


def cube(first: int = 0) -> Iterator[Edge]:
    """NVLinks of eight V100, 25 GB/s each, in ranks from ``first`` on."""
    yield from cables([(first + a, first + b) for a, b in DOUBLE], 50, 0.7)
    yield from cables([(first + a, first + b) for a, b in SINGLE], 25, 0.7)


def crossbar(size: int, rate: float, host: int = 0) -> Iterator[Edge]:
    """GPUs of one host on its switch."""
    ranks = range(size * host, size * (host + 1))
    yield from cables([(r, f"switch{host}") for r in ranks], rate, 0.35)


def relayed_cubes(hosts: int) -> Graph:
    """Hosts of eight V100 of which only GPU 0 sends over InfiniBand, and only GPU 1 receives."""
    edges = [e for h in range(hosts) for e in cube(8 * h)]
    if hosts == 2:
        edges += [(str(8 * a), str(8 * (1 - a) + 1), 12.5, 1.3) for a in range(2)]
    else:
        edges += [(str(8 * h), "ib", 12.5, 1.3) for h in range(hosts)]
        edges += [("ib", str(8 * h + 1), 12.5, 1.3) for h in range(hosts)]
    return graph(8 * hosts, edges)


def relayed_switches() -> Graph:
    """Two hosts of sixteen V100: odd GPUs send over InfiniBand to the even one beside them."""
    edges = [e for h in range(2) for e in crossbar(16, 125, h)]
    for h, p in product(range(2), range(8)):
        edges.append((str(16 * h + 2 * p + 1), str(16 * (1 - h) + 2 * p), 12.5, 2.6))
    return graph(32, edges)


def railed(hosts: int, inside: float, nic: float, attached: Sequence[Sequence[int]] = ()) -> Graph:
    """Hosts of eight GPUs on a switch; each GPU in ``attached`` has a NIC on its rail."""
    edges: list[Edge] = []
    for h in range(hosts):
        edges += crossbar(8, inside, h)
        mine = attached[h] if attached else range(8)
        edges += cables([(8 * h + g, f"rail{g}") for g in mine], nic, 1.25)
    return graph(8 * hosts, edges)


def planes() -> Graph:
    """Two hosts of eight A100, whose even NICs are on one InfiniBand plane and odd on another."""
    edges = [*crossbar(8, 300), *crossbar(8, 300, 1)]
    edges += cables([(g, f"plane{g % 2}") for g in range(16)], 25, 1.25)
    return graph(16, edges)


def dies(hosts: int) -> Graph:
    """MI250 servers of sixteen dies, each die with 16 GB/s to one switch."""
    edges: list[Edge] = []
    for h in range(hosts):
        for lanes, pairs in GCDS.items():
            edges += cables([(16 * h + a, 16 * h + b) for a, b in pairs], 50 * lanes, 0.7)
    if hosts > 1:
        edges += cables([(r, "ib") for r in range(16 * hosts)], 16, 1.25)
    return graph(16 * hosts, edges)


def cocktail(hosts: int) -> Graph:
    """Servers of eight MI100, each with six xGMI peers; two CPUs with four GPUs and two NICs."""
    apart = {(0, 5), (1, 4), (2, 7), (3, 6)}
    edges: list[Edge] = []
    for h in range(hosts):
        near = [p for p in combinations(range(8), 2) if p not in apart]
        edges += cables([(8 * h + a, 8 * h + b) for a, b in near], 24, 0.7)
        edges += cables([(f"cpu{h}.0", f"cpu{h}.1")], 16, 0.3)
        edges += cables([(8 * h + g, f"cpu{h}.{g // 4}") for g in range(8)], 24, 0.3)
        for n in range(4):
            edges += cables([(f"cpu{h}.{n // 2}", f"nic{h}.{n}")], 24, 0.3)
            edges += cables([(f"nic{h}.{n}", "ib")], 24, 1.25)
    return graph(8 * hosts, edges)


def grid(sizes: Sequence[int], rate: float, alpha: float, *, around: bool) -> Graph:
    """A mesh, or a torus (``around``), of dimensions of at least three; the first runs fastest."""
    cells = list(product(*(range(n) for n in reversed(sizes))))
    rank = {cell[::-1]: number for number, cell in enumerate(cells)}
    pairs = []
    for cell, number in rank.items():
        for axis, size in enumerate(sizes):
            if around or cell[axis] + 1 < size:
                there = (*cell[:axis], (cell[axis] + 1) % size, *cell[axis + 1 :])
                pairs.append((number, rank[there]))
    return graph(len(rank), cables(pairs, rate, alpha))


def hypercube(dimensions: int) -> Graph:
    flips = [
        (v, v | 1 << d) for v in range(1 << dimensions) for d in range(dimensions) if not v >> d & 1
    ]
    return graph(1 << dimensions, cables(flips, 25, 0.7))


def fat_tree() -> Graph:
    """Four-port fat tree of sixteen GPUs, whose upper links have half the rate."""
    edges = list(cables([(g, f"e{g // 4}.{g // 2 % 2}") for g in range(16)], 25, 0.5))
    for pod, e, a in product(range(4), range(2), range(2)):
        edges += cables([(f"e{pod}.{e}", f"a{pod}.{a}")], 12.5, 0.5)
        edges += cables([(f"a{pod}.{a}", f"c{a}.{e}")], 12.5, 0.5)
    return graph(16, edges)


def dragonfly() -> Graph:
    """Nine groups of four routers with two GPUs each; one cable between any two groups.

    Port p of a group (two at each router) leads to group g + p + 1, where it is port 7 - p.
    """
    edges = list(cables([(g, f"r{g // 8}.{g // 2 % 4}") for g in range(72)], 25, 0.5))
    for g in range(9):
        edges += cables([(f"r{g}.{a}", f"r{g}.{b}") for a, b in combinations(range(4), 2)], 25, 0.5)
        for port in range(8):
            there = (g + port + 1) % 9
            if g < there:
                edges += cables([(f"r{g}.{port // 2}", f"r{there}.{(7 - port) // 2}")], 25, 0.5)
    return graph(72, edges)


MACHINES: dict[str, Graph] = {
    "cube": graph(8, cube()),
    "two relayed cubes": relayed_cubes(2),
    "four relayed cubes": relayed_cubes(4),
    "two relayed switches": relayed_switches(),
    "a100": graph(8, crossbar(8, 300)),
    "a100 on planes": planes(),
    "a100 on rails": railed(4, 300, 25),
    "a100 with few NICs": railed(4, 300, 25, [range(8), range(8), (0, 2, 4, 6), (0, 4)]),
    "h100 on rails": railed(8, 450, 50),
    "dgx2": graph(16, crossbar(16, 125)),
    "mi250": dies(1),
    "two mi250": dies(2),
    "mi300x, a cable dead": graph(
        8, cables([p for p in combinations(range(8), 2) if p != (0, 1)], 64, 0.7)
    ),
    "four mi100": cocktail(4),
    "mesh": grid((5, 5), 50 * GiB, 0.5, around=False),
    "torus of three": grid((3, 3, 3), 50 * GiB, 0.5, around=True),
    "torus of two": grid((8, 8), 50, 0.7, around=True),
    "hypercube": hypercube(6),
    "fat tree": fat_tree(),
    "dragonfly": dragonfly(),
    "line": graph(8, cables([(r, r + 1) for r in range(7)], 50, 0.7)),
}
"""The machines of the published comparisons, up to 72 GPUs."""

CASES = {
    **dict.fromkeys(("G01", "G02", "G03", "G04"), "cube"),
    **dict.fromkeys(("G05", "G06", "G07"), "two relayed cubes"),
    "G08": "four relayed cubes",
    **dict.fromkeys(("G09", "G10", "G11"), "two relayed switches"),
    "G12": "a100",
    "G13": "a100 on planes",
    "G14": "a100 on rails",
    "G15": "a100 with few NICs",
    "G17": "h100 on rails",
    "G18": "dgx2",
    "G20": "mi250",
    "G21": "two mi250",
    "G22": "mi300x, a cable dead",
    "G23": "four mi100",
    "G24": "mesh",
    "G25": "torus of three",
    "G26": "torus of two",
    "G27": "hypercube",
    "G28": "fat tree",
    "G29": "dragonfly",
    "G30": "line",
}
"""The comparisons' numbers for them."""
