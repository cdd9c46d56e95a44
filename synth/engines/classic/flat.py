"""The flat family: algorithms that see all ranks as one group."""

from __future__ import annotations

from collections.abc import Callable

from weft.dsl.nouns.collective import Kind

from . import allpairs, bruck, double_tree, doubling, pairwise, pat, ring, swing, tree
from .model import Flat, even_number, per_rank, power_of_two

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


def _on(pattern: str) -> Callable[[int], str]:
    return pattern.format


def _hypercube(ranks: int) -> str:
    return f"hypercube:{ranks.bit_length() - 1}"


_RING, _LINE, _HUB, _FULL = _on("ring:{}"), _on("line:{}"), _on("hub:{}"), _on("full:{}")

FLAT = (
    Flat(
        "ring",
        Kind.ALLREDUCE,
        ring.allreduce,
        ring.allreduce_cost,
        _RING,
        RING,
        parts=per_rank,
    ),
    Flat("ring", Kind.ALLGATHER, ring.allgather, ring.half_cost, _RING, RING),
    Flat(
        "ring",
        Kind.REDUCE_SCATTER,
        ring.reduce_scatter,
        ring.half_cost,
        _RING,
        RING,
    ),
    Flat(
        "ring",
        Kind.BROADCAST,
        ring.broadcast,
        ring.chain_cost,
        _RING,
        PIPELINE,
        pipelined=True,
    ),
    Flat(
        "biring",
        Kind.ALLREDUCE,
        ring.two_way_allreduce,
        ring.two_way_allreduce_cost,
        _RING,
        TWO_WAY,
        ring.two_way,
        ring.allreduce_halves,
    ),
    Flat(
        "biring",
        Kind.ALLGATHER,
        ring.two_way_allgather,
        ring.two_way_half_cost,
        _RING,
        TWO_WAY,
        ring.two_way,
        ring.halves_if_even,
    ),
    Flat(
        "biring",
        Kind.REDUCE_SCATTER,
        ring.two_way_reduce_scatter,
        ring.two_way_half_cost,
        _RING,
        TWO_WAY,
        ring.two_way,
        ring.halves_if_even,
    ),
    Flat(
        "biring",
        Kind.BROADCAST,
        ring.two_way_broadcast,
        ring.two_way_chain_cost,
        _RING,
        PIPELINE,
        ring.two_way,
        double_tree.halves,
        pipelined=True,
    ),
    Flat(
        "chain",
        Kind.BROADCAST,
        ring.broadcast,
        ring.chain_cost,
        _LINE,
        PIPELINE,
        pipelined=True,
    ),
    Flat(
        "chain",
        Kind.REDUCE,
        ring.chain_reduce,
        ring.chain_cost,
        _LINE,
        PIPELINE,
        pipelined=True,
    ),
    Flat("binomial", Kind.BROADCAST, tree.broadcast, tree.whole_cost, _HUB, MPICH),
    Flat("binomial", Kind.REDUCE, tree.reduce, tree.whole_cost, _HUB, MPICH),
    Flat("binomial", Kind.GATHER, tree.gather, tree.blocks_cost, _HUB, MPICH),
    Flat("binomial", Kind.SCATTER, tree.scatter, tree.blocks_cost, _HUB, MPICH),
    Flat(
        "double_tree",
        Kind.ALLREDUCE,
        double_tree.allreduce,
        double_tree.allreduce_cost,
        _FULL,
        TWO_TREE,
        double_tree.disjoint,
        double_tree.halves,
        pipelined=True,
    ),
    Flat(
        "double_tree",
        Kind.BROADCAST,
        double_tree.broadcast,
        double_tree.rooted_cost,
        _FULL,
        TWO_TREE,
        double_tree.disjoint_below_root,
        double_tree.halves,
        pipelined=True,
    ),
    Flat(
        "double_tree",
        Kind.REDUCE,
        double_tree.reduce,
        double_tree.rooted_cost,
        _FULL,
        TWO_TREE,
        double_tree.disjoint_below_root,
        double_tree.halves,
        pipelined=True,
    ),
    Flat(
        "recursive_doubling",
        Kind.ALLGATHER,
        doubling.doubling_allgather,
        doubling.allgather_cost,
        _hypercube,
        MPICH,
        power_of_two,
    ),
    Flat(
        "recursive_doubling",
        Kind.ALLREDUCE,
        doubling.doubling_allreduce,
        doubling.doubling_allreduce_cost,
        _FULL,
        MPICH,
    ),
    Flat(
        "halving_doubling",
        Kind.ALLREDUCE,
        doubling.halving_doubling,
        doubling.halving_doubling_cost,
        _FULL,
        RABENSEIFNER,
        parts=doubling.core,
    ),
    Flat(
        "recursive_halving",
        Kind.REDUCE_SCATTER,
        doubling.halving_reduce_scatter,
        doubling.halving_cost,
        _HUB,
        MPICH,
    ),
    Flat("bruck", Kind.ALLGATHER, bruck.allgather, bruck.allgather_cost, _HUB, BRUCK),
    Flat("bruck", Kind.ALLTOALL, bruck.alltoall, bruck.alltoall_cost, _HUB, BRUCK),
    Flat("pairwise", Kind.ALLTOALL, pairwise.pairwise, pairwise.pairwise_cost, _HUB, MPICH),
    Flat("spread_out", Kind.ALLTOALL, pairwise.spread_out, pairwise.spread_out_cost, _HUB, MPICH),
    Flat("one_shot", Kind.ALLREDUCE, allpairs.one_shot, allpairs.one_shot_cost, _FULL, ALLPAIRS),
    Flat(
        "two_shot",
        Kind.ALLREDUCE,
        allpairs.two_shot,
        allpairs.two_shot_cost,
        _FULL,
        ALLPAIRS,
        parts=per_rank,
    ),
    Flat(
        "two_shot",
        Kind.BROADCAST,
        allpairs.two_shot_broadcast,
        allpairs.rooted_two_shot_cost,
        _FULL,
        MPICH,
        parts=allpairs.per_other,
    ),
    Flat(
        "two_shot",
        Kind.REDUCE,
        allpairs.two_shot_reduce,
        allpairs.rooted_two_shot_cost,
        _FULL,
        MPICH,
        parts=allpairs.per_other,
    ),
    Flat("direct", Kind.ALLGATHER, allpairs.allgather, allpairs.direct_cost, _FULL, MPICH),
    Flat(
        "direct", Kind.REDUCE_SCATTER, allpairs.reduce_scatter, allpairs.direct_cost, _FULL, MPICH
    ),
    Flat("direct", Kind.GATHER, allpairs.gather, allpairs.direct_cost, _FULL, MPICH),
    Flat("direct", Kind.SCATTER, allpairs.scatter, allpairs.direct_cost, _FULL, MPICH),
    Flat("pat", Kind.ALLGATHER, pat.allgather, pat.cost, _HUB, PAT),
    Flat("pat", Kind.REDUCE_SCATTER, pat.reduce_scatter, pat.cost, _HUB, PAT),
    Flat("swing", Kind.ALLREDUCE, swing.allreduce, swing.cost, _HUB, SWING, even_number, per_rank),
)
"""All of them, by name, then collective."""
