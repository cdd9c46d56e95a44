"""Gaps of rows, against a search tick by tick."""

import random
from itertools import pairwise

import numpy as np
import pytest

from weft.synth.engines.sketched.timeline_kernel import (
    BusyIntervals,
    SearchHops,
    all_free,
    earliest,
    latest,
    release,
    reserve,
)


def machine(rng: random.Random) -> SearchHops:
    """Three hops that hold one to three of four rows."""
    first, row, hold = [0], [], []
    for _ in range(3):
        mine = rng.sample(range(4), rng.randint(1, 3))
        row += mine
        hold += [rng.randint(1, 6) for _ in mine]
        first.append(len(row))
    none = np.zeros(4, np.int64)
    arrives = [max(hold[a:b]) + 2 for a, b in pairwise(first)]
    columns = (np.array(x, np.int64) for x in (arrives, first, row, hold))
    return SearchHops(none, none, *columns, none, none, none, none, none)  # type: ignore[call-arg]


def busy(rows: BusyIntervals, r: int, tick: int) -> bool:
    return any(rows.begin[r, i] <= tick < rows.end[r, i] for i in range(int(rows.used[r])))


def free(rows: BusyIntervals, hops: SearchHops, h: int, start: int) -> bool:
    mine = range(int(hops.first[h]), int(hops.first[h + 1]))
    return not any(
        busy(rows, int(hops.resource[k]), tick)
        for k in mine
        for tick in range(start, start + int(hops.hold[k]))
    )


@pytest.mark.parametrize("seed", range(40))
def test_gaps_are_found_and_given_back(seed: int) -> None:
    rng = random.Random(seed)
    hops, rows = machine(rng), all_free(4, 64)
    taken: list[tuple[int, int]] = []
    for _ in range(20):
        h, ready = rng.randrange(3), rng.randint(0, 40)
        begin = earliest(rows, hops, h, ready)
        assert begin == next(t for t in range(ready, 400) if free(rows, hops, h, t))
        last = latest(rows, hops, h, ready + int(hops.arrives[h]))
        assert last == next(t for t in range(ready, -400, -1) if free(rows, hops, h, t))
        reserve(rows, hops, h, begin)
        taken.append((h, int(begin)))
    for r in range(4):
        used = int(rows.used[r])
        assert (rows.begin[r, 1:used] >= rows.end[r, : max(used - 1, 0)]).all()
    rng.shuffle(taken)
    for h, begin in taken:
        assert not free(rows, hops, h, begin)
        release(rows, hops, h, begin)
        assert free(rows, hops, h, begin)
    assert not rows.used.any()
