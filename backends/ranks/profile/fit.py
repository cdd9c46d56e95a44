"""Lines through times: classes of directions that are alike, with one α and one β for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from weft.dsl.base.arrays import Floats, Ints, distinct_values

from .model import AlphaBeta, Flow, LinkClass
from .noise import MAD, classes

LOSS_SCALE = 0.1
"""Relative errors above this are outliers, and count by their size, not its square."""

CERTAIN = 2.0
"""A β of fewer standard errors cannot be told from 0."""


def link_classes(flows: Sequence[Flow], sizes: Sequence[int], us: Floats) -> tuple[LinkClass, ...]:
    """Return the classes of directions by their smallest and by their largest messages.

    ``us``: shape (sweeps, flows, sizes), of echoes that were alone.
    """
    samples = np.log(np.maximum(us, 1e-6))
    small = _both_ways(flows, samples[:, :, 0]).T
    gain = np.maximum(us[:, :, -1] - us[:, :, 0], 0.02 * us[:, :, -1])
    large = np.log(np.maximum(gain, 1e-6)).T
    label = classes(small) * len(flows) + _within(classes(small), large)
    medians = np.median(us, axis=0)
    found = []
    for name in distinct_values(label):
        inside = np.flatnonzero(label == name).tolist()
        line = line_of(np.tile(sizes, len(inside)), medians[inside].ravel())
        found.append(LinkClass(tuple(flows[i] for i in inside), line))
    return tuple(found)


def _within(label: npt.NDArray[np.intp], samples: Floats) -> npt.NDArray[np.intp]:
    """Classes of the samples within each class that is there already."""
    result = np.zeros(len(label), np.intp)
    for name in distinct_values(label):
        inside = np.flatnonzero(label == name)
        result[inside] = classes(samples[inside])
    return result


def _both_ways(flows: Sequence[Flow], samples: Floats) -> Floats:
    """Return the mean over both directions: the smallest echoes are the same there and back."""
    place = {flow: i for i, flow in enumerate(flows)}
    return np.asarray((samples + samples[:, [place[flow[::-1]] for flow in flows]]) / 2)


def line_of(sizes: Ints, us: Floats) -> AlphaBeta:
    """Return the line of echoes that take ``us``.

    An echo takes there and back: ``α + β·bytes`` one way, and an answer of one byte the other.
    The two ways' α cannot be told apart without a common clock, so each is half their sum.
    """
    least, most = sizes.argmin(), sizes.argmax()
    slope = (us[most] - us[least]) / max(1.0, float(sizes[most] - sizes[least]))
    start = np.array([max(us[least], 1e-3), max(slope, us[most] / sizes[most] * 1e-2)])

    def errors(x: Floats) -> Floats:
        return np.asarray((x[0] * start[0] + x[1] * start[1] * sizes) / us - 1)

    found = least_squares(
        errors, np.ones(2), bounds=(0, np.inf), loss="soft_l1", f_scale=LOSS_SCALE
    )
    off = np.abs(errors(found.x))
    deviation = max(MAD * float(np.median(off)), float(np.sqrt(np.mean(off**2))) / 2)
    jacobian = np.asarray(found.jac)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * deviation**2
    alpha, beta = found.x * start
    error = np.sqrt(np.diag(covariance)) * start
    return AlphaBeta(
        float(alpha) / 2,
        max(float(beta), CERTAIN * float(error[1]), 1e-9),
        float(error[0] / max(alpha, 1e-12)),
        float(error[1] / max(beta, error[1], 1e-12)),
        float(np.median(off)),
        float(off.max()),
    )
