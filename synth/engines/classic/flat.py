"""The flat family: algorithms that see all ranks as one group, by name. Here those on rings and
chains, of direct messages, and binomial trees; :mod:`.doubling` has exchanges at doubling distance,
:mod:`.double_tree` two trees at once.
======================  ===================  ================  ==============================
algorithm               steps                share of M        source
======================  ===================  ================  ==============================
ring allgather          n-1                  (n-1)/n           Patarasuk & Yuan 2009
ring reduce_scatter     n-1                  (n-1)/n           "
ring allreduce          2(n-1)               2(n-1)/n          "
ring broadcast          n-2+c                (n-2+c)/c         NCCL: a chain round the ring
chain broadcast         n-2+c                (n-2+c)/c         Pješivac-Grbović et al. 2007
chain reduce            n-2+c                (n-2+c)/c         "
biring allgather        ⌊n/2⌋                (n-1)/2n          both directions of the cables
biring reduce_scatter   ⌊n/2⌋                (n-1)/2n          "
biring allreduce        2⌊n/2⌋               (n-1)/n           "
biring broadcast        n-2+c                (n-2+c)/2c        "
one-shot allreduce      1                    1                 MSCCL's and TensorRT-LLM's
two-shot allreduce      2                    2/n               MSCCL's all-pairs
two-shot bcast, reduce  2                    2/(n-1)           scatter-allgather, in a step each
direct                  1                    1/n               Thakur, Rabenseifner, Gropp 2005
binomial bcast, reduce  ⌈log2 n⌉             ⌈log2 n⌉          "
binomial scatter, g.    ⌈log2 n⌉             (n-1)/n           "
pairwise alltoall       n-1                  (n-1)/n           "
spread-out alltoall     1                    (n-1)/n           "
======================  ===================  ================  ==============================

P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations,
J. Parallel Distrib. Comput. 69 (2009). In the two-way forms ("biring") a block leaves its owner on
both sides and meets itself half-way round; of an even number of ranks, the last one gets one half
from each side. In a chain the best number of chunks c is sqrt((n-2) β M / α): J. Pješivac-Grbović
et al., Performance analysis of MPI collective operations, Cluster Computing 10 (2007).
R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in
MPICH, IJHPCA 19 (2005). Pairwise, for long messages, exchanges with one partner after the other
(number xor k on a power of two; else to i+k while i-k's arrives); spread-out, for shorter ones,
posts all of them from i+1 on and waits once, so that only one α is paid. M. Cowan et al.:
MSCCLang: Microsoft collective communication language, ASPLOS 2023 (all-pairs).

>>> ring = classic("ring", "allreduce")
>>> ring.cost(8).steps, ring.cost(8).volume
(14, Fraction(7, 4))
>>> len(classic_algorithm("ring", "allreduce", 4).moves)
24
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from inspect import signature
from typing import Any

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import ROOTED, Kind, make
from weft.dsl.nouns.program import Protocol

from . import double_tree, doubling
from .model import Cost, Flat, HockneyCost, any_number, is_power, per_rank, twice, uncut
from .phases import (
    Blocks,
    Order,
    PackingWriter,
    Phase,
    Writer,
    apart,
    blocks_in_order,
    broadcast,
    chunks_of,
    direct_allgather,
    direct_reduce_scatter,
    pieces,
    post,
    reduce,
    reference_to,
    ring_allgather,
    ring_reduce_scatter,
    runs,
    send_to_scratch,
    tree_edges,
)

# --- rings and chains -----------------------------------------------------------------------------


def _ways(n: int, distance: int, chunks: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
    """(direction, chunks) that cross the hop from ``distance``-1 to ``distance`` off the owner."""
    if 2 * distance == n:
        first, second = pieces(chunks, 2)
        return [(1, first), (-1, second)]
    return [(1, chunks), (-1, chunks)]


def _two_way(w: Writer, order: Order, blocks: Blocks, *, inward: bool) -> None:
    """Each block leaves its owner on both sides; inward it comes from both, the same backwards."""
    n = len(order)
    distances = range(1, n // 2 + 1)
    for distance in reversed(distances) if inward else distances:
        for i in range(n):
            for way, chunks in _ways(n, distance, blocks[i]):
                near, far = order[(i + way * (distance - 1)) % n], order[(i + way * distance) % n]
                if inward:
                    w.add(far, chunks, near)
                else:
                    w.send(near, chunks, far)


def _along(p: Builder, order: Order) -> None:
    """Chunk after chunk along the ring, up to the root's predecessor."""
    broadcast(Writer(p), order, [[k] for k in range(p.chunks)])


def _chain_reduce(p: Builder, order: Order) -> None:
    """Chunk after chunk from the far end to the root, summed on the way."""
    reduce(Writer(p), order, [[k] for k in range(p.chunks)])


def _two_way_broadcast(p: Builder, order: Order) -> None:
    """One half of the chunks round the ring, the other half the other way round."""
    back = [order[0], *reversed(order[1:])]
    for forth, other in zip(*runs(p, 2), strict=True):
        broadcast(Writer(p), order, [[forth]])
        broadcast(Writer(p), back, [[other]])


def _half(n: int, chunks: int = 1) -> HockneyCost:
    return HockneyCost(n - 1, Fraction(n - 1, n))


def _two_way_half(n: int, chunks: int = 1) -> HockneyCost:
    return HockneyCost(n // 2, Fraction(n - 1, 2 * n), chained=n % 2 == 1)


def _chain(n: int, chunks: int = 1) -> HockneyCost:
    """A pipeline of n-1 hops: the last of c chunks starts after c-1 others."""
    return HockneyCost(n - 2 + chunks, Fraction(n - 2 + chunks, chunks), chained=chunks == 1)


def _two_way_chain(n: int, chunks: int = 1) -> HockneyCost:
    whole = _chain(n, chunks)
    return replace(whole, volume=whole.volume / 2)


def _from_3(n: int) -> str:
    return "" if n >= 3 else "it needs at least three ranks: two have one cable"


# --- direct messages ------------------------------------------------------------------------------


def _one_shot(p: Builder, order: Order) -> None:
    """Every rank sends its whole buffer to all others and sums the received ones."""
    n, everything = len(order), range(p.chunks)
    PackingWriter(p).add_all(
        [(order[i], order[(i + k) % n], everything) for k in range(1, n) for i in range(n)]
    )


def _two_shot_broadcast(p: Builder, order: Order) -> None:
    """The root sends every other rank a piece of its own, which that one sends to the rest.

    A thread block that received and sent on would hold up those that send the same to others.
    """
    w, (root, *others) = Writer(p, apart), order
    blocks = runs(p, len(others))
    for rank, piece in zip(others, blocks, strict=True):
        w.send(root, piece, rank)
    direct_allgather(w, others, blocks)


def _two_shot_reduce(p: Builder, order: Order) -> None:
    """The mirror: every rank but the root sums one piece of all others and adds it to the root."""
    w, (root, *others) = Writer(p, apart), order
    blocks = runs(p, len(others))
    for shift in range(1, len(others)):
        for i, rank in enumerate(others):
            w.add(others[(i + shift) % len(others)], blocks[i], rank)
    for rank, piece in zip(others, blocks, strict=True):
        w.add(rank, piece, root)


def _per_other(n: int) -> int:
    """A piece for each rank but the root."""
    return max(1, n - 1)


def _gather(p: Builder, order: Order) -> None:
    for rank, block in list(zip(order, blocks_in_order(p, order), strict=True))[1:]:
        Writer(p).send(rank, block, order[0])


def _scatter(p: Builder, order: Order) -> None:
    for rank, block in list(zip(order, blocks_in_order(p, order), strict=True))[1:]:
        Writer(p).send(order[0], block, rank)


def _alltoall_block(p: Builder, source: int, target: int) -> None:
    factor = p.chunks // p.ranks**2
    number = (source * p.ranks + target) * factor
    p.chunk(source, number, count=factor).copy_to(rank=target)


def pairwise(p: Builder, order: Order) -> None:
    """Round k: exchange with the partner of round k."""
    n = len(order)
    for k in range(n):
        for i in range(n):
            _alltoall_block(p, order[i], order[i ^ k if is_power(n) else (i + k) % n])


def spread_out(p: Builder, order: Order) -> None:
    """Every rank sends to all others, beginning with its successor."""
    n = len(order)
    for i in range(n):
        for k in range(n):
            _alltoall_block(p, order[i], order[(i + k) % n])


def _one_step(volume: Callable[[int], Fraction]) -> Cost:
    return lambda n, chunks=1: HockneyCost(1, volume(n))


def _rooted_two_shot(n: int, chunks: int = 1) -> HockneyCost:
    """A piece on every link, down and across, where each pair of ranks has one."""
    return HockneyCost(2, Fraction(2, n - 1)) if n > 2 else HockneyCost(1, Fraction(1))


def _pairwise_cost(n: int, chunks: int = 1) -> HockneyCost:
    """A block in every round; no round needs data of another."""
    return replace(_half(n), chained=n == 2)


# --- binomial trees -------------------------------------------------------------------------------


def _down(p: Builder, order: Order) -> None:
    broadcast(Writer(p, apart), order, [range(p.chunks)], "binomial")


def _up(p: Builder, order: Order) -> None:
    reduce(Writer(p), order, [range(p.chunks)], "binomial")


def _below(p: Builder, order: Order) -> list[tuple[int, int, list[int]]]:
    """(parent, child, the blocks of all below the child) from the root on."""
    n, blocks = len(order), blocks_in_order(p, order)
    return [
        (order[up], order[child], chunks_of(blocks, range(child, min(2 * child - up, n))))
        for up, child in tree_edges("binomial", n)
    ]


def _binomial_scatter(p: Builder, order: Order) -> None:
    for parent, child, chunks in _below(p, order):
        if len(chunks) > p.chunks // p.ranks:
            send_to_scratch(p, parent, chunks, child).copy_to()
        else:
            post(reference_to(p, parent, chunks), child)


def _binomial_gather(p: Builder, order: Order) -> None:
    for parent, child, chunks in reversed(_below(p, order)):
        PackingWriter(p).send(child, chunks, parent)


def _binomial(volume: Callable[[int, int], Fraction]) -> Cost:
    """⌈log2 n⌉ steps; ``volume``: of them and of n."""

    def cost(n: int, chunks: int = 1) -> HockneyCost:
        steps = (n - 1).bit_length()
        return HockneyCost(steps, volume(steps, n), chained=is_power(n))

    return cost


# --- the table ------------------------------------------------------------------------------------

RING = "Patarasuk & Yuan, JPDC 69 (2009)"
TWO_WAY = "Patarasuk & Yuan, JPDC 69 (2009), in both directions"
PIPELINE = "Pješivac-Grbović et al., Cluster Computing 10 (2007)"
MPICH = "Thakur, Rabenseifner & Gropp, IJHPCA 19 (2005)"
RABENSEIFNER = "Rabenseifner, ICCS 2004"
BRUCK = "Bruck et al., IEEE TPDS 8 (1997)"
ALLPAIRS = "Cowan et al., ASPLOS 2023"
TWO_TREE = "Sanders, Speck & Träff, Parallel Computing 35 (2009)"
PAT = "Jeaugey, arXiv:2506.20252"
SWING = "De Sensi et al., NSDI 2024"

_RING, _LINE, _HUB, _FULL = "ring:{}".format, "line:{}".format, "hub:{}".format, "full:{}".format
_AR, _AG, _RS = Kind.ALLREDUCE, Kind.ALLGATHER, Kind.REDUCE_SCATTER
_BC, _RE = Kind.BROADCAST, Kind.REDUCE


def _halves(
    name: str,
    scatter: Phase,
    gather: Phase,
    half: Cost,
    topology: Callable[[int], str],
    source: str,
    defined: Callable[[int], str] = any_number,
    cut: Callable[[int], int] = uncut,
) -> tuple[Flat, Flat, Flat]:
    """The allreduce, allgather and reduce_scatter of two phases on a block for each rank, which is
    cut further; ``half``: cost of each phase."""

    def reduce_scatter(p: Builder, order: Order) -> None:
        scatter(Writer(p), order, blocks_in_order(p, order))

    def allgather(p: Builder, order: Order) -> None:
        gather(Writer(p), order, blocks_in_order(p, order))

    def allreduce(p: Builder, order: Order) -> None:
        blocks = runs(p, p.ranks)
        scatter(Writer(p), order, blocks)
        gather(Writer(p), order, blocks)

    def block(n: int) -> int:
        return n * cut(n)

    return (
        Flat(name, _AR, allreduce, twice(half), topology, source, defined, block),
        Flat(name, _AG, allgather, half, topology, source, defined, cut),
        Flat(name, _RS, reduce_scatter, half, topology, source, defined, cut),
    )


def _pipeline(
    name: str,
    kinds: dict[Kind, Callable[..., None]],
    cost: Cost,
    topology: Callable[[int], str],
    source: str,
    defined: Callable[[int], str] = any_number,
    parts: Callable[[int], int] = uncut,
) -> list[Flat]:
    return [
        Flat(name, kind, write, cost, topology, source, defined, parts, pipelined=True)
        for kind, write in kinds.items()
    ]


_direct = _halves(
    "direct",
    direct_reduce_scatter,
    direct_allgather,
    _one_step(lambda n: Fraction(1, n)),
    _FULL,
    MPICH,
)
_whole, _most = (
    _binomial(lambda steps, n: Fraction(steps)),
    _binomial(lambda steps, n: Fraction(n - 1, n)),
)
_trees = {_BC: double_tree.broadcast, _RE: double_tree.reduce}

FLAT: tuple[Flat, ...] = (
    *_halves("ring", ring_reduce_scatter, ring_allgather, _half, _RING, RING),
    *_pipeline("ring", {_BC: _along}, _chain, _RING, PIPELINE),
    *_halves(
        "biring",
        partial(_two_way, inward=True),
        partial(_two_way, inward=False),
        _two_way_half,
        _RING,
        TWO_WAY,
        _from_3,
        lambda n: 2 if n % 2 == 0 else 1,  # the block that meets itself is cut in two
    ),
    *_pipeline(
        "biring",
        {_BC: _two_way_broadcast},
        _two_way_chain,
        _RING,
        PIPELINE,
        _from_3,
        lambda n: 2,
    ),
    *_pipeline("chain", {_BC: _along, _RE: _chain_reduce}, _chain, _LINE, PIPELINE),
    Flat("binomial", _BC, _down, _whole, _HUB, MPICH),
    Flat("binomial", _RE, _up, _whole, _HUB, MPICH),
    Flat("binomial", Kind.GATHER, _binomial_gather, _most, _HUB, MPICH),
    Flat("binomial", Kind.SCATTER, _binomial_scatter, _most, _HUB, MPICH),
    *_pipeline(
        "double_tree",
        {_AR: double_tree.allreduce},
        double_tree.allreduce_cost,
        _FULL,
        TWO_TREE,
        double_tree.disjoint,
        lambda n: 2,
    ),
    *_pipeline(
        "double_tree",
        _trees,
        double_tree.rooted_cost,
        _FULL,
        TWO_TREE,
        double_tree.disjoint_below_root,
        lambda n: 2,
    ),
    Flat(
        "recursive_doubling",
        _AG,
        doubling.allgather,
        doubling.allgather_cost,
        lambda n: f"hypercube:{n.bit_length() - 1}",
        MPICH,
        doubling.power_of_two,
    ),
    Flat("recursive_doubling", _AR, doubling.allreduce, doubling.allreduce_cost, _FULL, MPICH),
    Flat(
        "halving_doubling",
        _AR,
        doubling.halving_doubling,
        doubling.halving_doubling_cost,
        _FULL,
        RABENSEIFNER,
        parts=doubling.core,
    ),
    Flat("recursive_halving", _RS, doubling.reduce_scatter, doubling.halving_cost, _HUB, MPICH),
    Flat("bruck", _AG, doubling.bruck_allgather, doubling.bruck_cost, _HUB, BRUCK),
    Flat("bruck", Kind.ALLTOALL, doubling.bruck_alltoall, doubling.alltoall_cost, _HUB, BRUCK),
    Flat("pairwise", Kind.ALLTOALL, pairwise, _pairwise_cost, _HUB, MPICH),
    Flat(
        "spread_out",
        Kind.ALLTOALL,
        spread_out,
        _one_step(lambda n: Fraction(n - 1, n)),
        _HUB,
        MPICH,
    ),
    Flat("one_shot", _AR, _one_shot, _one_step(lambda n: Fraction(1)), _FULL, ALLPAIRS),
    replace(_direct[0], name="two_shot", source=ALLPAIRS),
    Flat("two_shot", _BC, _two_shot_broadcast, _rooted_two_shot, _FULL, MPICH, parts=_per_other),
    Flat("two_shot", _RE, _two_shot_reduce, _rooted_two_shot, _FULL, MPICH, parts=_per_other),
    *_direct[1:],
    Flat("direct", Kind.GATHER, _gather, _direct[1].cost, _FULL, MPICH),
    Flat("direct", Kind.SCATTER, _scatter, _direct[1].cost, _FULL, MPICH),
    Flat("pat", _AG, doubling.pat_allgather, doubling.pat_cost, _HUB, PAT),
    Flat("pat", _RS, doubling.pat_reduce_scatter, doubling.pat_cost, _HUB, PAT),
    Flat(
        "swing",
        _AR,
        doubling.swing,
        doubling.swing_cost,
        _HUB,
        SWING,
        doubling.even_number,
        per_rank,
    ),
)
"""All of them, by name, then collective."""

# --- found by name, and written -------------------------------------------------------------------


def classic(name: str, kind: str | Kind) -> Flat:
    """The algorithm of that name for a collective.

    Raises:
        UnknownName: no such name, or not for this collective.
    """
    named = [one for one in FLAT if one.name == name]
    if not named:
        raise UnknownName("classic algorithm", name, dict.fromkeys(c.name for c in FLAT))
    for found in named:
        if found.kind == str(kind):
            return found
    raise UserError(
        f"{name} is not an algorithm for {kind}",
        hint="it is for " + ", ".join(c.kind for c in named),
    )


def classic_algorithm(
    name: str,
    kind: str | Kind,
    ranks: int,
    *,
    in_place: bool = False,
    order: Sequence[int] | None = None,
    chunks: int = 1,
    root: int = 0,
    instances: int = 1,
    protocol: Protocol | str = Protocol.SIMPLE,
    **options: Any,
) -> Algorithm:
    """A classic algorithm, written and proved.

    Args:
        name, kind: which one, for which collective.
        ranks: size of the group.
        order: the ranks along the ring, or by their number in the tree; a permutation of all
            (:mod:`.mapping` finds a good one). Rooted collectives begin with
            the root: the order is rotated there.
        chunks: pieces of a pipeline, or of every block; they multiply what the algorithm itself
            cuts the unit into.
        root: of a rooted collective.
        in_place, instances, protocol: as :class:`~weft.dsl.author.builder.Builder` takes them.
        options: of this algorithm.

    Raises:
        UnknownName, UserError: unknown algorithm, not on this many ranks, not a permutation.
    """
    one = classic(name, kind)
    if reason := one.defined(ranks):
        others = [c.name for c in FLAT if c.kind == one.kind and not c.defined(ranks)]
        raise UserError(
            f"{one.name} {one.kind} is not defined on {ranks} ranks: {reason}",
            hint=f"{', '.join(others)} are" if others else "",
        )
    if chunks < 1:
        raise UserError(f"{chunks} chunks make no message", hint="use 1, 2, 4 …")
    roots = (root,) if one.kind in ROOTED else ()
    if root and not roots:
        raise UserError(f"{one.kind} has no root")
    known = list(signature(one.write).parameters)[2:]
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known)
    along = list(range(ranks) if order is None else order)
    if sorted(along) != list(range(ranks)):
        raise UserError(
            f"expected a permutation of the {ranks} ranks as order, got {along}",
            hint=f"name each of 0 … {ranks - 1} once",
        )
    if root not in along:
        raise UserError(f"root {root} is outside the group", hint=f"0 … {ranks - 1}")
    at = along.index(root) if roots else 0
    collective = make(one.kind, ranks, chunks=one.parts(ranks) * chunks, roots=roots)
    builder = Builder(
        collective,
        name=f"{name}_{one.kind}",
        in_place=in_place,
        instances=instances,
        protocol=protocol,
    )
    one.write(builder, along[at:] + along[:at], **options)
    return builder.algorithm()
