"""The hierarchical family: algorithms that see levels, with their costs.

A cost has one entry per level, innermost first, each in Hockney's form: steps · α + volume · M/B
with the α and B of that level. Levels of one algorithm follow each other, so their times add up
(for large messages the runtimes overlap them; then the slowest level decides). Most are products
of one flat algorithm a level on a grid (:mod:`.grid`). The others:

**Leaders**: only one rank of each group exchanges data with other groups, which may be of any
sizes.

* *two-level allreduce* (Jia et al. 2018): reduce to the leader of each group, a ring among the
  leaders, broadcast in each group. With groups of g, m leaders and a star in each group, a message
  M takes 2 (α_in + (g-1) M/B_in) + 2(m-1) (α_out + M/m/B_out) against 2(n-1) steps of the flat
  ring; a link between groups carries what a ring of m ranks would. The paper reduces and broadcasts
  over chains of g pieces, 4(g-1) + 2(m-1) steps in all: that is ``shapes=("chain",)``.
* *multi-level broadcast and reduce*: a tree over the leaders of the outermost level, then over
  those of the next one, down to the GPUs of a host.

**Hierarchical alltoall**: data for another host is gathered first, so that hosts exchange few,
large messages. With m hosts of g GPUs and a message of M bytes per rank (its send buffer):

==========  ==============================  ===========================  ========================
algorithm   in the host                     between hosts                messages of a rank there
==========  ==============================  ===========================  ========================
flat        g-1 · M/n                       (n-g) · M/n                  n-g of M/n
two-step    g-1 of m · M/n                  (m-1) · g · M/n              m-1 of g · M/n
three-step  as two-step, twice              (m-1) · g · M/n              (m-1)/g of g² · M/n
==========  ==============================  ===========================  ========================

*Two-step*: GPU i hands what its host-mates' rails carry to them: to mate j, all that is for local
rank j of any host; then each rail exchanges among its m ranks (MSCCLang's two-step alltoall, Cowan
et al., ASPLOS 2023). *Three-step*: all that host b has for host b' is gathered on one GPU of b (or
on as many as keep every GPU busy), goes over as one message, and is handed out there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from fractions import Fraction
from math import prod

from weft.dsl.author.builder import Builder, Chunk
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind

from . import grid
from .grid import NestedPartitions, RankGrid
from .model import HockneyCost
from .phases import (
    TREES,
    Writer,
    both_cost,
    broadcast,
    half_cost,
    in_lane,
    make_contiguous,
    post,
    reduce,
    ring_allgather,
    ring_reduce_scatter,
)

Shape = tuple[int, ...]
Costs = tuple[HockneyCost, ...]
"""One for each level, innermost first."""


class MachineStructure(StrEnum):
    """Structure of the machine that an algorithm is written for."""

    TORUS = "torus"  #: a grid whose axes are rings of cables
    PRODUCT = "product"  #: a grid along whose axes every rank reaches all others directly
    GRID = "grid"  #: any grid: the machine's levels, or a factorization
    HOSTS = "boxes"  #: a grid of two axes: local rank and host
    LEVELS = "levels"  #: nested groups of any sizes, with leaders


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """One hierarchical algorithm for one collective."""

    # name, kind: such as blueconnect for allreduce
    name: str
    kind: Kind
    structure: MachineStructure  # the machine structure that write takes
    write: Callable[..., None]  # write(p, structure)
    # Of a shape (innermost first) and the number of chunks of a pipeline: one entry per level
    cost: Callable[..., Costs]
    source: str  # its publication
    # Into how many pieces the unit of the collective is cut, at least
    parts: Callable[[Shape], int] = lambda shape: 1
    pipelined: bool = False  # more pieces make a pipeline

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

    def topology(self, shape: Shape) -> str:
        """The catalogue's name of a machine that it is made for: a torus, or hosts of eight GPUs
        with a NIC for each; other sizes are groups of their ranks."""
        if self.structure in (MachineStructure.TORUS, MachineStructure.PRODUCT):
            return "torus:" + "x".join(map(str, shape))
        return f"dgx-h100:nodes={prod(shape[1:])}"


# --- leaders --------------------------------------------------------------------------------------


def leaders_rooted(p: Builder, levels: NestedPartitions, shapes: Sequence[str] = ()) -> None:
    """Broadcast: from the root over the leaders of each level, the outermost first; chunk after
    chunk. Reduce, the mirror: sums to the leaders, the innermost first, at last to the root."""
    talking = levels.talking(p.collective.roots[0])
    inward = list(zip(talking, _shapes(talking, shapes), strict=True))
    down = p.collective.kind == Kind.BROADCAST
    for groups, shape in reversed(inward) if down else inward:
        for group in groups:
            move = broadcast if down else reduce
            move(Writer(p), group, [[k] for k in range(p.chunks)], shape)


def leaders_allreduce(
    p: Builder, levels: NestedPartitions, shapes: Sequence[str] = ("star",)
) -> None:
    """Reduce to the leaders, a ring among those of the outermost level, broadcast (Jia et al.).

    m leaders need m chunks; k times as many are k pieces that follow each other.

    Raises:
        UserError: the chunks cannot be shared by the leaders.
    """
    *inner, (ring,) = levels.talking()
    names = _shapes([*inner, ring], shapes)
    if p.chunks % len(ring):
        raise UserError(
            f"{p.chunks} chunks cannot be shared by {len(ring)} leaders",
            hint=f"a multiple of {len(ring)}",
        )
    w = Writer(p, in_lane(0, p.ranks))
    for first in range(0, p.chunks, len(ring)):
        piece = range(first, first + len(ring))
        blocks = [[k] for k in piece]
        for groups, shape in zip(inner, names[:-1], strict=True):
            for group in groups:
                reduce(w, group, [piece], shape)
        ring_reduce_scatter(w, ring, blocks)
        ring_allgather(w, ring, blocks)
        for groups, shape in zip(reversed(inner), reversed(names[:-1]), strict=True):
            for group in groups:
                broadcast(w, group, [piece], shape)


def _shapes(talking: Sequence[object], shapes: Sequence[str]) -> tuple[str, ...]:
    """One tree per level, innermost first; the last one given holds for all further levels."""
    given = tuple(shapes) or ("chain",)
    for name in given:
        if name not in TREES:
            raise UserError(f"unknown tree {name!r}", hint=", ".join(TREES))
    return tuple(given[min(level, len(given) - 1)] for level in range(len(talking)))


def leaders_rooted_cost(shape: Shape, chunks: int = 1) -> Costs:
    """Broadcast or reduce of c chunks: a chain on each level, all of them one pipeline.

    The first chunk passes every hop; the others follow at the pace of the slowest level, which is
    the outermost.
    """
    found = [HockneyCost(size - 1, Fraction(size - 1, chunks), chunks == 1) for size in shape]
    last = found[-1]
    found[-1] = HockneyCost(last.steps, last.volume + Fraction(chunks - 1, chunks), chunks == 1)
    return tuple(found)


def jia_cost(shape: Shape, chunks: int = 1) -> Costs:
    """Star to the leader, a ring among leaders, star back."""
    group, count = prod(shape[:-1]), shape[-1]
    inner = HockneyCost(2 * (group > 1), Fraction(2 * (group - 1)))
    return (inner, HockneyCost(2 * (count - 1), Fraction(2 * (count - 1), count)))


# --- alltoall -------------------------------------------------------------------------------------

Pair = tuple[int, int]
"""(source, destination) of a block."""

Blocks = dict[Pair, Chunk]
"""Blocks that are somewhere on their way."""


def two_step(p: Builder, grid: RankGrid) -> None:
    """Gather in the host by the destination's local rank, then across the rails."""
    g, m = _sides(grid)
    at = list(grid.lines(0))
    have: list[Blocks] = [{} for _ in range(p.ranks)]
    for shift in range(g):
        for host in at:
            for i, src in enumerate(host):
                rail = (i + shift) % g
                blocks = {(src, other[rail]): _data(p, src, other[rail]) for other in at}
                have[host[rail]] |= _send_to_scratch(blocks, host[rail])
    for shift in range(1, m):
        for b, host in enumerate(at):
            for here, there in zip(host, at[(b + shift) % m], strict=True):
                blocks = {(src, there): have[here].pop((src, there)) for src in host}
                have[there] |= _send_to_output(p, blocks, there)
    _settle(have)


def rail_first(p: Builder, grid: RankGrid) -> None:
    """Across the rails to the same local rank of the destination's host, then in the host.

    What goes to a host is one message, as it lies side by side in the input.
    """
    g, m = _sides(grid)
    at = list(grid.lines(0))
    have: list[Blocks] = [{} for _ in range(p.ranks)]
    for shift in range(m):
        for b, host in enumerate(at):
            far = at[(b + shift) % m]
            for src, there in zip(host, far, strict=True):
                blocks = {(src, dst): _data(p, src, dst) for dst in far}
                have[there] |= _send_to_scratch(blocks, there)
    for shift in range(1, g):
        for host in at:
            for i, here in enumerate(host):
                there = host[(i + shift) % g]
                wanted = [pair for pair in have[here] if pair[1] == there]
                have[there] |= _send_to_scratch(
                    {pair: have[here].pop(pair) for pair in wanted}, there
                )
    _settle(have)


def three_step(p: Builder, grid: RankGrid) -> None:
    """Gather in the host by destination host, across, hand out in the host."""
    g, m = _sides(grid)
    at = list(grid.lines(0))
    tours = _tours(g, m)
    have: list[Blocks] = [{} for _ in range(p.ranks)]
    for shift in range(g):
        for b, host in enumerate(at):
            for i, src in enumerate(host):
                mate = (i + shift) % g
                via = [
                    far
                    for (a, far, proxy), who in tours.items()
                    if (a, proxy) == (b, mate) and i in who
                ]
                targets = [host[mate], *(dst for far in via for dst in at[far])]
                blocks = {(src, dst): _data(p, src, dst) for dst in targets}
                have[host[mate]] |= _send_to_scratch(blocks, host[mate])
    for (b, far, proxy), who in tours.items():
        here, there = at[b][proxy], at[far][proxy]
        pairs = [(at[b][i], dst) for i in who for dst in at[far]]
        have[there] |= _send_to_scratch({pair: have[here].pop(pair) for pair in pairs}, there)
    for shift in range(1, g):
        for host in at:
            for i, here in enumerate(host):
                there = host[(i + shift) % g]
                blocks = {
                    pair: have[here].pop(pair) for pair in list(have[here]) if pair[1] == there
                }
                if blocks:
                    have[there] |= _send_to_scratch(blocks, there)
    _settle(have)


def _tours(g: int, m: int) -> dict[tuple[int, int, int], list[int]]:
    """(host, far host, proxy) -> the local ranks whose data for that host goes over that proxy.

    The proxies over which one host talks to another are different ones for different hosts; with
    fewer other hosts than GPUs there are several for each, so that all NICs work.
    """
    each = max(1, g // (m - 1))
    tours = {}
    for shift in range(1, m):  # 1 … m-1, and the same distance the other way for the receiver
        for host in range(m):
            for number in range(each):
                proxy = ((shift - 1) * each + number) % g
                tours[host, (host + shift) % m, proxy] = list(range(number, g, each))
    return tours


def _send_to_scratch(blocks: Blocks, dst: int) -> Blocks:
    (src,) = {chunk.rank for chunk in blocks.values()}
    if src == dst:
        return blocks
    landed = post(_parcel(blocks), dst, "scratch")
    return dict(zip(sorted(blocks), landed.split(len(blocks)), strict=True))


def _send_to_output(p: Builder, blocks: Blocks, dst: int) -> Blocks:
    """Blocks of one rank sent to where they end on another, as one message.

    In place that is where data may lie that still has to go: they wait beside it.
    """
    if p.in_place:
        return _send_to_scratch(blocks, dst)
    post(_parcel(blocks), dst)
    return {}


def _parcel(blocks: Blocks) -> Chunk:
    first, *others = (blocks[pair] for pair in sorted(blocks))
    return make_contiguous(first.group(*others))


def _settle(have: Sequence[Blocks]) -> None:
    for rank, blocks in enumerate(have):
        for (src, dst), chunk in blocks.items():
            assert dst == rank, "nothing is left on its way"
            if src != dst:
                chunk.copy_to()


def _data(p: Builder, src: int, dst: int) -> Chunk:
    factor = p.chunks // p.ranks**2
    return p.chunk(src, (src * p.ranks + dst) * factor, count=factor)


def _sides(grid: RankGrid) -> tuple[int, int]:
    """GPUs of a host, hosts.

    Raises:
        UserError: not two levels, or a single host.
    """
    if len(grid.shape) != 2 or grid.shape[1] < 2:
        raise UserError(
            "a hierarchical alltoall needs two or more hosts",
            hint="alltoall pairwise fits one host",
        )
    return grid.shape


def two_step_cost(shape: Shape, chunks: int = 1) -> Costs:
    """(g-1) · m blocks in the host, then (m-1) · g between hosts, all of a step at once; in any
    order of the two."""
    g, m = shape
    return (
        HockneyCost(int(g > 1), Fraction((g - 1) * m, g * m)),
        HockneyCost(1, Fraction((m - 1) * g, g * m)),
    )


def three_step_cost(shape: Shape, chunks: int = 1) -> Costs:
    """To the proxies of each host, between proxies, and from them.

    A GPU is proxy for (m-1)·q/g other hosts, where q = max(1, ⌊g/(m-1)⌋) proxies share the g²
    blocks for one host. The fullest GPU decides.
    """
    g, m = shape
    blocks = g * m
    loads, collected, given = ([0] * g for _ in range(3))
    for (host, _, proxy), sources in _tours(g, m).items():
        for i in sources if host == 0 else ():
            loads[proxy] += g
            collected[proxy] += g * (i != proxy)
            given[i] += g * (i != proxy)
    handed = max(load * (g - 1) // g for load in loads)
    # Where nothing is gathered, data that stays in the host goes while the hosts exchange.
    gathered = max(*collected, *given) + g - 1 if max(collected) else 0
    steps = int(max(collected) > 0) + int(g > 1)
    return (
        HockneyCost(steps, Fraction(gathered + handed, blocks)),
        HockneyCost(1, Fraction(max(loads), blocks)),
    )


# --- the table ------------------------------------------------------------------------------------

BLUECONNECT = "Cho et al., BlueConnect, MLSys 2019"
MIKAMI = "Mikami et al., arXiv:1811.05233 (2018)"
MULTIPORT = "Sack & Gropp, ACM TOPC 1 (2015)"
JIA = "Jia et al., arXiv:1807.11205 (2018)"
ACCL = "Dong et al., ACCL, IEEE Micro 41 (2021)"
MSCCLANG = "Cowan et al., MSCCLang, ASPLOS 2023"
MULTIPLYING = "Ruefenacht, Bull & Booth, Parallel Computing 69 (2017), axes by turns"
MAGPIE = "Kielmann et al., MagPIe, PPoPP 1999"

_AR, _AG, _RS = Kind.ALLREDUCE, Kind.ALLGATHER, Kind.REDUCE_SCATTER


def every_way(shape: Shape) -> int:
    """Parts of an algorithm on all cables of a torus: two per axis, one where it has two ranks."""
    return len(shape) * (2 if max(shape) > 2 else 1)


def product_cost(shape: Shape, *, methods: Sequence[str], parts: int, kind: Kind) -> Costs:
    """A product of flat algorithms: level i works on the rest of the levels inside it, 1/Π p_j.

    Each of the parts has its share and cables of its own. Both halves of an allreduce take
    2 Σ_i [ s_i α_i + (p_i - 1)/p_i · M/Π_{j<i} p_j / B_i ]; the outermost level is one phase.
    """
    found = []
    for axis, size in enumerate(shape):
        method = methods[min(axis, len(methods) - 1)]
        one_phase = axis == len(shape) - 1 and kind == Kind.ALLREDUCE
        steps, volume = (both_cost if one_phase else half_cost)(method, size)
        cost = HockneyCost(steps, volume / (prod(shape[:axis]) * parts))
        found.append(cost if one_phase or kind != Kind.ALLREDUCE else cost.times(2))
    return tuple(found)


def _products(
    name: str,
    structure: MachineStructure,
    source: str,
    *methods: str,
    kinds: Sequence[Kind] = (_AR, _AG, _RS),
    parts: Callable[[Shape], int] = lambda shape: 1,
) -> list[Hierarchical]:
    """The products of flat algorithms, one a level, innermost first, the last one for all further
    levels; ``parts``: the shares of the data that begin with different axes."""
    writers = {
        _AR: grid.write_allreduce,
        _AG: grid.write_allgather,
        _RS: grid.write_reduce_scatter,
    }

    def one(kind: Kind) -> Hierarchical:
        def write(p: Builder, on: RankGrid) -> None:
            writers[kind](p, on, methods, parts(on.shape))

        def cost(shape: Shape, chunks: int = 1) -> Costs:
            return product_cost(shape, methods=methods, parts=parts(shape), kind=kind)

        def cut(shape: Shape) -> int:
            return parts(shape) * (prod(shape) if kind == _AR else 1)

        return Hierarchical(name, kind, structure, write, cost, source, cut)

    return [one(kind) for kind in kinds]


def exchange_cost(shape: Shape, chunks: int = 1) -> Costs:
    """Exchanges of whole sums: along each axis one step, in which a part goes over every cable."""
    axes = sum(size > 1 for size in shape)
    return tuple(HockneyCost(int(size > 1), Fraction(size > 1, max(1, axes))) for size in shape)


_GRID, _HOSTS, _TORUS = MachineStructure.GRID, MachineStructure.HOSTS, MachineStructure.TORUS
_LEVELS, _A2A = MachineStructure.LEVELS, Kind.ALLTOALL

HIERARCHICAL = (
    *_products("torus", _TORUS, MIKAMI, "ring"),
    *_products("multiport_torus", _TORUS, MULTIPORT, "ring", parts=every_way),
    Hierarchical(
        "recursive_multiplying",
        _AR,
        MachineStructure.PRODUCT,
        grid.write_exchanges,
        exchange_cost,
        MULTIPLYING,
        lambda shape: sum(size > 1 for size in shape),
    ),
    *_products("blueconnect", _GRID, BLUECONNECT, "ring"),
    *_products("two_level", _HOSTS, BLUECONNECT, "direct", "ring"),
    *_products("hybrid", _HOSTS, ACCL, "ring", "halving", kinds=[_AR]),
    Hierarchical(
        "leaders", _AR, _LEVELS, leaders_allreduce, jia_cost, JIA, lambda shape: shape[-1]
    ),
    *(
        Hierarchical(
            "leaders", kind, _LEVELS, leaders_rooted, leaders_rooted_cost, MAGPIE, pipelined=True
        )
        for kind in (Kind.BROADCAST, Kind.REDUCE)
    ),
    Hierarchical("two_step", _A2A, _HOSTS, two_step, two_step_cost, MSCCLANG),
    Hierarchical("rail_first", _A2A, _HOSTS, rail_first, two_step_cost, MSCCLANG),
    Hierarchical("three_step", _A2A, _HOSTS, three_step, three_step_cost, MSCCLANG),
)
"""All of them, by name, then collective."""
