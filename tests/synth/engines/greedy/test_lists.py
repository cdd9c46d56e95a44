"""List scheduling: its tables hold all events that there can be."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from weft.dsl.nouns.topology import Topology, gpu, link, switch
from weft.synth.engines.greedy import lists
from weft.synth.engines.greedy.lists import Queues, TransferJobs, jobs_of
from weft.synth.fabric.hop_table import hop_table_of


def test_few_jobs_over_long_routes_on_a_machine_of_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two GPUs with many cables, and one long way over switches: all of its links at once.
    far = 12
    nodes = (gpu(0), gpu(1), *(switch(f"s{i}") for i in range(2, 2 + far)))
    chain = [0, *range(2, 2 + far), 1]
    links = [link(1, 0, 25)] * 40 + [link(a, b, 25) for a, b in pairwise(chain)]
    machine = hop_table_of(Topology("long", nodes, tuple(links)), Fraction(1 << 20))
    longest = int(np.diff(machine.route).argmax())
    assert np.diff(machine.route)[longest] == far + 1
    jobs: TransferJobs = jobs_of(machine, [longest], [0], [False], [])
    # Uncompiled, so that writing past the end of a table is an error.
    monkeypatch.setattr(lists, "fast", lambda module: module)
    start, end = Queues.of(machine, jobs).serve(np.array([0]))
    assert start.tolist() == [0]
    assert end == machine.arrives[longest]
