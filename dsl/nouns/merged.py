"""Parts of a merged schedule: the collectives that it does at once, and in which order they start.

A merged schedule is a schedule of one custom collective, whose chunks and buffers are those of
several collectives side by side. A part names the chunks of one of them, so that each keeps its
pre- and postcondition; ``launch`` lists the parts of every rank in the order in which it starts
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..base.errors import BadFile
from ..base.files import only
from ..base.lazy_dataclass import Frozen
from ..base.record import Key, Record, integers
from .workload import Shard


class MergedPart(Frozen):
    """One collective of a merged schedule.

    Attributes:
        name: of its operation; ``of_class``: its class.
        kind: of the collective.
        group: its ranks, in its own order.
        bytes: its message size M.
        first, last: its chunks are first … last - 1.
        offset: where its buffers begin in the merged ones, in grains.
        grains: length of its message in grains.
        root: of a rooted collective.
        shards: deliveries of a demand (:attr:`.WorkloadOperation.deliveries`).
    """

    name: str
    of_class: str
    kind: str
    group: tuple[int, ...]
    bytes: int
    first: int
    last: int
    offset: int
    grains: int
    root: int | None = None
    shards: tuple[Shard, ...] = ()

    @property
    def chunks(self) -> tuple[int, int]:
        """Return its first chunk, and the one behind its last."""
        return self.first, self.last

    def to_json(self) -> dict[str, Any]:
        """Return the object of a file."""
        return _PART.write(self)


def _chunks(values: list[Any], key: str, where: str) -> tuple[int, ...]:
    if len(chunks := integers(values, key, where)) != 2:
        raise BadFile("'chunks' is the first one, and one past the last", where=where)
    return chunks


def _shards(rows: list[Any], key: str, where: str) -> tuple[Shard, ...]:
    """Parse rows ``[holders, receivers, bytes]``."""
    for row in rows:
        lists = isinstance(row, list) and len(row) == 3 and only(row[:2], list)
        if not lists or not only([*row[0], *row[1], row[2]], int) or not all(row) or row[2] < 0:
            raise BadFile("a shard is [holders, receivers, bytes]", where=where)
    return tuple(Shard(tuple(holders), tuple(receivers), size) for holders, receivers, size in rows)


_PART = Record(
    lambda chunks, **rest: MergedPart(first=chunks[0], last=chunks[1], **rest),
    name=Key(str),
    **{"class": Key(str, field="of_class")},
    kind=Key(str),
    group=Key(list, read=integers),
    bytes=Key(int),
    chunks=Key(list, read=_chunks),
    offset=Key(int),
    grains=Key(int),
    root=Key((int, type(None)), None, unless=None),
    shards=Key(
        list,
        [],
        _shards,
        lambda some: [[[*s.holders], [*s.receivers], s.bytes] for s in some],
        unless=(),
    ),
)


def read_parts(data: Any, where: str) -> tuple[MergedPart, ...]:
    """Parse the parts of a merged schedule.

    Raises:
        BadFile: an object that is not one, or two parts of one name.
    """
    parts = tuple(_PART.read(x, f"{where}: part {i}") for i, x in enumerate(data))
    if len({one.name for one in parts}) < len(parts):
        raise BadFile("two parts have one name", where=where)
    return parts


def launch_of(parts: Sequence[MergedPart], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Return the order in which each rank starts its parts: that of the parts, on all ranks."""
    found: list[list[int]] = [[] for _ in range(ranks)]
    for i, one in enumerate(parts):
        for rank in one.group:
            found[rank].append(i)
    return tuple(map(tuple, found))


def launch_cycle(launch: Sequence[Sequence[int]], parts: int) -> tuple[int, ...] | None:
    """Return parts that wait for each other in a circle, if each rank starts its own in order.

    A collective ends only after all its ranks have started it, and a rank may start one only after
    the one before. So ranks that start them in orders that no common order extends may wait for
    each other forever; with a common order the earliest one can always go on.
    """
    after: list[set[int]] = [set() for _ in range(parts)]
    for order in launch:
        for one, other in pairwise(order):
            after[one].add(other)
    state = [0] * parts
    for start in range(parts):
        path: list[int] = []
        stack = [(start, iter(sorted(after[start])))] if state[start] == 0 else []
        if stack:
            state[start] = 1
            path.append(start)
        while stack:
            at, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                path.pop()
                state[at] = 2
            elif state[following] == 1:
                return tuple(path[path.index(following) :])
            elif state[following] == 0:
                state[following] = 1
                path.append(following)
                stack.append((following, iter(sorted(after[following]))))
    return None
