"""Time of a phase of a plan in which switches sum and copy: by the rule *legs*, in slices.

A program that runs on GPUs makes casts as operations of thread blocks, phase after phase; all
operations of a phase start at once. What one sends over links is a **passage**: a sum comes over
its ``loads`` to the rank that issues it, and goes on over its ``stores``, granule by granule; so a
passage is cut into slices, and copies of a slice go before sums of the next one
(:mod:`.schedule_time` states the rule). A passage of one route is a transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from .moves import QueuedRows
from .schedule_tables import CostModel, QueueTables, routes_with, waits_of


@dataclass(frozen=True, slots=True)
class Passage:
    """What an operation sends over links: ``grains`` over each of them.

    ``loads``: links that bring parts of a sum to one rank. ``stores``: links from there, or from
    the rank where they start. ``one_route``: they are the route of a transfer.
    """

    grains: int
    loads: tuple[int, ...] = ()
    stores: tuple[int, ...] = ()
    one_route: bool = False


def phase_tables(topology: Topology, passages: Sequence[Passage]) -> QueueTables | None:
    """Return what queues in a phase, ready for :meth:`.QueueTables.time_us`; None: nothing."""
    some = [one for one in passages if one.loads or one.stores]
    if not some:
        return None
    rows = _rows(topology, some)
    grains = np.array([some[i].grains for i in rows.chunk.tolist()], np.int64)
    routes = routes_with(topology, rows.route_start, rows.route_links, grains)
    return QueueTables(routes, waits_of(rows), CostModel(), rows)


@dataclass(frozen=True, slots=True)
class _PassageRow:
    passage: int
    step: int
    source: object
    target: object
    links: tuple[int, ...]


HELD = "held"
"""The place of all that is there when a phase begins."""


def _rows(topology: Topology, passages: Sequence[Passage]) -> QueuedRows:
    """Return the rows of passages: loads in step 0, what follows them in step 1."""
    found = sorted(
        (row for i, one in enumerate(passages) for row in _rows_of(topology, i, one)),
        key=lambda row: row.step,
    )
    ends = [end for row in found for end in (row.source, row.target)]
    plain = {end: k for k, end in enumerate(dict.fromkeys(e for e in ends if not _meets(e)))}
    inner = dict.fromkeys(e for e in ends if _meets(e))
    place = plain | {end: len(plain) + k for k, end in enumerate(inner)}
    lengths = [len(row.links) for row in found]
    return QueuedRows(
        chunk=np.array([row.passage for row in found], np.int32),
        step=np.array([row.step for row in found], np.int32),
        source=np.array([place[row.source] for row in found], np.int64),
        target=np.array([place[row.target] for row in found], np.int64),
        places=len(plain),
        meetings=len(inner),
        route_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        route_links=np.array([k for row in found for k in row.links], np.int32),
        # Copies of a slice go before sums of the next one, which would take all links else.
        priority=np.array([1 - row.step for row in found], np.int32),
        redundant=np.zeros(len(found), bool),
        transfers=np.zeros(0, np.int64),
        legs=np.arange(len(found)),
    )


def _meets(end: object) -> bool:
    return isinstance(end, tuple) and len(end) == 3


def _rows_of(topology: Topology, number: int, one: Passage) -> Iterator[_PassageRow]:
    """Yield the rows of one passage; places are a switch in one of its halves, or its sum."""
    if one.one_route:
        yield _PassageRow(number, 1, HELD, (number, "there"), one.stores)
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
            yield _PassageRow(number, step, source, target, (k,))
