"""Convert a file to a Program: its transfers as instructions.

Files that other tools wrote enter here: they can then be shown, passed through passes, and
emitted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.dsl.base.errors import BadFile
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Block, Instr, Op, Program, RankProgram, Slice

from .model import XmlAlgo, XmlBlock, XmlRank, XmlTransfer


def program_of(algo: XmlAlgo, collective: Collective, *, in_place: bool | None = None) -> Program:
    """Return the program of a file for a collective in the file's chunks.

    A fused ``re`` becomes one instruction per source, a transfer of no chunks a NOP, and a flag
    value the first instruction that publishes at least it. ``in_place``: by default what the file
    claims first.

    Raises:
        BadFile: a dependence that nothing satisfies, or thread blocks that are not numbered 0, 1 …
    """
    ranks = tuple(_rank(algo, r) for r in algo.ranks)
    placed = algo.placements[0] if in_place is None else in_place
    return Program.of(algo.name, collective, ranks, algo.message_chunks, placed, algo.protocol)


def _rank(algo: XmlAlgo, rank: XmlRank) -> RankProgram:
    blocks = sorted(rank.blocks, key=lambda b: b.id)
    if [b.id for b in blocks] != list(range(len(blocks))):
        raise BadFile(f"rank {rank.id}: tb ids are not 0, 1, 2 …", where=algo.where)
    published = {b.id: list(_published(b)) for b in blocks}

    def waits(transfer: XmlTransfer) -> Iterator[tuple[int, int]]:
        for block, flag in transfer.waits:
            at = next((i for value, i in published.get(block, ()) if value >= flag), None)
            if at is None:
                raise BadFile(
                    f"rank {rank.id}: step {transfer.step} waits for step {flag} of tb {block}, "
                    "which publishes nothing from there on",
                    where=algo.where,
                )
            yield block, at

    return RankProgram(
        tuple(
            Block(
                b.channel,
                b.send if b.send >= 0 else None,
                b.recv if b.recv >= 0 else None,
                tuple(i for t in b.transfers for i in _instructions(t, tuple(waits(t)))),
            )
            for b in blocks
        ),
        rank.input_chunks,
        rank.output_chunks,
        max(0, rank.scratch_chunks),
    )


def _published(block: XmlBlock) -> Iterator[tuple[int, int]]:
    """(flag value, index of the last instruction of the transfer), ascending."""
    index = -1
    for transfer in block.transfers:
        index += 1 + len(transfer.more_sources)
        if transfer.publishes:
            yield transfer.flag, index


def _instructions(t: XmlTransfer, waits: tuple[tuple[int, int], ...]) -> Iterator[Instr]:
    op = t.op if t.count > 0 else Op.NOP
    yield Instr(op, t.src, t.dst, max(t.count, 0), waits)
    for offset in t.more_sources:
        yield Instr(op, Slice(t.src.buffer, offset), t.dst, max(t.count, 0))
