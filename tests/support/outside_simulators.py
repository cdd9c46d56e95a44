"""Simulators of others, run on files that weft writes; each is named by a path, and may be absent.

``WEFT_ASTRA_SIM`` names the congestion-aware analytical binary of ASTRA-sim, ``WEFT_LOGGOPSIM``
that of LogGOPSim (``txt2bin`` stands beside it).
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact_of
from weft.backends.compile.request import ProvedArtefact, Request
from weft.backends.compile.source import source_of
from weft.backends.formats.chakra.format import ChakraEt, Turns
from weft.backends.formats.format import Format
from weft.backends.formats.goal.format import GoalFile
from weft.dsl.base.files import write_files, write_text
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.schedule import Schedule

ASTRA_SIM = os.environ.get("WEFT_ASTRA_SIM", "")
LOGGOPSIM = os.environ.get("WEFT_LOGGOPSIM", "")


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


def astra_sim_us(
    binary: str, schedule: Schedule, size: int, folder: Path, turns: Turns = Turns.AUTO
) -> float:
    """µs by ASTRA-sim, of sums that take no time, with the files and the line that weft gives.

    The machine must be one that ASTRA-sim can be told of.
    """
    format = ChakraEt(local_mem_bw=0, turns=turns)
    found = made(format, schedule, size, str(folder / "x"))
    write_files(folder / "x", format.files(found.text, "x"), force=True)
    words = dict(found.told)["Run"].split()
    out = _run([binary, *words[1:]], folder)
    cycles = re.findall(r"sys\[\d+\] finished, (\d+) cycles", out)
    assert len(cycles) == schedule.topology.ranks, out[-2000:]
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
