"""Bounds and optima of machines whose switches copy and sum, in exact rationals."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from switch_checks import check_proof

from weft.dsl.catalogue import topology
from weft.dsl.nouns.capabilities import as_fields
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Link, Topology, both_ways, gpu, switch
from weft.dsl.symmetry.orbits import orbits_of
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.bounds.partition import _Prices
from weft.synth.bounds.switch_gain import beyond_transfers
from weft.synth.steiner.graph import SteinerGraph
from weft.synth.steiner.packing import cast_packing
from weft.synth.time.schedule_time import simulate

SHARP = "multicast+reduces+turns"

# (machine, ps per byte of the optimum, whether a bound on all schedules meets it): tables of
# exact optima computed apart from this code. More, and larger ones: tests/grade/in_network.py.
OPTIMA = [
    ("dgx-h100", "35/9", True),
    ("dgx-h100:nvls=on", "5/2", True),
    ("dgx-h100:capable=nvswitch0:multicast+reduces", "20/9", True),
    (f"dgx-h100:capable=nvswitch0:{SHARP}", "20/9", True),
    ("dgx-h100:capable=nvswitch0:multicast", "35/9", True),
    ("dgx-h100:capable=nvswitch0:reduces", "35/9", True),
    ("gb200-nvl72:nvls=on", "365/324", True),
    ("dgx-h100:nodes=2,nvls=on", "5/2", True),
    ("dgx-h100:nodes=4,nvls=on", "15/4", True),
    ("dgx-h100:nodes=4,sharp=fabric", "155/42", True),
    ("dgx-h100:nodes=3,nvls=on,sharp=fabric", "5/2", True),
    ("dgx-h100:nodes=8,nvls=on", "35/8", True),
    ("dgx-h100:nodes=4,nvls=on,capable=nvswitch2..3:none", "85/22", True),
    ("dgx-h100:nodes=4,nvls=on,sharp=fabric,capable=nvswitch2..3:none", "40/11", False),
    ("dgx-a100:nodes=4,sharp=fabric", "155/27", True),
]


@pytest.mark.parametrize(("text", "ps", "proved"), OPTIMA)
def test_the_optimum_is_exact(text: str, ps: str, proved: bool):
    found = bounds(topology(text), make("allreduce", topology(text).ranks))
    assert found.attainable is not None
    assert found.attainable * 10**6 == Fraction(ps)
    assert (found.ps_per_byte == Fraction(ps)) == proved
    assert found.us_per_byte <= found.attainable
    if not proved:
        assert found.rooted is not None
        assert found.rooted.us_per_byte == found.attainable


@pytest.mark.parametrize(
    ("ranks", "ps"), list(enumerate(("20/9", "80/27", "25/9", "8/3", "70/27", "160/63"), 2))
)
def test_groups_of_a_box(ranks: int, ps: str):
    machine = topology("dgx-h100:nvls=on").restricted_to(range(ranks))
    found = bounds(machine, make("allreduce", ranks))
    assert found.attainable is not None
    assert found.ps_per_byte == found.attainable * 10**6 == Fraction(ps)


def fat_tree(
    folder: Path, up: int, able: tuple[str, ...], leaves: int = 4, words: str = SHARP
) -> Topology:
    """Leaves of four hosts at 50 GB/s each below two spines."""
    hosts = [f"h{i}" for i in range(4 * leaves)]
    cables = [(h, f"leaf{i // 4}", 50) for i, h in enumerate(hosts)]
    cables += [(f"leaf{k}", f"spine{s}", up) for k in range(leaves) for s in range(2)]
    edges = [[*ends, width, 1] for a, b, width in cables for ends in ((a, b), (b, a))]
    names = [f"leaf{k}" for k in range(leaves)] + ["spine0", "spine1"]
    switches = {n: words.split("+") for n in names if n.startswith(able)}
    file = folder / "fat.json"
    file.write_text(json.dumps({"edges": edges, "gpu_ids": hosts, "switches": switches}))
    return topology(str(file))


@pytest.mark.parametrize(
    ("up", "able", "ps", "proved"),
    [
        (50, ("leaf",), "20", True),
        (50, ("spine",), "80/3", False),
        (50, ("leaf", "spine"), "20", True),
        (25, ("leaf",), "30", True),
        (25, ("spine",), "32", False),
        (25, ("leaf", "spine"), "20", True),
    ],
)
def test_fat_trees(tmp_path: Path, up: int, able: tuple[str, ...], ps: str, proved: bool):
    found = bounds(fat_tree(tmp_path, up, able), make("allreduce", 16))
    assert found.attainable is not None
    assert found.attainable * 10**6 == Fraction(ps)
    assert (found.ps_per_byte == Fraction(ps)) == proved
    assert (found.rooted is None) == proved


@pytest.mark.parametrize("words", ["multicast", "reduces"])
def test_one_half_alone_gains_nothing_where_switches_meet(tmp_path: Path, words: str):
    """Casts may go over several leaf switches: the bound of all schedules counts them."""
    machine = fat_tree(tmp_path, 50, ("leaf",), words=words)
    found = bounds(machine, make("allreduce", 16))
    assert found.ps_per_byte == Fraction("75/2")
    assert found.attainable == found.us_per_byte


def test_of_equal_packings_the_one_of_fewest_links(tmp_path: Path):
    """Trees of casts alone are as good here as mixtures with transfers, which meet at ports."""
    found = cast_packing(fat_tree(tmp_path, 25, ("leaf",)))
    assert found is not None
    assert [weight for weight, *_ in found.pairs] == [1]


def test_what_transfers_cannot_do():
    for text, us, beyond in (
        ("dgx-h100:nvls=on", 3880, True),
        ("dgx-h100:nvls=on", 3900, False),
        ("dgx-h100", 1, False),
    ):
        problem = Problem(topology(text), make("allreduce", 8), None, Objective.TIME, 10**9)
        assert beyond_transfers(problem, us) == beyond
        assert not beyond_transfers(replace(problem, objective=Objective.LATENCY, bytes=None), us)


def test_the_prices_of_rooted_schedules_prove_what_they_say(tmp_path: Path):
    """A ring of three ranks, two of them also on a switch that computes."""
    edges = [[a, b, 1, 1] for a, b in (("a", "b"), ("b", "c"), ("c", "a"))]
    edges += [[*ends, 2, 1] for r in "abc" for ends in ((r, "s"), ("s", r))]
    edges += [[*ends, 1, 1] for r in "ab" for ends in ((r, "t"), ("t", r))]
    able = {"s": ["multicast", "reduces", "issuer_in_group"], "t": ["multicast", "reduces"]}
    file = tmp_path / "ring.json"
    file.write_text(json.dumps({"edges": edges, "gpu_ids": ["a", "b", "c"], "switches": able}))
    machine = topology(str(file))
    packing = cast_packing(machine)
    assert packing is not None
    assert packing.proof is not None
    check_proof(machine, packing)


def test_other_collectives_gain_nothing():
    for kind in ("allgather", "reduce_scatter", "broadcast", "reduce"):
        plain, able = (
            bounds(topology(text), make(kind, 8)).us_per_byte
            for text in ("dgx-h100", "dgx-h100:nvls=on")
        )
        assert plain == able


def test_latency_where_transfers_and_casts_share_links():
    """A transfer holds a link from time 0 on, a leg of a cast until one α before the end: together
    they use all but one α of it, though each alone leaves two."""
    star = tuple(link for r in range(4) for link in both_ways(r, 4, 50, 1))
    one = replace(switch("sw0"), **as_fields(["multicast"]))
    machine = Topology("star", (*map(gpu, range(4)), one), star)
    problem = Problem(machine, make("allreduce", 4), None, Objective.TIME, 1 << 20)
    points = synthesize(problem, "packing", Budget(effort=1)).points
    mixed = [p.schedule for p in points if len(p.schedule.casts) and len(p.schedule)]
    assert mixed
    least = float(lower_bound_us(bounds(machine, problem.collective), 1 << 20))
    assert min(simulate(s, 1 << 20).time_us for s in mixed) >= least


def test_messages_are_worth_no_more_than_they_cost_where_prices_have_many_digits():
    """What ties add to routes is 1e-9 of the prices, and above 1 in prices of eleven digits."""
    able = replace(switch("sw0"), multicast=True, reduces=True)
    ends = [(r, 3) for r in range(3)] + [(3, r) for r in range(3)]
    links = tuple(Link(a, b, Fraction(7 + i)) for i, (a, b) in enumerate(ends))
    machine = Topology("star", (*map(gpu, range(3)), able), links)
    graphs = tuple(SteinerGraph.of(machine, outward=way) for way in (False, True))
    search = _Prices(machine, orbits_of(machine), (graphs[0], graphs[1]), ((0,), (1,), (2,)))
    primes = (4999, 4993, 4987)
    found = search._judged(np.array([(2400 + 11 * k) / p for k, p in enumerate(2 * primes)]))
    assert found is not None
    up, down = found.prices[:3], found.prices[3:]
    assert found.per_message <= min(
        min(
            up[a] + down[b],
            Fraction(up[a] + sum(down) - down[a], 2),
            Fraction(down[a] + sum(up) - up[a], 2),
        )
        for a, b in permutations(range(3), 2)
    )
