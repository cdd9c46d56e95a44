"""Machines of known α, β, groups and shared bandwidths, measured in their own time."""

import importlib.util
import os
import random
from itertools import permutations

import numpy as np
import pytest
from standin_nccl import installed
from virtual_wire import Machine, VirtualHub, VirtualWire, flat

from weft.backends.cli import main
from weft.backends.formats.p2p.embedded.nccl import on_comm
from weft.backends.ranks.profile.calls import WireCaller, call_times
from weft.backends.ranks.profile.model import CallPath, CallStep, CallTime, Findings, ProbeLimits
from weft.backends.ranks.profile.noise import classes
from weft.backends.ranks.profile.probe import Probe
from weft.backends.ranks.profile.ranks import (
    CallNumbers,
    NcclCaller,
    call_numbers,
    probe_of,
    topology_of,
)
from weft.backends.ranks.profile.survey import survey
from weft.dsl.nouns.parts import Medium
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


def test_one_memory_of_all_ranks():
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


# --- noise ----------------------------------------------------------------------------------------


def drawn(centres, sweeps, noise, seed):
    rng = np.random.default_rng(seed)
    return np.log(np.array(centres, float))[:, None] + noise * rng.standard_normal(
        (len(centres), sweeps)
    )


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2, 0.5])
def test_noise_alone_tells_nothing_apart(noise):
    found = [len(set(classes(drawn([5.0] * 40, 8, noise, seed)).tolist())) for seed in range(40)]
    assert found == [1] * 40


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_two_kinds_are_found(noise):
    for seed in range(20):
        label = classes(drawn([3, 9, 3, 9, 9, 3], 8, noise, seed))
        assert label.tolist() == [0, 1, 0, 1, 1, 0]


def test_three_kinds():
    centres = [1] * 5 + [2] * 3 + [8]
    assert classes(drawn(centres, 10, 0.05, 3)).tolist() == [0] * 5 + [1] * 3 + [2]


def test_what_matters_little_is_alike():
    assert set(classes(drawn([10, 10.5, 11], 6, 0.0, 0)).tolist()) == {0}


def test_a_disturbance_of_half_the_time_is_no_difference():
    samples = drawn([5.0] * 20, 10, 0.05, 1)
    samples[:7, :5] += 0.6
    assert set(classes(samples).tolist()) == {0}


def test_what_slows_a_whole_sweep_is_no_noise_of_one():
    samples = drawn([4, 4, 4, 5.5, 5.5, 5.5], 9, 0.01, 2)
    samples += np.linspace(0, 2, 9)
    assert classes(samples).tolist() == [0, 0, 0, 1, 1, 1]


# --- GPUs -----------------------------------------------------------------------------------------


def test_a_survey_over_nccl():
    effort, found = ProbeLimits(seconds=0.5), []
    with installed() as gpu:
        import cupy

        name = cupy.cuda.nccl.get_unique_id()

        def body(rank: int) -> None:
            with cupy.cuda.Stream(non_blocking=True):
                comm = cupy.cuda.nccl.NcclCommunicator(2, name, rank)
                probe = probe_of(on_comm(comm), effort)
                one = survey(probe, effort, 0, lambda _: None, NcclCaller(probe))
                if one is not None:
                    found.append(one)

        gpu.machine.run(2, body)
    (one,) = found
    made = topology_of("two", one)
    assert made.ranks == 2
    assert {(x.src, x.dst) for x in made.links} == {(0, 1), (1, 0)}
    rings = [x for x in one.calls if x.step is CallStep.RING]
    assert [(x.protocol, x.count) for x in rings] == [("Simple", 2), ("LL", 2), ("LL128", 2)]
    assert all(x.us > 0 for x in one.calls)
    assert "NCCL_PROTO" not in os.environ


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="there is CuPy")
def test_what_is_missing_is_named(capsys, tmp_path):
    out = tmp_path / "machine.json"
    assert main(["profile", "--on", "nccl", "-o", str(out)]) == 4
    assert "CuPy is not installed" in capsys.readouterr().err
    assert not out.exists()


# --- calls ----------------------------------------------------------------------------------------


START = 5.0


class SlowStart(VirtualWire):
    """A rank that takes its time before the first round of a call, when it gets its scratch."""

    def empty(self, count, like):
        self.time += START
        return super().empty(count, like)


def timed(machine: Machine, groups: list[list[int]]) -> dict[tuple[CallStep, CallPath, int], float]:
    found: list[CallTime] = []

    def main(wire: VirtualWire) -> None:
        own = SlowStart(wire.hub, wire.rank)
        probe = Probe(own, own, np.copy, np.copy, batches=2)
        found.extend(call_times(probe, WireCaller(probe), groups, lambda _: None))

    VirtualHub(machine).run(main)
    return {(one.step, one.way, one.count): one.us for one in found}


def test_rings_take_the_start_and_their_steps() -> None:
    found = timed(flat(4, alpha=2.0), [[0, 1, 2, 3]])
    starts = found[CallStep.EMPTY, CallPath.NONE, 1]
    assert starts == pytest.approx(START, rel=0.01)
    for ranks in (2, 3, 4):
        us = found[CallStep.RING, CallPath.INSIDE, ranks]
        assert us == pytest.approx(starts + 2 * (ranks - 1) * 2.0, rel=0.02)
    assert not any(step is CallStep.FAN for step, _, _ in found)


def test_rings_between_groups_and_messages_that_leave_by_one_nic() -> None:
    group = np.arange(6) // 2
    same = group[:, None] == group[None, :]
    remote = {(0, b): ("nic",) for b in range(2, 6)}
    machine = Machine(np.where(same, 1.0, 8.0), np.full((6, 6), 1e-6), remote, {"nic": 0.25})
    found = timed(machine, [[0, 1], [2, 3], [4, 5]])
    us = [found[CallStep.RING, CallPath.BETWEEN, ranks] for ranks in (2, 3)]
    # Each of the two more steps has a message of rank 0, which the NIC holds for so long.
    assert us[1] - us[0] == pytest.approx(2 * (8.0 + 8 * 0.25), rel=0.01)
    fans = [found[CallStep.FAN, CallPath.BETWEEN, count] for count in (1, 2, 4)]
    assert fans[2] - fans[1] == pytest.approx(2 * 8 * 0.25, rel=0.05)
    assert (CallStep.RING, CallPath.INSIDE, 3) not in found


# --- numbers from times ---------------------------------------------------------------------------


PLANTED = {"LL": (6.6, 0.7), "LL128": (14.0, 2.2), "Simple": (8.4, 3.9)}
NVLINK = {CallPath.INSIDE: Medium.NVLINK, CallPath.BETWEEN: Medium.NETWORK}


def ring(
    ranks: int, us: float, protocol: str = "Simple", way: CallPath = CallPath.INSIDE
) -> CallTime:
    return CallTime(CallStep.RING, way, protocol, ranks, 8, us)


def fan(ranks: int, us: float) -> CallTime:
    return CallTime(CallStep.FAN, CallPath.BETWEEN, "Simple", ranks, 8, us)


def values(found: CallNumbers) -> dict[str, float]:
    return {one.key: one.value for one in found.told}


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_planted_starts_and_alphas_come_back_by_protocol_and_way(noise: float) -> None:
    rng = random.Random(1)
    times = [
        ring(k, (start + 2 * (k - 1) * step) * rng.uniform(1 - noise, 1 + noise), protocol, way)
        for way, factor in ((CallPath.INSIDE, 1), (CallPath.BETWEEN, 4))
        for protocol, (start, alpha) in PLANTED.items()
        for step in [alpha * factor]
        for k in range(2, 9)
    ]
    times += [CallTime(CallStep.EMPTY, CallPath.NONE, "Simple", 1, 0, 4.5)]
    times += [fan(n, 20 + 1.5 * n) for n in (1, 2, 4, 8)]
    found = call_numbers(times, NVLINK, {CallPath.INSIDE: 7.5})
    expected = {"host.per_gpu": 4.5, "message.Simple": 1.5, "nominal.nvlink": 7.5}
    for protocol, (start, alpha) in PLANTED.items():
        expected |= {
            f"start.{protocol}": start,
            f"alpha.nvlink.{protocol}": alpha,
            f"alpha.network.{protocol}": 4 * alpha,
        }
    assert values(found) == pytest.approx(expected, rel=4 * noise + 1e-9)
    assert not found.remarks
    lines = [one.worst for one in found.told if one.worst is not None]
    assert len(lines) == 10
    assert max(lines) <= 2 * noise + 1e-9
    assert all(one.given().source.startswith("measured: ") for one in found.told)


def test_one_ring_parts_nothing() -> None:
    found = call_numbers([ring(2, 12.0)], NVLINK, {})
    assert not found.told
    assert "a third rank" in found.remarks[0]
    assert "message" not in found.remarks[0]


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ([ring(2, 10), ring(3, 8), ring(4, 6.5)], "a step takes -0.8"),
        ([ring(2, 10), ring(3, 40), ring(4, 70)], "the start takes -"),
        ([ring(2, 10), ring(3, 100), ring(4, 20)], "off a straight line"),
    ],
)
def test_times_that_make_no_sense_tell_nothing_and_it_is_said(times, why) -> None:
    found = call_numbers(times, NVLINK, {})
    assert not found.told
    assert why in found.remarks[0]
    assert "start.Simple keeps its default" in found.remarks[0]


def test_without_a_class_of_links_only_the_start_is_told() -> None:
    found = call_numbers([ring(2, 12), ring(3, 16), ring(4, 20)], {}, {CallPath.INSIDE: 2.5})
    assert values(found) == pytest.approx({"start.Simple": 8})
    assert "no class of link is known" in found.remarks[0]
    assert "2 µs a step" in found.remarks[0]


def test_a_fan_that_is_quicker_with_more_ranks_tells_nothing() -> None:
    found = call_numbers([fan(1, 9), fan(2, 8.5), fan(4, 7.5)], {}, {})
    assert not found.told
    assert "message.Simple keeps its default" in found.remarks[0]


def large(us: float, channels: int = 0) -> CallTime:
    return CallTime(CallStep.LARGE, CallPath.INSIDE, "Simple", 2, 64 << 20, us, channels)


def test_a_large_message_tells_what_is_reached_and_what_a_channel_sends() -> None:
    net = (64 << 20) / 200_000  # µs at 200 GB/s
    times = [ring(2, 12.0), large(net + 12), large(10 * net + 12, channels=1)]
    found = call_numbers(times, NVLINK, {}, {CallPath.INSIDE: 250_000.0})
    assert values(found) == pytest.approx({"reach.nvlink": 0.8, "cap.send": 20.0})
    assert "200 of 250 GB/s" in found.told[0].of


def test_a_large_message_as_quick_as_a_small_one_tells_nothing() -> None:
    found = call_numbers([ring(2, 12.0), large(11.0)], NVLINK, {}, {CallPath.INSIDE: 250_000.0})
    assert [one.of for one in found.told] == ["bandwidths of the links are measured ones"]
    assert any("no bandwidth is told" in one for one in found.remarks)


def test_more_than_the_links_have_is_all_of_it() -> None:
    found = call_numbers([ring(2, 1.0), large(10.0)], NVLINK, {}, {CallPath.INSIDE: 1000.0})
    assert values(found) == {"reach.nvlink": 1.0}


def test_one_channel_that_fills_the_link_tells_no_cap() -> None:
    times = [ring(2, 1.0), large(3000.0), large(3100.0, channels=1)]
    found = call_numbers(times, NVLINK, {}, {})
    assert not found.told
    assert any("cap.send keeps its default" in one for one in found.remarks)


def test_links_that_were_measured_have_no_share_of_a_data_sheet() -> None:
    """A ring that is no line left the family's nominal and reach: α and bandwidth counted twice."""
    times = [ring(2, 10), ring(3, 40), ring(4, 70)]
    found = call_numbers(times, NVLINK, {CallPath.INSIDE: 48.6}, {CallPath.INSIDE: 16_000.0})
    assert values(found) == pytest.approx({"nominal.nvlink": 48.6, "reach.nvlink": 1.0})
