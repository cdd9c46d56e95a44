"""The search: rows have room for everything that chunks can put on them."""

from fractions import Fraction

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.base.engine import Budget
from weft.synth.engines.sketched.field import SearchInstance
from weft.synth.engines.sketched.search import PlacementSearch


@pytest.mark.parametrize("name", ["ring:5", "full:4", "torus:3x3", "hub:4"])
def test_rows_have_room_for_sums(name: str) -> None:
    """On a cycle a sum may take a link on the way up and again on the way down."""
    machine = topology(name)
    whole = make("allreduce", machine.ranks)
    problem = Problem(machine, whole, None, Objective.TIME, 10**6)
    collective = whole.split(4 * machine.ranks)
    search = PlacementSearch.of(
        SearchInstance.of(problem, collective, Fraction(10**6, 4 * machine.ranks)), 0
    )
    search.run(Budget(5).meter(), 100, 0.0)
    room = search.busy.begin.shape[1]
    assert 0 < int(search.busy.used.max()) <= room
    for r in range(len(search.busy.used)):
        used = int(search.busy.used[r])
        begin, end = search.busy.begin[r, :used], search.busy.end[r, :used]
        assert (begin[1:] >= end[:-1]).all()
