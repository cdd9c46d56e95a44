"""Ever more slices of a message, for as long as they make it quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def doubled(time: Callable[[int], float], most: int, longer: float) -> Iterator[tuple[float, int]]:
    """Yield the µs of 1, 2, 4 … slices, at most ``most`` (but 1 in any case), and their number.

    It ends with slices that take more than ``longer`` times the least µs so far.
    """
    slices, least = 1, float("inf")
    while slices <= max(1, most):
        us = time(slices)
        yield us, slices
        if us > longer * least:
            return
        slices, least = 2 * slices, min(us, least)
