"""A minimal set of rules that exclude each other, by the deletion filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest_conflict(
    rules: Sequence[T], impossible: Callable[[Sequence[T]], bool]
) -> tuple[T, ...]:
    """A minimal subset of ``rules`` for which ``impossible`` still holds.

    Each rule is left out once: if the rest is still impossible, the rule was not needed. The
    result is minimal in the sense that leaving out any one of its rules makes a schedule possible
    (Chinneck, *Feasibility and Infeasibility in Optimization*, 2008: the deletion filter), provided
    that no rule makes more possible than there is without it. One question per rule. Empty if even
    all the rules together were not proved impossible.
    """
    if not impossible(rules):
        return ()
    needed = list(rules)
    for rule in rules:
        rest = [r for r in needed if r is not rule]
        if impossible(rest):
            needed = rest
    return tuple(needed)
