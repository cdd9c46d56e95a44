"""Lower bounds of random small machines against brute force over all cuts and partitions."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from bound_checks import check, chunks_leaving, links_out, partitions, proper_subsets
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array

from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.nouns.collective import Collective, Kind, custom, make
from weft.dsl.nouns.topology import Node, NodeKind, Resource, Topology, gpu, link
from weft.synth.bounds import bounds
from weft.synth.lp.certified import LinearProgram, certified_minimum, quotient

WIDTHS = st.sampled_from([1, 2, 3, 5, 25, Fraction(25, 2), Fraction(1, 3)])
KINDS = [str(k) for k in Kind if k is not Kind.CUSTOM]
SYMMETRIC = ("allgather", "reduce_scatter", "allreduce", "alltoall", "multiroot_scatter")
SPREAD = "allgather reduce_scatter broadcast reduce gather scatter multiroot_broadcast".split()


@st.composite
def machines(draw: st.DrawFn, ranks: int = 4, resources: bool = False) -> Topology:
    """A ring of GPUs, so that all are connected, with switches, more links and parallel links."""
    n = draw(st.integers(2, ranks))
    extra = draw(st.integers(0, 2))
    ends = [(i, (i + 1) % n) for i in range(n)]
    pair = st.tuples(st.integers(0, n + extra - 1), st.integers(0, n + extra - 1))
    ends += [p for p in draw(st.lists(pair, max_size=8)) if p[0] != p[1]]
    links = tuple(link(a, b, draw(WIDTHS), draw(st.integers(0, 5))) for a, b in ends)
    nodes = tuple(gpu(i) for i in range(n))
    nodes += tuple(Node(f"s{i}", NodeKind.SWITCH) for i in range(extra))
    shared = []
    for i in range(draw(st.integers(1, 3)) if resources else 0):
        members = draw(st.sets(st.integers(0, len(links) - 1), min_size=1, max_size=4))
        shared.append(Resource(f"r{i}", tuple(sorted(members)), Fraction(draw(WIDTHS))))
    return Topology("random", nodes, links, tuple(shared))


def capacity(topology: Topology, links: list[int]) -> float:
    """The most that the links carry, by a float program."""
    if not links:
        return 0.0
    if not topology.resources:
        return float(sum(topology.links[i].bandwidth for i in links))
    rows = topology.usage()[:, links].astype(float)
    widths = [float(b) for b in topology.capacities()]
    return float(-linprog(-np.ones(len(links)), A_ub=rows, b_ub=widths).fun)


def worst_cut(topology: Topology, collective: Collective) -> float:
    """The largest T/M over all sets of nodes."""
    worst = 0.0
    for inside in proper_subsets(len(topology.nodes)):
        chunks = chunks_leaving(collective, inside)
        out = capacity(topology, links_out(topology, inside)) if chunks else 0
        if out:
            worst = max(worst, chunks / out / (1000 * collective.message_chunks))
    return worst


def worst_partition(topology: Topology) -> float:
    """The largest 2 (p-1) / capacity over partitions and the best nodes to take along."""
    n, others = topology.ranks, range(topology.ranks, len(topology.nodes))
    along = [set(), *proper_subsets(len(others)), set(range(len(others)))]

    def least(group: list[int], outward: bool) -> float:
        shells = [set(group) | {n + i for i in more} for more in along]
        everything = set(range(len(topology.nodes)))
        return min(
            capacity(topology, links_out(topology, s if outward else everything - s))
            for s in shells
        )

    worst = 0.0
    for groups in partitions(list(range(n))):
        for outward in (True, False):
            total = sum(least(g, outward) for g in groups)
            if len(groups) > 1:
                worst = max(worst, 2 * (len(groups) - 1) / total / 1000)
    return worst


def flow_time(topology: Topology, collective: Collective) -> float:
    """T/M of a fractional multi-commodity flow with a commodity for each chunk."""
    links, nodes = topology.links, len(topology.nodes)
    start = {c: r for r, c, _, _ in collective.pre.rows().tolist()}
    moves = [(start[c], r) for r, c, _, _ in collective.post.rows().tolist() if start[c] != r]
    columns = len(moves) * len(links) + 1
    a_eq, b_eq = np.zeros((len(moves) * nodes, columns)), np.zeros(len(moves) * nodes)
    a_ub = np.zeros((len(topology.capacities()), columns))
    a_ub[:, -1] = [-float(b) for b in topology.capacities()]
    for k, (src, dst) in enumerate(moves):
        b_eq[k * nodes + src], b_eq[k * nodes + dst] = 1, -1
        for e, one in enumerate(links):
            a_eq[k * nodes + one.src, k * len(links) + e] += 1
            a_eq[k * nodes + one.dst, k * len(links) + e] -= 1
            a_ub[:, k * len(links) + e] = topology.usage()[:, e]
    cost = np.zeros(columns)
    cost[-1] = 1
    found = linprog(cost, A_ub=a_ub, b_ub=np.zeros(len(a_ub)), A_eq=a_eq, b_eq=b_eq)
    return float(found.fun) / (1000 * collective.message_chunks)


@settings(max_examples=examples(15, 60))
@given(machines(), st.sampled_from(SPREAD))
def test_cut_bounds_equal_the_worst_of_all_cuts(topology, kind):
    collective = make(kind, topology.ranks)
    found = bounds(topology, collective)
    check(topology, collective, found)
    assert float(found.us_per_byte) == pytest.approx(worst_cut(topology, collective), rel=1e-9)


@settings(max_examples=examples(7, 60))
@given(machines(resources=True), st.sampled_from(SPREAD))
def test_shared_resources_only_strengthen_cuts(topology, kind):
    collective = make(kind, topology.ranks)
    found = bounds(topology, collective)
    check(topology, collective, found)
    assert float(found.us_per_byte) >= worst_cut(topology, collective) * (1 - 1e-9)
    free = bounds(replace(topology, resources=()), collective)
    assert found.us_per_byte >= free.us_per_byte


@settings(max_examples=examples(20, 40))
@given(machines(resources=True), st.sampled_from(["alltoall", "multiroot_scatter", "alltonext"]))
def test_price_bounds_equal_the_flow_program(topology, kind):
    collective = make(kind, topology.ranks)
    found = bounds(topology, collective)
    check(topology, collective, found)
    assert float(found.us_per_byte) == pytest.approx(flow_time(topology, collective), rel=1e-7)
    assert found.tight


@settings(max_examples=examples(7, 40))
@given(machines())
def test_allreduce_equals_the_worst_cut_or_partition(topology):
    collective = make("allreduce", topology.ranks)
    found = bounds(topology, collective)
    check(topology, collective, found)
    worst = max(worst_cut(topology, collective), worst_partition(topology))
    assert float(found.us_per_byte) == pytest.approx(worst, rel=1e-9)


@settings(max_examples=examples(5, 40))
@given(machines(ranks=5), st.sampled_from(SYMMETRIC), st.data())
def test_renaming_ranks_changes_nothing(topology, kind, data):
    n = len(topology.nodes)
    image = data.draw(st.permutations(range(topology.ranks))) + list(range(topology.ranks, n))
    links = tuple(replace(x, src=image[x.src], dst=image[x.dst]) for x in topology.links)
    collective = make(kind, topology.ranks)
    here, there = bounds(topology, collective), bounds(replace(topology, links=links), collective)
    assert (here.latency_us, here.steps) == (there.latency_us, there.steps)
    assert here.us_per_byte == there.us_per_byte


@settings(max_examples=examples(4, 30))
@given(machines(ranks=5), st.sampled_from(KINDS))
def test_more_bandwidth_never_raises_a_bound(topology, kind):
    collective = make(kind, topology.ranks)
    double = replace(
        topology, links=tuple(replace(x, bandwidth=2 * x.bandwidth) for x in topology.links)
    )
    first = replace(topology.links[0], bandwidth=7 * topology.links[0].bandwidth)
    wider = replace(topology, links=(first, *topology.links[1:]))
    plain = bounds(topology, collective)
    assert bounds(double, collective).us_per_byte * 2 == plain.us_per_byte
    assert bounds(wider, collective).us_per_byte <= plain.us_per_byte


@st.composite
def customs(draw: st.DrawFn, n: int) -> Collective:
    """Any mixture of holders, sets and destinations that can be reached."""
    pre, post = [], []
    rank = st.integers(0, n - 1)
    for chunk in range(draw(st.integers(1, 3))):
        holders = sorted(draw(st.sets(rank, min_size=1, max_size=n)))
        alike = draw(st.booleans())
        pre += [(r, chunk, [0] if alike else [r], chunk) for r in holders]
        for r in sorted(draw(st.sets(rank, min_size=1, max_size=n))):
            wanted = draw(st.sets(st.sampled_from(holders), min_size=1))
            post.append((r, chunk, [0] if alike else sorted(wanted), chunk))
    return custom("random", n, pre, post)


@settings(max_examples=examples(40, 80))
@given(machines(ranks=4, resources=True), st.data())
def test_custom_collectives_have_valid_certificates(topology, data):
    collective = data.draw(customs(topology.ranks))
    check(topology, collective, bounds(topology, collective))


@settings(max_examples=examples(40))
@given(st.integers(0, 10**6))
def test_a_quotient_has_the_same_optimum(seed):
    """A circulant covering program shrinks; its certified optimum does not change."""
    rng = np.random.default_rng(seed)
    n = 240
    steps, coefficients = rng.choice(n, 3, replace=False), rng.integers(1, 5, 3)
    rows = np.repeat(np.arange(n), 3)
    columns = (rows + np.tile(steps, n)) % n
    matrix = csr_array((np.tile(coefficients, n), (rows, columns)), shape=(n, n))
    blank = np.zeros((n, 1), np.int64)
    small = quotient(SparseMatrix.given(matrix), blank, blank)
    assert small is not None
    assert len(small.row_at) == len(small.column_at) == 1
    lp = LinearProgram(np.ones(n, np.int64), -matrix, -np.ones(n, np.int64))
    answer = certified_minimum(lp)
    assert answer.exact
    assert answer.lower == Fraction(n, int(coefficients.sum()))
