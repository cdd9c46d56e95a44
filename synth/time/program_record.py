"""Timeline of a program: every operation of every thread block in a run, in columns.

:func:`~.program_time.simulate_program` keeps totals; pictures and traces need every operation. The
kernel is the same one, with two functions replaced: a plain run costs no more for it. Turns that
repeat a state are passed at once here too, so the record has gaps: ``skipped_us``.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.jit import watched
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.topology import Topology

from . import program_kernel as k
from . import queue_kernel as q
from .calibrated import named_model
from .program_machine import Activity, Machine, leg_tables
from .program_tables import Layout, Operations, PreparedProgram, Ticks, meeting
from .program_time import run_to_end
from .runtime_model import Cut, RuntimeModel
from .schedule_tables import ticks_us

MOST_RECORDED = 200_000
"""Of more operations one by one nothing is drawn: a picture of them could not be read."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramTimeline:
    """Timeline of a program. All columns of a kind have one length; times are µs.

    A thread block goes through its **operations** one after the other; an instruction of many
    chunks is several of them (``table.op``, ``table.chunks`` and so on say what each does). An
    operation has **phases** (waits, queues, sends), and sends at most one **message**. Blocks that
    never send, receive, wait or take time are not recorded.
    """

    program: Program
    topology: Topology
    message_bytes: int
    cut: Cut  # how the message is cut
    table: Operations  # blocks, connections, and the operations of one turn of the loop
    time_us: float  # until the last block is done
    start_us: float  # of the call: when the first operation begins
    skipped: int  # operations that are not recorded because they repeat recorded ones
    skipped_us: Floats  # (n, 2): from when until when; nothing is drawn there
    # Of each recorded operation:
    block: Ints  # thread block (of all ranks)
    turn: Ints  # of the loop
    operation: Ints  # row in table
    bytes: Floats  # what it moves
    reached_us: Floats  # when the block got to it
    done_us: Floats  # when the block was done with it
    # Of each phase:
    phase_of: Ints  # recorded operation
    phase: Ints  # an Activity
    phase_start_us: Floats
    phase_end_us: Floats
    # Of each message:
    message_of: Ints  # recorded operation that sends it
    received_by: Ints  # recorded operation that receives it; -1: that one is not recorded
    message_connection: Ints  # as in table
    message_start_us: Floats
    message_left_us: Floats
    message_end_us: Floats  # when it has arrived
    held_start: Ints  # (messages + 1,): of the next two columns, those of each message
    held_row: Ints  # resources (links, then shared ones) that it holds from its start
    held_until_us: Floats
    waits: Ints  # (n, 2): a recorded operation, and one of another block that waits for it

    def __len__(self) -> int:
        return len(self.block)


def record_program(
    program: Program,
    topology: Topology,
    message_bytes: int,
    model: RuntimeModel | None = None,
    *,
    most_operations: int = MOST_RECORDED,
) -> ProgramTimeline:
    """Run a program for a message of M bytes and keep everything; as :func:`simulate_program`.

    Raises:
        UserError: a size below one byte, a protocol that the runtime does not have, or more than
            ``most_operations`` operations that do not repeat each other.
        BadTopology: another number of ranks, or two of them are not joined.
        CheckFailed: the program cannot end.
    """
    prepared = PreparedProgram(program, topology, model or named_model(topology))
    cut = prepared.cut(message_bytes, program.protocol)
    layout, ticks = prepared.layout(cut), prepared.ticks(cut, program.protocol)
    slots, size = prepared.model.protocol(program.protocol).slots, layout.operations.size
    recorder = Recorder(layout, ticks, slots=slots, turns=cut.iterations)
    try:
        skipped = run_to_end(recorder, most_operations) if size <= most_operations else None
    except CheckFailed as error:
        error.where = f"a message of {format_bytes(message_bytes)}"
        raise
    if skipped is None:
        raise UserError(
            f"a message of {format_bytes(message_bytes)} takes {size * cut.iterations:,} "
            f"operations, and a timeline holds {most_operations:,}",
            hint="a smaller size has fewer turns of the loop",
        )
    return _timeline(prepared, cut, message_bytes, recorder, skipped)


class Recorder(Machine):
    """A machine that records every operation, the activities of its block in it, and every message.

    Attributes:
        done: (block, turn, operation, reached, done) of each operation, in ticks.
        phases: (number in ``done``, activity, from, until).
        messages: [number in ``done``, connection, leg, start].
        gaps: (from, until) of the time that was skipped.
    """

    def __init__(self, layout: Layout, ticks: Ticks, *, slots: int, turns: int) -> None:
        super().__init__(layout, ticks, slots=slots, turns=turns)
        self.kernel = watched(k, does=self._does, complete=self._complete)
        self.legs, self.holds = leg_tables(layout, ticks, object)
        # The second half of the legs has the second half of the holds.
        begin = layout.hold_begin
        self.hold_begin = np.concatenate([begin[:-1], begin + begin[-1]])
        blocks = self.operations.blocks
        self.done: list[tuple[int, int, int, int, int]] = []
        self.phases: list[tuple[int, int, int, int]] = []
        self.messages: list[list[int]] = []
        self.gaps: list[tuple[int, int]] = []
        # Of the operation each block is at: since when, its phases as [activity, from], and its
        # message.
        self.begun = [0] * blocks
        self.parts: list[list[list[int]]] = [[] for _ in range(blocks)]
        self.sent = [-1] * blocks

    def _does(self, m: list[int], at: int, activity: int) -> None:
        block, now = self.block(at), m[q.NOW]
        if activity != Activity.DONE:
            self.parts[block].append([activity, now])
        if activity == Activity.SENDING:
            self.sent[block] = len(self.messages)
            self.messages.append([-1, int(self.operations.out[block]), self.leg(at), now])
        k.does(m, at, activity)

    def _complete(self, m: list[int], at: int) -> None:
        block, number, now = self.block(at), len(self.done), m[q.NOW]
        parts = self.parts[block]
        self.done.append((block, m[at + k.TURN], self.operation(at), self.begun[block], now))
        for (activity, start), (_, end) in pairwise([*parts, [Activity.DONE, now]]):
            if end > start:
                self.phases.append((number, activity, start, end))
        if self.sent[block] >= 0:
            self.messages[self.sent[block]][0] = number
        self.begun[block], self.sent[block] = now, -1
        parts.clear()
        k.complete(m, at)

    def sort(self) -> None:
        """Number operations by when they were done, those of one instant by their blocks."""
        order = sorted(range(len(self.done)), key=lambda i: (self.done[i][4], self.done[i][0]))
        number = {old: new for new, old in enumerate(order)}
        self.done = [self.done[i] for i in order]
        phases = [(number[i], what, a, b) for i, what, a, b in self.phases]
        self.phases = sorted(phases, key=lambda phase: phase[0])
        for message in self.messages:
            message[0] = number[message[0]]

    def repeat(self, later: int, turn: list[int], busy: list[int], spent: list[list[int]]) -> None:
        """As :meth:`Machine.repeat`; operations under way go on as if they had begun later."""
        self.gaps.append((self.now, self.now + later))
        self.begun = [t + later for t in self.begun]
        for part in (one for parts in self.parts for one in parts):
            part[1] += later
        for message in self.sent:
            if message >= 0:
                self.messages[message][3] += later
        super().repeat(later, turn, busy, spent)


def _timeline(
    prepared: PreparedProgram, cut: Cut, message_bytes: int, recorder: Recorder, skipped: int
) -> ProgramTimeline:
    unit, table = recorder.unit, recorder.operations
    begin = float(prepared.model.protocol(prepared.program.protocol).start_us)
    recorder.sort()
    # Ticks are Python's integers: they may be beyond 64 bits.
    done = np.array(recorder.done, object).reshape(-1, 5)
    phases = np.array(recorder.phases, object).reshape(-1, 4)
    messages = np.array(sorted(recorder.messages, key=lambda m: m[3]), object).reshape(-1, 4)
    block, turn, operation = done[:, :3].astype(np.int64).T
    sender, connection, leg = messages[:, :3].astype(np.int64).T
    start, legs = messages[:, 3], recorder.legs[leg]
    held_start, hold = rows_of(recorder.hold_begin, leg)
    held = recorder.holds[hold]
    since = np.repeat(start, np.diff(held_start))
    at = {one: i for i, one in enumerate(zip(turn.tolist(), operation.tolist(), strict=True))}
    meets = meeting(table)
    piece = np.where(turn == cut.iterations - 1, float(cut.last), float(cut.piece))
    return ProgramTimeline(
        program=prepared.program,
        topology=prepared.topology,
        message_bytes=message_bytes,
        cut=cut,
        table=table,
        time_us=prepared.model.total_us(
            prepared.program.protocol, max(recorder.finished, default=0) / unit
        ),
        start_us=begin,
        skipped=skipped,
        skipped_us=begin + ticks_us((t for g in recorder.gaps for t in g), unit).reshape(-1, 2),
        block=block,
        turn=turn,
        operation=operation,
        bytes=piece * table.chunks[operation],
        reached_us=begin + ticks_us(done[:, 3], unit),
        done_us=begin + ticks_us(done[:, 4], unit),
        phase_of=phases[:, 0].astype(np.int64),
        phase=phases[:, 1].astype(np.int64),
        phase_start_us=begin + ticks_us(phases[:, 2], unit),
        phase_end_us=begin + ticks_us(phases[:, 3], unit),
        message_of=sender,
        received_by=np.array(
            [at.get((int(turn[s]), meets[operation[s]]), -1) for s in sender.tolist()], np.int64
        ),
        message_connection=connection,
        message_start_us=begin + ticks_us(start, unit),
        message_left_us=begin + ticks_us(start + legs[:, q.LEAVES], unit),
        message_end_us=begin + ticks_us(start + legs[:, q.ARRIVES], unit),
        held_start=held_start,
        held_row=held[:, q.ROW].astype(np.int64),
        held_until_us=begin + ticks_us(since + held[:, q.TICKS], unit),
        waits=_waits(table, at),
    )


def _waits(table: Operations, at: dict[tuple[int, int], int]) -> Ints:
    """Recorded operations and those of their turn that wait for them."""
    pairs = []
    for (turn, operation), number in at.items():
        for other, need in table.waits_of(operation):
            before = at.get((turn, int(table.first[other]) + need - 1), -1)
            if before >= 0:
                pairs.append((before, number))
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)
