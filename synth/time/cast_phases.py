"""Time of a phase of a plan in which switches sum and copy: by the rule *legs*, in slices.

A program that runs on GPUs makes casts as operations of thread blocks, phase after phase; all
operations of a phase start at once. What one sends over links is a **passage**: a sum comes over
its ``loads`` to the rank that issues it, and goes on over its ``stores``, granule by granule; so a
passage is cut into slices, and copies of a slice go before sums of the next one
(:mod:`.schedule_time` states the rule). A passage of one route is a transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from .moves import QueuedRows
from .schedule_tables import CostModel, QueueTables, routes_with, waits_of


@dataclass(frozen=True, slots=True)
class Passage:
    """Data of an operation on links: ``grains`` over each of them.

    ``loads``: links that bring parts of a sum to one rank. ``stores``: links from there, or from
    the rank where they start. ``one_route``: they are the route of a transfer.
    """

    grains: int
    loads: tuple[int, ...] = ()
    stores: tuple[int, ...] = ()
    one_route: bool = False


def phase_tables(topology: Topology, passages: Sequence[Passage]) -> QueueTables | None:
    """Return the queueing rows of a phase, for :meth:`.QueueTables.time_us`; None: nothing."""
    some = [one for one in passages if one.loads or one.stores]
    if not some:
        return None
    rows = _rows(topology, some)
    grains = np.array([some[i].grains for i in rows.chunk.tolist()], np.int64)
    routes = routes_with(topology, rows.route_start, rows.route_links, grains)
    return QueueTables(routes, waits_of(rows), CostModel(), rows)


HELD = "held"
"""The place of all that is there when a phase begins."""


def _rows(topology: Topology, passages: Sequence[Passage]) -> QueuedRows:
    """Return the rows of passages: loads in step 0, their followers in step 1."""
    found = sorted(
        (row for i, one in enumerate(passages) for row in _rows_of(topology, i, one)),
        key=lambda row: row[0],
    )
    step, passage, source, target, links = zip(*found, strict=True)
    ends = [end for pair in zip(source, target, strict=True) for end in pair]
    plain = list(dict.fromkeys(end for end in ends if not _meets(end)))
    inner = list(dict.fromkeys(end for end in ends if _meets(end)))
    place = {end: number for number, end in enumerate(plain + inner)}
    return QueuedRows(
        chunk=np.array(passage, np.int32),
        step=np.array(step, np.int32),
        source=np.array([place[end] for end in source], np.int64),
        target=np.array([place[end] for end in target], np.int64),
        places=len(plain),
        meetings=len(inner),
        route_start=np.cumsum([0, *map(len, links)]).astype(np.int64),
        route_links=np.concatenate(links).astype(np.int32),
        # Copies of a slice go before sums of the next one, which would take all links else.
        priority=1 - np.array(step, np.int32),
        redundant=np.zeros(len(found), bool),
        transfers=np.zeros(0, np.int64),
        legs=np.arange(len(found)),
    )


def _meets(end: object) -> bool:
    return isinstance(end, tuple) and len(end) == 3


def _rows_of(topology: Topology, number: int, one: Passage) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one passage: step, passage, source, target, and links; places are a switch
    in one of its halves, or its sum."""
    if one.one_route:
        yield (1, number, HELD, (number, "there"), one.stores)
        return
    came = (number, "sum") if one.loads else HELD
    for step, links, begin, end in (
        (0, one.loads, HELD, came),
        (1, one.stores, came, (number, "there")),
    ):
        for k in links:
            tail, head = topology.links[k].src, topology.links[k].dst
            source = begin if tail < topology.ranks else (number, step, tail)
            target = end if head < topology.ranks else (number, step, head)
            yield (step, number, source, target, (k,))
