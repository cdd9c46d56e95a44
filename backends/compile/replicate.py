"""Instances of a program side by side, from the program of one.

Passes treat the instances of a flow alike: each has channels, blocks and slots of its own. So the
program of n instances is n times that of one, at other addresses (:mod:`.passes.instances`), and
need not be compiled again to be timed. Only scratch may be laid out more tightly by the passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.program import ABSENT, Program, offsets
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.slots import SCRATCH

from .compile import sizes
from .passes.instances import unit_of

_SCRATCH = SCRATCH >> 32


def replicated(program: Program, count: int, target: Target) -> Program | None:
    """Return a program of ``count`` instances, batched, or None if it is not that of one repeated.

    That is where the target has too few channels or thread blocks, so that the passes would share
    them, or where an instruction moves neighbours that instances tear apart.
    """
    if count == 1:
        return program
    if not _fits(program, count, target):
        return None
    # Blocks as the passes number them: by rank, those without peers last, by instance.
    unit = unit_of(program.collective)
    columns = ((program.src_buffer, program.src_offset), (program.dst_buffer, program.dst_offset))
    number = np.tile(np.arange(program.blocks), count)
    copy = np.repeat(np.arange(count), program.blocks)
    local = (program.block_send == ABSENT) & (program.block_recv == ABSENT)
    order = np.lexsort((number, copy, local[number], program.block_rank[number]))
    number, copy = number[order], copy[order]
    start, row = rows_of(program.block_start, number)
    lengths = np.diff(start)
    instance, rank = np.repeat(copy, lengths), program.rank[row]
    wait_start, wait = rows_of(program.wait_start, row)
    waits = np.diff(wait_start)
    place = np.empty((count, program.blocks), np.int64)
    place[copy, number] = np.arange(len(number))
    named = place[np.repeat(instance, waits), program.wait_block[wait]]
    first = program.first_block[np.repeat(rank, waits)] * count
    scratch = program.chunks[rank, _SCRATCH]

    def moved(buffer: Ints, at: Ints) -> Ints:
        user = at // unit * unit * count + instance * unit + at % unit
        return np.where(buffer == _SCRATCH, at + instance * scratch, user)

    (source, source_at), (to, to_at) = ((buffer[row], at[row]) for buffer, at in columns)
    collective = program.collective.split(count)
    return replace(
        program,
        collective=collective,
        message_chunks=collective.message_chunks,
        chunks=program.chunks * count,
        block_rank=program.block_rank[number],
        block_channel=program.block_channel[number] + copy * program.channels * ~local[number],
        block_send=program.block_send[number],
        block_recv=program.block_recv[number],
        block_start=offsets(lengths),
        op=program.op[row],
        src_buffer=source,
        src_offset=moved(source, source_at),
        dst_buffer=to,
        dst_offset=moved(to, to_at),
        count=program.count[row],
        wait_start=wait_start,
        wait_id=named - first,
        wait_flag=program.wait_flag[wait],
    )


def repeated(make: Callable[[int], Program], count: int, target: Target) -> Program:
    """Return a program of ``count`` instances: that of one, repeated if it can be.

    ``make``: compiles it with a number of instances.
    """
    return replicated(make(1), count, target) or make(count)


def has_room(program: Program, count: int, target: Target) -> bool:
    """Return True if the target has channels and blocks for ``count`` instances of a program."""
    _, blocks = sizes(program)
    return program.channels * count <= target.used_channels and blocks * count <= target.max_blocks


def _fits(program: Program, count: int, target: Target) -> bool:
    """Return True if instances share no channel or block, and tear no neighbours apart."""
    unit = unit_of(program.collective)
    columns = ((program.src_buffer, program.src_offset), (program.dst_buffer, program.dst_offset))
    torn = any(
        ((at % unit + program.count > unit) & (buffer != _SCRATCH)).any() for buffer, at in columns
    )
    return not torn and has_room(program, count, target)
