"""Guide to a library on a cluster: runtime, settings, launch lines, proof that it ran, tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from textwrap import wrap
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, facts, table
from weft.dsl.base.units import format_binary
from weft.dsl.importers.nccl_tests import TESTS
from weft.dsl.nouns.library import IN_SWITCHES, Library
from weft.dsl.nouns.runtime import LOADERS, Loader

from .launchers import (
    HOSTS,
    LAUNCHERS,
    LaunchJob,
    assigned,
    hosts_text,
    mpirun,
    slurm_line,
    word,
)
from .settings import (
    HCA,
    HERE,
    RuntimeSettings,
    is_amd,
    loaders_of,
    one_line,
    settings_of,
    usual_loader,
)

TAKES = {"msccl-xml": "MSCCL XML", "mscclpp-json": "MSCCL++ plans"}
"""Formats in words."""

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
"""Folders of one host, which are emptied."""

PLANS = "mscclpp_plans.py"
"""The file that registers plans with MSCCL++."""


@dataclass(frozen=True, slots=True)
class RuntimeRow:
    """A runtime as a choice for a machine's GPUs, and whether the library has files for it.

    ``built``: its kernels are built for the GPUs; None: these are not known. ``why_not``: why not.
    """

    loader: Loader
    built: bool | None
    why_not: str
    files: bool
    chosen: bool

    @property
    def words(self) -> str:
        """Reason why it is the one, or the obstacle."""
        why_not = self.why_not if self.built is False else ""
        if self.chosen:
            return f"these settings are for it{f', but: {why_not}' if why_not else ''}"
        if why_not:
            return f"no: {why_not}"
        if self.files:
            return f"--runtime {self.loader.name}"
        return f"weft tune … {self.loader.flag} makes files for it"


@dataclass(frozen=True, slots=True)
class Guide:
    """Contents of the guide to a library in a folder.

    Attributes:
        folder: the path under which all hosts see it.
        settings: of the chosen runtime; None: no runtime loads its files.
        variables: for every rank, the runtime's library included.
        launch: the text for each launcher. ``tests``: commands by their purpose.
        proof: lines that are printed where a file is used. ``files``: to write, by name.
        notes: limits and advice.
    """

    library: Library
    folder: str
    runtimes: tuple[RuntimeRow, ...]
    settings: RuntimeSettings | None
    variables: tuple[tuple[str, str], ...] = ()
    launch: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)
    proof: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def guide(
    library: Library,
    folder: str,
    loader: Loader | None = None,
    preload: str | None = None,
    launcher: str = "mpirun",
) -> Guide:
    """Return the guide to a library that all hosts see in a folder.

    ``loader``: the runtime, if not the usual one; ``preload``: where its library lies;
    ``launcher``: that of the tests.
    """
    chosen = loader or usual_loader(library)
    rows = _rows(library, chosen)
    if chosen is None:
        return Guide(library, folder, rows, None, notes=tuple(_notes(library, folder, None)))
    settings = settings_of(library, chosen, folder)
    variables = settings.variables
    if chosen.preload:
        variables = (("LD_PRELOAD", preload or f"/path/to/{chosen.preload}"), *variables)
    if chosen.fallback:
        own = "librccl.so.1" if is_amd(library.topology) else "libnccl.so.2"
        variables = (*variables, (chosen.fallback, f"/path/to/{own}"))
    job = _job(library, folder, variables, "./program")
    launch = {
        name: text(job) for name, text in LAUNCHERS.items() if chosen.torchrun or name != "torchrun"
    }
    files = {PLANS: plans_text(library, settings, folder)} if chosen.name == "mscclpp" else {}
    if job.hosts > 1:
        files[HOSTS] = hosts_text(library.topology.host_names, job)
    return Guide(
        library,
        folder,
        rows,
        settings,
        variables,
        launch,
        _tests(library, folder, chosen, variables, launcher),
        tuple(_proof(library, settings, folder)),
        tuple(_notes(library, folder, settings)),
        files,
    )


def _rows(library: Library, chosen: Loader | None) -> tuple[RuntimeRow, ...]:
    able = loaders_of(library)
    gpus = (library.topology.timing.family, is_amd(library.topology))
    return tuple(
        RuntimeRow(one, one.built(*gpus), one.why_not_on(*gpus), one in able, one is chosen)
        for one in LOADERS.values()
    )


def _job(
    library: Library, folder: str, variables: tuple[tuple[str, str], ...], command: str
) -> LaunchJob:
    t = library.topology
    return LaunchJob(
        t.hosts, max(1, t.ranks // t.hosts), variables, command, folder, bool(is_amd(t))
    )


# --- proof ----------------------------------------------------------------------------------------


def _proof(library: Library, settings: RuntimeSettings, folder: str) -> list[str]:
    """Return the lines that are printed where files are read, and how to tell that they ran."""
    loader = settings.loader
    file = f"{folder}/{settings.files[0]}" if settings.files else ""
    place = dict(settings.variables).get("MSCCL_ALGO_DIR", folder)
    return [
        one_line(loader.proof.format(file=file, folder=place)),
        "no line «AllReduce: N Bytes -> Algo … proto …» (NCCL from 2.23 on, subsystem TUNING) for "
        "the sizes of the library: such a line is of NCCL's own algorithms",
    ]


def _tests(
    library: Library,
    folder: str,
    loader: Loader,
    variables: tuple[tuple[str, str], ...],
    launcher: str,
) -> dict[str, str]:
    """Return commands with nccl-tests: before, with the files, and with the debug log."""
    names = {kind: name for name, kind in TESTS.items()}
    known = [names[t.collective.kind] for t in library.tuned if t.collective.kind in names]
    if not known or loader.name == "mscclpp":
        return {}
    build = "rccl-tests" if loader.name == "rccl" else "nccl-tests"
    low, high = max(4, library.low), library.high
    found = {}
    for test in dict.fromkeys(known):
        run = f"./{build}/build/{test}_perf -b {low} -e {high} -f 2 -g 1"
        off = (("RCCL_MSCCL_ENABLE", "0"),) if loader.name == "rccl" else ()
        for name, used, more in (
            ("before", off, ""),
            ("after", variables, ""),
            ("proof", (*variables, *loader.debug), " -n 1 -w 0 -c 0"),
        ):
            start = slurm_line if launcher == "slurm" else mpirun
            command = f"{run}{more} | tee {test}-{name}.txt"
            found[f"{test} {name}"] = start(_job(library, folder, used, command))
    logs = " ".join(
        f"{test}-{name}.txt"
        for test in dict.fromkeys(known)
        for name in ("before", "after", "proof")
    )
    found["verify"] = f"weft verify-run {logs} \\\n  --library {word(folder)} -o measured.json"
    return found


# --- MSCCL++ --------------------------------------------------------------------------------------


def plans_text(library: Library, settings: RuntimeSettings, folder: str) -> str:
    """Return a Python file that registers a library's plans with MSCCL++."""
    t = library.topology
    listed = "\n".join(f"    {file!r}," for file in settings.files)
    return f'''"""Register a library's plans with MSCCL++ 0.9, for its executor or in place of NCCL.

Before the first communicator is made:  import mscclpp_plans; mscclpp_plans.register(rank)
MSCCL++ tries registered plans first, by collective, size and placement.
"""

import os

import mscclpp
from mscclpp._mscclpp import CppExecutionPlan
from mscclpp.ext import AlgorithmCollectionBuilder

LIBRARY = {folder!r}
RANKS, RANKS_PER_NODE = {t.ranks}, {max(1, t.ranks // t.hosts)}
PLANS = [
{listed}
]


def register(rank):
    """Register all plans for a rank."""
    builder = AlgorithmCollectionBuilder()
    where = mscclpp.Algorithm.Constraint(RANKS, RANKS_PER_NODE)
    for name in PLANS:
        path = os.path.join(LIBRARY, name)
        plan = CppExecutionPlan(path, rank)
        builder.add_algorithm_builder(
            mscclpp.Algorithm(id=name, execution_plan=plan, constraint=where)
        )
        if rank == 0:
            print(f"weft: registered {{path}} with MSCCL++", flush=True)
'''


# --- notes ----------------------------------------------------------------------------------------


def _notes(library: Library, folder: str, settings: RuntimeSettings | None) -> list[str]:
    found = []
    if is_temporary(folder):
        found.append(
            f"{folder} is a temporary folder of one host: move the library to one that all hosts "
            "share, or name its path there with --at"
        )
    if settings is None:
        found.append(
            "no runtime loads its files by itself: a program calls them (docs/running.md); "
            "--to msccl-xml,mscclpp-json makes files for those that do"
        )
        return found
    loader, family = settings.loader, library.topology.timing.family
    if not family:
        found.append(
            "the generation of the GPUs is not known: gpu=h100 behind a text of nvidia-smi or "
            "rocm-smi, family=h100 behind a catalogue name, or family under [timing] in the "
            "machine's file names it"
        )
    elif family not in loader.families:
        found.append(f"on {family} {loader.title} is not known to run: {loader.why_not_on(family)}")
    if loader.single:
        found.append("one process for each GPU: a process with several gets NCCL's own algorithms")
    if settings.config:
        found.append(f"source {folder}/env.sh once: it makes {HERE}, which MSCCL_CONFIG names")
    if loader.name == "mscclpp":
        found.append(
            f"-o FOLDER writes {PLANS}; nccl-tests, not being a Python program, cannot register "
            "plans: time your own program"
        )
        found.append(
            f"{loader.fallback} is the file of NCCL's own library (of torch: nvidia/nccl/lib/"
            "libnccl.so.2), for what no plan is for; MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=all has "
            "it run everything, to compare"
        )
        told = [line for one in library.tuned for line in one.remarks if IN_SWITCHES in line]
        found += told
        if told:
            found.append(
                "such buffers are memory of cuMem calls, and each new pair of them takes multicast "
                "objects of its own, of which a rack of GB200 has 1,024: use the same ones again"
            )
    if HCA in dict(settings.variables):
        found.append(
            f"{HCA} keeps the runtime to the NICs that the plans are for, where it would take "
            "storage's too; the = before their names: these, and not all that begin so"
        )
    if loader.torch:
        found.append(f"torch: {loader.torch}")
    if library.topology.hosts > 1:
        found.append(
            f"-o FOLDER writes {HOSTS} for mpirun, a line for each host: NAME slots=GPUS; where a "
            "scheduler names the hosts, leave --hostfile out"
        )
    if loader.name == "executor" and family in ("b200", "b300", "gb200", "gb300"):
        found.append("--to mscclpp-json makes plans for MSCCL++, which has kernels for Blackwell")
    return found


def is_temporary(folder: str) -> bool:
    """Return True for paths below a folder of one host that is emptied."""
    places = {*TEMPORARY, os.path.realpath(tempfile.gettempdir())}
    path = Path(folder)
    return any(path.is_relative_to(place) for place in places)


# --- as text and as JSON --------------------------------------------------------------------------


def guide_text(found: Guide, launcher: str = "mpirun", width: int = 0) -> str:
    """Return the guide for a terminal."""
    parts = [_head(found), _runtimes(found, width)]
    if found.settings is not None:
        chosen = found.settings.loader
        lines = [assigned(*one) for one in found.variables] or ["(none)"]
        parts.append(_part(f"settings, for {chosen.title}:", lines))
        parts.append(_part(f"start with {launcher}:", found.launch[launcher].splitlines()))
        debug = " ".join(assigned(*one) for one in chosen.debug)
        parts.append(_part(f"was it used? With {debug}:", _wrapped(found.proof, width)))
        if found.tests:
            told = [line for text in found.tests.values() for line in text.splitlines()]
            parts.append(_part("before, after, and the proof:", told))
    if found.notes:
        parts.append(_part("notes:", _wrapped(found.notes, width)))
    return "\n\n".join(parts)


def _head(found: Guide) -> str:
    one, t = found.library, found.library.topology
    names, name = ", ".join(one_line(tuned.name) for tuned in one.tuned), one_line(t.name)
    family = f" ({t.timing.family})" if t.timing.family else ""
    return facts(
        [
            ("library", found.folder),
            ("for", f"{names}, {format_binary(one.low)} to {format_binary(one.high)}"),
            (
                "on",
                f"{name}: {count(t.hosts, 'host')}, {count(t.ranks, 'GPU')}{family}",
            ),
        ]
    )


def _runtimes(found: Guide, width: int) -> str:
    rows = [(one.loader.name, TAKES[one.loader.format], one.words) for one in found.runtimes]
    return table(("runtime", "takes", "here"), rows, width)


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    """Return prose for a terminal; as it is without one."""
    if not width:
        return list(lines)
    found = []
    for line in lines:
        wide = max(20, width - 2)
        found += wrap(line, wide, subsequent_indent="  ", break_long_words=False)
    return found


def _part(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def guide_json(found: Guide) -> dict[str, Any]:
    """Return the guide for ``--json``."""
    chosen = found.settings.loader if found.settings else None
    return {
        "library": found.folder,
        "runtime": chosen.name if chosen else None,
        "runtimes": [
            {
                "name": one.loader.name,
                "title": one.loader.title,
                "takes": one.loader.format,
                "built": one.built,
                "files": one.files,
                "chosen": one.chosen,
                "why": one.words,
            }
            for one in found.runtimes
        ],
        "variables": dict(found.variables),
        "debug": dict(chosen.debug) if chosen else {},
        "launch": dict(found.launch),
        "proof": list(found.proof),
        "tests": dict(found.tests),
        "notes": list(found.notes),
    }
