"""Quick repair of a schedule with casts: broken chunks are rebuilt as trees through the rest.

A chunk that uses no failed link keeps its transfers and casts. Any other one gets the cheapest tree
to its root, and from it, on the machine that is left (:mod:`weft.synth.steiner`): a rank whose link
to a switch is dead drops out of the group and is served from a neighbour, and where a group is too
small to be worth its own copy, ranks send to each other. Links cost their α and the time of the
chunk behind all that they carry already, so the chunks spread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.schedule import Schedule, Transfer

from ..engines.packing.casts.schedule import TreeWriter, planned
from ..fabric.fabric import fabric_of
from ..judge.casts import cast_problems
from ..steiner.packing import rooted_tree
from ..time.order import LARGE
from .trees import require_ranks

INWARD = (Kind.ALLREDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER)
OUTWARD = (Kind.ALLREDUCE, Kind.BROADCAST, Kind.ALLGATHER)
"""Collectives whose chunks are summed at a root, and spread from one."""


def repair_casts(schedule: Schedule, left: Degraded) -> Schedule:
    """Return the schedule for ``left.topology``, where ``schedule`` is for ``left.whole``.

    Not verified. If the groups of old and new chunks are more than a switch keeps, all grow again.

    Raises:
        BadTopology: a rank cannot be reached any more. UserError: ranks are gone, it is another
            kind of collective, or a switch has too few groups for what is left.
    """
    require_ranks(left)
    kind = schedule.collective.kind
    if kind not in (*INWARD, *OUTWARD):
        raise UserError(f"chunks of {kind} have no single root", hint="synthesize it anew")
    size = schedule.bytes or LARGE
    every = set(range(schedule.collective.chunks))
    problem = ""
    for broken in (_broken(schedule, left), every):
        made = _regrown(schedule, left, broken, size)
        problem = next(cast_problems(made), "")
        if not problem:
            return made
    raise UserError(f"what is left cannot do it: {problem}", hint="synthesize it anew")


def _broken(schedule: Schedule, left: Degraded) -> set[int]:
    s, casts = schedule, schedule.casts
    found: set[int] = set()
    for chunk, start, links in (
        (s.chunk, s.route_start, s.route_links),
        (casts.chunk, casts.link_start, casts.links),
    ):
        dead = left.link_image[links] < 0
        found |= set(np.repeat(chunk, np.diff(start))[dead].tolist())
    return found


def _regrown(schedule: Schedule, left: Degraded, broken: set[int], size: int) -> Schedule:
    new = left.link_image

    def moved(links: Iterable[int]) -> tuple[int, ...]:
        return tuple(new[list(links)].tolist())

    kept = [replace(t, route=moved(t.route)) for t in schedule if t.chunk not in broken]
    casts = [replace(c, links=moved(c.links)) for c in schedule.casts if c.chunk not in broken]
    limits = {c.chunk: c.GBps for c in schedule.casts}
    trees = _Regrowth(schedule, left, size)
    trees.load([i for t in kept for i in t.route], [i for c in casts for i in c.links])
    for chunk in sorted(broken):
        trees.grow(chunk)
    made = Schedule.of(
        left.topology,
        schedule.collective,
        [*kept, *trees.writer.transfers],
        casts=[*casts, *(replace(c, GBps=limits.get(c.chunk)) for c in trees.writer.casts)],
        provenance={**schedule.provenance, "repaired": True},
    )
    made = replace(made, bytes=schedule.bytes, segments=schedule.segments)
    if not schedule.planned:
        return made
    orders = schedule.priority, schedule.casts.priority
    most = max(0 if order is None else int(order.max(initial=0)) for order in orders)
    # By how much later steps stand behind earlier ones in the planned order.
    return planned(made, most // max(1, schedule.steps - 1))


@dataclass(eq=False)
class _Regrowth:
    schedule: Schedule
    left: Degraded
    size: int
    writer: TreeWriter = field(init=False)
    busy: Floats = field(init=False)

    def __post_init__(self) -> None:
        fabric = fabric_of(self.left.topology)
        self.writer, self.busy = TreeWriter(self.left.topology), np.zeros(fabric.resources)

    def load(self, *lists: list[int]) -> None:
        """Count chunks over links, as often as they are listed."""
        for links in lists:
            _, rows = fabric_of(self.left.topology).resources_of(np.array(links, np.int64))
            np.add.at(self.busy, rows, 1.0)

    def grow(self, chunk: int) -> None:
        """Write the trees of a chunk.

        Raises:
            BadTopology: no tree spans the ranks.
        """
        kind, root = self.schedule.collective.kind, root_of(self.schedule, chunk)
        trees = []
        for inward, kinds in ((True, INWARD), (False, OUTWARD)):
            found = None
            if kind in kinds:
                found = rooted_tree(self.left.topology, self._prices(), root, inward=inward)
                if found is None:
                    raise BadTopology(
                        f"rank {root} and the others cannot reach each other any more",
                        hint="--down-rank leaves out a rank that is cut off",
                    )
                self.load(found.links())
            trees.append(found)
        self.writer.write(chunk, *trees)

    def _prices(self) -> Floats:
        fabric = fabric_of(self.left.topology)
        each = self.size / self.schedule.collective.message_chunks
        prices: Floats = fabric.byte_us * each * (1.0 + self.busy)
        prices[: fabric.links] += [float(x) for x in fabric.latency]
        return prices


def root_of(schedule: Schedule, chunk: int) -> int:
    """Return a rank that has all contributions of a chunk before any other has."""
    c = schedule.collective
    if c.kind in (Kind.BROADCAST, Kind.ALLGATHER):
        return int(c.pre.ranks[c.pre.chunks == chunk][0])
    if c.kind is not Kind.ALLREDUCE:
        return int(c.post.ranks[c.post.chunks == chunk][0])
    held = {r: frozenset((r,)) for r in range(c.ranks)}
    operations: list[Transfer | Cast] = [
        *(t for t in schedule if t.chunk == chunk),
        *(x for x in schedule.casts if x.chunk == chunk),
    ]
    for step in sorted({x.step for x in operations}):
        before = dict(held)
        for one in (x for x in operations if x.step == step):
            sources = (one.src,) if isinstance(one, Transfer) else one.sources
            targets = (one.dst,) if isinstance(one, Transfer) else one.destinations
            brought = frozenset().union(*(before[r] for r in sources))
            for r in targets:
                held[r] = held[r] | brought if one.reduce else brought
        whole = [r for r, found in held.items() if len(found) == c.ranks]
        if whole:
            return min(whole)
    return 0
