"""Views of a program at one size: activities of thread blocks over time, and use of links."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Op, Program
from weft.dsl.nouns.topology import Topology
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline, record_program
from weft.synth.time.program_time import ProgramSimulation
from weft.synth.time.routes import routes_of
from weft.synth.time.runtime_model import RuntimeModel

from .code import chunks_moved
from .lanes import MOST_BARS, TICKS, Bars, LaneRow, lane
from .loads import row_order, short_name
from .page import byte_words

FIRST_ACTIVITY = 2
"""First kind of bars for activities of thread blocks; before it are copies and sums."""

MOST_OPERATIONS = 12_000
"""Largest number of operations drawn; a smaller message makes fewer iterations of the loop."""


def record(
    program: Program, topology: Topology, message_bytes: int, model: RuntimeModel
) -> tuple[ProgramTimeline, list[str]]:
    """Return the operations of the largest message that can be drawn, halving the requested size.

    The second result holds notes for the reader.

    Raises:
        UserError: it is too large at any size, or does not run on the machine.
    """
    size = message_bytes
    while True:
        try:
            run = record_program(program, topology, size, model, most_operations=MOST_OPERATIONS)
            break
        except UserError:
            if size == 1 or model.cut(program, size).iterations == 1:
                raise
            size //= 2
    notes = []
    if size != message_bytes:
        notes.append(
            f"Thread blocks are drawn at {byte_words(size)}: at {byte_words(message_bytes)} "
            "the loop makes more turns than can be drawn."
        )
    if run.skipped:
        part = float(np.diff(run.skipped_us, axis=1).sum()) / run.time_us
        notes.append(
            f"{run.skipped:,} operations repeat those that are drawn, turn after turn: the gap in "
            f"the chart, {100 * part:.0f} % of the time."
        )
    return run, notes


def program_lanes(
    run: ProgramTimeline,
    *,
    of: int,
    links: bool,
    model: RuntimeModel,
    most: int = MOST_BARS,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return charts of thread blocks (and of links), and their table of items, which is number
    ``of``."""
    span, found = run.time_us, []
    number = _in_time(run)
    if links:
        found.append(
            lane(
                "Links and shared resources",
                "links",
                _link_rows(run),
                _held(run, number),
                span,
                most,
                row_order(run.topology),
            )
        )
    block = run.block[run.phase_of]
    bars = Bars(
        block,
        run.phase_start_us,
        run.phase_end_us - run.phase_start_us,
        number[run.phase_of],
        run.phase + FIRST_ACTIVITY,
    )
    sends = run.phase == Activity.SENDING
    o = run.table
    busy = np.bincount(block[sends], bars.length[sends], o.blocks) / (span or 1.0)
    rows = [
        LaneRow(f"rank {rank} block {index}", -1, share)
        for rank, index, share in zip(
            o.program.block_rank.tolist(),
            o.program.block_index.tolist(),
            busy.tolist(),
            strict=True,
        )
    ]
    found.append(lane("Thread blocks", "blocks", rows, bars, span, most))
    return [{**one, "of": of} for one in found], _items(run, number, model)


def _in_time(run: ProgramTimeline) -> Ints:
    """Return the number of each operation as an item: in order of start times."""
    number = np.empty(len(run), np.int64)
    number[np.argsort(run.reached_us, kind="stable")] = np.arange(len(run))
    return number


def _link_rows(run: ProgramTimeline) -> list[LaneRow]:
    t = run.topology
    start = np.repeat(run.message_start_us, np.diff(run.held_start))
    width = len(t.links) + len(t.resources)
    busy = np.bincount(run.held_row, run.held_until_us - start, width) / (run.time_us or 1.0)
    return [LaneRow(short_name(t, i), i, float(busy[i])) for i in range(width)]


def _held(run: ProgramTimeline, number: Ints) -> Bars:
    """Return the bars of messages on links; a message that the receiver adds to its own is a
    sum."""
    message = np.repeat(np.arange(len(run.message_of)), np.diff(run.held_start))
    code = [x.op in _ADDING for rank in run.program.ranks for b in rank for x in b.code]
    adds = np.array([*code, False])[run.table.owner]
    received = run.received_by[message]
    kind = np.where(received >= 0, adds[run.operation[received]], False).astype(np.int64)
    start = run.message_start_us[message]
    return Bars(
        run.held_row, start, run.held_until_us - start, number[run.message_of[message]], kind
    )


_ADDING = (Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY, Op.RECV_REDUCE_COPY_SEND)


def _items(run: ProgramTimeline, number: Ints, model: RuntimeModel) -> dict[str, Any]:
    """Return the chunks and route of each operation."""
    o, t = run.table, run.topology
    moved = chunks_moved(run.program)
    sets: dict[tuple[int, ...], int] = {}
    which = [sets.setdefault(moved[i], len(sets)) for i in o.owner.tolist()]
    ways = routes_of(t, o.connections)
    routes: dict[tuple[int, ...], int] = {(): 0}
    out = np.where(o.sends, o.out[o.block_of()], -1).tolist()
    way = [routes.setdefault(ways[c] if c >= 0 else (), len(routes)) for c in out]
    alpha = model.protocol(run.program.protocol).alpha
    scale = TICKS / (run.time_us or 1.0)
    late = [round(float(alpha * sum(t.links[i].latency for i in r)) * scale) for r in routes]
    operation = np.empty(len(run), np.int64)
    operation[number] = run.operation
    return {
        "set": [which[i] for i in operation.tolist()],
        "route": [way[i] for i in operation.tolist()],
        "sets": [list(one) for one in sets],
        "routes": [list(route) for route in routes],
        "late": late,
    }


def spent_facts(run: ProgramSimulation) -> list[dict[str, Any]]:
    """Return the share of each activity in the time of all thread blocks together."""
    total = run.spent_us.sum(axis=0)
    whole = float(total.sum()) or 1.0
    return [
        {"name": a.words, "share": float(total[a]) / whole}
        for a in Activity
        if a < Activity.DONE and total[a] > 0
    ]
