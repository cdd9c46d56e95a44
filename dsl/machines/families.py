"""Graph families: ring, line, star, hub, full, mesh, torus, twisted torus, circulant,
hypercube, fat-tree, dragonfly.

Defaults: cables of 25 GB/s per direction; α 0.7 µs for a direct cable, 0.35 µs for each hop to or
from the hub's switch, 0.5 µs for a hop of the fat-tree and the dragonfly (a switch port plus wire;
the figures of the grade cases). ``bw=`` and ``alpha=`` replace them.

Each family declares generators of a symmetry group that moves every GPU (acts freely) where there
is one, so that engines solve one GPU's part for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import combinations, product

from ..base.errors import UserError
from ..base.lazy_dataclass import Frozen
from ..nouns.topology import Link, Topology, both_ways, gpu, switch
from .spec import MachineSpec, check_size

BANDWIDTH = Fraction(25)
CABLE_ALPHA = Fraction(7, 10)
PORT_ALPHA = Fraction(35, 100)
SWITCH_ALPHA = Fraction(1, 2)


class Family(Frozen):
    """A named constructor of topologies from options."""

    synopsis: str
    summary: str
    build: Callable[[MachineSpec], Topology]

    @property
    def name(self) -> str:
        """The name in the catalogue."""
        return self.synopsis.partition(":")[0]


def ring(spec: MachineSpec) -> Topology:
    """Link GPU i with i+1 and the last with the first; two GPUs have one cable."""
    n = spec.size()
    cables = [(i, (i + 1) % n) for i in range(n)] if n > 2 else [(0, 1)]
    return _direct(spec, n, cables, [_rotation(n)])


def line(spec: MachineSpec) -> Topology:
    """Link GPU i with i+1; with an even number of GPUs the mirror image moves all of them."""
    n = spec.size()
    mirror = [tuple(range(n - 1, -1, -1))] if n % 2 == 0 else []
    return _direct(spec, n, [(i, i + 1) for i in range(n - 1)], mirror)


def star(spec: MachineSpec) -> Topology:
    """Link GPU 0 with every other one (SCCL's Star)."""
    n = spec.size()
    leaves = (0, *(1 + i % (n - 1) for i in range(1, n)))
    return _direct(spec, n, [(0, i) for i in range(1, n)], [leaves])


def full(spec: MachineSpec) -> Topology:
    """Link every two GPUs."""
    n = spec.size()
    check_size(spec, n, n * (n - 1))
    return _direct(spec, n, combinations(range(n), 2), [_rotation(n)])


def hub(spec: MachineSpec) -> Topology:
    """Link every GPU with one switch (SCCL's HubAndSpoke)."""
    n = spec.size()
    bandwidth, alpha = _numbers(spec, PORT_ALPHA)
    links = [x for i in range(n) for x in both_ways(i, n, bandwidth, alpha)]
    nodes = (*map(gpu, range(n)), switch("hub"))
    return Topology(spec.source.text, nodes, tuple(links), symmetries=((*_rotation(n), n),))


def mesh(spec: MachineSpec) -> Topology:
    """Build a grid without wrap-around, first coordinate fastest; ``bw=`` may have one per axis.

    Mirror images along even axes move every GPU.
    """
    shape = _grid_shape(spec)
    mirrors = [
        _moved(shape, axis, lambda c, d: d - 1 - c) for axis, d in enumerate(shape) if d % 2 == 0
    ]
    return _grid(spec, shape, mirrors, wrap=False)


def torus(spec: MachineSpec) -> Topology:
    """Build a grid with wrap-around (one cable on axes of two); symmetries are translations."""
    shape = _grid_shape(spec)
    moves = [_moved(shape, axis, lambda c, d: (c + 1) % d) for axis, d in enumerate(shape) if d > 1]
    return _grid(spec, shape, moves, wrap=True)


def twisted(spec: MachineSpec) -> Topology:
    """Build a torus whose shorter axes wrap half way along all longest ones.

    As TPU v4 offers k×k×2k and k×2k×2k (Jouppi et al., ISCA 2023). Steps along an axis are
    translations of a lattice, so they are symmetries.
    """
    shape = _grid_shape(spec)
    longest = max(shape)
    if longest % 2 or min(shape) == longest:
        raise UserError(
            "a twisted torus has an even longest axis, and a shorter one",
            where=spec.span(),
            hint="twisted:4x4x8",
        )
    moves = [_twist(shape, axis) for axis, d in enumerate(shape) if d > 1]
    n = math.prod(shape)
    cables = sorted({(min(v, w), max(v, w)) for move in moves for v, w in enumerate(move)})
    check_size(spec, n, 2 * len(cables))
    return _direct(spec, n, cables, moves)


def _twist(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return the step along an axis, as the image of every node."""
    longest, image = max(shape), []
    strides = [math.prod(shape[:a]) for a in range(len(shape))]
    for node in range(math.prod(shape)):
        place = [node // stride % d for stride, d in zip(strides, shape, strict=True)]
        place[axis] += 1
        if place[axis] == shape[axis] < longest:
            place = [c + d // 2 if d == longest else c for c, d in zip(place, shape, strict=True)]
        image.append(sum(c % d * s for c, d, s in zip(place, shape, strides, strict=True)))
    return tuple(image)


def circulant(spec: MachineSpec) -> Topology:
    """Link GPU i with i + s for each step s; rotations are symmetries."""
    n = spec.size()
    steps = sorted(set(spec.integers("steps", (1,))))
    if steps[0] < 1 or steps[-1] > n // 2 or math.gcd(n, *steps) > 1:
        raise UserError(
            f"steps of a circulant of {n} are 1 … {n // 2}, without a common divisor with {n}",
            where=spec.span(),
            hint="circulant:16,steps=1,6",
        )
    check_size(spec, n, 2 * n * len(steps))
    cables = sorted({tuple(sorted((i, (i + s) % n))) for s in steps for i in range(n)})
    return _direct(spec, n, [(a, b) for a, b in cables], [_rotation(n)])


def hypercube(spec: MachineSpec) -> Topology:
    """Link 2^d GPUs whose numbers differ in one bit; symmetries are bit flips."""
    shape = spec.shape()
    if len(shape) != 1 or shape[0] > 16:
        raise UserError(
            "hypercube takes one dimension, at most 16", where=spec.span(), hint="hypercube:3"
        )
    n = 1 << shape[0]
    bits = [1 << b for b in range(shape[0])]
    cables = [(i, i ^ bit) for i in range(n) for bit in bits if i < i ^ bit]
    return _direct(spec, n, cables, [tuple(i ^ bit for i in range(n)) for bit in bits])


def fat_tree(spec: MachineSpec) -> Topology:
    """Build the k-ary fat-tree of Al-Fares et al. (SIGCOMM 2008): k pods, k³/4 GPUs.

    ``oversub=2`` makes every link above the edge switches half as wide.
    """
    k = spec.integer("k", least=2)
    if k % 2:
        raise UserError("k of a fat-tree is even", where=spec.span(), hint="fat-tree:k=4")
    half, n = k // 2, k**3 // 4
    check_size(spec, n, 6 * n)
    bandwidth, alpha = _numbers(spec, SWITCH_ALPHA)
    upper = bandwidth / spec.factor("oversub")
    edge = [[n + p * k + j for j in range(half)] for p in range(k)]
    aggregation = [[n + p * k + half + j for j in range(half)] for p in range(k)]
    core = [n + k * k + c for c in range(half * half)]
    links: list[Link] = []
    for p, e, h in product(range(k), range(half), range(half)):
        links += both_ways((p * half + e) * half + h, edge[p][e], bandwidth, alpha)
        links += both_ways(edge[p][e], aggregation[p][h], upper, alpha)
        links += both_ways(aggregation[p][e], core[e * half + h], upper, alpha)
    names = [f"{kind}{p}.{j}" for p in range(k) for kind in "ea" for j in range(half)]
    names += [f"c{c}" for c in range(half * half)]
    nodes = (*map(gpu, range(n)), *map(switch, names))
    return Topology(spec.source.text, nodes, tuple(links), symmetries=_fat_tree_moves(k))


def _fat_tree_moves(k: int) -> tuple[tuple[int, ...], ...]:
    """Return rotations of the GPUs of edge switches, the edge switches of pods, and the pods."""
    half, n = k // 2, k**3 // 4
    switches = range(n, n + k * k)
    core = tuple(range(n + k * k, n + k * k + half * half))

    def image(dp: int, de: int, dh: int) -> tuple[int, ...]:
        gpus = (
            (((p + dp) % k) * half + (e + de) % half) * half + (h + dh) % half
            for p, e, h in product(range(k), range(half), range(half))
        )
        moved = []
        for s in switches:
            p, j = divmod(s - n, k)
            j = (j + de) % half if j < half else j
            moved.append(n + (p + dp) % k * k + j)
        return (*gpus, *moved, *core)

    moves = [image(1, 0, 0)]
    return (*moves, image(0, 1, 0), image(0, 0, 1)) if half > 1 else tuple(moves)


def dragonfly(spec: MachineSpec) -> Topology:
    """Build the dragonfly of Kim et al. (ISCA 2008): a·h+1 groups of a routers.

    Each router has p GPUs and h global links.

    Routers of a group are fully connected. Global channel c of group i leads to group i+c+1
    (circulant), so rotating the groups is a symmetry.
    """
    p, a, h = (spec.integer(key) for key in "pah")
    groups = a * h + 1
    routers, n = groups * a, groups * a * p
    check_size(spec, n, n + routers * (a - 1 + h))
    bandwidth, alpha = _numbers(spec, SWITCH_ALPHA)
    cables = [(g, n + g // p) for g in range(n)]
    for i in range(groups):
        cables += [(n + i * a + r, n + i * a + s) for r, s in combinations(range(a), 2)]
        for c in range(a * h):
            j = (i + c + 1) % groups
            if i < j:
                cables.append((n + i * a + c // h, n + j * a + (a * h - 1 - c) // h))
    links = [x for u, v in cables for x in both_ways(u, v, bandwidth, alpha)]
    nodes = (*map(gpu, range(n)), *(switch(f"R{r // a}.{r % a}") for r in range(routers)))
    ports = tuple(r * p + (t + 1) % p for r in range(routers) for t in range(p))
    groups_on = tuple((g + a * p) % n for g in range(n))
    still = tuple(range(n, n + routers))
    moved = tuple(n + (r + a) % routers for r in range(routers))
    moves = [(*groups_on, *moved), *([(*ports, *still)] if p > 1 else [])]
    return Topology(spec.source.text, nodes, tuple(links), symmetries=tuple(moves))


FAMILIES = (
    Family("ring:N", "N GPUs in a cycle", ring),
    Family("line:N", "N GPUs in a row", line),
    Family("star:N", "GPU 0 linked with each other one", star),
    Family("hub:N", "N GPUs on the ports of one switch", hub),
    Family("full:N", "a cable between every two of N GPUs", full),
    Family("mesh:XxY[xZ…]", "a grid without wrap-around", mesh),
    Family("torus:XxY[xZ…]", "a grid with wrap-around", torus),
    Family(
        "twisted:XxY[xZ…]", "a torus whose shorter axes wrap half way along the longest", twisted
    ),
    Family("circulant:N,steps=S,…", "GPU i is linked with i ± each step", circulant),
    Family("hypercube:D", "2^D GPUs, neighbours differ in one bit", hypercube),
    Family("fat-tree:k=K[,oversub=1]", "K³/4 GPUs under three layers of switches", fat_tree),
    Family("dragonfly:p=P,a=A,h=H", "A·H+1 groups of A routers with P GPUs each", dragonfly),
)


def _numbers(spec: MachineSpec, alpha: Fraction) -> tuple[Fraction, Fraction]:
    return spec.bandwidth("bw", BANDWIDTH), spec.microseconds("alpha", alpha)


def _direct(
    spec: MachineSpec, n: int, cables: Iterable[tuple[int, int]], moves: list[tuple[int, ...]]
) -> Topology:
    bandwidth, alpha = _numbers(spec, CABLE_ALPHA)
    links = [x for a, b in cables for x in both_ways(a, b, bandwidth, alpha)]
    return Topology(
        spec.source.text, tuple(map(gpu, range(n))), tuple(links), symmetries=tuple(moves)
    )


def _grid_shape(spec: MachineSpec) -> tuple[int, ...]:
    shape = spec.shape()
    if math.prod(shape) < 2:
        raise UserError(
            f"{spec.name} needs at least 2 GPUs", where=spec.span(), hint=f"{spec.name}:4x4"
        )
    check_size(spec, math.prod(shape))
    return shape


def _grid(
    spec: MachineSpec, shape: tuple[int, ...], moves: list[tuple[int, ...]], *, wrap: bool
) -> Topology:
    bandwidths = spec.bandwidths("bw", BANDWIDTH, len(shape))
    alpha = spec.microseconds("alpha", CABLE_ALPHA)
    links: list[Link] = []
    for a, b, axis in _grid_cables(shape, wrap):
        links += both_ways(a, b, bandwidths[axis], alpha)
    nodes = tuple(map(gpu, range(math.prod(shape))))
    return Topology(spec.source.text, nodes, tuple(links), symmetries=tuple(moves))


def _grid_cables(shape: tuple[int, ...], wrap: bool) -> Iterator[tuple[int, int, int]]:
    """Yield (from, to, axis) of each cable, once."""
    for node in range(math.prod(shape)):
        stride = 1
        for axis, d in enumerate(shape):
            c = node // stride % d
            if c + 1 < d:
                yield node, node + stride, axis
            elif wrap and d > 2:
                yield node, node - c * stride, axis
            stride *= d


def _moved(shape: tuple[int, ...], axis: int, move: Callable[[int, int], int]) -> tuple[int, ...]:
    """Return the permutation that changes one coordinate of every node."""
    stride, d = math.prod(shape[:axis]), shape[axis]
    return tuple(
        node + (move(c, d) - c) * stride
        for node in range(math.prod(shape))
        for c in (node // stride % d,)
    )


def _rotation(n: int) -> tuple[int, ...]:
    return tuple((i + 1) % n for i in range(n))
