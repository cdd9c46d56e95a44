"""Separate differences between measured rows from noise.

Samples are logarithms of times or rates, a row for each thing that is measured and a column for
each sweep. The noise is estimated from the sweeps; things are held to be alike unless their
differences are both larger than the noise would make them and large enough to matter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, stdtrit

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass

from .model import EFFORT

MAD = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""

MEDIAN = 1.2533
"""Standard error of a median of normal numbers, in those of a mean."""


@dataclass(frozen=True, slots=True)
class Known:
    """A number known from samples: of a logarithm, with its standard error."""

    log: float
    error: float

    @property
    def value(self) -> float:
        """The number itself; ``error`` is relative to it."""
        return float(np.exp(self.log))

    def at_least(self, error: float) -> Known:
        """Return the same value with at least this error."""
        return replace(self, error=max(self.error, error))

    def above(self, log: float, sweeps: int) -> bool:
        """Return True if the value is significantly larger than ``log``."""
        # Of scipy.special: every rank would load scipy.stats, which takes longer than most of its
        # tests do, and is a hundred times as slow in each.
        quantile = float(
            stdtrit(max(2, sweeps - 1), 1 - EFFORT.class_chance * 10)
        )  # of Student's t
        return bool(self.log - log > quantile * self.error)


def spread(samples: Floats) -> float:
    """Return the standard deviation of a sample, robust, in the median over the things."""
    return float(np.median(_deviations(samples))) if samples.size else 0.0


def standard_errors(samples: Floats) -> Floats:
    """Of the median over sweeps of each row."""
    return np.asarray(MEDIAN * _deviations(samples) / np.sqrt(max(1, samples.shape[1] - 1)))


def _deviations(samples: Floats) -> Floats:
    centre = np.median(samples, axis=1, keepdims=True)
    return np.asarray(MAD * np.median(np.abs(samples - centre), axis=1))


def pooled(samples: Floats) -> Known:
    """Return the common value of rows that are alike."""
    medians = np.median(samples, axis=1)
    errors = standard_errors(samples)
    own = float(np.median(errors)) / np.sqrt(len(medians))
    between = float(medians.std(ddof=1)) / np.sqrt(len(medians)) if len(medians) > 1 else 0.0
    return Known(float(np.median(medians)), float(max(own, between)))


def classes(samples: Floats, alike: float = EFFORT.alike_share) -> npt.NDArray[np.intp]:
    """Return a class for each row, numbered from the least.

    A set of rows is split in two, where that leaves least variance, if its medians vary more than
    the noise allows (χ²), by more than ``alike``, and if either half of the sweeps alone would
    split it so that the other half agrees: noise that lasts for some sweeps separates no rows.
    The parts are split likewise.
    """
    medians = np.median(samples, axis=1)
    # Noise that slows a whole sweep slows all of them.
    common = np.median(samples - medians[:, None], axis=0) if len(samples) > 2 else 0.0
    samples = samples - common
    order = np.argsort(medians, kind="stable")
    label = np.zeros(len(medians), np.intp)
    errors = standard_errors(samples)
    errors = np.maximum(errors, max(float(np.median(errors)), 1e-6))
    for number, rows in enumerate(_split(order, samples, errors, np.log1p(alike))):
        label[rows] = number
    return label


def _split(
    rows: npt.NDArray[np.intp], samples: Floats, errors: Floats, matters: float
) -> list[npt.NDArray[np.intp]]:
    """Parts of rows that are sorted by their medians."""
    if len(rows) < 2:
        return [rows]
    own = samples[rows]
    values, weights = np.median(own, axis=1), errors[rows] ** -2
    mean = float(np.average(values, weights=weights))
    chi2 = float(2 * gammaincinv((len(rows) - 1) / 2, 1 - EFFORT.class_chance))  # its quantile
    if float((weights * (values - mean) ** 2).sum()) < chi2:
        return [rows]
    half = own.shape[1] // 2
    first, second = np.median(own[:, :half], axis=1), np.median(own[:, half:], axis=1)
    if min(_apart(values, values), _apart(first, second), _apart(second, first)) < matters:
        return [rows]
    cut = _best_cut(values)
    parts = (rows[:cut], rows[cut:])
    return [x for part in parts for x in _split(part, samples, errors, matters)]


def _apart(found: Floats, judged: Floats) -> float:
    """Return the distance in ``judged`` of the two parts into which ``found`` is cut."""
    order = np.argsort(found, kind="stable")
    cut = _best_cut(found[order])
    return float(np.median(judged[order[cut:]]) - np.median(judged[order[:cut]]))


def _best_cut(values: Floats) -> int:
    """Return the index that cuts sorted values into two parts of least squares within."""
    n = np.arange(1, len(values))
    sums = np.cumsum(values)
    left, right = sums[:-1] / n, (sums[-1] - sums[:-1]) / (len(values) - n)
    return int(np.argmax(n * (len(values) - n) * (right - left) ** 2)) + 1
