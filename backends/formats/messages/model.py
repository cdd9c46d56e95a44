"""Message graphs: sends, receives and sums of every rank, and the predecessors of each.

A node holds one value, a chunk or a sum of chunks. A send passes on the value of the one node that
it needs (or of an input), a receive holds what its message brings, a sum adds the values of all
that it needs. So a value is never overwritten, and no order of nodes can change a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of message graphs, and the cost of a sum in their simulators."""

    nodes: int = 4_000_000  # of a file set; simulators read no more
    messages: int = 1_000_000  # of a file, and of the schedule that is timed beside it
    sum_traffic: int = 3  # times the bytes of a sum through local memory: two reads and a write


LIMITS = MessageLimits()


class GraphNodeKind(StrEnum):
    """Kinds of nodes."""

    SEND = "send"
    RECV = "recv"
    SUM = "sum"
    TURN = "turn"
    """Holds no value: it only puts sends in order."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of a rank; others of the rank are named by their position.

    Attributes:
        bytes: of the message, or of the sum.
        peer, tag: of a message; -1 for sums.
        needs: nodes that must be over first, whose values it takes.
        waits: nodes that must be over first, for the order alone.
        after: nodes that must have started first.
        inputs: offsets in the rank's input whose values it takes.
        outputs: offsets in the rank's output where its value ends.
        ps: picoseconds that a sum takes.
        port: of a message, the number of the rank's port.
        route: of a send, the links that its message takes; (): the fastest ones.
    """

    kind: GraphNodeKind
    bytes: int = 0
    peer: int = -1
    tag: int = -1
    needs: tuple[int, ...] = ()
    waits: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    ps: int = 0
    port: int = 0
    route: tuple[int, ...] = ()

    @property
    def local(self) -> bool:
        """True for computations: nodes that neither send nor receive."""
        return self.kind not in (GraphNodeKind.SEND, GraphNodeKind.RECV)


@dataclass(frozen=True, slots=True)
class MessageGraph:
    """The nodes of all ranks.

    Attributes:
        ranks: the nodes of each rank.
        collective: that of the messages; None: the files do not name it.
        message_bytes: the size of the message; 0: unknown.
        copies: for each rank pairs (offset in the input, offset in the output) of what a rank
            has from the start and must end with.
        flags: L, G, units of time in a µs, and the digest of the machine, for which bytes of
            messages are scaled (GOAL); None: bytes are bytes.
    """

    name: str
    ranks: tuple[tuple[GraphNode, ...], ...]
    collective: Collective | None = None
    message_bytes: int = 0
    copies: tuple[tuple[tuple[int, int], ...], ...] = ()
    flags: tuple[int, int, int, str] | None = None

    def nodes(self) -> Iterator[tuple[int, int, GraphNode]]:
        """Rank, position and node, in the order of the ranks."""
        for rank, own in enumerate(self.ranks):
            for place, node in enumerate(own):
                yield rank, place, node

    def count(self, kind: GraphNodeKind) -> int:
        """Return the number of nodes of a kind."""
        return sum(node.kind is kind for own in self.ranks for node in own)


Key = tuple[int, int, int]
"""Source, destination and tag of a message."""


def key_of(rank: int, node: GraphNode) -> Key:
    """Return source, destination and tag of the message that a node is an end of."""
    ends = (rank, node.peer) if node.kind is GraphNodeKind.SEND else (node.peer, rank)
    return (*ends, node.tag)


def copies_of(rows: Any, where: str) -> tuple[tuple[int, int], ...]:
    """Return pairs of offsets from JSON.

    Raises:
        BadFile: they are not.
    """
    if not isinstance(rows, list) or not all(
        isinstance(row, list)
        and len(row) == 2
        and all(type(x) is int and 0 <= x < 1 << 31 for x in row)
        for row in rows
    ):
        raise BadFile("copies must be pairs of offsets", where=where)
    return tuple((a, b) for a, b in rows)
