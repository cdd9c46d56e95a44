"""The hierarchical family: algorithms that see levels, with what each of them costs.

A cost has one entry per level, innermost first, each in Hockney's form: steps · α + volume · M/B
with the α and B of that level. Levels of one algorithm follow each other, so their times add up
(for large messages the runtimes overlap them; then the slowest level decides).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from fractions import Fraction
from math import prod
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind

from . import grid, hosts_alltoall, leaders, phases
from .model import HockneyCost
from .phases import tree_depth

Shape = tuple[int, ...]


class MachineStructure(StrEnum):
    """Structure of the machine that an algorithm is written for."""

    TORUS = "torus"  #: a grid whose axes are rings of cables
    PRODUCT = "product"  #: a grid along whose axes every rank reaches all others directly
    GRID = "grid"  #: any grid: the machine's levels, or a factorization
    HOSTS = "boxes"  #: a grid of two axes: local rank and host
    LEVELS = "levels"  #: nested groups of any sizes, with leaders


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """One hierarchical algorithm for one collective.

    Attributes:
        name, kind: ``blueconnect`` for ``allreduce``.
        structure: what ``write`` needs.
        write: ``write(p, structure, **options)``.
        options: with these.
        cost: of a shape (innermost first) and the number of chunks of a pipeline: one entry per
            level.
        topology: the catalogue's name of a machine it is made for, of a shape.
        source: who published it.
        parts: into how many pieces the unit of the collective is cut, at least.
        pipelined: whether more pieces make a pipeline.
    """

    name: str
    kind: Kind
    structure: MachineStructure
    write: Callable[..., None]
    cost: Callable[..., tuple[HockneyCost, ...]]
    topology: Callable[[Shape], str]
    source: str
    parts: Callable[[Shape], int]
    options: Callable[[Shape], dict[str, Any]] = lambda shape: {}
    pipelined: bool = False

    def defined(self, shape: Shape) -> str:
        """'' where it works on such a hierarchy, else why not."""
        many = sum(size > 1 for size in shape)
        if self.structure is MachineStructure.HOSTS and (len(shape) != 2 or shape[1] < 2):
            return "it needs two or more hosts of equal size"
        if self.structure is MachineStructure.TORUS and many < 2:
            return "it needs a torus of two axes or more"
        if self.structure is MachineStructure.PRODUCT and many < 2:
            return "it needs a product of two cliques of cables or more"
        if many < 1:
            return "it needs at least two ranks"
        return ""


# --- grids ----------------------------------------------------------------------------------------


def half_cost(shape: Shape, methods: Sequence[str] = ("ring",)) -> tuple[HockneyCost, ...]:
    """Reduce_scatter or allgather: level i works on what the levels inside it left, 1/Π p_j."""
    found = []
    for axis, size in enumerate(shape):
        steps, volume = phases.half_cost(methods[min(axis, len(methods) - 1)], size)
        found.append(HockneyCost(steps, volume / prod(shape[:axis])))
    return tuple(found)


def allreduce_cost(shape: Shape, methods: Sequence[str] = ("ring",)) -> tuple[HockneyCost, ...]:
    """Both halves: 2 Σ_i [ s_i α_i + (p_i - 1)/p_i · M/Π_{j<i} p_j / B_i ]."""
    inner = [HockneyCost(2 * c.steps, 2 * c.volume) for c in half_cost(shape[:-1], methods)]
    steps, volume = phases.both_cost(methods[min(len(shape), len(methods)) - 1], shape[-1])
    return (*inner, HockneyCost(steps, volume / prod(shape[:-1])))


def every_way(shape: Shape) -> int:
    """Parts of an algorithm on all cables of a torus: two per axis, one where it has two ranks."""
    return len(shape) * (2 if max(shape) > 2 else 1)


def multiport_half_cost(shape: Shape, chunks: int = 1) -> tuple[HockneyCost, ...]:
    """As :func:`half_cost` for equal axes, each part with its share and cables of its own."""
    parts = every_way(shape)
    return tuple(HockneyCost(c.steps, c.volume / parts) for c in half_cost(shape))


def multiport_allreduce_cost(shape: Shape, chunks: int = 1) -> tuple[HockneyCost, ...]:
    """Both halves."""
    return tuple(HockneyCost(2 * c.steps, 2 * c.volume) for c in multiport_half_cost(shape))


def exchange_cost(shape: Shape, chunks: int = 1) -> tuple[HockneyCost, ...]:
    """Exchanges of whole sums: along each axis one step, in which a part goes over every cable."""
    axes = sum(size > 1 for size in shape)
    return tuple(HockneyCost(int(size > 1), Fraction(size > 1, max(1, axes))) for size in shape)


def _half(*methods: str) -> Callable[..., tuple[HockneyCost, ...]]:
    return lambda shape, chunks=1: half_cost(shape, methods)


def _both(*methods: str) -> Callable[..., tuple[HockneyCost, ...]]:
    return lambda shape, chunks=1: allreduce_cost(shape, methods)


def _using(*methods: str) -> Callable[[Shape], dict[str, Any]]:
    return lambda shape: {"methods": methods}


def _ranks(shape: Shape) -> int:
    return prod(shape)


def _ranks_every_way(shape: Shape) -> int:
    return prod(shape) * every_way(shape)


def _every(shape: Shape) -> dict[str, Any]:
    return {"parts": every_way(shape)}


def _one(shape: Shape) -> int:
    return 1


def _per_axis(shape: Shape) -> int:
    return sum(size > 1 for size in shape)


# --- leaders --------------------------------------------------------------------------------------


def leaders_rooted_cost(shape: Shape, chunks: int = 1) -> tuple[HockneyCost, ...]:
    """Broadcast or reduce of c chunks: a chain on each level, all of them one pipeline.

    The first chunk passes every hop; the others follow at the pace of the slowest level, which is
    the outermost.
    """
    found = [
        HockneyCost(
            tree_depth("chain", size), Fraction(tree_depth("chain", size), chunks), chunks == 1
        )
        for size in shape
    ]
    last = found[-1]
    found[-1] = HockneyCost(last.steps, last.volume + Fraction(chunks - 1, chunks), chunks == 1)
    return tuple(found)


def jia_cost(shape: Shape, chunks: int = 1) -> tuple[HockneyCost, ...]:
    """Star to the leader, a ring among leaders, star back."""
    group, count = prod(shape[:-1]), shape[-1]
    inner = HockneyCost(2 * (group > 1), Fraction(2 * (group - 1)))
    return (inner, HockneyCost(2 * (count - 1), Fraction(2 * (count - 1), count)))


# --- alltoall -------------------------------------------------------------------------------------


def two_step_cost(shape: Shape, chunks: int = 1) -> tuple[HockneyCost, ...]:
    """(g-1) · m blocks in the host, then (m-1) · g between hosts, all of a step at once."""
    g, m = shape
    return (
        HockneyCost(int(g > 1), Fraction((g - 1) * m, g * m)),
        HockneyCost(1, Fraction((m - 1) * g, g * m)),
    )


def three_step_cost(shape: Shape, chunks: int = 1) -> tuple[HockneyCost, ...]:
    """To the proxies of each host, between proxies, and from them.

    A GPU is proxy for (m-1)·q/g other hosts, where q = max(1, ⌊g/(m-1)⌋) proxies share the g²
    blocks for one host. The fullest GPU decides.
    """
    g, m = shape
    blocks = g * m
    loads = [0] * g
    collected = [0] * g
    for far in range(1, m):
        proxies = hosts_alltoall.proxies_of(0, far, g, m)
        for number, proxy in enumerate(proxies):
            sources = range(number, g, len(proxies))
            loads[proxy] += len(sources) * g
            collected[proxy] += sum(i != proxy for i in sources) * g
    handed = max(load * (g - 1) // g for load in loads)
    # Where nothing is gathered, what stays in the host goes while the hosts exchange.
    gathered = max(max(collected), _given_away(g, m)) + g - 1 if max(collected) else 0
    steps = int(max(collected) > 0) + int(g > 1)
    return (
        HockneyCost(steps, Fraction(gathered + handed, blocks)),
        HockneyCost(1, Fraction(max(loads), blocks)),
    )


def _given_away(g: int, m: int) -> int:
    """Blocks that a GPU hands to proxies other than itself, the most of any."""
    most = 0
    for i in range(g):
        given = 0
        for far in range(1, m):
            proxies = hosts_alltoall.proxies_of(0, far, g, m)
            given += g * (proxies[i % len(proxies)] != i)
        most = max(most, given)
    return most


# --- the table ------------------------------------------------------------------------------------

BLUECONNECT = "Cho et al., BlueConnect, MLSys 2019"
MIKAMI = "Mikami et al., arXiv:1811.05233 (2018)"
MULTIPORT = "Sack & Gropp, ACM TOPC 1 (2015)"
JIA = "Jia et al., arXiv:1807.11205 (2018)"
ACCL = "Dong et al., ACCL, IEEE Micro 41 (2021)"
MSCCLANG = "Cowan et al., MSCCLang, ASPLOS 2023"
MULTIPLYING = "Ruefenacht, Bull & Booth, Parallel Computing 69 (2017), axes by turns"
MAGPIE = "Kielmann et al., MagPIe, PPoPP 1999"


def torus_name(shape: Shape) -> str:
    """A torus of the catalogue."""
    return "torus:" + "x".join(map(str, shape))


def hosts_name(shape: Shape) -> str:
    """Hosts of eight GPUs with a NIC for each; other sizes are groups of their ranks."""
    return f"dgx-h100:nodes={prod(shape[1:])}"


_GRID, _HOSTS, _TORUS = MachineStructure.GRID, MachineStructure.HOSTS, MachineStructure.TORUS
_AR, _AG, _RS = Kind.ALLREDUCE, Kind.ALLGATHER, Kind.REDUCE_SCATTER


HIERARCHICAL = (
    Hierarchical(
        "torus", _AR, _TORUS, grid.write_allreduce, _both("ring"), torus_name, MIKAMI, _ranks
    ),
    Hierarchical(
        "torus", _AG, _TORUS, grid.write_allgather, _half("ring"), torus_name, MIKAMI, _one
    ),
    Hierarchical(
        "torus", _RS, _TORUS, grid.write_reduce_scatter, _half("ring"), torus_name, MIKAMI, _one
    ),
    Hierarchical(
        "multiport_torus",
        _AR,
        _TORUS,
        grid.write_allreduce,
        multiport_allreduce_cost,
        torus_name,
        MULTIPORT,
        _ranks_every_way,
        options=_every,
    ),
    Hierarchical(
        "multiport_torus",
        _AG,
        _TORUS,
        grid.write_allgather,
        multiport_half_cost,
        torus_name,
        MULTIPORT,
        every_way,
        options=_every,
    ),
    Hierarchical(
        "multiport_torus",
        _RS,
        _TORUS,
        grid.write_reduce_scatter,
        multiport_half_cost,
        torus_name,
        MULTIPORT,
        every_way,
        options=_every,
    ),
    Hierarchical(
        "recursive_multiplying",
        _AR,
        MachineStructure.PRODUCT,
        grid.write_exchanges,
        exchange_cost,
        torus_name,
        MULTIPLYING,
        _per_axis,
    ),
    Hierarchical(
        "blueconnect",
        _AR,
        _GRID,
        grid.write_allreduce,
        _both("ring"),
        hosts_name,
        BLUECONNECT,
        _ranks,
    ),
    Hierarchical(
        "blueconnect",
        _AG,
        _GRID,
        grid.write_allgather,
        _half("ring"),
        hosts_name,
        BLUECONNECT,
        _one,
    ),
    Hierarchical(
        "blueconnect",
        _RS,
        _GRID,
        grid.write_reduce_scatter,
        _half("ring"),
        hosts_name,
        BLUECONNECT,
        _one,
    ),
    Hierarchical(
        "two_level",
        _AR,
        _HOSTS,
        grid.write_allreduce,
        _both("direct", "ring"),
        hosts_name,
        BLUECONNECT,
        _ranks,
        _using("direct", "ring"),
    ),
    Hierarchical(
        "two_level",
        _AG,
        _HOSTS,
        grid.write_allgather,
        _half("direct", "ring"),
        hosts_name,
        BLUECONNECT,
        _one,
        _using("direct", "ring"),
    ),
    Hierarchical(
        "two_level",
        _RS,
        _HOSTS,
        grid.write_reduce_scatter,
        _half("direct", "ring"),
        hosts_name,
        BLUECONNECT,
        _one,
        _using("direct", "ring"),
    ),
    Hierarchical(
        "hybrid",
        _AR,
        _HOSTS,
        grid.write_allreduce,
        _both("ring", "halving"),
        hosts_name,
        ACCL,
        _ranks,
        _using("ring", "halving"),
    ),
    Hierarchical(
        "leaders",
        _AR,
        MachineStructure.LEVELS,
        leaders.write_allreduce,
        jia_cost,
        hosts_name,
        JIA,
        lambda shape: shape[-1],
        lambda shape: {"shapes": ("star",)},
    ),
    Hierarchical(
        "leaders",
        Kind.BROADCAST,
        MachineStructure.LEVELS,
        leaders.write_broadcast,
        leaders_rooted_cost,
        hosts_name,
        MAGPIE,
        _one,
        pipelined=True,
    ),
    Hierarchical(
        "leaders",
        Kind.REDUCE,
        MachineStructure.LEVELS,
        leaders.write_reduce,
        leaders_rooted_cost,
        hosts_name,
        MAGPIE,
        _one,
        pipelined=True,
    ),
    Hierarchical(
        "two_step",
        Kind.ALLTOALL,
        _HOSTS,
        hosts_alltoall.write_two_step,
        two_step_cost,
        hosts_name,
        MSCCLANG,
        _one,
    ),
    Hierarchical(
        "three_step",
        Kind.ALLTOALL,
        _HOSTS,
        hosts_alltoall.write_three_step,
        three_step_cost,
        hosts_name,
        MSCCLANG,
        _one,
    ),
)
"""All of them, by name, then collective."""
