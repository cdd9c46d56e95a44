"""Algorithms of switches that sum and copy: right, at the rate of their formula, where able."""

from dataclasses import replace
from fractions import Fraction

import pytest
from casts import racks

from weft.dsl.base.errors import UserError
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import ROOTED, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.engines.classic.in_network import IN_NETWORK, InNetwork
from weft.synth.engines.classic.place import Site, computes
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify
from weft.synth.time.latency import latency_us
from weft.synth.time.schedule_time import simulate

SHARP = "multicast+reduces+turns"
NVLS_GBPS, NIC_GBPS = 450, 50


def boxes(able: str) -> Topology:
    """Two boxes of three GPUs, a NIC for each on a switch for the GPUs of its number."""
    return topology(f"dgx-h100:nodes=2,{able}").restricted_to([0, 1, 2, 8, 9, 10])


def machine_of(one: InNetwork) -> Topology:
    """A small machine with what an algorithm needs, in which its formula holds on every level."""
    if one.levels > 1:
        return boxes("nvls=on,sharp=fabric")
    if one.name in ("sharp", "atp"):
        return topology(f"hub:5,bw=450GB/s,capable=hub:{SHARP}")
    return topology("dgx-h100:nvls=on").restricted_to(range(5))


PLAIN = [one for one in IN_NETWORK if not one.pooled]
EACH = pytest.mark.parametrize("one", PLAIN, ids=lambda one: f"{one.name}-{one.kind}")


@EACH
def test_each_is_right_at_the_rate_of_its_formula(one: InNetwork) -> None:
    machine, root = machine_of(one), 2 if one.kind in ROOTED else 0
    schedule = one.schedule(Site(machine).switches, root=root)
    verdict = verify(schedule)
    assert verdict.ok, verdict.problems
    shape = (3, 2) if one.levels > 1 else (5,)
    widths = (NVLS_GBPS, NIC_GBPS)[: one.levels]
    costs = one.cost(shape)
    slowest = max(c.volume / w for c, w in zip(costs, widths, strict=True))
    assert us_per_byte(schedule) == slowest / BYTES_PER_US_PER_GBPS
    finer = one.schedule(Site(machine).switches, pieces=2, root=root)
    assert verify(finer).ok
    assert us_per_byte(finer) == us_per_byte(schedule)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nvls_one_shot", "dgx-h100:nvls=on"),
        ("nvls", "dgx-h100:nvls=on"),
        ("sharp", f"hub:8,capable=hub:{SHARP}"),
        ("atp", f"hub:8,capable=hub:{SHARP}"),
    ],
)
def test_the_latency_is_that_of_the_formula(name: str, text: str) -> None:
    machine = topology(text)
    one = next(x for x in IN_NETWORK if (x.name, x.kind) == (name, "allreduce"))
    (cost,) = one.cost((machine.ranks,))
    hop = float(2 * machine.links[0].latency)
    assert latency_us(one.schedule(Site(machine).switches)) == pytest.approx(cost.steps * hop)


@pytest.mark.parametrize(
    ("text", "name", "most_us"),
    [
        ("dgx-h100:nvls=on", "nvls", 2560),
        ("dgx-h100:capable=nvswitch0:multicast+reduces", "nvls", 2270),
        (f"dgx-h100:capable=nvswitch0:{SHARP}", "sharp", 2235),
    ],
)
def test_slices_in_a_planned_order_come_near_the_rate(text: str, name: str, most_us: float) -> None:
    machine = topology(text)
    problem = Problem(machine, make("allreduce", 8), None, Objective.TIME, 10**9)
    outcome = synthesize(problem, f"classic{{algorithm={name}}}", Budget(1))
    assert simulate(outcome.points[0].schedule, 10**9).time_us <= most_us


@pytest.mark.parametrize(
    ("options", "GBps"),
    [
        ("slots=8,packet=256", Fraction(8 * 256, 2000)),
        ("slots=8,packet=256,rtt=10", Fraction(8 * 256, 10_000)),
        ("slots=4096", None),
    ],
)
def test_slots_of_a_switch_limit_the_rate(options: str, GBps: Fraction | None) -> None:
    """8 slots of 256 B that are free again after 2 µs let 1.024 GB/s through, of a port of 12.5."""
    machine = topology(f"hub:4,bw=12.5GB/s,alpha=1us,capable=hub:{SHARP}")
    problem = Problem(machine, make("allreduce", 4), None, Objective.TIME, 10**7)
    outcome = synthesize(problem, f"classic{{algorithm=switchml,{options}}}", Budget(1))
    schedule = outcome.points[0].schedule
    assert verify(schedule).ok
    least = 10**7 / (float(GBps or machine.links[0].bandwidth) * 1000)
    assert simulate(schedule, 10**7).time_us == pytest.approx(least + 2, rel=0.01)
    assert float(us_per_byte(schedule)) == pytest.approx(least / 10**7)


def test_trees_through_one_switch_share_its_slots() -> None:
    one = next(x for x in IN_NETWORK if x.name == "switchml")
    schedule = one.schedule(Site(racks("leaf", "spine")).switches, pieces=2)
    sharp = next(x for x in IN_NETWORK if x.name == "sharp" and x.kind == "allreduce")
    assert not sharp.schedule(Site(racks("leaf", "spine")).switches).casts.GBps
    (alpha,) = {link.latency for link in schedule.topology.links}
    # Two spines, two pieces of each tree; to the spine and back are four hops.
    assert set(schedule.casts.GBps) == {Fraction(512 * 1024, 2 * 2 * 1000) / (4 * alpha)}


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        (f"hub:4,capable=hub:{SHARP}", "slots=0", "slots is 0"),
        (f"hub:4,capable=hub:{SHARP}", "rtt=-1", "rtt is -1"),
        ("hub:4,capable=hub:multicast+reduces", "slots=9", "turns them round"),
    ],
)
def test_pools_that_make_no_sense_are_refused(text: str, options: str, why: str) -> None:
    problem = Problem(topology(text), make("allreduce", 4), None, Objective.BANDWIDTH)
    with pytest.raises(UserError, match=why):
        synthesize(problem, f"classic{{algorithm=switchml,{options}}}", Budget(1))
    with pytest.raises(UserError, match="are of switchml"):
        synthesize(problem, "classic{algorithm=sharp,slots=7}", Budget(1))


def test_a_tree_of_leaves_and_spines_has_a_share_at_each_spine() -> None:
    one = next(x for x in IN_NETWORK if x.name == "sharp")
    both = one.schedule(Site(racks("leaf", "spine")).switches)
    assert len(both.casts) == both.collective.chunks == 2
    assert us_per_byte(both) * BYTES_PER_US_PER_GBPS == Fraction(1, NIC_GBPS)
    # Spines that only forward pass the copies on, side by side.
    below = one.schedule(Site(racks("leaf")).switches)
    assert verify(below).ok
    assert us_per_byte(below) == us_per_byte(both)


def test_a_machine_whose_switches_forward_has_none() -> None:
    machine = topology("dgx-h100:nodes=2")
    assert not computes(machine)
    assert not [one for one in Site(machine).defined("allreduce") if isinstance(one, InNetwork)]
    with pytest.raises(UserError, match="no switch that sums and copies"):
        IN_NETWORK[0].schedule(Site(machine).switches)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("nvls", "dgx-h100:capable=nvswitch0:multicast", "no switch that sums and copies"),
        ("nvls", "dgx-h100:nodes=2,nvls=on", "ranks 0 … 15 attached"),
        ("nvls_ring", "dgx-h100:nvls=on", "two or more boxes"),
        ("nvls_sharp", "dgx-h100:nodes=2,nvls=on", "no tree of switches"),
        ("sharp", "dgx-h100:nodes=2,nvls=on,sharp=fabric", "joins ranks 0 … 15"),
    ],
)
def test_what_a_machine_lacks_is_told(name: str, text: str, why: str) -> None:
    one = next(x for x in IN_NETWORK if (x.name, x.kind) == (name, "allreduce"))
    with pytest.raises(UserError, match=why):
        one.schedule(Site(topology(text)).switches)


def test_boxes_and_rails_on_one_switch_are_no_tree() -> None:
    one = next(x for x in IN_NETWORK if x.name == "nvls_sharp")
    with pytest.raises(UserError, match="leads to leaf0 twice"):
        one.schedule(Site(racks("leaf", "spine")).switches)


def test_too_few_groups_are_told() -> None:
    machine = topology("hub:4,capable=hub:multicast+reduces")
    hub = machine.nodes[4]
    narrow = replace(
        machine, nodes=(*machine.nodes[:4], replace(hub, limits=replace(hub.limits, groups=1)))
    )
    one = next(x for x in IN_NETWORK if x.name == "nvls")
    with pytest.raises(UserError, match="4 groups of hub, which has 1"):
        one.schedule(Site(narrow).switches)
