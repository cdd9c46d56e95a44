"""Simulators of others, run on files that weft writes; each is named by a path, and may be absent.

``WEFT_ASTRA_SIM`` names the congestion-aware analytical binary of ASTRA-sim, ``WEFT_LOGGOPSIM``
that of LogGOPSim (``txt2bin`` stands beside it).
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact_of
from weft.backends.compile.request import ProvedArtefact, Request
from weft.backends.compile.source import source_of
from weft.backends.formats.chakra.format import ChakraEt
from weft.backends.formats.format import Format
from weft.backends.formats.goal.format import GoalFile
from weft.dsl.base.files import write_files, write_text
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

ASTRA_SIM = os.environ.get("WEFT_ASTRA_SIM", "")
LOGGOPSIM = os.environ.get("WEFT_LOGGOPSIM", "")

GIB = 1 << 30


def made(format: Format, schedule: Schedule, size: int, output: str = "") -> ProvedArtefact:
    """What ``weft compile`` makes of a schedule: proved and replayed."""
    source = source_of(schedule, format.name)
    sizes = SizeRange(size, size)
    return artefact_of(source, format, CompileOptions(), sizes, Request(output=output)).made


def time_of(found: ProvedArtefact) -> dict[str, Any]:
    """The replay's time, and weft's."""
    (one,) = found.facts["times"]
    assert isinstance(one, dict)
    return one


def network_of(machine: Topology) -> str | None:
    """The kind of ASTRA-sim's network that a machine is: uniform links, one dimension.

    A ring of at least three ranks, all pairs, or one switch; None for other machines.
    """
    n, ends = machine.ranks, sorted((link.src, link.dst) for link in machine.links)
    if len({(link.bandwidth, link.latency) for link in machine.links}) != 1 or machine.resources:
        return None
    if len(machine.nodes) == n + 1:
        star = sorted([(r, n) for r in range(n)] + [(n, r) for r in range(n)])
        return "Switch" if ends == star else None
    if ends == [(a, b) for a in range(n) for b in range(n) if a != b] and len(machine.nodes) == n:
        return "FullyConnected"
    around = {(r, (r + 1) % n) for r in range(n)}
    return "Ring" if ends == sorted(around | {(b, a) for a, b in around}) else None


def astra_sim_us(binary: str, schedule: Schedule, size: int, folder: Path) -> float:
    """µs by ASTRA-sim, of sums that take no time; the machine must have a :func:`network_of`."""
    machine, link = schedule.topology, schedule.topology.links[0]
    format = ChakraEt(local_mem_bw=0)
    text = made(format, schedule, size, str(folder / "x")).text
    write_files(folder / "x", format.files(text, "x"), force=True)
    (folder / "network.yml").write_text(
        f"topology: [ {network_of(machine)} ]\nnpus_count: [ {machine.ranks} ]\n"
        f"bandwidth: [ {float(link.bandwidth) * 1e9 / GIB} ]\n"
        f"latency: [ {float(link.latency) * 1000} ]\n"
    )
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    files = {
        "workload": "x.workload",
        "system": "x.system.json",
        "network": "network.yml",
        "remote-memory": "memory.json",
    }
    flags = [f"--{name}-configuration={folder / file}" for name, file in files.items()]
    out = _run([binary, *flags], folder)
    cycles = re.findall(r"sys\[\d+\] finished, (\d+) cycles", out)
    assert len(cycles) == machine.ranks, out[-2000:]
    return max(map(int, cycles)) / 1000


def loggopsim_us(binary: str, schedule: Schedule, size: int, folder: Path) -> float:
    """µs by LogGOPSim, with the flags that the file itself names."""
    text = made(GoalFile(), schedule, size).text
    write_text(folder / "x.goal", text, force=True)
    flags = re.search(r"^// LogGOPSim -f FILE.bin (.*)$", text, re.MULTILINE)
    units = re.search(r'"units_per_us":(\d+)', text)
    assert flags is not None
    assert units is not None
    txt2bin = str(Path(binary).with_name("txt2bin"))
    _run([txt2bin, "-i", "x.goal", "-o", "x.bin"], folder)
    out = _run([binary, "-f", "x.bin", *flags[1].split()], folder)
    times = re.findall(r"(?:Host|finishing time at host) \d+: (\d+)", out)
    assert times, out[-2000:]
    return max(map(int, times)) / int(units[1])


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout
