"""Signal handling: SIGTERM ends a command as Ctrl-C does, with complete files only.

Once a command has done its work nothing changes how the process ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from .exit_codes import Exit


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM as SIGINT while the block runs; the old handler is restored afterwards.

    Nothing is changed where the parent process ignores it or it is handled outside Python,
    nor in another thread than the main one, which alone may set handlers.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(
        signal.SIGTERM
    ) in (signal.SIG_IGN, None):
        yield
        return
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield
    finally:
        # Otherwise the work is done, and the signal is ignored until the end.
        if signal.getsignal(signal.SIGTERM) is _as_interrupt:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def interruptions() -> Iterator[list[int]]:
    """Yield a list that gets the number of SIGINT each time it comes while the block runs.

    A package written in C that is interrupted while it is imported may raise ImportError instead
    of KeyboardInterrupt (NumPy does); the list tells which it was.
    """
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield came
        return

    def record(number: int, frame: FrameType | None) -> None:
        came.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, record)
    try:
        yield came
    finally:
        if signal.getsignal(signal.SIGINT) is record:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def final(*, process: bool) -> Iterator[None]:
    """Leave Ctrl-C and SIGTERM as they are on entry; ignore them after the block if ``process``.

    With ``process`` the process ends with the block. The interpreter takes a moment to end, and
    finished work stays valid.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if process or handler is not None:  # None: set outside Python
                signal.signal(number, signal.SIG_IGN if process else handler)


def leave(code: int) -> None:
    """End the process at once if the interpreter's own exit would not suffice.

    That is so when an engine that was asked to stop is still at work, or after Ctrl-C: Python ends
    by the signal itself if it came while a module was executed (``exec`` remembers it even if it
    was caught).
    """
    cancellable = sys.modules.get("weft.synth.base.cancellable")
    if code == Exit.INTERRUPTED or (cancellable is not None and cancellable.engine_at_work()):
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _as_interrupt(_: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # a shell ignores SIGINT for background jobs: SIGTERM still ends them
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
