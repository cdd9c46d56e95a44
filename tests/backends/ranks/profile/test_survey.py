"""Machines of known α, β, groups and shared bandwidths, measured in their own time."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from virtual_wire import Machine, VirtualHub, VirtualWire, flat

from weft.backends.ranks.profile.machine import topology_of
from weft.backends.ranks.profile.model import Findings, ProbeLimits
from weft.backends.ranks.profile.probe import Probe
from weft.backends.ranks.profile.survey import survey
from weft.dsl.nouns.topology import Topology

EFFORT = ProbeLimits(seconds=1e9, batches=3, most_in_batch=2, least=5, most=5)


def found_on(machine: Machine, effort: ProbeLimits = EFFORT, seed: int = 0) -> Findings:
    found = []

    def main(wire: VirtualWire) -> None:
        probe = Probe(wire, wire, np.copy, np.copy, effort.batches)
        found.append(survey(probe, effort, seed, lambda _: None))

    VirtualHub(machine).run(main)
    (one,) = [x for x in found if x is not None]
    return one


def topology_on(machine: Machine, **more: object) -> Topology:
    return topology_of("planted", found_on(machine, **more))


def links(machine: Topology) -> dict[tuple[int, int], tuple[float, float]]:
    return {(x.src, x.dst): (float(x.latency), float(x.bandwidth)) for x in machine.links}


def shared(machine: Topology) -> dict[str, float]:
    return {r.name: float(r.bandwidth) for r in machine.resources}


def two_groups(**more: object) -> Machine:
    """Ranks 0, 2, 4 and 1, 3."""
    side = np.arange(5) % 2
    same = side[:, None] == side[None, :]
    return Machine(np.where(same, 1.0, 5.0), np.where(same, 1 / 20000, 1 / 8000), **more)


NOISY = {"noise": 0.1, "outliers": 0.05, "seed": 2}
NOISES = [{}, NOISY]
SOME = {"noise": 0.05, "outliers": 0.05, "seed": 1}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_flat_machine_is_one_class_of_equal_links(ranks, noise):
    machine = topology_on(flat(ranks, **noise))
    assert len(machine.links) == ranks * (ranks - 1)
    ((alpha, bandwidth),) = set(links(machine).values())
    assert alpha == pytest.approx(2.0, rel=0.1)
    assert bandwidth == pytest.approx(10.0, rel=0.1)
    assert not machine.resources
    assert machine.hosts == 1
    assert ranks < 3 or machine.symmetries


def test_two_groups():
    found = found_on(two_groups(**NOISY))
    assert found.groups == ((0, 2, 4), (1, 3))
    assert found.shared == ()
    for (a, b), (alpha, bandwidth) in links(topology_of("x", found)).items():
        near = (a - b) % 2 == 0
        assert alpha == pytest.approx(1 if near else 5, rel=0.12)
        assert bandwidth == pytest.approx(20 if near else 8, rel=0.12)


def test_each_group_has_one_way_out_and_one_way_in():
    """Each NIC gives 8 GB/s each way, as much as a link between groups alone."""
    uses = {
        (a, b): (f"out {a % 2}", f"in {b % 2}") for a, b in permutations(range(5), 2) if (a - b) % 2
    }
    nics = dict.fromkeys(("out 0", "out 1", "in 0", "in 1"), 1 / 8000)
    machine = topology_on(two_groups(uses=uses, shared=nics, **NOISY))
    got = shared(machine)
    # All of one group's ways out are all of the other's ways in: two names for one thing.
    assert len(got) == 2
    for name, rate in got.items():
        assert name in ("out of group 0", "out of group 1")
        assert rate == pytest.approx(8, rel=0.15)


def test_half_duplex_pairs():
    uses = {(a, b): (f"{min(a, b)}-{max(a, b)}",) for a, b in permutations(range(4), 2)}
    cables = {name: 1 / 10000 for (name,) in uses.values()}
    got = shared(topology_on(flat(4, uses=uses, shared=cables, **NOISY)))
    assert sorted(got) == sorted(f"pair {a}-{b}" for a in range(4) for b in range(a + 1, 4))
    assert list(got.values()) == [pytest.approx(10, rel=0.12)] * len(got)
    assert len(set(got.values())) == 1


def test_what_leaves_a_rank_shares_its_port():
    uses = {(a, b): (f"out {a}",) for a, b in permutations(range(4), 2)}
    ports = {f"out {a}": 1 / 12000 for a in range(4)}
    got = shared(topology_on(flat(4, uses=uses, shared=ports, **NOISY)))
    assert sorted(got) == [f"out of rank {r}" for r in range(4)]
    assert list(got.values()) == [pytest.approx(12, rel=0.12)] * len(got)


def test_one_memory_for_everybody():
    uses = dict.fromkeys(permutations(range(4), 2), ("memory",))
    got = shared(topology_on(flat(4, uses=uses, shared={"memory": 1 / 10000}, **NOISY)))
    assert list(got) == ["everybody"]
    assert got["everybody"] == pytest.approx(10, rel=0.15)


def test_a_slow_direction():
    """From rank 0 to rank 2 a third of the bandwidth, and not back."""
    base = flat(4, **NOISY)
    beta = base.beta.copy()
    beta[0, 2] *= 3
    got = links(topology_on(Machine(base.alpha, beta, noise=base.noise, outliers=base.outliers)))
    assert got[0, 2][1] == pytest.approx(10 / 3, rel=0.12)
    others = {ends: x for ends, x in got.items() if ends != (0, 2)}
    assert len(set(others.values())) == 1
    assert others[2, 0][1] == pytest.approx(10, rel=0.12)


def test_messages_that_cost_the_whole_machine():
    """A message holds the cores for 4 µs, however small it is."""
    found = found_on(flat(4, costs=4.0, **SOME))
    assert found.overhead == pytest.approx(4, rel=0.3)
    machine = topology_of("x", found)
    assert "everybody" in shared(machine)
    assert any("--overhead" in note for note in machine.notes)
    assert found_on(flat(3, **SOME)).overhead == 0
