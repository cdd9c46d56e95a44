"""Telling whether kernels are on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from weft.dsl.base.jit import is_cold


def kernel() -> None:
    """Stands for a compiled one."""


def test_cold_until_there_is_an_index_that_is_not_older(tmp_path: Path) -> None:
    stats = SimpleNamespace(cache_path=str(tmp_path))
    made = SimpleNamespace(stats=stats, py_func=kernel)
    assert is_cold(made)
    line = kernel.__code__.co_firstlineno
    index = tmp_path / f"test_warm.kernel-{line}.py311.nbi"
    index.write_bytes(b"")
    assert not is_cold(made)
    os.utime(index, (0, 0))
    assert is_cold(made)


def test_nothing_is_cold_that_is_not_kept(tmp_path: Path) -> None:
    assert not is_cold(kernel)
    assert not is_cold(SimpleNamespace(stats=SimpleNamespace(cache_path=None), py_func=kernel))


def test_the_kernels_of_packings_are_looked_up_where_numba_keeps_them() -> None:
    from weft.synth.engines.packing.engine import _cold, _compiled

    _compiled(True)
    _compiled(False)
    assert not _cold(True)
    assert not _cold(False)
