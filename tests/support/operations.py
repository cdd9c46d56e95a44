"""Orders of the operations of a program, for tests of what the checker says about them."""

import numpy as np

from weft.backends.check.graph import Edge, Graph
from weft.dsl.base.arrays import Ints
from weft.dsl.base.layers import Successors, layers


def topological_order(graph: Graph, *, credit: bool = False) -> Ints:
    """An order in which every edge goes forward; shorter than the graph if there is a cycle."""
    keep = slice(None) if credit else graph.kind != Edge.CREDIT
    found = list(layers(Successors.of(graph.size, graph.source[keep], graph.target[keep])))
    return np.concatenate(found) if found else np.zeros(0, np.int64)
