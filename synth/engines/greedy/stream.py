"""Allgather for tens of thousands of ranks: transfers as a stream, never all in memory.

40 000 ranks need 1.6 billion transfers. They are made in blocks, replayed by an independent judge
(:mod:`.check`) while the next block is made, and optionally written. Memory: four bits per rank and
chunk (two of the matcher, two of the judge), and two or three blocks.

The folder that :func:`run` writes holds ``header.json`` and raw little-endian columns:
``ticks.i8`` and ``counts.i4`` (transfers that begin at each tick, ascending), ``links.u4`` and
``chunks.u2`` or ``chunks.u4`` (one entry per transfer: over which link of the topology, which
chunk). The header has ``weft`` = "stream", ``schema``, ``topology`` (as in other files),
``pieces`` per rank, ``chunk_bytes`` (a rational, as text), ``unit`` (ticks in a µs), ``transfers``,
``time_us``, ``seed`` and ``verified``. Chunk ``r * pieces + k`` is piece k of rank r.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import SCHEMA, parse_json, read_text, write_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

from ...fabric.hop_table import HopTable, hop_table_of
from .check import StreamCheck
from .demand import allgather_tables
from .matching import delays, match_events, match_grid
from .plan import BLOCK, TransferBlock

GIB = 1 << 30


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream in progress: its machine and message, and its blocks (to be read once)."""

    topology: Topology
    machine: HopTable
    pieces: int
    chunk_bytes: Fraction
    seed: int
    blocks: Iterator[TransferBlock]


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Result of making, and judging, a stream."""

    transfers: int  # number of transfers
    time_us: float  # arrival of the last transfer in µs, by the judge's clock
    bound_us: float  # lower bound on any allgather of this message in µs (ingress_bound_us)
    verified: bool  # True if the judge accepted the stream; problem is the reason if not
    problem: str
    peak_bytes: int  # peak memory of this process so far, in bytes

    @property
    def of_bound(self) -> float:
        """Time over bound: 1 is perfect."""
        return self.time_us / self.bound_us if self.bound_us else 1.0


def stream(
    topology: Topology,
    message_bytes: int,
    *,
    pieces: int = 1,
    seed: int = 0,
    memory: int = 8 * GIB,
    block: int = BLOCK,
) -> Stream:
    """An allgather of M bytes (the output of a rank), each rank's part in ``pieces`` chunks.

    Raises:
        UserError: nodes that only forward (a schedule of :class:`.Greedy`
            may have them), nothing to move, or more memory needed than allowed.
    """
    if len(topology.nodes) != topology.ranks:
        raise UserError(
            f"{topology.name} has nodes that only forward; streams are for links between GPUs",
            hint="weft synth -e greedy",
        )
    if topology.ranks < 2 or message_bytes < 1 or pieces < 1:
        raise UserError("nothing has to move", hint="two ranks, one byte and one piece at least")
    require_memory(topology.ranks, topology.ranks * pieces, memory, 4, 3 * 20 * block)
    chunk_bytes = Fraction(message_bytes, topology.ranks * pieces)
    machine = hop_table_of(topology, chunk_bytes)
    bits = allgather_tables(topology.ranks, pieces, seed)
    if machine.uniform:
        delay, step = _delay(machine, pieces)
        blocks = match_grid(machine, bits, delay, step, seed, block=block)
    else:
        blocks = match_events(machine, bits, seed, block=block)
    return Stream(topology, machine, pieces, chunk_bytes, seed, blocks)


def require_memory(ranks: int, chunks: int, memory: int, tables: int, other: int) -> None:
    """Refuse before anything is allocated.

    Raises:
        UserError: ``tables`` bits per rank and chunk and ``other`` bytes are more than allowed.
    """
    needed = tables * ranks * ((chunks + 63) // 64) * 8 + other
    if needed > memory:
        raise UserError(
            f"{ranks} ranks and {chunks} chunks need {needed / GIB:.2f} GiB, "
            f"{memory / GIB:.2f} GiB are allowed",
            hint="fewer chunks, or a larger memory",
        )


def _delay(machine: HopTable, pieces: int) -> tuple[int, int]:
    """Of the grids that make sense the one that should be quicker: each delay costs some steps."""
    least = np.bincount(machine.dst, minlength=machine.ranks).min()
    steps = machine.ranks * pieces / max(1, int(least))
    return min(delays(machine), key=lambda grid: (steps + 2 * (grid[0] - 1)) * grid[1])


def ingress_bound_us(topology: Topology, message_bytes: int) -> float:
    """No allgather is quicker: some rank must receive M·(1 - 1/N) over the links into it.

    What comes over a link has arrived its α after the link was last busy, so that the least α of
    the links into that rank comes on top.
    """
    into = [Fraction(0)] * topology.ranks
    delay: list[Fraction | None] = [None] * topology.ranks
    for link in topology.links:
        into[link.dst] += link.bandwidth
        known = delay[link.dst]
        delay[link.dst] = link.latency if known is None else min(known, link.latency)
    parts = Fraction(message_bytes * (topology.ranks - 1), topology.ranks) / 1000
    return float(max(parts / b + (a or 0) for a, b in zip(delay, into, strict=True)))


def run(source: Stream, folder: str | Path | None = None, *, check: bool = True) -> StreamReport:
    """Make all blocks, judge each while the next one is made, and write them if a folder is named.

    Raises:
        BadFile: the folder is there already. OSError: it cannot be written.
    """
    judge = StreamCheck(source.topology, source.pieces, source.chunk_bytes, source.machine.unit)
    transfers = end = 0
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        files = stack.enter_context(_Files(Path(folder), source)) if folder is not None else None
        judged: Future[bool] | None = None
        for block in source.blocks:
            if files:
                files.add(block)
            transfers += len(block)
            if not check:
                arrival = block.start + source.machine.arrives[block.hop]
                end = max(end, int(arrival.max(initial=0)))
                continue
            if judged is not None and not judged.result():
                break
            judged = pool.submit(judge.feed, block)
    verdict = judge.finish() if check else None
    message = int(source.chunk_bytes * source.topology.ranks * source.pieces)
    report = StreamReport(
        transfers,
        source.machine.us(verdict.end if verdict else end),
        ingress_bound_us(source.topology, message),
        bool(verdict and verdict.ok),
        verdict.problem if verdict else "not judged",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )
    if folder is not None:
        header = {
            "weft": "stream",
            "schema": SCHEMA,
            "topology": source.topology.to_json(),
            "pieces": source.pieces,
            "chunk_bytes": str(source.chunk_bytes),
            "unit": source.machine.unit,
            "seed": source.seed,
            "transfers": report.transfers,
            "time_us": report.time_us,
            "verified": report.verified,
        }
        write_text(Path(folder) / "header.json", json.dumps(header) + "\n")
    return report


class _Files:
    def __init__(self, folder: Path, source: Stream) -> None:
        if folder.exists():
            raise BadFile("there is something already", where=str(folder))
        folder.mkdir(parents=True)
        self._types = _types(source.topology.ranks * source.pieces)
        self._open = ExitStack()
        self._columns: dict[str, BinaryIO] = {
            name: self._open.enter_context(open(folder / f"{name}.{kind[1:]}", "xb"))
            for name, kind in self._types.items()
        }

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, block: TransferBlock) -> None:
        columns = {
            "ticks": block.ticks,
            "counts": block.counts,
            "links": block.hop,
            "chunks": block.chunk,
        }
        for name, column in columns.items():
            self._columns[name].write(np.ascontiguousarray(column, self._types[name]).data)


def _types(chunks: int) -> dict[str, str]:
    return {
        "ticks": "<i8",
        "counts": "<i4",
        "links": "<u4",
        "chunks": "<u2" if chunks <= 1 << 16 else "<u4",
    }


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a stream's folder; ``verified`` and ``time_us`` as judged when it was made."""

    topology: Topology
    pieces: int
    unit: int
    chunk_bytes: Fraction
    seed: int
    transfers: int
    time_us: float
    verified: bool

    @property
    def message_bytes(self) -> int:
        """The message it was made for, in bytes: every rank has it in the end."""
        return int(self.chunk_bytes * self.topology.ranks * self.pieces)

    @property
    def bound_us(self) -> float:
        """No allgather of this message is quicker."""
        return ingress_bound_us(self.topology, self.message_bytes)


def read_header(folder: str | Path) -> Header:
    """The header of the stream in a folder, which is read no further.

    Raises:
        BadFile: no such folder, or no stream in it.
    """
    folder = Path(folder)
    try:
        data: Any = parse_json(read_text(folder / "header.json"), str(folder))
        if data.get("weft") != "stream" or data.get("schema") != SCHEMA:
            raise BadFile("no stream, or one of another version", where=str(folder))
        return Header(
            Topology.from_json(data["topology"], str(folder)),
            int(data["pieces"]),
            int(data["unit"]),
            Fraction(data["chunk_bytes"]),
            int(data["seed"]),
            int(data["transfers"]),
            float(data["time_us"]),
            bool(data["verified"]),
        )
    except (AttributeError, ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise BadFile(f"no stream: {error}", where=str(folder)) from None


def read(folder: str | Path, *, block: int = BLOCK) -> tuple[StreamCheck, Iterator[TransferBlock]]:
    """A judge for the stream in a folder, and its blocks: feed the one with the others.

    Raises:
        BadFile: no such folder, or its files do not fit together.
    """
    folder = Path(folder)
    head = read_header(folder)
    try:
        kinds = _types(head.topology.ranks * head.pieces)
        columns = {
            name: _column(folder / f"{name}.{kind[1:]}", kind) for name, kind in kinds.items()
        }
    except (OSError, ValueError) as error:
        raise BadFile(f"no stream: {error}", where=str(folder)) from None
    counts = columns["counts"]
    if len(counts) != len(columns["ticks"]) or int(counts.sum()) != len(columns["links"]):
        raise BadFile("columns of different lengths", where=str(folder))
    return StreamCheck(head.topology, head.pieces, head.chunk_bytes, head.unit), _split_blocks(
        columns, block
    )


def _column(path: Path, kind: str) -> Any:
    """A column, mapped and not read; an empty file cannot be mapped."""
    return np.memmap(path, kind, "r") if os.path.getsize(path) else np.zeros(0, kind)


def _split_blocks(columns: dict[str, Any], block: int) -> Iterator[TransferBlock]:
    ends = np.cumsum(columns["counts"], dtype=np.int64)
    begin, done = 0, 0
    while begin < len(ends):
        stop = max(begin + 1, int(np.searchsorted(ends, done + block, side="right")))
        upto = int(ends[stop - 1])
        yield TransferBlock(
            np.array(columns["ticks"][begin:stop], np.int64),
            np.array(columns["counts"][begin:stop], np.int64),
            np.array(columns["links"][done:upto], np.int64),
            np.array(columns["chunks"][done:upto], np.int64),
        )
        begin, done = stop, upto
