"""A program's timeline as a trace: ranks are processes, thread blocks threads; arrows are messages
and waits. What occupies links stands in a process of its own.

An operation is one slice: while it sends or works; one that only receives takes no time, and stands
where its message has come. What a block waits for, and for how long, are the slices before.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.nouns.program import Instr, Op
from weft.synth.fabric.occupancy import row_name
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline

from ..formats.listings import instruction_text
from .trace import Mark, Trace

_WORK = (Activity.SENDING, Activity.LOCAL)


def add_program(trace: Trace, run: ProgramTimeline, group: str = "") -> None:
    """Put a timeline into a trace; ``group`` begins the names of its processes."""
    marks: dict[int, Mark] = {}
    phases = _phases(run)
    process = rank = -1
    for block in np.unique(run.block).tolist():
        if run.table.block_rank[block] != rank:
            rank = int(run.table.block_rank[block])
            name = run.topology.nodes[rank].name
            process = trace.process(f"{group}rank {rank} ({name})")
        _add_block(trace, process, run, block, phases, marks)
    _add_links(trace, run, group)
    for sender, receiver in zip(run.message_of.tolist(), run.received_by.tolist(), strict=True):
        if receiver >= 0:
            trace.arrow(marks[sender], marks[receiver], "message")
    for before, after in run.waits.tolist():
        trace.arrow(marks[before], marks[after], "wait")
    _add_gaps(trace, run, group)


def _add_block(
    trace: Trace,
    process: int,
    run: ProgramTimeline,
    block: int,
    phases: dict[int, list[int]],
    marks: dict[int, Mark],
) -> None:
    """The slices of a thread block."""
    rank, number = int(run.table.block_rank[block]), int(run.table.block_id[block])
    code = run.program.ranks[rank].blocks[number]
    peers = [f"to {code.send}"] * (code.send is not None)
    peers += [f"from {code.recv}"] * (code.recv is not None)
    name = " ".join([f"block {number}, channel {code.channel}", *peers])
    place = trace.track(process, name)
    for one in np.flatnonzero(run.block == block).tolist():
        own = phases.get(one, [])
        working = [p for p in own if Activity(run.phase[p]) in _WORK]
        for p in own:
            activity, span = Activity(run.phase[p]), (run.phase_start_us[p], run.phase_end_us[p])
            if p != (working[-1] if working else -1):
                trace.slice(place, *span, activity.words, "wait", _facts(run, one, code.code))
        done = run.done_us[one]
        begin = run.phase_start_us[working[-1]] if working else done
        marks[one] = trace.slice(
            place, begin, done, _name(run, one, code.code), "operation", _facts(run, one, code.code)
        )


def _phases(run: ProgramTimeline) -> dict[int, list[int]]:
    """The phases of each recorded operation."""
    found: dict[int, list[int]] = {}
    for phase, one in enumerate(run.phase_of.tolist()):
        found.setdefault(one, []).append(phase)
    return found


def _name(run: ProgramTimeline, one: int, code: tuple[Instr, ...]) -> str:
    instruction = code[int(run.table.instruction[run.operation[one]])]
    return " ".join(instruction_text(instruction).split(" after ")[0].split())


def _facts(run: ProgramTimeline, one: int, code: tuple[Instr, ...]) -> dict[str, object]:
    operation = int(run.operation[one])
    number = int(run.table.instruction[operation])
    return {
        "step": number,
        "instruction": instruction_text(code[number]),
        "does": _words(tuple(Op)[run.table.op[operation]]),
        "iteration": int(run.turn[one]) + 1,
        "iterations": run.cut.iterations,
        "chunks": int(run.table.chunks[operation]),
        "bytes": float(run.bytes[one]),
        "reached at µs": round(float(run.reached_us[one]), 3),
    }


def _words(op: Op) -> str:
    return op.name.lower().replace("_", " ")


def _add_links(trace: Trace, run: ProgramTimeline, group: str) -> None:
    """Which message holds each link and shared resource, and until when."""
    owner = np.repeat(np.arange(len(run.message_of)), np.diff(run.held_start))
    if not len(owner):
        return
    process = trace.process(f"{group}links")
    trace.counter(
        process,
        "in flight",
        "bytes",
        np.concatenate([run.message_start_us, run.message_end_us]),
        np.concatenate([run.bytes[run.message_of], -run.bytes[run.message_of]]),
    )
    for row in np.unique(run.held_row).tolist():
        held = np.flatnonzero(run.held_row == row)
        place = trace.track(process, row_name(run.topology, row))
        for at in held[np.argsort(run.message_start_us[owner[held]], kind="stable")].tolist():
            message = int(owner[at])
            source, target, channel = run.table.connections[run.message_connection[message]]
            size = float(run.bytes[run.message_of[message]])
            trace.slice(
                place,
                run.message_start_us[message],
                run.held_until_us[at],
                f"{source} -> {target}, channel {channel}",
                "message",
                {
                    "from rank": source,
                    "to rank": target,
                    "channel": channel,
                    "bytes": size,
                    "arrives at µs": round(float(run.message_end_us[message]), 3),
                },
            )


def _add_gaps(trace: Trace, run: ProgramTimeline, group: str) -> None:
    """Where iterations that repeat the ones before were passed at once."""
    if not run.skipped:
        return
    place = trace.track(trace.process(f"{group}iterations"), "not drawn")
    for begin, end in run.skipped_us.tolist():
        trace.slice(
            place,
            begin,
            end,
            "iterations that repeat those before",
            "gap",
            {"operations not drawn, in all": run.skipped},
        )
