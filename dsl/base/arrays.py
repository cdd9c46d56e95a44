"""Types of NumPy arrays, named by what their elements are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Words = npt.NDArray[np.uint64]
"""Sets of small numbers as bits, 64 to a word; or hashes."""

AnyArray = npt.NDArray[Any]
