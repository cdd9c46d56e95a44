"""What a race starts with, when it is interrupted."""

from __future__ import annotations

import itertools

import pytest

from weft.backends.tune.gather import gather
from weft.backends.tune.options import TuneOptions
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make


def test_an_interruption_before_any_schedule_is_none_that_there_is_none() -> None:
    options = TuneOptions(SizeRange(1024, 2048), engines=("classic",))
    asked = topology("ring:4"), make("allgather", 4)
    with pytest.raises(KeyboardInterrupt):
        gather(*asked, options, lambda label, function, given: [None for _ in given])
    nothing = {"schedules": [], "why": "it cannot"}
    found = gather(*asked, options, lambda label, function, given: [nothing for _ in given])
    assert (found.runners, found.why) == ([], "it cannot")
    counted = itertools.count()
    found = gather(
        *asked,
        options,
        lambda label, function, given: [
            {"schedules": [], "why": f"reason {next(counted)}"} for _ in given
        ],
    )
    assert found.why == f"reason 0; reason 1; reason 2; and {next(counted) - 3} more"
