"""A slot: one chunk's place in one buffer of a rank, as one integer.

``buffer << 32 | offset``, so that consecutive chunks are consecutive integers and whole columns of
slots can be compared at once.

>>> slice_of(OUTPUT + 3)
Slice(buffer=<Buffer.OUTPUT: 'o'>, offset=3)
"""

from __future__ import annotations

from .program import Buffer, Slice

BUFFERS = (Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH)
INPUT, OUTPUT, SCRATCH = (i << 32 for i in range(3))
BASE = {buffer: i << 32 for i, buffer in enumerate(BUFFERS)}

WIDE = 1 << 36
"""More than any slot: ``rank * WIDE + slot`` names a slot among all ranks."""

NONE = -1
"""No slot, no block, no channel."""


def slice_of(slot: int) -> Slice:
    """The buffer and offset of a slot."""
    return Slice(BUFFERS[slot >> 32], slot & 0xFFFFFFFF)


def slot_of(part: Slice) -> int:
    """The slot where a slice begins."""
    return BASE[part.buffer] + part.offset
