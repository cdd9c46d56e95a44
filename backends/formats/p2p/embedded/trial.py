"""Try the collective on simple numbers: what an emitted file does when it is run as a program."""

from __future__ import annotations

# --- in every file from here on ---
from collections.abc import Callable
from typing import Any

import numpy as np

KIBI = 1024


def contribution(rank: int, unit: int, length: int) -> Any:
    """What a rank gives for a unit: whole numbers, small enough that all sums are exact."""
    return (np.arange(length) * 3 + rank * 5 + unit * 7) % 11 - 5.0


def expected(kind: str, rank: int, ranks: int, root: int, length: int) -> Any:
    """What a rank ends with, or None where it ends with nothing."""

    def give(who: int, unit: int = 0) -> Any:
        return contribution(who, unit, length)

    everybody = range(ranks)
    here = rank == root
    results: dict[str, Callable[[], Any]] = {
        "allreduce": lambda: sum(give(r) for r in everybody),
        "reduce": lambda: sum(give(r) for r in everybody) if here else None,
        "reduce_scatter": lambda: sum(give(r, rank) for r in everybody),
        "allgather": lambda: np.concatenate([give(r) for r in everybody]),
        "gather": lambda: np.concatenate([give(r) for r in everybody]) if here else None,
        "alltoall": lambda: np.concatenate([give(r, rank) for r in everybody]),
        "broadcast": lambda: give(root),
        "scatter": lambda: give(root, rank),
    }
    return results[kind]()


def attempt(
    wire: Any,
    collective: Callable[[Any, Any], None],
    to_device: Callable[[Any], Any],
    to_host: Callable[[Any], Any],
    kind: str,
    root: int,
    units: int,
    length: int,
) -> tuple[bool, float]:
    """Whether the result is right, and the seconds of the quickest of three calls."""
    gives = kind not in ("broadcast", "scatter") or wire.rank == root
    send = np.concatenate([contribution(wire.rank, u, length) for u in range(units)])
    given = to_device(send.astype(np.float32)) if gives else None
    wanted = expected(kind, wire.rank, wire.ranks, root, length)
    result = None
    if wanted is not None:
        result = to_device(np.full(len(wanted), np.nan, np.float32))
    best = float("inf")
    for _ in range(3):
        wire.barrier()
        begin = wire.clock()
        collective(given, result)
        best = min(best, wire.clock() - begin)
    return wanted is None or bool((to_host(result) == wanted).all()), best
