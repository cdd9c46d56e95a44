"""Limits of the engine ``packing``: what its search tries, and when it is content."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ...base.effort import Effort, setting, share
from .hosts.search import HOST_EFFORT, HostEffort
from .order.order_search import ORDER_EFFORT, OrderEffort
from .paths.effort import PATH_EFFORT, PathEffort
from .trees.effort import TREE_EFFORT, TreeEffort


@dataclass(frozen=True, slots=True)
class PackingEffort(Effort):
    """Limits of the search; its parts have their own."""

    trees: TreeEffort = TREE_EFFORT
    paths: PathEffort = PATH_EFFORT
    hosts: HostEffort = HOST_EFFORT
    order: OrderEffort = ORDER_EFFORT
    sizes: tuple[int, ...] = setting(
        (1 << 30, 1 << 25, 1 << 20, 1 << 16, 1 << 10),
        "message sizes in bytes that the objective frontier looks at, the largest first",
    )
    packing_share: float = share(
        0.5,
        "part of the work for packings; the rest is for orders",
    )
    low_share: float = share(0.5, "part of the rest in which trees that load little are grown")
    order_least: float = share(
        0.25,
        "part of the work that orders get in any case: a packing in one slice is far from its rate",
    )
    same: float = setting(
        1.01,
        "a schedule within this many times a size's best makes another one needless",
    )
    most_unfolded: int = setting(
        20_000,
        "transfers up to which a packing is looked at without its symmetry",
    )
    most_low_load: int = setting(6_000, "ranks², up to which trees that load little are grown")
    low_load_rounds: int = setting(
        24, "rounds in which such trees are torn up and grown again, with ever steeper prices"
    )
    few: int = setting(32, "ranks up to which trees that load little need no symmetry")
    many: int = setting(
        256,
        "machines of more ranks with fewer than alike symmetries are packed as hosts times "
        "fabric first",
    )
    alike: int = setting(16, "symmetries below which these machines have few")
    little: float = setting(
        0.02,
        "part of the bound's rate that hosts times fabric may lose before the whole machine is "
        "packed, too",
    )
    too_many: int = setting(768, "ranks that are not alike: to pack the whole takes minutes")
    most_quick: int = setting(
        300_000,
        "ranks · representatives up to which trees of least latency are built",
    )


PACKING_EFFORT = PackingEffort()
"""Default limits."""
