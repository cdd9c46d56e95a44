"""The judge of streams: replays the transfers of an allgather in order and checks each of them.

Its inputs are the machine and the number of chunks; it shares no code with the maker of streams.
Checks per transfer: the link exists; the link and its shared resources are free; the source holds
the chunk (initially or by an arrival); the destination neither holds it nor is about to receive
it. Starts must ascend. At the end every rank must hold every chunk.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ...fabric.fabric import fabric_of
from .plan import TransferBlock

LONGEST_QUEUE = 64
"""Chunks on one link at one time, at most; more means chunks too small for the α of the link."""

_WORDS = (
    "",
    "it names an unknown link",
    "it names an unknown chunk",
    "it starts before the one ahead of it",
    "the link, or something it shares, is busy",
    "the source does not hold the chunk yet",
    "the destination has the chunk already, or gets it over another link",
)


@dataclass(frozen=True, slots=True)
class StreamVerdict:
    """Result of a replay. ``problem``: the first fault, as text; ``end``: the last arrival, in
    ticks.
    """

    ok: bool
    problem: str
    transfers: int
    end: int


class StreamCheck:
    """Replays an allgather of ``pieces`` chunks per rank: chunk ``r * pieces + k`` is of rank r.

    ``unit``: ticks in a µs; a link is busy for the time of ``chunk_bytes``, rounded up to ticks.

    Raises:
        UserError: nodes that only forward, or links that hold too many chunks at a time.
    """

    def __init__(self, topology: Topology, pieces: int, chunk_bytes: Fraction, unit: int) -> None:
        if len(topology.nodes) != topology.ranks:
            raise UserError("streams are checked on machines whose nodes are all GPUs")
        self.topology, self.chunks = topology, topology.ranks * pieces
        self._links, self._resources = _tables(topology, chunk_bytes, unit)
        first, _, ticks = self._resources
        hold = ticks[first[:-1]]  # the first resource of a link is the link itself
        depth = int((self._links[2] // np.maximum(hold, 1)).max(initial=0)) + 2
        if depth > LONGEST_QUEUE:
            raise UserError(
                f"{depth} chunks are on a link at one time", hint="use fewer, larger chunks"
            )
        count = len(topology.links)
        order = np.argsort(self._links[1], kind="stable")
        into = np.searchsorted(self._links[1][order], np.arange(topology.ranks + 1))
        self._into = (into.astype(np.int64), order.astype(np.int64))
        self._free = np.zeros(count + len(topology.resources), np.int64)
        self._held = np.zeros((topology.ranks, (self.chunks + 63) // 64), np.uint64)
        own = np.arange(self.chunks)
        bit = np.uint64(1) << (own & 63).astype(np.uint64)
        np.bitwise_or.at(self._held, (own // pieces, own >> 6), bit)
        self._due = self._held.copy()
        self._queue = np.zeros((count, depth, 2), np.int64)
        self._head = np.zeros(count, np.int64)
        self._last = np.zeros(2, np.int64)
        self._problem, self._transfers = "", 0

    def feed(self, block: TransferBlock) -> bool:
        """Replay the next block; False after the first fault (the rest is not checked)."""
        from .check_kernel import replay_block

        if self._problem:
            return False
        if len(block.ticks) != len(block.counts) or not (
            (block.counts >= 0).all() and block.counts.sum() == len(block.hop) == len(block.chunk)
        ):
            self._problem = "a block's columns do not fit together"
            return False
        place, wrong = replay_block(
            (block.ticks, block.counts, block.hop, block.chunk),
            self._links,
            self._into,
            self._resources,
            (self._free, self._held, self._due, self._queue, self._head, self._last),
            self.chunks,
        )
        if wrong:
            at = f"transfer {self._transfers + place} (link {block.hop[place]}, chunk "
            self._problem = f"{at}{block.chunk[place]}): {_WORDS[wrong]}"
            return False
        self._transfers += len(block)
        return True

    def finish(self) -> StreamVerdict:
        """Return the verdict after the last block."""
        from .check_kernel import lacking

        end = int(self._last[1])
        if not self._problem:
            many, rank, chunk = lacking(
                self._into, self._queue, self._head, self._held, end, self.chunks
            )
            if many:
                self._problem = f"{many} chunks are missing, first chunk {chunk} on rank {rank}"
        return StreamVerdict(not self._problem, self._problem, self._transfers, end)


def _tables(topology: Topology, chunk_bytes: Fraction, unit: int) -> tuple[Any, Any]:
    """Source, destination and ticks until arrival of links; (first, resource, ticks) they hold."""
    fabric = fabric_of(topology)
    ticks = [math.ceil(chunk_bytes * unit * slow) for slow in fabric.us_per_byte]
    arrives = [
        max(ticks[r] for r in held) + math.ceil(latency * unit)
        for held, latency in zip(fabric.loaded, fabric.latency, strict=True)
    ]
    links = np.stack([fabric.src, fabric.dst, _ints(arrives)])
    return links, (fabric.first, fabric.resource, _ints(ticks)[fabric.resource])


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)
