"""Flows and cuts in plain Python beside OR-Tools'."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.catalogue import topology
from weft.synth.bounds import network as networks
from weft.synth.bounds.network import MaxFlow, network

MACHINES = ("dgx1", "ring:5", "dgx-a100:nodes=1", "mi250:nodes=1")


@given(st.sampled_from(MACHINES), st.integers(0, 10**6))
def test_value_and_cut_are_those_of_or_tools(machine: str, seed: int) -> None:
    net = network(topology(machine))
    rng = np.random.default_rng(seed)
    source = net.vertices
    extra = np.array([[source] * 3, rng.integers(0, net.nodes, 3)])
    sizes = rng.integers(0, 400, 3).tolist()
    sink = int(rng.integers(0, net.nodes))
    answers = []
    with pytest.MonkeyPatch.context() as patch:
        for arcs in (10**6, 0):
            patch.setattr(networks, "SMALL_ARCS", arcs)
            flow = MaxFlow(net, extra, net.vertices + 1)
            flow.set(3, sizes)
            answers.append((flow.solve(source, sink), flow.source_side().tolist()))
    assert answers[0] == answers[1]
