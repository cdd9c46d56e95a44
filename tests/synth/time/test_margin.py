"""Orders that need a tie to fall their way are told from those that do not."""

from __future__ import annotations

import pytest

from weft.dsl.nouns.collective import custom
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, gpu, link
from weft.synth.time.order import JITTER_US, fragile_us, jittered_us
from weft.synth.time.schedule_time import simulate

SIZE = 1_000_000


def tied(first: int, second: int, *, apart: bool = False) -> Schedule:
    """Two chunks that reach GPU 2 at one time and go on over one link, one of them further.

    ``first``, ``second``: the GPUs that the links 0 and 1 come from. ``apart``: the chunk that goes
    further is there long before the other one.
    """
    slow = 5 if apart else 50
    bandwidth = {0: 50, 1: slow}
    machine = Topology(
        "tie",
        tuple(map(gpu, range(5))),
        (
            link(first, 2, bandwidth[first], 1),
            link(second, 2, bandwidth[second], 1),
            link(2, 3, 50, 1),
            link(3, 4, 5, 1),
        ),
    )
    chunks = custom("two", 5, [(0, 0, [0], 0), (1, 1, [1], 0)], [(4, 0, [0], 0), (3, 1, [1], 0)])
    via = {first: 0, second: 1}
    return Schedule.of(
        machine,
        chunks,
        [
            Transfer(0, 0, 2, (via[0],), 0),
            Transfer(1, 1, 2, (via[1],), 0),
            Transfer(0, 2, 3, (2,), 1),
            Transfer(1, 2, 3, (2,), 1),
            Transfer(0, 3, 4, (3,), 2),
        ],
    )


def test_a_tie_shows() -> None:
    """On one of the two machines the chunk with the longer way comes second after the jitter."""
    ratios = [
        jittered_us(one, SIZE) / simulate(one, SIZE).time_us for one in (tied(0, 1), tied(1, 0))
    ]
    assert max(ratios) > 1.05
    assert [fragile_us(one, SIZE) is None for one in (tied(0, 1), tied(1, 0))] == [
        ratio < 1.01 for ratio in ratios
    ]
    assert min(ratios) == pytest.approx(1, abs=1e-3)


def test_what_comes_first_by_far_stays_first() -> None:
    for one in (tied(0, 1, apart=True), tied(1, 0, apart=True)):
        shaken = jittered_us(one, SIZE)
        assert simulate(one, SIZE).time_us <= shaken
        assert shaken == pytest.approx(simulate(one, SIZE).time_us, abs=5 * float(JITTER_US))
