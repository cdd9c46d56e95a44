"""A rank's arrays on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray


def on_gpu(send: AnyArray | None, recv: AnyArray | None) -> tuple[Any, Any]:
    """Both on the device, in one memory if they are in one here."""
    import cupy

    if send is None or recv is None or not np.shares_memory(send, recv):
        return _copied(cupy, send), _copied(cupy, recv)
    big, small = (send, recv) if len(send) > len(recv) else (recv, send)
    at = (small.ctypes.data - big.ctypes.data) // big.itemsize
    whole = _copied(cupy, big)
    part = whole[at : at + len(small)]
    return (whole, part) if big is send else (part, whole)


def _copied(cupy: Any, array: AnyArray | None) -> Any:
    return None if array is None else cupy.asarray(array)
