"""The files of docs/outside.md in the simulators themselves, where a path names them."""

from __future__ import annotations

from pathlib import Path

import patterns
import pytest
from outside_simulators import (
    ASTRA_SIM,
    LOGGOPSIM,
    astra_sim_us,
    loggopsim_us,
    made,
    network_of,
    time_of,
)
from strategies import hub

from weft.backends.formats.chakra.format import ChakraEt
from weft.backends.formats.goal.format import GoalFile
from weft.dsl.catalogue import topology

SIZE = 1 << 20


@pytest.mark.skipif(not ASTRA_SIM, reason="WEFT_ASTRA_SIM names no ASTRA-sim binary")
def test_astra_sim_takes_as_long_as_its_replay(tmp_path: Path) -> None:
    schedule = patterns.ring_allreduce(8, 1)
    ours = time_of(made(ChakraEt(local_mem_bw=0), schedule, SIZE))["us"]
    assert astra_sim_us(ASTRA_SIM, schedule, SIZE, tmp_path) == pytest.approx(ours, rel=0.01)


@pytest.mark.skipif(not LOGGOPSIM, reason="WEFT_LOGGOPSIM names no LogGOPSim binary")
def test_loggopsim_takes_as_long_as_its_replay(tmp_path: Path) -> None:
    schedule = patterns.direct_alltoall(8, 1)
    ours = time_of(made(GoalFile(), schedule, SIZE))["us"]
    assert loggopsim_us(LOGGOPSIM, schedule, SIZE, tmp_path) == pytest.approx(ours, rel=0.01)


def test_the_machines_that_astra_sim_can_be_told_of() -> None:
    assert network_of(topology("ring:8")) == "Ring"
    assert network_of(topology("full:4")) == "FullyConnected"
    assert network_of(hub(4)) == "Switch"
    assert network_of(topology("dgx1")) is None
