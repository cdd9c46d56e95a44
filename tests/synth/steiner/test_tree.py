"""Minimum arborescences against networkx."""

import networkx as nx
import numpy as np
import pytest

from weft.synth.steiner.graph import least_parents


@pytest.mark.parametrize("root_first", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_trees_cost_what_networkx_finds(seed: int, root_first: bool):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    cost = rng.integers(1, 12, (n, n)).astype(float)
    cost[rng.random((n, n)) < 0.3] = np.inf
    found = least_parents(cost, 0, root_first=root_first)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    for u, v in zip(*np.nonzero(np.isfinite(cost)), strict=True):
        if u != v and v != 0:
            graph.add_edge(int(u), int(v), weight=float(cost[u, v]))
    if len(nx.descendants(graph, 0)) < n - 1:
        assert found is None
        return
    want = nx.minimum_spanning_arborescence(graph).size(weight="weight")
    assert found is not None
    assert sum(cost[p, v] for v, p in enumerate(found.tolist()) if p >= 0) == want
    tree = nx.DiGraph([(int(p), v) for v, p in enumerate(found.tolist()) if p >= 0])
    assert n == 1 or (nx.is_arborescence(tree) and len(tree) == n)
