"""Column generation: programs over a growing pool of columns (Ford and Fulkerson 1958).

The master is the program over the columns so far, mostly a :class:`.congestion.Congestion`; its
prices name the columns that would lower its optimum. Only how these are found differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def generate(
    first: Answer | None,
    master: Callable[[], Answer | None],
    price: Callable[[Answer], int | bool],
    stop: Callable[[Answer], bool],
    rounds: int,
) -> Answer | None:
    """The last optimum: of the pool at the ``first``, then of ever larger ones.

    ``price`` adds columns at the prices of an answer, and returns how many. It ends where there
    are none, where ``stop`` says so, or without an answer of ``master`` within its limits.
    """
    answer = first
    for _ in range(rounds):
        if answer is None or stop(answer) or not price(answer):
            break
        better = master()
        if better is None:
            break
        answer = better
    return answer
