"""Few peers: what a rank may reach, and packings that keep to it, at the rate that they lose."""

import numpy as np
import pytest
from packings import to_schedule

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.symmetry.orbits import orbits_of, without_symmetry
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.base.meter import STEPS, Meter
from weft.synth.engines.packing.trees.machine import few_peers, peers_of
from weft.synth.engines.packing.trees.trees import pack
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import require_valid


def test_far_peers_halve_the_way_again_and_again() -> None:
    machine = topology("dgx-a100:nodes=8")
    found = few_peers(machine, orbits_of(machine), 10)
    assert found is not None
    # Its box mates, the next box, the one before, the opposite one.
    heads = np.nonzero(found)[1]
    assert sorted(heads[heads >= 8].tolist()) == [8, 32, 56]
    assert heads[heads < 8].tolist() == list(range(1, 8))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("peers", [3, 4, 6])
def test_no_rank_has_more_peers(symmetric: bool, peers: int) -> None:
    machine = topology("fat-tree:k=4,oversub=2")
    orbits = orbits_of(machine) if symmetric else without_symmetry(machine)
    found = few_peers(machine, orbits, peers)
    assert found is not None
    k, head = np.nonzero(found)
    src = orbits.images[:, orbits.representatives[k]].ravel()
    dst = orbits.images[:, head].ravel()
    pairs = np.unique(src.astype(np.int64) * machine.ranks + dst)
    assert np.bincount(pairs // machine.ranks).max() <= peers
    assert np.bincount(pairs % machine.ranks).max() <= peers


def test_nothing_changes_where_there_are_few_anyway() -> None:
    machine = topology("torus:4x4")
    assert few_peers(machine, orbits_of(machine), 4) is None


@pytest.mark.parametrize(
    ("name", "kind", "peers"),
    [
        ("dgx-a100:nodes=4", "allgather", 10),
        ("dgx-a100:nodes=4", "allreduce", 9),
        ("dgx-a100:nodes=4", "reduce_scatter", 10),
        ("ring:8,dead=7-0", "allreduce", 2),
        ("fat-tree:k=4,oversub=2", "allreduce", 4),
        ("dgx-a100:nodes=2,nics=8,4", "allgather", 9),
    ],
)
def test_trees_of_few_peers(name: str, kind: str, peers: int) -> None:
    machine = topology(name)
    for one in pack(machine, make(kind, machine.ranks), peers=peers, meter=Meter(STEPS)):
        schedule = to_schedule(one)
        require_valid(schedule)
        assert us_per_byte(schedule) == one.us_per_byte >= one.bound
        assert 0 < peers_of(one) <= peers


def test_the_rate_need_not_suffer() -> None:
    machine = topology("dgx-a100:nodes=4")
    best = pack(machine, make("allreduce", 32), peers=9)[0]
    assert best.optimal
    assert best.remark == ""


def test_the_hub_needs_all_of_them() -> None:
    machine = topology("star:9")
    with pytest.raises(UserError, match="some rank is out of reach"):
        pack(machine, make("allgather", 9), peers=3)


def test_the_engine_says_how_many() -> None:
    machine = topology("dgx-a100:nodes=4")
    problem = Problem(machine, make("allgather", 32), objective=Objective.TIME, bytes=1 << 20)
    outcome = synthesize(problem, "packing{peers=9}", Budget(2))
    schedule = outcome.points[0].schedule
    pairs = np.unique(np.stack([schedule.src, schedule.dst]), axis=1)
    assert np.bincount(pairs[0]).max() <= 9
    assert np.bincount(pairs[1]).max() <= 9
    assert "9 peers of a rank at most, 9 allowed" in outcome.statements


def test_paths_have_no_such_budget() -> None:
    machine = topology("torus:4x4")
    with pytest.raises(UserError, match="the option peers is for trees"):
        synthesize(Problem(machine, make("alltoall", 16)), "packing{peers=4}", Budget(5))
