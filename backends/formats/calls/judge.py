"""Proof and execution of programs of library calls, from the definition of each call.

The buffer is cut into as many units as the program makes pieces. A rank's window is a range of
units; each unit in it has a value: the set of ranks whose contributions it sums (for the proof), or
numbers (for execution). A program is right if in the end every rank's window is the whole buffer,
with the sum of all ranks in each unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.lazy_dataclass import dataclass

from ...check.findings import Finding, Severity
from ...execute.execute import Execution
from .program import CALLS, CallProgram, LibraryCall

V = TypeVar("V")


class WrongCall(Exception):
    """A call that its definition forbids; the text says why."""


@dataclass(frozen=True, slots=True)
class _Window(Generic[V]):
    """Units from ``first`` on, with a value each."""

    first: int
    values: tuple[V, ...]

    @property
    def end(self) -> int:
        return self.first + len(self.values)


def findings(program: CallProgram) -> list[Finding]:
    """Return the faults of a program; empty if it is proved to be an allreduce."""

    def joined(parts: Sequence[frozenset[int]]) -> frozenset[int]:
        found = frozenset[int]().union(*parts)
        if len(found) < sum(map(len, parts)):
            raise WrongCall("it adds a contribution twice")
        return found

    start = [tuple([frozenset((r,))] * program.pieces) for r in range(program.ranks)]
    try:
        ended = _run(program, start, joined)
    except WrongCall as error:
        return [_error(str(error))]
    everybody = frozenset(range(program.ranks))
    wrong = [r for r, w in enumerate(ended) if w.values != (everybody,) * program.pieces]
    return [_error(f"rank {r} does not end with the sum of all ranks", r) for r in wrong[:8]]


def executed(program: CallProgram, seed: int, dtypes: Sequence[str]) -> Execution:
    """Run the calls on random numbers: integers must be equal, floats nearly."""
    random = np.random.default_rng(seed)
    for dtype in dtypes:
        shape = program.ranks, program.pieces, 3
        given = random.integers(-1000, 1000, shape).astype(dtype)
        start = [tuple(row) for row in given]
        try:
            ended = _run(program, start, _added)
        except WrongCall as error:
            return Execution(False, str(error))
        wanted = given.sum(axis=0, dtype=given.dtype)
        for r, window in enumerate(ended):
            if len(window.values) != program.pieces or not np.allclose(window.values, wanted):
                return Execution(False, f"{dtype}: rank {r} has a wrong result")
    words = f"{len(program.calls)} calls on {program.ranks} ranks, {', '.join(dtypes)}"
    return Execution(True, f"{words}: all results right", 1, len(program.calls))


def _added(parts: Sequence[AnyArray]) -> AnyArray:
    found: AnyArray = np.sum(np.array(parts), axis=0, dtype=parts[0].dtype)
    return found


def _error(text: str, rank: int | None = None) -> Finding:
    return Finding("calls", Severity.ERROR, text, rank)


def _run(
    program: CallProgram, start: Sequence[tuple[V, ...]], joined: Callable[[Sequence[V]], V]
) -> list[_Window[V]]:
    """Return the windows at the end.

    Raises:
        WrongCall: a call is not defined for the values of its members.
    """
    held = [_Window(0, values) for values in start]
    for number, call in enumerate(program.calls, 1):
        members = sorted(r for part in call.parts for r in part)
        if members != list(range(program.ranks)) or call.name not in CALLS:
            raise WrongCall(f"call {number}: not one known call for each rank")
        for part in call.parts:
            for r, window in zip(part, _called(call, [held[r] for r in part], joined), strict=True):
                held[r] = window
    return held


def _called(
    call: LibraryCall, windows: Sequence[_Window[V]], joined: Callable[[Sequence[V]], V]
) -> Iterator[_Window[V]]:
    """Yield the data that each member of a part has after a call."""
    first, count, members = windows[0].first, len(windows[0].values), len(windows)
    if call.name == "all_gather":
        if any(
            w.first != first + i * count or w.end != w.first + count for i, w in enumerate(windows)
        ):
            raise WrongCall(f"{call}: pieces that do not follow each other")
        whole = tuple(value for w in windows for value in w.values)
        yield from (_Window(first, whole) for _ in windows)
        return
    if any((w.first, len(w.values)) != (first, count) for w in windows):
        raise WrongCall(f"{call}: windows that are not the same")
    sums = tuple(joined([w.values[k] for w in windows]) for k in range(count))
    if call.name == "all_reduce":
        yield from (_Window(first, sums) for _ in windows)
        return
    if count % members:
        raise WrongCall(f"{call}: {count} pieces for {members} ranks")
    each = count // members
    for i in range(members):
        yield _Window(first + i * each, sums[i * each : (i + 1) * each])
