"""Run a job on one rank, the same on every runtime."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from weft.dsl.base.arrays import AnyArray

from ..formats.p2p.data import Exam
from ..formats.p2p.execute import arguments, loaded, wrong_result
from .job import Case, Done, EmittedFile, RankJob
from .recording import CallRecord, Watched

Say = Callable[[str], None]
"""Callback that reports the current state of the rank."""


class Loan(Protocol):
    """Arrays of the runtime, lent to a function in place of NumPy's."""

    send: Any
    recv: Any

    def refresh(self) -> None:
        """Copy what NumPy's arrays hold into them."""

    def fetch(self) -> None:
        """Copy what they hold into NumPy's arrays."""


class Member(Protocol):
    """One rank of a group, on some runtime."""

    rank: int
    ranks: int

    def lend(self, send: AnyArray | None, recv: AnyArray | None) -> Loan:
        """Return the runtime's arrays for these, which overlap as they do."""

    def call(self, program: types.ModuleType, function: str, loan: Loan, *, first: bool) -> None:
        """Call the file's function; ``first``: check all that can be checked.

        Raises:
            TimeoutError: some ranks did not send or receive; names them.
        """

    def barrier(self) -> None:
        """Wait for all ranks of the group.

        Raises:
            TimeoutError: some rank did not reach the barrier.
        """

    def clock(self) -> float:
        """Seconds, when all that was begun is done."""


class World(Protocol):
    """All ranks of a job, seen from one of them."""

    rank: int

    def last(self, count: int) -> Member | None:
        """This rank's place in the group of the last ``count`` ranks, if it has one."""


class Spare:
    """Arrays lent as they are: the runtime takes NumPy's."""

    def __init__(self, send: AnyArray | None, recv: AnyArray | None) -> None:
        self.send, self.recv = send, recv

    def refresh(self) -> None:
        """Nothing to do."""

    def fetch(self) -> None:
        """Nothing to do."""


def attend(
    job: RankJob, world: World, say: Say, programs: dict[int, types.ModuleType] | None = None
) -> tuple[Done | None, ...]:
    """Do all cases in order; None where the rank is not of the group.

    ``programs``: files that are loaded already, by their numbers.

    Raises:
        TimeoutError, and whatever a file's function raises.
    """
    programs = dict(programs or {})
    done: list[Done | None] = []
    for number, case in enumerate(job.cases, 1):
        piece = job.pieces[case.piece]
        member = world.last(piece.units.ranks)
        if member is None:
            done.append(None)
            continue
        name = f"{piece.function}, {case} (case {number} of {len(job.cases)})"
        if case.piece not in programs:
            say(f"loads {piece.function}")
            programs[case.piece] = loaded(piece.text)
        done.append(_one(programs[case.piece], piece, case, member, _about(say, name)))
    return tuple(done)


def _about(say: Say, name: str) -> Say:
    return lambda doing: say(f"{doing} {name}")


def _one(
    program: types.ModuleType, piece: EmittedFile, case: Case, member: Member, say: Say
) -> Done:
    """Run a case: the call that is compared, then those that are timed."""
    say("makes data for")
    exam = case.exam(piece.units)
    send, recv = arguments(exam, member.rank, case.in_place)
    before = None if send is None else send.copy()
    loan = member.lend(send, recv)
    wrong: str | None = None
    seconds: list[float] = []
    for turn in range(1 + case.repeat):
        if turn:
            restored(exam, member.rank, send, recv, before, in_place=case.in_place)
        loan.refresh()
        say(f"is at the barrier before call {turn + 1} of")
        member.barrier()
        say(f"is in call {turn + 1} of")
        begin = member.clock()
        member.call(program, piece.function, loan, first=not turn)
        seconds += [member.clock() - begin] if turn else []
        if turn in (0, case.repeat):
            say("compares")
            loan.fetch()
            kept = before if not case.in_place else None
            wrong = wrong or wrong_result(exam, member.rank, send, recv, kept)
    watch = None
    if case.watch:
        watch = _watched(
            piece,
            case,
            member,
            loan,
            partial(restored, exam, member.rank, send, recv, before, in_place=case.in_place),
            say,
        )
        loan.fetch()
        kept = None if case.in_place else before
        wrong = wrong or wrong_result(exam, member.rank, send, recv, kept)
    return Done(wrong, tuple(seconds), watch)


def _watched(
    piece: EmittedFile,
    case: Case,
    member: Member,
    loan: Loan,
    restore: Callable[[], None],
    say: Say,
) -> CallRecord:
    """Two more calls of a copy of the file: one that connects, and the one that is recorded."""
    watched = Watched(piece.text, member.clock)
    for turn in range(2):
        number = 2 + case.repeat + turn
        restore()
        loan.refresh()
        watched.forget()
        say(f"is at the barrier before call {number} of")
        member.barrier()
        say(f"is in call {number} of")
        begin = member.clock()
        member.call(watched.program, piece.function, loan, first=not turn)
        seen = watched.seen(begin, member.clock())
    return seen


def restored(
    exam: Exam,
    rank: int,
    send: AnyArray | None,
    recv: AnyArray | None,
    before: AnyArray | None,
    *,
    in_place: bool,
) -> None:
    """Put the buffers as they were before the first call."""
    blank = None if in_place else exam.empty(rank)
    if recv is not None and blank is not None:
        recv[...] = blank
    if send is not None and before is not None:
        send[...] = before
