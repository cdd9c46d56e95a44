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
from ..base.files import Fields, only
from ..base.lazy_dataclass import dataclass
from .workload import Shard


@dataclass(frozen=True, slots=True)
class MergedPart:
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
        shards: what a demand delivers (:attr:`.WorkloadOperation.deliveries`).
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

    def to_json(self) -> dict[str, Any]:
        """Return the object of a file."""
        data: dict[str, Any] = {
            "name": self.name,
            "class": self.of_class,
            "kind": self.kind,
            "group": list(self.group),
            "bytes": self.bytes,
            "chunks": [self.first, self.last],
            "offset": self.offset,
            "grains": self.grains,
        }
        if self.root is not None:
            data["root"] = self.root
        if self.shards:
            data["shards"] = [[list(s.holders), list(s.receivers), s.bytes] for s in self.shards]
        return data

    @classmethod
    def from_json(cls, data: Any, where: str) -> MergedPart:
        """Parse the object of a file.

        Raises:
            BadFile: it is not one.
        """
        fields = Fields(data, where)
        chunks = fields.integers("chunks")
        if len(chunks) != 2:
            raise BadFile("'chunks' is the first one, and one past the last", where=where)
        part = cls(
            fields.get("name", str),
            fields.get("class", str),
            fields.get("kind", str),
            tuple(fields.integers("group")),
            fields.get("bytes", int),
            chunks[0],
            chunks[1],
            fields.get("offset", int),
            fields.get("grains", int),
            fields.get("root", (int, type(None)), None),
            tuple(_shard(row, where) for row in fields.get("shards", list, [])),
        )
        fields.finish()
        return part


def _shard(row: Any, where: str) -> Shard:
    """Parse ``[holders, receivers, bytes]``."""
    if isinstance(row, list) and len(row) == 3:
        holders, receivers, size = row
        lists = isinstance(holders, list) and isinstance(receivers, list)
        if lists and only([*holders, *receivers, size], int) and holders and receivers and size > 0:
            return Shard(tuple(holders), tuple(receivers), size)
    raise BadFile("a shard is [holders, receivers, bytes]", where=where)


def read_parts(data: Any, where: str) -> tuple[MergedPart, ...]:
    """Parse the parts of a merged schedule.

    Raises:
        BadFile: an object that is not one, or two parts of one name.
    """
    parts = tuple(MergedPart.from_json(x, f"{where}: part {i}") for i, x in enumerate(data))
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
