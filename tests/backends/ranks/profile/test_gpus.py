"""Measuring GPUs, on the stand-in: ranks go through the whole survey, and one has the answer."""

from __future__ import annotations

import importlib.util
import os

import pytest
from standin_nccl import installed

from weft.backends.cli import main
from weft.backends.formats.p2p.embedded.nccl import on_comm
from weft.backends.ranks.profile.machine import topology_of
from weft.backends.ranks.profile.model import CallStep, ProbeLimits
from weft.backends.ranks.profile.ranks import NcclCaller, probe_of
from weft.backends.ranks.profile.survey import survey


def test_a_survey_over_nccl():
    effort, found = ProbeLimits(seconds=0.5), []
    with installed() as gpu:
        import cupy

        name = cupy.cuda.nccl.get_unique_id()

        def body(rank: int) -> None:
            with cupy.cuda.Stream(non_blocking=True):
                comm = cupy.cuda.nccl.NcclCommunicator(2, name, rank)
                probe = probe_of(on_comm(comm), effort)
                one = survey(probe, effort, 0, lambda _: None, NcclCaller(probe))
                if one is not None:
                    found.append(one)

        gpu.machine.run(2, body)
    (one,) = found
    made = topology_of("two", one)
    assert made.ranks == 2
    assert {(x.src, x.dst) for x in made.links} == {(0, 1), (1, 0)}
    rings = [x for x in one.calls if x.step is CallStep.RING]
    assert [(x.protocol, x.count) for x in rings] == [("Simple", 2), ("LL", 2), ("LL128", 2)]
    assert all(x.us > 0 for x in one.calls)
    assert "NCCL_PROTO" not in os.environ


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="there is CuPy")
def test_what_is_missing_is_named(capsys, tmp_path):
    out = tmp_path / "machine.json"
    assert main(["profile", "--on", "nccl", "-o", str(out)]) == 4
    assert "CuPy is not installed" in capsys.readouterr().err
    assert not out.exists()
