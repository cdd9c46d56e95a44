"""Run a job on one rank, the same on every runtime, or on all ranks of a process that drives them.

Each runtime implements :class:`JobGroups`, :class:`World`, :class:`Member` and :class:`Loan`.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import WeftError
from weft.dsl.base.processes import end_with_owner

from ..formats.p2p.data import Exam
from ..formats.p2p.execute import arguments, loaded, wrong_result
from .job import LIMITS, Case, Done, EmittedFile, Failure, RankJob, RankReport, Watched

Say = Callable[[str], None]
"""Callback that reports the current state of the rank."""


class Loan:
    """Arrays lent to a function: NumPy's as they are, unless a runtime has memory of its own."""

    def __init__(self, send: Any, recv: Any) -> None:
        self.send, self.recv = send, recv

    def refresh(self) -> None:
        """Copy from NumPy's arrays into them."""

    def fetch(self) -> None:
        """Copy from them into NumPy's arrays."""


def alike(send: AnyArray | None, recv: AnyArray | None, copied: Callable[[AnyArray], Any]) -> Any:
    """Return copies of both arrays, which share memory if these do."""
    if send is None or recv is None or not np.shares_memory(send, recv):
        return tuple(None if x is None else copied(x) for x in (send, recv))
    large, small = (send, recv) if len(send) > len(recv) else (recv, send)
    at = (small.ctypes.data - large.ctypes.data) // large.itemsize
    whole = copied(large)
    part = whole[at : at + len(small)]
    return (whole, part) if large is send else (part, whole)


class Member(ABC):
    """One rank of a group, on some runtime."""

    rank: int
    ranks: int

    def lend(self, send: AnyArray | None, recv: AnyArray | None) -> Loan:
        """Return the runtime's arrays for these, which overlap as they do."""
        return Loan(send, recv)

    @abstractmethod
    def call(self, program: types.ModuleType, function: str, loan: Loan, *, first: bool) -> None:
        """Call the file's function; ``first``: check all that can be checked.

        Raises:
            TimeoutError: some ranks did not send or receive; names them.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks of the group.

        Raises:
            TimeoutError: some rank did not reach the barrier.
        """

    def clock(self) -> float:
        """Seconds, when all that was begun is done."""
        return time.perf_counter()


class ConnectedMember(Member):
    """A rank of a group whose connection a file's function takes by keyword."""

    @abstractmethod
    def keywords(self, *, first: bool) -> dict[str, Any]:
        """Return the arguments of a file's function beside the arrays; ``first``: as
        :meth:`call`."""

    def call(self, program: types.ModuleType, function: str, loan: Loan, *, first: bool) -> None:
        """Call the file's function with the connection."""
        getattr(program, function)(loan.send, loan.recv, **self.keywords(first=first))


class JobGroups(ABC):
    """Groups of ranks of a job, seen from one of its ranks."""

    rank: int
    ranks: int

    @abstractmethod
    def last(self, count: int) -> Member | None:
        """Return this rank's place in the group of the last ``count`` ranks, made by all ranks at
        its first use; None: it has none."""


class World(JobGroups):
    """All ranks of a job in processes of their own, seen from one of them."""

    @abstractmethod
    def last(self, count: int) -> ConnectedMember | None:
        """As :meth:`.JobGroups.last`."""

    @abstractmethod
    def gather(self, thing: Any) -> list[Any] | None:
        """Return the values of every rank, on rank 0; None on the others."""

    @abstractmethod
    def spread(self, thing: Any) -> Any:
        """Return the value of rank 0."""

    @abstractmethod
    def abort(self) -> None:
        """End this rank, and with it all others, at once."""

    @abstractmethod
    def close(self) -> None:
        """Leave when all are done."""


def attend(
    job: RankJob, world: JobGroups, say: Say, programs: dict[int, types.ModuleType] | None = None
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
        done.append(_RankCase(piece, case, member, name, say).done(programs[case.piece]))
    return tuple(done)


def attend_groups(
    job: RankJob, groups: Mapping[int, RankGroup], say: Say
) -> list[tuple[Done | None, ...]]:
    """Do all cases on ranks that this process drives, by their number; as :func:`attend` of each.

    Raises:
        Whatever a file's function raises.
    """
    programs = [loaded(piece.text) for piece in job.pieces]
    done: list[list[Done | None]] = [[] for _ in range(job.ranks)]
    for number, case in enumerate(job.cases, 1):
        piece = job.pieces[case.piece]
        say(f"is in case {number} of {len(job.cases)}: {piece.function}, {case}")
        group = groups[piece.units.ranks]
        found = repeated(case, *group.trial(programs[case.piece], piece, case))
        for rank, own in enumerate(done):  # a group is of the last ranks
            first = job.ranks - len(found)
            own.append(found[rank - first] if rank >= first else None)
    return [tuple(own) for own in done]


Trial = tuple[Callable[[int], float], Callable[[], list[str | None]]]
"""Functions that run a turn of a case, by its number, and return its seconds; and that compare and
return the error of each rank, or None."""


class RankGroup(ABC):
    """Some ranks of a runtime, all driven by this process."""

    @abstractmethod
    def trial(self, program: Any, piece: EmittedFile, case: Case) -> Trial:
        """Return the functions that do a case of a file."""


def repeated(
    case: Case, call: Callable[[int], float], wrong: Callable[[], list[str | None]]
) -> list[Done]:
    """Do a case: the call that is compared, then those that are timed, of which the last is
    compared as well."""
    seconds: list[float] = []
    found = []
    for turn in range(1 + case.repeat):
        spent = call(turn)
        seconds += [spent] if turn else []
        if turn in (0, case.repeat):
            found.append(wrong())
    return [Done(next(filter(None, one), None), tuple(seconds)) for one in zip(*found, strict=True)]


class CaseBuffers:
    """Arrays of a rank for the calls of a case, by NumPy: the same before each of them."""

    def __init__(self, exam: Exam, rank: int, *, in_place: bool) -> None:
        self._exam, self._rank, self._in_place = exam, rank, in_place
        self.send, self.recv = arguments(exam, rank, in_place)
        self._before = None if self.send is None else self.send.copy()

    def restore(self) -> None:
        """Put the buffers as they were before the first call."""
        blank = None if self._in_place else self._exam.empty(self._rank)
        if self.recv is not None and blank is not None:
            self.recv[...] = blank
        if self.send is not None and self._before is not None:
            self.send[...] = self._before

    def wrong(self, send: AnyArray | None, recv: AnyArray | None) -> str | None:
        """Return the error in the result of a call, or None."""
        before = None if self._in_place else self._before
        return wrong_result(self._exam, self._rank, send, recv, before)


class _RankCase:
    def __init__(self, piece: EmittedFile, case: Case, member: Member, name: str, say: Say) -> None:
        self.piece, self.case, self.member = piece, case, member
        self.say: Say = lambda doing: say(f"{doing} {name}")
        self.say("makes data for")
        self.buffers = CaseBuffers(case.exam(piece.units), member.rank, in_place=case.in_place)
        self.loan = member.lend(self.buffers.send, self.buffers.recv)

    def done(self, program: types.ModuleType) -> Done:
        """Do the calls that are compared and timed, and the one that is recorded."""
        (found,) = repeated(
            self.case, lambda turn: self._call(turn + 1, program, first=not turn)[1], self._wrong
        )
        if not self.case.watch:
            return found
        # Two more calls of a copy of the file: one that connects, and the one that is recorded.
        watched = Watched(self.piece.text, self.member.clock)
        for turn in range(2):
            watched.forget()
            number = 2 + self.case.repeat + turn
            begin, spent = self._call(number, watched.program, first=not turn)
        wrong = found.wrong or self._wrong()[0]
        return Done(wrong, found.seconds, watched.seen(begin, begin + spent))

    def _call(self, number: int, program: types.ModuleType, *, first: bool) -> tuple[float, float]:
        """Do a call; the clock when it began, and its seconds."""
        if number > 1:
            self.buffers.restore()
        self.loan.refresh()
        self.say(f"is at the barrier before call {number} of")
        self.member.barrier()
        self.say(f"is in call {number} of")
        begin = self.member.clock()
        self.member.call(program, self.piece.function, self.loan, first=first)
        return begin, self.member.clock() - begin

    def _wrong(self) -> list[str | None]:
        self.say("compares")
        self.loan.fetch()
        return [self.buffers.wrong(self.buffers.send, self.buffers.recv)]


# --- a rank in a process of its own: connect, run the job, report; end with the parent ------------


AttendAll = Callable[[RankJob, Callable[[str], None]], list[tuple[Done | None, ...]]]
"""Function that does a job on all ranks, reporting the state of the first."""


def serve(place: str, connect: Callable[[float], Any], number: int) -> None:
    """Run a rank of the job in a folder; ends the process if the rank fails."""
    folder = Path(place)
    end_with_owner(folder)
    job = RankJob.read(folder)
    with _reporting(folder, number):
        world = connect(job.timeout)
        done = attend(job, world, _state(folder / f"state-{number}"))
    _report(folder, RankReport(number, done))
    world.close()


def serve_all(place: str, attend_all: AttendAll) -> None:
    """Run all ranks of the job in a folder, in this process; ends it if one fails."""
    folder = Path(place)
    end_with_owner(folder)
    job = RankJob.read(folder)
    with _reporting(folder, 0):
        every = attend_all(job, _state(folder / "state-0"))
    for rank, done in enumerate(every):
        _report(folder, RankReport(rank, done))


@contextmanager
def _reporting(folder: Path, number: int) -> Iterator[None]:
    """Leave this process's id; an error is reported, and ends it."""
    try:
        (folder / f"pid-{number}").write_text(str(os.getpid()))
        yield
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        hint = error.hint if isinstance(error, WeftError) else ""
        failure = Failure(type(error).__name__, told(error), hint or "")
        _report(folder, RankReport(number, failure=failure))
        # Ranks that wait for this one report next; then the parent ends all ranks.
        time.sleep(LIMITS.failed_seconds)
        os._exit(1)


def supervise(folder: Path, pids: dict[int, int]) -> None:
    """Wait for the ranks that this process forked, by their process ids, and write down how they
    end. Where one ends badly, stay: an MPI ends all at once when a process that it started does."""
    bad = False
    while pids:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        bad |= code != 0
        part = folder / f"ended-{pid}"
        part.write_text(str(code))
        part.rename(folder / f"exit-{pids.pop(pid)}")
    if bad:
        time.sleep(LIMITS.failed_seconds)
        os._exit(1)


def told(error: BaseException) -> str:
    """Return the text of an exception, with its type where the text alone is not a message."""
    kind, text = type(error).__name__, str(getattr(error, "message", error)).strip()
    if not text:
        return kind
    spoken = isinstance(error, OSError | RuntimeError | WeftError)
    return text if spoken else f"{kind}: {text}"


def _state(path: Path) -> Callable[[str], None]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def say(text: str) -> None:
        os.pwrite(file, text.encode()[: LIMITS.state_bytes].ljust(LIMITS.state_bytes), 0)

    say("is connected")
    return say


def _report(folder: Path, report: RankReport) -> None:
    part = folder / f"part-{os.getpid()}"
    part.write_text(report.to_json(), "utf-8")
    part.rename(folder / f"report-{report.rank}-{os.getpid()}")
