"""Whether a compiled kernel is on the disk already, or will have to be compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def is_cold(kernel: Any) -> bool:
    """Whether numba will find nothing on the disk for a kernel that it keeps there.

    Cheap: nothing is loaded, and only names and times are looked at.
    """
    if not hasattr(kernel, "stats"):  # numba was told to compile nothing (NUMBA_DISABLE_JIT)
        return False
    folder, code = kernel.stats.cache_path, kernel.py_func.__code__
    if folder is None:
        return False
    written = Path(code.co_filename).stat().st_mtime
    names = f"*{kernel.py_func.__qualname__}-{code.co_firstlineno}.*.nbi"
    return all(x.stat().st_mtime < written for x in Path(folder).glob(names))
