"""Components of random graphs, against SciPy."""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from weft.dsl.base.components import components, strong_components


def test_labels_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        nodes = int(rng.integers(1, 40))
        a, b = rng.integers(0, nodes, (2, int(rng.integers(0, 80))))
        graph = coo_array((np.ones(len(a)), (a, b)), shape=(nodes, nodes))
        weak = connected_components(graph, directed=False)[1]
        assert components(nodes, a, b).tolist() == weak.tolist()
        strong = connected_components(graph, directed=True, connection="strong")[1]
        own = strong_components(nodes, a, b)
        assert ((own[:, None] == own) == (strong[:, None] == strong)).all()


def test_a_graph_without_nodes_has_no_components() -> None:
    none = np.zeros(0, np.int64)
    assert strong_components(0, none, none).tolist() == components(0, none, none).tolist() == []
