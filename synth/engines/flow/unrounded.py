"""Epochs made real time: the order stays, and every transfer starts as early as it can."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ..sketched.field import Field
from ..sketched.search_kernel import Placed, nothing_placed
from .epochs import Key


def unrounded(field: Field, chosen: Sequence[Key]) -> Placed:
    """The transfers of an answer in ticks, in the order of their epochs, without those that lead
    nowhere. Inside an epoch what has most behind it goes first."""
    kept = _useful(field, chosen)
    hops, jobs = field.hops, field.jobs
    behind = _behind(field, kept)
    here = dict.fromkeys(map(tuple, np.argwhere(jobs.holds).tolist()), 0)
    free: dict[int, int] = defaultdict(int)
    placed = nothing_placed(len(jobs.root), jobs.holds.shape[1])
    waiting = sorted(kept, key=lambda key: (key[2], -behind[key], key))
    for j, h, _ in waiting:
        rows = range(int(hops.first[h]), int(hops.first[h + 1]))
        start = max([here[j, int(hops.src[h])], *(free[int(hops.row[i])] for i in rows)])
        for i in rows:
            free[int(hops.row[i])] = start + int(hops.hold[i])
        done = start + int(hops.arrives[h])
        here[j, int(hops.dst[h])] = done
        n = int(placed.length[j])
        placed.hop[j, n], placed.start[j, n], placed.length[j] = h, start, n + 1
        if jobs.wants[j, hops.dst[h]]:
            placed.end[j] = max(int(placed.end[j]), done)
    return placed


def _useful(field: Field, chosen: Sequence[Key]) -> list[Key]:
    """Those that bring a chunk to who wants it, or on the way there."""
    hops, needed, kept = field.hops, field.jobs.wants.copy(), []
    for key in sorted(chosen, key=lambda key: -key[2]):
        j, h, _ = key
        if needed[j, hops.dst[h]]:
            needed[j, hops.src[h]] = True
            kept.append(key)
    return kept


def _behind(field: Field, kept: Sequence[Key]) -> dict[Key, int]:
    """Ticks from the start of each until all that it leads to has arrived, if nothing waits."""
    hops = field.hops
    after: dict[tuple[int, int], int] = defaultdict(int)
    found = {}
    for key in sorted(kept, key=lambda key: -key[2]):
        j, h, _ = key
        found[key] = int(hops.arrives[h]) + after[j, int(hops.dst[h])]
        place = j, int(hops.src[h])
        after[place] = max(after[place], found[key])
    return found
