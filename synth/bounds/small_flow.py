"""Maximum flows by shortest augmenting paths (Edmonds and Karp 1972), in plain Python.

To load OR-Tools takes 35 CPU ms, as long as some hundred flows through the network of one host. The
value of a maximum flow and the smallest source side of its minimum cuts are unique: it
does not matter who finds them.
"""

from __future__ import annotations

from collections.abc import Sequence


class SmallFlow:
    """A network of arcs, each with a reverse arc: numbers 2i and 2i + 1."""

    def __init__(self, tails: Sequence[int], heads: Sequence[int], vertices: int) -> None:
        self._head = [v for pair in zip(heads, tails, strict=True) for v in pair]
        self._leaving: list[list[int]] = [[] for _ in range(vertices)]
        for arc in range(len(self._head)):
            self._leaving[self._head[arc ^ 1]].append(arc)
        self._room: list[int] = []
        self._reached: list[int] = []
        self.steps = 0

    def solve(self, sizes: Sequence[int], source: int, sink: int) -> int:
        """The value of a maximum flow; ``steps`` counts the arcs that were looked at."""
        self._room = [x for size in sizes for x in (size, 0)]
        value = 0
        while (path := self._path(source, sink)) is not None:
            least = min(self._room[arc] for arc in path)
            for arc in path:
                self._room[arc] -= least
                self._room[arc ^ 1] += least
            value += least
        return value

    def source_side(self) -> list[int]:
        """The vertices that the source still reaches."""
        return self._reached

    def _path(self, source: int, sink: int) -> list[int] | None:
        """The arcs of a shortest path with room, from the sink back; None if there is none."""
        by: dict[int, int] = {source: -1}
        self._reached = [source]
        for vertex in self._reached:
            self.steps += len(self._leaving[vertex])
            for arc in self._leaving[vertex]:
                head = self._head[arc]
                if head in by or not self._room[arc]:
                    continue
                by[head] = arc
                self._reached.append(head)
                if head == sink:
                    return self._back(by, sink)
        return None

    def _back(self, by: dict[int, int], sink: int) -> list[int]:
        path, vertex = [], sink
        while (arc := by[vertex]) >= 0:
            path.append(arc)
            vertex = self._head[arc ^ 1]
        return path
