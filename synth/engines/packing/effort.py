"""Limits of the engine ``packing``: what its search tries, and when it is content."""

from __future__ import annotations

from dataclasses import dataclass

from .hosts.search import HOST_EFFORT, HostEffort
from .order.order_search import ORDER_EFFORT, OrderEffort
from .paths.effort import PATH_EFFORT, PathEffort
from .trees.search import TREE_EFFORT, TreeEffort


@dataclass(frozen=True, slots=True)
class PackingEffort:
    """Limits of the search; its parts have their own.

    Options:
        trees, paths, hosts, order: limits of the parts.
        sizes: message sizes in bytes that the objective frontier looks at, the largest first.
        packing_share: part of the seconds for packings; the rest is for orders and the schedule.
        same: a schedule within this many times a size's best makes another one needless.
        most_unfolded: transfers up to which a packing is looked at without its symmetry.
        most_thrifty: ranks², up to which trees that load little are grown.
        few: ranks up to which trees that load little need no symmetry.
        many: machines of more ranks with fewer than ``alike`` symmetries are packed as hosts times
            fabric first.
        alike: elements of the group of symmetries.
        little: part of the bound's rate that hosts times fabric may lose before the whole machine
            is packed, too.
        too_many: ranks that are not alike: to pack the whole takes minutes.
        most_quick: ranks · representatives up to which trees of least latency are built.
    """

    trees: TreeEffort = TREE_EFFORT
    paths: PathEffort = PATH_EFFORT
    hosts: HostEffort = HOST_EFFORT
    order: OrderEffort = ORDER_EFFORT
    sizes: tuple[int, ...] = (1 << 30, 1 << 25, 1 << 20, 1 << 16, 1 << 10)
    packing_share: float = 0.5
    same: float = 1.01
    most_unfolded: int = 20_000
    most_thrifty: int = 6_000
    few: int = 32
    many: int = 256
    alike: int = 16
    little: float = 0.02
    too_many: int = 768
    most_quick: int = 300_000


PACKING_EFFORT = PackingEffort()
"""The usual one."""
