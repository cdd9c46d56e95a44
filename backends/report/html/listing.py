"""Code of a program, rank by rank; ranks with equal code are listed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.dsl.nouns.program import Block, Buffer, Instr, Program, RankProgram, Slice

from ...formats.listings import rank_lines
from .chunks import runs

MOST_CHARACTERS = 150_000
"""Largest number of characters in all listings of a page."""


def listing(program: Program, most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """Return the facts of the section: parts with title and text, and notes on omissions."""
    groups = same_ranks(program)
    parts, used, left = [], 0, []
    for first, members in groups:
        text = "\n".join(rank_lines(program.ranks[first])) or "  nothing"
        if used + len(text) > most:
            left += members
            continue
        used += len(text)
        parts.append({"title": _title(first, members, program), "text": text})
    notes = []
    if left:
        notes.append(
            f"the code of ranks {runs(left)} is left out, as the page would be too large; "
            "weft show prints all of it"
        )
    return {"parts": parts, "notes": notes}


def _title(first: int, members: list[int], program: Program) -> str:
    rank = program.ranks[first]
    size = f"{len(rank.blocks)} thread blocks, {sum(len(b.code) for b in rank)} instructions"
    others = [r for r in members if r != first]
    if not others:
        return f"rank {first}: {size}"
    what = "with peers and chunk offsets shifted round by as many ranks"
    ranks = f"rank{'s' if len(others) > 1 else ''} {runs(others)}"
    return f"rank {first}: {size}; {ranks} the same, {what}"


def same_ranks(program: Program) -> list[tuple[int, list[int]]]:
    """Return groups of ranks whose code is the same when all rank numbers are shifted.

    Each is (first rank, all ranks).
    """
    groups: dict[RankProgram, list[int]] = {}
    count = len(program.ranks)
    for r, rank in enumerate(program.ranks):
        groups.setdefault(_shifted(rank, r, count), []).append(r)
    return [(ranks[0], ranks) for ranks in groups.values()]


def _shifted(rank: RankProgram, r: int, count: int) -> RankProgram:
    """Return the code with ranks shifted as if it were rank 0's."""
    size = {Buffer.INPUT: rank.input_chunks, Buffer.OUTPUT: rank.output_chunks}

    def peer(other: int | None) -> int | None:
        return None if other is None else (other - r) % count

    def place(one: Slice) -> Slice:
        whole = size.get(one.buffer, 0)
        if whole % count or not whole:
            return one
        return Slice(one.buffer, (one.offset - r * (whole // count)) % whole)

    blocks = tuple(
        Block(b.channel, peer(b.send), peer(b.recv), _each(b.code, place)) for b in rank.blocks
    )
    return replace(rank, blocks=blocks)


def _each(code: tuple[Instr, ...], place: Callable[[Slice], Slice]) -> tuple[Instr, ...]:
    return tuple(replace(x, src=place(x.src), dst=place(x.dst)) for x in code)
