"""Run an emitted file's own code in this process, on ranks that are threads."""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import BadFile
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.nouns.collective import Collective, Kind

from ...execute.execute import Execution
from .data import Exam, type_named, units_of
from .embedded.threads import Hub, Threads

LENGTHS = (1, 6, 35)
"""Elements of a unit in a test: fewer than chunks, and not a multiple of them."""


def execute(
    text: str,
    collective: Collective,
    *,
    dtypes: Sequence[str] = ("float32", "int32"),
    lengths: Sequence[int] = LENGTHS,
    seed: int = 0,
    tell: ProgressCallback = silent,
) -> Execution:
    """Run a file's code on threads: types × lengths × placements, all results compared."""
    program = loaded(text)
    units = units_of(collective)
    places = (False, True) if aliases(units) else (False,)
    exams = [
        (Exam(units, length, type_named(name), seed), place)
        for name in dtypes
        for length in lengths
        for place in places
    ]
    for number, (exam, in_place) in enumerate(exams, 1):
        tell(f"execute {number} of {len(exams)}")
        wrong = _run(program, exam, in_place)
        if wrong:
            how = "in place" if in_place else "out of place"
            return Execution(False, f"{wrong} ({how}, {exam.length} elements a unit, {exam.dtype})")
    how = " and in place" if len(places) > 1 else ""
    detail = (
        f"out of place{how}, {', '.join(map(str, lengths))} elements a unit, "
        f"{', '.join(dtypes)}: all results right"
    )
    return Execution(True, detail, len(exams))


def loaded(text: str) -> types.ModuleType:
    """Return the module of an emitted file; its code is executed.

    Raises:
        BadFile: the code that was edited ends with an exception while the file is loaded.
    """
    module = types.ModuleType("weft_emitted")
    # Dataclasses look up their module by name while they are made; threads may load at once.
    module.__name__ = f"weft_emitted_{id(module)}"
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, "<emitted>", "exec"), module.__dict__)
    except Exception as error:
        raise BadFile(
            f"loading the file ends with {type(error).__name__}: {error}",
            where=f"line {traceback.extract_tb(error.__traceback__)[-1].lineno}",
            hint="its code was edited: compile it anew",
        ) from error
    finally:
        del sys.modules[module.__name__]
    return module


def aliases(units: Collective) -> bool:
    """Return True if callers of the collective may use one memory for input and output."""
    return units.kind is not Kind.CUSTOM


def _run(program: Any, exam: Exam, in_place: bool) -> str | None:
    """One call on all ranks; return its fault, or None."""
    wrongs: list[str] = []

    def main(wire: Threads) -> None:
        send, recv = arguments(exam, wire.rank, in_place)
        before = None if send is None or in_place else send.copy()
        call_on(wire, program, send, recv)
        wrong = wrong_result(exam, wire.rank, send, recv, before)
        if wrong:
            wrongs.append(wrong)

    hub = Hub(exam.units.ranks)
    try:
        hub.run(main)
    except (RuntimeError, TimeoutError) as error:
        return str(error)
    if wrongs:
        return wrongs[0]
    left = hub.left()
    return f"no rank received what rank {left[0][0]} sent" if left else None


def wrong_result(
    exam: Exam, rank: int, send: AnyArray | None, recv: AnyArray | None, before: AnyArray | None
) -> str | None:
    """Return the error of a result, or None; ``before``: the input as it was before the call.

    The input is compared by its bytes: what a rank does not give is filled with NaN.
    """
    wrong = exam.wrong(rank, recv)
    if wrong or send is None or before is None:
        return wrong
    same = np.array_equal(send.view(np.uint8), before.view(np.uint8))
    return None if same else f"the input of rank {rank} was overwritten"


def call_on(wire: Threads, program: Any, send: AnyArray | None, recv: AnyArray | None) -> None:
    """Run the file's function on another transport than its own."""
    program.call(wire, program.SHAPE, program.CODE, send, recv)


def arguments(exam: Exam, rank: int, in_place: bool) -> tuple[AnyArray | None, AnyArray | None]:
    """Return the input and the output of a rank, None where it has none; in place in one memory.

    A rank that only forwards has an output that is not compared: it gives the length.
    """
    send, recv = exam.given(rank), exam.empty(rank)
    if send is None and recv is None:
        recv = np.zeros(exam.units.output_chunks * exam.length, exam.dtype)
    if not in_place or send is None or recv is None:
        return send, recv
    shift = exam.units.in_place_shift(rank) * exam.length
    whole = recv if len(recv) >= len(send) else send
    if whole is recv:
        recv[shift : shift + len(send)] = send
        return recv[shift : shift + len(send)], recv
    return send, send[-shift : -shift + len(recv)]
