"""Programs and algorithms as listings, and as the sheets that ``weft diff`` compares."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import LONGEST, count, facts, listing
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.program import Instr, Program, RankProgram, Slice, dump
from weft.dsl.nouns.slots import NONE, slice_of

if TYPE_CHECKING:
    from .msccl.read.model import XmlAlgo, XmlTransfer

Value = str | int | float | bool | None
Sheet = Mapping[str, Value]
Sheets = Mapping[str, Sheet]
"""Named tables of rows, each row one value, which ``weft diff`` compares."""


def xml_text(algo: XmlAlgo) -> str:
    """Facts, objections of runtimes, then the code of every thread block."""
    low, high = algo.min_bytes, algo.max_bytes
    head = facts(
        [
            ("program", algo.name),
            ("collective", algo.coll),
            ("ranks", algo.ngpus),
            ("message", count(algo.message_chunks, "chunk")),
            ("valid", " and ".join("in place" if p else "out of place" for p in algo.placements)),
            ("sizes", f"{low} … {high} bytes" if low is not None or high is not None else ""),
            ("protocol", algo.protocol),
            ("channels", algo.channels),
            ("steps", algo.steps),
        ]
    )
    lines = [f"remark: {remark}" for remark in algo.remarks]
    for rank in algo.ranks:
        lines += _rank(rank.id, (rank.input_chunks, rank.output_chunks, rank.scratch_chunks))
        for block in rank.blocks:
            lines.append(_block_head(block.id, block.channel, block.send, block.recv))
            lines += (f"    {one.step:3} {instruction_text(one)}" for one in block.transfers)
    return listing(head, lines)


def program_text(program: Program) -> str:
    """Facts, then the code of every thread block; waits are block.instruction."""
    head = facts(
        [
            ("program", program.name),
            ("collective", program.collective),
            ("message", count(program.message_chunks, "chunk")),
            ("valid", "in place" if program.in_place else "out of place"),
            ("protocol", program.protocol),
            ("channels", program.channels),
            ("instructions", program.instructions),
        ]
    )
    lines = []
    for number, rank in enumerate(program.ranks):
        lines += _rank(number, (rank.input_chunks, rank.output_chunks, rank.scratch_chunks))
        lines += rank_lines(rank)
    return listing(head, lines)


def rank_lines(rank: RankProgram) -> list[str]:
    """Return the code of every thread block of a rank."""
    lines = []
    for at, block in enumerate(rank):
        ends = (NONE if peer is None else peer for peer in (block.send, block.recv))
        lines.append(_block_head(at, block.channel, *ends))
        lines += [f"    {i:3} {instruction_text(one)}" for i, one in enumerate(block.code)]
    return lines


def algorithm_text(algorithm: Algorithm) -> str:
    """Facts, then a line per move, in order."""
    moves = algorithm.moves
    head = facts(
        [
            ("algorithm", algorithm.name),
            ("collective", algorithm.collective),
            ("valid", "in place" if algorithm.in_place else "out of place"),
            ("protocol", algorithm.protocol),
            ("instances", algorithm.instances),
            ("scratch", "at most " + count(max(algorithm.scratch, default=0), "chunk")),
            ("moves", len(moves)),
        ]
    )
    columns = (moves.chunk, moves.src, moves.source, moves.dst, moves.target, moves.operand)
    shown = zip(*(column[: LONGEST + 1].tolist() for column in columns), strict=True)
    lines = ["", *(move_text(*row) for row in shown)]
    hidden = len(moves) - LONGEST
    if hidden > 0:
        lines[LONGEST + 1 :] = [f"… and {hidden} more moves"]
    return head + "\n" + "\n".join(lines)


def move_text(chunk: int, src: int, source: int, dst: int, target: int, operand: int) -> str:
    """One move: ranks with the slices of their buffers, the summand, and the chunk."""
    ends = [
        f"{rank:3} {_slice(slice_of(slot)):<7}" for rank, slot in ((src, source), (dst, target))
    ]
    adds = "" if operand == NONE else f" + {_slice(slice_of(operand))}"
    return f"  {ends[0]} -> {ends[1]}{adds:<11}chunk {chunk}".rstrip()


def _rank(number: int, sizes: tuple[int, int, int]) -> list[str]:
    given, made, scratch = sizes
    return ["", f"rank {number}: input {given}, output {made}, scratch {count(scratch, 'chunk')}"]


def _block_head(number: int, channel: int, send: int, recv: int) -> str:
    peers = "".join(
        f"  {word} {peer}" for word, peer in (("to", send), ("from", recv)) if peer >= 0
    )
    return f"  block {number}  channel {channel}{peers}"


def instruction_text(one: XmlTransfer | Instr) -> str:
    """``rcs  o[3] -> o[3]     x1  after 0.2``: operation, chunks, and their number."""
    source = _slice(one.src) if one.op.reads_src else ""
    target = f"-> {_slice(one.dst)}" if one.op.writes_dst else ""
    waits = " ".join(f"{block}.{step}" for block, step in one.waits)
    text = f"{one.op:<4} {f'{source} {target}'.strip():<16} x{one.count}"
    return f"{text}  after {waits}" if waits else text


def _slice(place: Slice) -> str:
    return f"{place.buffer}[{place.offset}]"


# --- sheets ---------------------------------------------------------------------------------------


def program_sheets(p: Program) -> dict[str, Sheet]:
    """Facts, how many instructions of each kind there are, and the code."""
    facts: dict[str, Value] = {
        "program": p.name,
        "collective": str(p.collective),
        "ranks": len(p.ranks),
        "message chunks": p.message_chunks,
        "in place": p.in_place,
        "protocol": str(p.protocol),
        "channels": p.channels,
        "thread blocks": sum(len(r.blocks) for r in p.ranks),
        "instructions": p.instructions,
        "scratch chunks": max((r.scratch_chunks for r in p.ranks), default=0),
        "digest": digest_of(json.dumps(dump(p))),
    }
    blocks = {
        f"rank {rank} block {i}": (f"channel {b.channel}, to {b.send}, from {b.recv}", b.code)
        for rank, r in enumerate(p.ranks)
        for i, b in enumerate(r.blocks)
    }
    return _code_sheets(facts, blocks)


def xml_sheets(x: XmlAlgo) -> dict[str, Sheet]:
    """Return the sheets of an MSCCL file, with its own numbers."""
    facts: dict[str, Value] = {
        "program": x.name,
        "collective": x.coll,
        "ranks": x.ngpus,
        "message chunks": x.message_chunks,
        "in place": ", ".join("yes" if p else "no" for p in x.placements),
        "protocol": str(x.protocol),
        "channels": x.channels,
        "sizes": f"{x.min_bytes} … {x.max_bytes}",
        "thread blocks": sum(len(r.blocks) for r in x.ranks),
        "steps": x.steps,
        "scratch chunks": max((r.scratch_chunks for r in x.ranks), default=0),
        "remarks": "; ".join(remark.message for remark in x.remarks) or None,
        "digest": digest_of(json.dumps(astuple(replace(x, where="", remarks=())))),
    }
    blocks = {
        f"rank {r.id} block {b.id}": (
            f"channel {b.channel}, to {b.send}, from {b.recv}",
            b.transfers,
        )
        for r in x.ranks
        for b in r.blocks
    }
    return _code_sheets(facts, blocks)


def _code_sheets(
    facts: Mapping[str, Value], blocks: Mapping[str, tuple[str, Sequence[Any]]]
) -> dict[str, Sheet]:
    kinds = Counter(str(one.op) for _, code in blocks.values() for one in code)
    return {
        "facts": facts,
        "instructions of a kind": dict(sorted(kinds.items())),
        "blocks": {
            name: f"{len(code)} instructions, {ends}" for name, (ends, code) in blocks.items()
        },
        "code": {
            f"{name} step {i}": " ".join(instruction_text(one).split())
            for name, (_, code) in blocks.items()
            for i, one in enumerate(code)
        },
    }


def digest_of(text: str) -> str:
    """Return a digest that separates texts whose listings are equal."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
