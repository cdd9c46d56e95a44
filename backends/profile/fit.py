"""α and β of a pair: a line through its times that minds relative errors, and outliers little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.optimize import least_squares

from .model import Flow, Line, Timing
from .plan import SMALL

LOSS_SCALE = 0.1
"""Relative errors above this are outliers, and count by their size, not its square."""


def lines(timings: Iterable[Timing]) -> dict[Flow, Line]:
    """The line of every direction that was measured alone.

    An echo takes there and back: ``α + β·bytes`` one way, and an answer of a few bytes the other.
    The two ways' α cannot be told apart without a common clock, so each is half their sum.
    """
    taken: dict[Flow, list[tuple[int, float]]] = defaultdict(list)
    for timing in timings:
        if len(timing.echo.flows) == 1:
            taken[timing.echo.flows[0]].append((timing.echo.bytes, timing.us[0]))
    return {flow: _line(points, _half(taken, flow)) for flow, points in taken.items()}


def _half(taken: Mapping[Flow, list[tuple[int, float]]], flow: Flow) -> float:
    """Half of what the smallest echoes take, there and back, from both sides."""
    both = [taken[way] for way in (flow, flow[::-1]) if way in taken]
    least = [us for points in both for size, us in points if size <= SMALL]
    least = least or [min(us for _, us in points) for points in both]
    return float(np.median(least)) / 2


def _line(points: list[tuple[int, float]], answer: float) -> Line:
    """The line through (bytes, µs) of echoes, whose answers take ``answer`` µs each."""
    size, us = (np.array(x, float) for x in zip(*sorted(points), strict=True))
    us = np.maximum(us - answer, us * 0.05)
    slope = max((us[-1] - us[0]) / max(size[-1] - size[0], 1.0), 1e-9)
    scale = np.array([max(us[0], 1e-3), slope])

    def errors(x: np.ndarray) -> np.ndarray:
        alpha, beta = x * scale
        return np.asarray((alpha + beta * size) / us - 1)

    found = least_squares(errors, np.ones(2), bounds=(1e-6, np.inf), loss="soft_l1",
                          f_scale=LOSS_SCALE)  # fmt: skip
    alpha, beta = found.x * scale
    return Line(float(alpha), float(beta), float(np.abs(errors(found.x)).max()))
