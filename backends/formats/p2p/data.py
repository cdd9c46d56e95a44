"""Test data of a collective: the input of each rank, and the expected result.

Every contribution (chunk, rank) of the collective is a column of random numbers; a chunk that holds
a set of contributions is their sum. A rank makes its own part only, so that the test of 64 MiB on
16 ranks needs no more memory than the collective does: columns repeat after :data:`PERIOD`
elements, a prime, so that no shift by chunks or pages goes unseen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind, make
from weft.dsl.nouns.placement import Placement

from ...execute.layout import number_type

PERIOD = 65521


def units_of(collective: Collective) -> Collective:
    """Return the collective in the pieces that its caller sees, each of any length.

    The pieces of a custom one are its chunks.
    """
    if collective.kind is Kind.CUSTOM:
        return collective
    return make(collective.kind, collective.ranks, roots=collective.roots)


def type_named(name: str) -> np.dtype[Any]:
    """Return the number type of a name, bfloat16 where the package ml_dtypes is installed.

    Raises:
        UserError: there is none.
    """
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ModuleNotFoundError:
            raise UserError(
                "bfloat16 needs the Python package ml_dtypes",
                hint="install it: pip install ml_dtypes",
            ) from None
        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return number_type(name)


@dataclass(frozen=True)
class Exam:
    """One call: ``units`` as :func:`units_of` makes them, each of ``length`` elements.

    ``rough``: floating-point numbers of all sizes, whose sums are compared within the error bound
    of summation; else whole numbers, small enough for exact sums (integers are any, and wrap).
    """

    units: Collective
    length: int
    dtype: np.dtype[Any]
    seed: int = 0
    rough: bool = False

    @property
    def integral(self) -> bool:
        """Return True if the data type is an integer type."""
        return self.dtype.kind in "iu"

    def given(self, rank: int) -> AnyArray | None:
        """Return the rank's input; None if it has none."""
        return self._filled(self.units.pre, rank, self.units.input_chunks)

    def empty(self, rank: int) -> AnyArray | None:
        """Memory for its output, full of numbers that are never right; None if it has none."""
        if not (self.units.post.ranks == rank).any():
            return None
        return self.filler(self.units.output_chunks)

    def wrong(self, rank: int, result: AnyArray | None) -> str | None:
        """Return a text that describes the error of a result, or None."""
        if result is None or not self.length:
            return None
        p, bad = self.units.post, 0
        text = None
        for offset in distinct_values(p.offsets[p.ranks == rank]).tolist():
            rows = np.flatnonzero((p.ranks == rank) & (p.offsets == offset))
            found = result[offset * self.length : (offset + 1) * self.length]
            wanted, error = self._sum(p, rows)
            differs = self._differs(found, wanted, error)
            if differs.any() and text is None:
                at = int(np.argmax(differs))
                text = (
                    f"element {offset * self.length + at} of rank {rank} is {found[at]}, not "
                    f"{np.resize(wanted, self.length)[at]}"
                )
            bad += int(differs.sum())
        return f"{text} ({bad} of {len(result)} are wrong)" if text else None

    def _differs(self, found: AnyArray, wanted: AnyArray, error: AnyArray | None) -> AnyArray:
        whole = np.resize(wanted, self.length)
        if error is None:
            return np.asarray(found != whole)
        apart = np.abs(found.astype(np.float64) - whole)
        return np.asarray(~(apart <= np.resize(error, self.length)))

    def _filled(self, p: Placement, rank: int, chunks: int) -> AnyArray | None:
        rows = np.flatnonzero(p.ranks == rank)
        if not len(rows):
            return None
        made = self.filler(chunks)
        for row in rows.tolist():
            at = int(p.offsets[row]) * self.length
            made[at : at + self.length] = np.resize(self._sum(p, np.array([row]))[0], self.length)
        return made

    def filler(self, chunks: int) -> AnyArray:
        """Return chunks of numbers that are never right."""
        value = np.iinfo(self.dtype).max - 0x5D if self.integral else np.nan
        return np.full(chunks * self.length, value, self.dtype)

    def _sum(self, p: Placement, rows: npt.NDArray[np.intp]) -> tuple[AnyArray, AnyArray | None]:
        """Return the sum of the entries, and how far off a right one can be (None: not at all)."""
        parts = [
            self._contribution(int(p.chunks[row]), rank)
            for row in rows.tolist()
            for rank in sorted(self.units.contributions[int(p.sets[row])])
        ]
        if not self.rough or self.integral or len(parts) == 1:
            total = parts[0].copy()
            for part in parts[1:]:
                total += part
            return total, None
        table = np.stack(parts).astype(np.float64)
        # Higham, Accuracy and Stability (2002), §4.2: n-1 roundings, each of one sum of magnitudes.
        eps = 2.0 ** -_mantissa(self.dtype)
        return table.sum(axis=0), np.abs(table).sum(axis=0) * len(parts) * eps

    def _contribution(self, chunk: int, rank: int) -> AnyArray:
        rng = np.random.default_rng([self.seed, chunk, rank])
        shape = max(1, min(self.length, PERIOD))
        if self.integral:
            info = np.iinfo(self.dtype)
            return rng.integers(info.min, info.max, shape, self.dtype, endpoint=True)
        if self.rough:
            return (rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, shape)).astype(
                self.dtype
            )
        most = max(1, 2 ** min(_mantissa(self.dtype), 20) // self.units.ranks)
        return rng.integers(-most, most, shape, endpoint=True).astype(self.dtype)


def _mantissa(dtype: np.dtype[Any]) -> int:
    """Bits of precision, the hidden one included."""
    if dtype.kind == "f":
        return int(np.finfo(dtype).nmant) + 1
    import ml_dtypes

    info: Any = ml_dtypes.finfo
    return int(info(dtype).nmant) + 1
