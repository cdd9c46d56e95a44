"""Check addresses: every chunk that a transfer touches must exist, counts included.

Two sizes matter: what the file *declares* (the parsers test offsets against it, without the
count), and what the caller really *allocates* for the collective.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import BUFFERS, NOP, OPS, READS_SRC, WRITES_DST, Code, Program

from .findings import Finding, at_transfers

_CHECKED_SRC = np.array([str(op) in ("s", "rrs", "rrcs", "cpy", "re") for op in OPS])
_CHECKED_DST = np.array([str(op) in ("r", "rcs", "rrcs", "cpy", "re") for op in OPS])


@dataclass(frozen=True)
class CallerBuffers:
    """The caller's buffers.

    Attributes:
        size: shape (ranks, 3), chunks of i, o, s that are really there.
        shift: input chunk k is output chunk k + shift, in place; shape (ranks,).
        in_place: whether the buffers are ever called in place.
    """

    size: Ints
    shift: Ints
    in_place: bool = False


def buffers_of_program(program: Program) -> CallerBuffers:
    """Return the buffers of the program's collective, cut into the program's chunks."""
    c = program.collective
    pieces = max(1, program.message_chunks // c.message_chunks)
    size = np.array([(0, 0, r.scratch_chunks) for r in program.ranks], np.int64).reshape(-1, 3)
    size[:, 0] = c.input_chunks * pieces
    size[:, 1] = c.output_chunks * pieces
    shift = [c.in_place_shift(r) * pieces for r in range(len(program.ranks))]
    return CallerBuffers(size, np.array(shift, np.int64), program.in_place)


def bounds(code: Code, buffers: CallerBuffers) -> list[Finding]:
    """Accesses outside the declared or the existing chunks."""
    rank = code.block_rank[code.block]
    found: list[Finding] = []
    for transfer, buffer, offset, checked in _accesses(code):
        where, count = rank[transfer], code.count[transfer]
        declared = code.chunks[where, buffer]
        real = buffers.size[where, buffer]
        # The parsers look at the first chunk only, and at some sides only.
        rejected = checked & ((offset < 0) | (offset >= declared))
        outside = (offset < 0) | (offset + count > real)
        outside &= ~rejected
        for bad, limit, word in ((rejected, declared, "declared"), (outside, real, "there")):
            where = np.flatnonzero(bad)
            found += _report(code, transfer, buffer, offset, where, limit, word)
    return found + _overlaps(code, buffers)


def _report(
    code: Code, transfer: Ints, buffer: Ints, offset: Ints, bad: Ints, limit: Ints, word: str
) -> list[Finding]:
    def message(k: int) -> str:
        j = bad[k]
        first, count = int(offset[j]), int(code.count[transfer[j]])
        shown = f"{first}" if count <= 1 else f"{first} … {first + count - 1}"
        name = BUFFERS[buffer[j]]
        return f"addresses {name}[{shown}], but {limit[j]} chunks of {name!s} are {word}"

    kind = "offset-rejected" if word == "declared" else "offset-beyond"
    return at_transfers("bounds", code, transfer[bad], message, kind=kind)


def _overlaps(code: Code, buffers: CallerBuffers) -> list[Finding]:
    """Steps that read some of the chunks they write, shifted: chunk by chunk or all at once?"""
    op, some = code.op, code.count > 1
    block = code.block
    both = READS_SRC[op] & WRITES_DST[op] & some
    more = np.repeat(np.arange(code.instructions), np.diff(code.more_start))
    owner = np.concatenate([np.flatnonzero(both), more[some[more]]])
    source = np.concatenate([code.src_offset[both], code.more_offset[some[more]]])
    rank = code.block_rank[block[owner]]
    apart = source - code.dst_offset[owner]
    src, dst = code.src_buffer[owner], code.dst_buffer[owner]
    near = (src == dst) & (apart != 0) & (np.abs(apart) < code.count[owner])
    if buffers.in_place:
        user = (src < 2) & (dst < 2) & (src != dst)
        shift = np.where(src == 0, buffers.shift[rank], -buffers.shift[rank])
        near |= user & (apart + shift != 0) & (np.abs(apart + shift) < code.count[owner])
    text = "its source and destination overlap: the result depends on how the message is cut"
    return at_transfers("bounds", code, distinct_values(owner[near]), text, kind="overlap")


def _accesses(code: Code) -> list[tuple[Ints, Ints, Ints, Bools]]:
    """(transfer, buffer, offset, tested by the parsers) of sources, fused sources, destinations."""
    op = code.op
    moves = (code.count > 0) & (op != NOP)
    src = np.flatnonzero(READS_SRC[op] & moves)
    dst = np.flatnonzero(WRITES_DST[op] & moves)
    more = np.repeat(np.arange(code.instructions), np.diff(code.more_start))
    return [
        (src, code.src_buffer[src], code.src_offset[src], _CHECKED_SRC[op[src]]),
        (more, code.src_buffer[more], code.more_offset, np.ones(len(more), bool)),
        (dst, code.dst_buffer[dst], code.dst_offset[dst], _CHECKED_DST[op[dst]]),
    ]
