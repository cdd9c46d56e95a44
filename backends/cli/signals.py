"""``kill`` ends a command as Ctrl-C does: what was found is written, nothing stays half-written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM is handled as SIGINT is at that moment; afterwards it does what it did before.

    Nothing is changed where whoever started the process ignores it or handles it outside Python,
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
        signal.signal(signal.SIGTERM, before)


def _as_interrupt(_: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # SIGINT is ignored in a shell's background: SIGTERM still ends it
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
