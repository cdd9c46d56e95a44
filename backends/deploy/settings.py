"""Settings that make a runtime use a library's files: variables, and a list where it needs one.

Sources: microsoft/msccl 0.7.4 (``topo.cc``, ``tuning.cc``), ROCm/rccl and
Azure/msccl-executor-nccl (``msccl_lifecycle.cc``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.machines.nics import nics_of, own_number
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.library import Artefact, Library, TunedPlan
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.runtime import (
    LOADERS,
    MSCCL,
    RCCL,
    RUNTIMES,
    Loader,
    default_loader,
    loaders_for,
)
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import inner_medium

XML = "msccl-xml"

HCA = "NCCL_IB_HCA"
"""Variable for the NICs; ``=`` before their names stands for these names and no longer ones."""


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Numbers of launchers and loaders."""

    process_cores: int = 4  # for NCCL's threads for the network, and the program's own
    named_files: int = 4  # ``MSCCL_XML_FILES`` of microsoft/msccl; more need a ``MSCCL_CONFIG``


FACTS = LaunchFacts()


CONFIG = "msccl-config.xml"
"""List of a library's files, with :data:`PLACE` for the library's folder."""

HERE = "msccl-config-here.xml"
"""The same with the folder's path: microsoft/msccl takes no relative paths. It is made beside the
library, once, by ``env.sh``."""

PLACE = "@LIBRARY@"


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Settings that make a runtime use a library in a folder.

    Attributes:
        loader: the runtime. ``variables``: names and values for the environment of all ranks.
        files: the library's files that it takes. ``config``: the text of :data:`CONFIG`, if it
            needs one.
    """

    loader: Loader
    variables: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    config: str = ""


def is_amd(topology: Topology) -> bool | None:
    """Return True if the GPUs are AMD's, by the links inside hosts; None: nothing tells it."""
    inner = inner_medium(topology)
    return None if inner is None else inner is Medium.XGMI


def fitting(topology: Topology) -> tuple[Loader, ...]:
    """Return the runtimes that load files and fit a machine's GPUs, the best first."""
    return loaders_for(topology.timing.family, is_amd(topology))


def machine_loader(topology: Topology) -> Loader:
    """Return the runtime that files are made for on a machine, if no flag names one."""
    return default_loader(topology.timing.family, is_amd(topology))


def machine_target(topology: Topology) -> str:
    """Return the runtime of MSCCL XML on a machine, if none is named."""
    return default_loader(topology.timing.family, is_amd(topology), xml=True).name


def loaders_of(library: Library) -> tuple[Loader, ...]:
    """Return the runtimes that take the library's files as they are."""
    made = {(a.format, a.target) for _, a in _artefacts(library)}
    targets = {target for format, target in made if format == XML}
    return tuple(
        one
        for one in LOADERS.values()
        if (one.format == XML and one.name in targets)
        or (one.format != XML and one.format in {format for format, _ in made})
    )


def usual_loader(library: Library) -> Loader | None:
    """Return the runtime to deploy a library for: of those that take its files one that is built
    for the machine's GPUs; else the usual one that takes them; None if none does."""
    able = loaders_of(library)
    fit = [one for one in fitting(library.topology) if one in able]
    usual = [one for one in able if one.name == machine_target(library.topology)]
    return next(iter((*fit, *usual, *able)), None)


def settings_of(library: Library, loader: Loader, folder: str) -> RuntimeSettings:
    """Return the settings with which a runtime uses the library in a folder."""
    named = [(p, a) for p, a in _artefacts(library) if _takes(loader, a)]
    files = tuple(a.file for _, a in named)
    found = [(HCA, f"={names}")] if (names := ",".join(plan_nics(library.topology))) else []
    if loader.format != XML:
        return RuntimeSettings(loader, tuple(found), files)
    if loader.name != MSCCL.name:
        found.append(("MSCCL_ALGO_DIR", f"{folder}/{XML}"))
        if loader.name == RCCL.name:
            found += [("RCCL_MSCCL_ENABLE", "1"), ("RCCL_MSCCL_FORCE_ENABLE", "1")]
        return RuntimeSettings(loader, tuple(found), files)
    if any(t.collective.kind is Kind.ALLREDUCE for t in library.tuned):
        # The one collective that needs leave: elsewhere a file that fits is taken.
        found.append(("NCCL_ALGO", "MSCCL,RING,TREE"))
    if any(plan.protocol != "Simple" for plan, _ in named):
        used = dict.fromkeys(("Simple", *(plan.protocol for plan, _ in named)))
        found.append(("NCCL_PROTO", ",".join(used)))
    if len(named) <= FACTS.named_files:
        found.append(("MSCCL_XML_FILES", ":".join(f"{folder}/{file}" for file in files)))
        return RuntimeSettings(loader, tuple(found), files)
    found.append(("MSCCL_CONFIG", f"{folder}/{HERE}"))
    rows = [_load(plan, a.file) for plan, a in named]
    config = "\n".join(["<msccl_algos>", *rows, "</msccl_algos>", ""])
    return RuntimeSettings(loader, tuple(found), files, config)


def plan_nics(t: Topology) -> list[str]:
    """Return the NICs of each host that the plans are for, where several hosts call theirs alike.

    The runtime would take others too, those for storage.
    """
    hosts: list[list[str]] = [[] for _ in range(t.hosts)]
    for nic in nics_of(t):
        hosts[nic.host] += [name for name in nic.own[:1] if own_number((name,)) is None]
    plain = all(re.fullmatch(r"[\w.-]+", name, re.ASCII) for name in hosts[0])
    same = t.hosts > 1 and plain and all(names == hosts[0] for names in hosts)
    return hosts[0] if same else []


def _takes(loader: Loader, artefact: Artefact) -> bool:
    if artefact.format != loader.format:
        return False
    return artefact.format != XML or artefact.target == loader.name


def _artefacts(library: Library) -> Iterator[tuple[TunedPlan, Artefact]]:
    for one in library.tuned:
        for plan in one.plans:
            for artefact in plan.artefacts:
                yield plan, artefact


def xml_target(library: Library) -> str:
    """Return the runtime that a library's MSCCL XML was made for; empty if it has none."""
    found = (a.target for _, a in _artefacts(library) if a.format == XML)
    return next((target for target in found if target in RUNTIMES), "")


def _load(plan: TunedPlan, file: str) -> str:
    return (
        f'  <load path="{PLACE}/{escape(file)}" minbytes="{plan.low}" maxbytes="{plan.high + 1}" '
        f'proto="{plan.protocol}"/>'
    )


def one_line(name: str) -> str:
    """Return a name as one line, for a comment of a script or a terminal.

    Machines and collectives may have any name, and text after the end of a line would be executed.
    """
    return " ".join(name.split()) if name.isprintable() else ascii(name)
