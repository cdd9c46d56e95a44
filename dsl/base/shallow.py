"""Calls at the bottom of a stack of their own, for the imports of large packages.

Python 3.11 and later keep frames in pieces of 16 KiB. A loop whose calls cross the end of a piece
maps and unmaps memory at each call, so that the same import takes twice as long at some depths of
the stack: 100 ms more for SciPy's, measured. In a new thread the depth is always the same.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def on_new_stack(call: Callable[[], T]) -> T:
    """Return what ``call`` returns, or raise its error, after running it in a thread of its own."""
    found: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failure.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return found[0]
