"""Work of Python code, counted instead of timed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


def calls_of(run: Callable[[], T]) -> tuple[T, int]:
    """The result of ``run()``, and how many calls of functions it took in this thread.

    Calls of C functions count, what they and compiled loops do does not: few calls mean that
    nothing is done element by element in Python.
    """
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = run()
    finally:
        sys.setprofile(before)
    return result, calls
