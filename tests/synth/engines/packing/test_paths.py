"""Path packings: exact, legal, and at the bound as rationals."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np
import pytest
from bound_checks import check
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, custom, make
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.topology import Resource, Topology, gpu, link, switch
from weft.synth.base.meter import Meter
from weft.synth.bounds import bounds
from weft.synth.engines.packing.paths.net import PATH_EFFORT, PathEffort
from weft.synth.engines.packing.paths.paths import pack_paths
from weft.synth.engines.packing.trees.demands import moves_pairs, pairs_of
from weft.synth.engines.packing.trees.model import PackedTree, Packing


def check_paths(packing: Packing) -> None:
    """Legal routes, whole demands, and exactly the rate that is stated.

    From the definitions, sharing no code with what makes packings: every image of every template
    is walked, link by link, in Fractions.
    """
    topology, n = packing.topology, packing.topology.ranks
    wanted = _wanted(packing)
    carried: dict[int, Fraction] = defaultdict(Fraction)
    load: dict[int, Fraction] = defaultdict(Fraction)
    assert packing.images[0].tolist() == list(range(len(topology.nodes)))
    for nodes, links in zip(packing.images.tolist(), packing.link_images.tolist(), strict=True):
        for tree in packing.trees:
            chunk = tree.chunk
            if len(packing.images) > 1:  # alltoall: chunk s * n + d goes to its image
                chunk = nodes[chunk // n] * n + nodes[chunk % n]
            assert _ends(packing, tree, nodes, links) == wanted[chunk]
            carried[chunk] += tree.weight
            for i in tree.route_links.tolist():
                load[links[i]] += tree.weight
    assert all(carried[chunk] == 1 for chunk in wanted)
    assert set(carried) == set(wanted)
    for row, resource in enumerate(topology.resources, len(topology.links)):
        load[row] = sum((load[i] for i in resource.links), Fraction(0))
    capacity = topology.capacities()
    busiest = max((x / capacity[row] for row, x in load.items()), default=Fraction(0))
    assert packing.us_per_byte == busiest / (1000 * packing.collective.message_chunks)
    assert packing.bound <= packing.us_per_byte


def _wanted(packing: Packing) -> dict[int, tuple[int, int]]:
    """Source and destination of every chunk that must move."""
    held = {chunk: rank for rank, chunk, _, _ in packing.collective.pre.rows().tolist()}
    ends = {chunk: (held[chunk], r) for r, chunk, _, _ in packing.collective.post.rows().tolist()}
    return {chunk: pair for chunk, pair in ends.items() if pair[0] != pair[1]}


def _ends(
    packing: Packing, tree: PackedTree, nodes: list[int], links: list[int]
) -> tuple[int, int]:
    """Where the image of a path begins and ends, after walking it."""
    topology = packing.topology
    assert 0 < tree.weight <= 1
    assert not tree.reduce.any()
    at = first = nodes[int(tree.src[0])]
    for hop in range(len(tree)):
        assert nodes[int(tree.src[hop])] == at
        route = [
            links[i] for i in tree.route_links[tree.route_start[hop] : tree.route_start[hop + 1]]
        ]
        assert route
        for place, i in enumerate(route):
            assert topology.links[i].src == at
            at = topology.links[i].dst
            assert topology.nodes[at].stores == (place == len(route) - 1)
        assert at == nodes[int(tree.dst[hop])]
    return first, at


MACHINES = (
    "dgx1 ndv2 dgx2 dgx2:nodes=2 dgx-a100:nodes=2 mi300x:dead=0-1 mi250 torus:4x3 "
    "torus:5x4,dead=0-1 hypercube:4 mesh:3x4 line:5 star:5 ring:8,bw=50GB/s,dead=7-0 "
    "fat-tree:k=4,oversub=2 dgx-a100:nodes=2,nics=8,2 dragonfly:p=1,a=2,h=1 torus:3x3x3 "
    "amd8"
).split()


def best(machine: Topology, collective: Collective, effort: PathEffort = PATH_EFFORT) -> Packing:
    """The first candidate, after checking all of them."""
    found = pack_paths(machine, collective, effort=effort)
    for one in found:
        check_paths(one)
    rates = [one.us_per_byte for one in found]
    assert rates == sorted(rates)
    return found[0]


@pytest.mark.parametrize("name", MACHINES)
def test_alltoall_equals_the_flow_program_on_the_catalogue(name: str) -> None:
    machine = topology(name)
    collective = make("alltoall", machine.ranks)
    packing = best(machine, collective)
    assert packing.optimal
    assert packing.us_per_byte == bounds(machine, collective).us_per_byte


@pytest.mark.parametrize(
    ("kind", "roots"),
    [
        ("scatter", (3,)),
        ("gather", (2,)),
        ("alltonext", ()),
        ("multiroot_scatter", (0, 3)),
        ("multiroot_gather", (1, 2)),
    ],
)
@pytest.mark.parametrize("name", ["dgx1", "torus:4x3", "dgx2", "mesh:3x3", "mi250"])
def test_rooted_collectives_equal_the_bound(name: str, kind: str, roots: tuple[int, ...]) -> None:
    machine = topology(name)
    packing = best(machine, make(kind, machine.ranks, roots=roots))
    assert packing.optimal
    assert len(packing.images) == 1


def test_a_symmetric_machine_needs_templates_of_one_source_only() -> None:
    packing = best(topology("torus:4x4"), make("alltoall", 16))
    assert len(packing.images) == 16
    assert {tree.chunk // 16 for tree in packing.trees} == {0}
    assert len(packing.trees) == 15, "one whole path per destination"


def test_boxes_on_rails_exchange_through_the_gpu_on_the_right_rail() -> None:
    """G16: over its own NVSwitch to the GPU of the destination's rail, then along that rail."""
    machine = topology("dgx-a100:nodes=16,fabric=rails")
    packing = best(machine, make("alltoall", 128))
    assert packing.us_per_byte == Fraction(375, 10**7)
    assert packing.optimal
    for tree in packing.trees:
        src, dst = divmod(tree.chunk, 128)
        relays = tree.dst[:-1].tolist()
        if src // 8 != dst // 8 and src % 8 != dst % 8:
            assert relays == [src // 8 * 8 + dst % 8]
        else:
            assert not relays


@pytest.mark.parametrize(
    ("name", "ps_per_byte"), [("torus:6x6x6", "30"), ("dgx-a100:nodes=32,fabric=rails", "38.75")]
)
def test_hundreds_of_ranks_are_exact(name: str, ps_per_byte: str) -> None:
    machine = topology(name)
    packing = pack_paths(machine, make("alltoall", machine.ranks))[0]
    assert packing.optimal
    assert packing.us_per_byte == Fraction(ps_per_byte) / 10**6
    assert all(tree.weight in (1, Fraction(1, 2)) for tree in packing.trees)


def test_a_dead_link_is_replaced_by_sixths() -> None:
    packing = best(topology("mi300x:dead=0-1"), make("alltoall", 8))
    assert packing.us_per_byte == Fraction(7, 3072000)
    assert lcm(*(tree.weight.denominator for tree in packing.trees)) == 6
    assert max(packing.heights) == 2


def test_the_slowest_candidate_has_least_latency() -> None:
    machine = topology("torus:5x6")
    found = pack_paths(machine, make("alltoall", 30))
    assert [one.optimal for one in found] == [True, *[False] * (len(found) - 1)]
    assert len(found) > 1
    distance = hop_distances(machine)[0]
    assert all(len(tree) == distance[tree.chunk] for tree in found[-1].trees)
    assert "least α" in found[-1].remark or "5/4" in found[-1].remark


@settings(max_examples=examples(9, 60))
@given(topologies(), st.sampled_from(["alltoall", "scatter", "gather", "alltonext"]))
def test_random_machines_with_switches_and_resources(machine: Topology, kind: str) -> None:
    collective = make(kind, machine.ranks)
    packing = best(machine, collective)
    assert packing.us_per_byte == packing.bound == bounds(machine, collective).us_per_byte


@settings(max_examples=examples(20, 40))
@given(topologies(max_ranks=5), st.data())
def test_random_unicast_demands(machine: Topology, data: st.DataObject) -> None:
    rank = st.integers(0, machine.ranks - 1)
    ends = data.draw(st.lists(st.tuples(rank, rank), min_size=1, max_size=12))
    pre = [(s, c, [s], c) for c, (s, _) in enumerate(ends)]
    post = [(d, c, [s], c) for c, (s, d) in enumerate(ends)]
    collective = custom("random", machine.ranks, pre, post)
    assert best(machine, collective).optimal


@settings(max_examples=examples(4, 25))
@given(st.sampled_from(["torus:4x4", "dgx1", "hypercube:3", "mesh:3x3", "dgx2"]), st.data())
def test_failures_break_the_symmetry_and_the_rate_stays_exact(
    name: str, data: st.DataObject
) -> None:
    machine = topology(name)
    dead = data.draw(st.sets(st.integers(0, len(machine.links) - 1), min_size=1, max_size=3))
    try:
        broken = machine.without_links(dead)
        packing = best(broken, make("alltoall", broken.ranks))
    except BadTopology:
        return
    assert packing.optimal


def test_shared_resources_are_shared_by_all_links_of_a_route() -> None:
    """Both links of the only route lie in one resource, which therefore carries it twice."""
    nodes = (gpu(0), gpu(1), switch("s"))
    links = (link(0, 2, 10), link(2, 1, 10), link(1, 0, 10))
    machine = Topology("twice", nodes, links, (Resource("bus", (0, 1), Fraction(10)),))
    packing = best(machine, make("alltoall", 2))
    assert packing.us_per_byte == Fraction(2, 10) / (1000 * 2)
    assert packing.optimal


def test_where_the_bound_is_not_known_prices_prove_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = topology("torus:4x3,dead=0-1")
    collective = make("alltoall", 12)
    truth = bounds(machine, collective)
    weak = replace(truth, us_per_byte=truth.us_per_byte / 2, attainable=None)
    monkeypatch.setattr("weft.synth.engines.packing.paths.paths.bounds", lambda *_: weak)
    packing = best(machine, collective)
    assert packing.certificate.kind == "prices"
    assert packing.us_per_byte == packing.bound == truth.us_per_byte
    rounds = truth.rounds_per_chunk
    check(
        machine,
        collective,
        replace(truth, certificate=packing.certificate, rounds_per_chunk=rounds),
    )


def test_many_pairs_without_a_known_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """More pairs than one program takes at first: prices by weights say what to aim for."""
    machine = topology("torus:4x4,dead=0-1")
    collective = make("alltoall", 16)
    truth = bounds(machine, collective)
    for weaker in (1, 2):
        weak = replace(truth, us_per_byte=truth.us_per_byte / weaker, attainable=None)
        monkeypatch.setattr(
            "weft.synth.engines.packing.paths.paths.bounds", lambda *_, weak=weak: weak
        )
        packing = best(machine, collective, PathEffort(small=50))
        assert packing.us_per_byte == packing.bound == truth.us_per_byte


def test_many_pairs_follow_the_flow_that_proves_the_rate() -> None:
    """Whole paths made of a fractional flow miss its rate by little."""
    machine = topology("dgx1:nodes=1")
    links = tuple(
        replace(one, bandwidth=one.bandwidth * (20 + number % 7))
        for number, one in enumerate(machine.links)
    )
    uneven = replace(machine, links=links, symmetries=())
    every = [(u, v, k) for u in range(8) for v in range(8) for k in range(12)]
    held = [(u, u * 96 + v * 12 + k, [u], v * 12 + k) for u, v, k in every]
    wanted = [(v, u * 96 + v * 12 + k, [u], u * 12 + k) for u, v, k in every]
    pairs = custom("many", 8, held, wanted)
    packing = best(uneven, pairs, PathEffort(small=20))
    assert packing.us_per_byte <= packing.bound * Fraction(105, 100)


def test_denominators_that_explode_are_handled() -> None:
    widths = [Fraction(10**9 + 7 * i, 10**8 + 3 * i * i) for i in range(8)]
    links = tuple(link(i, (i + 1) % 4, w) for i, w in enumerate(widths[:4]))
    links += tuple(link((i + 1) % 4, i, w) for i, w in enumerate(widths[4:]))
    machine = Topology("primes", tuple(gpu(i) for i in range(4)), links)
    packing = best(machine, make("alltoall", 4))
    assert packing.us_per_byte <= packing.bound * (1 + Fraction(1, 10**6))


def test_no_effort_still_gives_paths() -> None:
    machine = topology("torus:4x4,dead=0-1")
    for one in pack_paths(machine, make("alltoall", 16), meter=Meter(0)):
        check_paths(one)


def test_the_seed_decides() -> None:
    machine = topology("torus:4x3,dead=0-1")
    one, same = (pack_paths(machine, make("alltoall", 12), seed=7)[0] for _ in range(2))
    assert [t.weight for t in one.trees] == [t.weight for t in same.trees]
    assert all(
        np.array_equal(a.route_links, b.route_links)
        for a, b in zip(one.trees, same.trees, strict=True)
    )


def test_chunks_of_one_pair_share_its_paths() -> None:
    """Three chunks over two equal cables: the pair is split, two of the chunks are not."""
    links = (link(0, 1, 10), link(0, 1, 10), link(1, 0, 10))
    machine = Topology("pair", (gpu(0), gpu(1)), links)
    rows = [(0, c, [0], c) for c in range(3)]
    collective = custom("three", 2, rows, [(1, c, [0], c) for _, c, _, _ in rows])
    packing = best(machine, collective)
    assert packing.us_per_byte == Fraction(3, 20) / (1000 * 3)
    assert sorted(tree.weight for tree in packing.trees) == [Fraction(1, 2)] * 2 + [1, 1]


def test_nothing_to_move_is_no_path() -> None:
    stay = custom("stay", 2, [(0, 0, [0], 0)], [(0, 0, [0], 0)])
    (packing,) = pack_paths(topology("ring:2"), stay)
    assert packing.trees == ()
    assert packing.us_per_byte == 0
    assert packing.optimal


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter", "broadcast", "allreduce"])
def test_copies_and_sums_are_refused_in_words(kind: str) -> None:
    collective = make(kind, 4)
    assert not moves_pairs(collective)
    with pytest.raises(UserError, match="from one rank to one other") as caught:
        pack_paths(topology("ring:4"), collective)
    assert "trees" in caught.value.hint


def test_cut_chunks_are_refused() -> None:
    with pytest.raises(UserError, match="not cut yet"):
        pack_paths(topology("ring:4"), make("alltoall", 4, chunks=2))


def test_a_demand_that_no_rank_can_serve() -> None:
    one_way = Topology("one way", (gpu(0), gpu(1)), (link(0, 1, 10),))
    with pytest.raises(BadTopology, match="rank 1 cannot reach rank 0"):
        pack_paths(one_way, make("alltoall", 2))
    (packing,) = pack_paths(one_way, make("scatter", 2))
    assert packing.optimal


def test_pairs_ascend_and_leave_out_what_stays() -> None:
    pairs = pairs_of(make("alltoall", 3))
    assert pairs.src.tolist() == [0, 0, 1, 1, 2, 2]
    assert pairs.dst.tolist() == [1, 2, 0, 2, 0, 1]
    assert pairs.chunks.tolist() == [1, 2, 3, 5, 6, 7]
    assert pairs.of_sources(np.array([1])).chunks.tolist() == [3, 5]
