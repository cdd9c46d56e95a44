"""The files of docs/outside.md in ASTRA-sim itself, where ``$WEFT_ASTRA_SIM`` names it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import patterns
import pytest

from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact_of
from weft.backends.compile.request import Request
from weft.backends.compile.source import source_of
from weft.backends.formats.chakra.format import ChakraEt
from weft.dsl.base.files import write_files
from weft.dsl.base.units import SizeRange

SIMULATOR = os.environ.get("WEFT_ASTRA_SIM", "")
GIB = 1 << 30


@pytest.mark.skipif(not SIMULATOR, reason="WEFT_ASTRA_SIM names no ASTRA-sim binary")
def test_a_ring_takes_as_long_as_in_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schedule, format = patterns.ring_allreduce(8, 1), ChakraEt()
    sizes = SizeRange(1 << 20, 1 << 20)
    source = source_of(schedule, format.name)
    made = artefact_of(source, format, CompileOptions(), sizes, Request(output="ring")).made
    write_files("ring", format.files(made.text, "ring"))
    link = schedule.topology.links[0]
    bandwidth = float(link.bandwidth) * 1e9 / GIB
    Path("network.yml").write_text(
        f"topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ {bandwidth} ]\n"
        f"latency: [ {float(link.latency) * 1000} ]\n"
    )
    Path("memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    flags = {
        "workload": "ring.workload",
        "system": "ring.system.json",
        "network": "network.yml",
        "remote-memory": "memory.json",
    }
    command = [SIMULATOR, *(f"--{name}-configuration={value}" for name, value in flags.items())]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cycles = [int(found) for found in re.findall(r"sys\[\d+\] finished, (\d+) cycles", out)]
    assert len(cycles) == 8
    (time,) = made.facts["times"]
    assert max(cycles) / 1000 == pytest.approx(time["us"], rel=0.01)
