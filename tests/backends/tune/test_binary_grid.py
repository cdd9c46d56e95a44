"""Plans are for messages of sizes that people send."""

import patterns
import pytest
from shares import in_pieces

from weft.backends.compile.source import MOST_GRAINS, binary, fitted
from weft.backends.compile.variants import Variant
from weft.backends.tune.manifest import _odd
from weft.backends.tune.work import clock, on_binary_grid
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import TunedPlan
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, dump
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify


@pytest.mark.parametrize("shares", [[1, 1, 1], [5, 2], [1, 2, 4, 5]])
def test_odd_shares_become_grains_of_a_power_of_two(shares: list[int]) -> None:
    schedule = in_pieces(patterns.ring_allgather(4, 1), [shares] * 4)
    found = on_binary_grid(schedule)
    assert verify(found).ok
    assert binary(4, found.collective.message_chunks)
    assert us_per_byte(found) <= us_per_byte(schedule) * 21 / 20


def test_shares_that_are_round_stay() -> None:
    for schedule in (
        patterns.ring_allgather(3, 1),
        in_pieces(patterns.ring_allgather(4, 1), [[1, 3]] * 4),
    ):
        assert on_binary_grid(schedule) is schedule
    assert binary(3, 12)
    assert not binary(3, 9)


@pytest.fixture(scope="module")
def sixths() -> Schedule:
    """SCCL's allgather for a DGX-1: six chunks that go different ways."""
    machine = topology("dgx1")
    problem = Problem(machine, make("allgather", 8), None, Objective.BANDWIDTH)
    found = synthesize(problem, "exact{chunks=6,max-steps=3}", Budget(20)).points[0].schedule
    assert found.collective.message_chunks == 8 * 6
    return found


@pytest.mark.parametrize("segments", [1, 2, 4, 8])
def test_sixths_that_were_rounded_stay_so_in_segments(sixths: Schedule, segments: int) -> None:
    """Sixths themselves are a coarser grid, and a better one, that no such message divides into."""
    round_ones = on_binary_grid(sixths)
    assert us_per_byte(round_ones) <= us_per_byte(sixths) * 21 / 20
    cut, _ = fitted(round_ones, "msccl-xml", segments)
    assert binary(8, cut.collective.message_chunks * segments)
    assert cut.collective.message_chunks * segments <= MOST_GRAINS
    assert verify(cut).ok


def test_a_message_is_not_cut_into_less_than_elements() -> None:
    """Unless it has to: an allgather of four ranks has four chunks at least."""
    whole = patterns.ring_allgather(4, 1)
    fine = in_pieces(whole, [[1] * 16] * 4)
    given = {
        "runtime": "msccl",
        "model": "datasheet",
        "protocols": [],
        "in_place": [False],
        "variant": Variant().to_json(),
        "sizes": [8, 128, 256],
    }
    assert None not in clock({**given, "schedule": dump(whole)})
    assert [us is None for us in clock({**given, "schedule": dump(fine)})] == [True, True, False]


def test_plans_that_a_runtime_passes_over_are_told() -> None:
    plans = [TunedPlan(name, 1, 2, "", "", "Simple", 1, 1, {}, "", ()) for name in "ab"]
    told = list(_odd(make("allgather", 4), plans, [16, 24]))
    assert len(told) == 1
    assert "b is for messages that are a multiple of 24 elements" in told[0]
