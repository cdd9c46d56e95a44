"""Algorithms in lanes: several rings or trees at once, each with a share of the data, as NCCL's.

How many lanes there are is the machine's: one ring for each rail between hosts, as many as share no
cable in one host, two trees for each rail. So these algorithms need a machine, and a search in it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind

from . import lanes
from .double_tree import pair
from .grid import RankGrid
from .model import HockneyCost


class LaneStructure(StrEnum):
    """What an algorithm in lanes is written for."""

    RINGS = "rings"  #: rings with cables or rails of their own
    RAILS = "rails"  #: hosts of equal size with a rail for each local rank


@dataclass(frozen=True, slots=True)
class Laned:
    """One algorithm in lanes for one collective.

    Attributes:
        name, kind: ``rings`` for ``allreduce``.
        structure: what ``write`` needs: rings, or a grid of local ranks and hosts.
        write: ``write(p, structure)``, of rooted collectives with ``root`` as well.
        lanes: into how many lanes the structure divides the message.
        cost: of a number of ranks, of lanes that share nothing, and of chunks of a pipeline; a tree
            is that of the ranks in two hosts.
        source: who published it.
        each_rank: whether a lane has a piece of the unit for each rank.
        pipelined: whether more pieces make a pipeline.
    """

    name: str
    kind: Kind
    structure: LaneStructure
    write: Callable[..., None]
    lanes: Callable[[Any], int]
    cost: Callable[..., HockneyCost]
    source: str
    each_rank: bool = False
    pipelined: bool = False

    def parts(self, ranks: int, structure: Any) -> int:
        """Into how many chunks each unit of the collective is cut, at least."""
        return self.lanes(structure) * (ranks if self.each_rank else 1)


def _tree_lanes(grid: RankGrid) -> int:
    g, hosts = grid.shape
    return g * len(pair(hosts))


def _tree_cost(ranks: int, count: int, chunks: int = 1) -> HockneyCost:
    return lanes.tree_cost(ranks // 2, 2, chunks)


NCCL_RINGS = "NVIDIA, NCCL (src/graph/search.cc)"
NCCL_TREES = "NVIDIA, NCCL 2.4 (src/graph/trees.cc)"

_RINGS = LaneStructure.RINGS

LANED = (
    Laned(
        "rings",
        Kind.ALLREDUCE,
        _RINGS,
        lanes.allreduce,
        len,
        lanes.allreduce_cost,
        NCCL_RINGS,
        each_rank=True,
    ),
    Laned("rings", Kind.ALLGATHER, _RINGS, lanes.allgather, len, lanes.half_cost, NCCL_RINGS),
    Laned(
        "rings", Kind.REDUCE_SCATTER, _RINGS, lanes.reduce_scatter, len, lanes.half_cost, NCCL_RINGS
    ),
    Laned(
        "rings",
        Kind.BROADCAST,
        _RINGS,
        lanes.broadcast,
        len,
        lanes.rooted_cost,
        NCCL_RINGS,
        pipelined=True,
    ),
    Laned(
        "rings",
        Kind.REDUCE,
        _RINGS,
        lanes.reduce,
        len,
        lanes.rooted_cost,
        NCCL_RINGS,
        pipelined=True,
    ),
    Laned(
        "rail_tree",
        Kind.ALLREDUCE,
        LaneStructure.RAILS,
        lanes.rail_tree,
        _tree_lanes,
        _tree_cost,
        NCCL_TREES,
        pipelined=True,
    ),
)
"""All of them, by name, then collective."""
