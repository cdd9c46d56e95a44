"""Machines in the verbs: a one-line summary, JSON facts, and schedules on another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count
from weft.dsl.catalogue import topology as topology_named
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.hops import islands
from weft.dsl.nouns.library import MANIFEST, read
from weft.synth.time.calibrated import require_known

if TYPE_CHECKING:
    from weft.dsl.nouns.schedule import Schedule
    from weft.dsl.nouns.topology import Topology


def machine_line(topology: Topology) -> str:
    """Return the summary ``dgx1: 8 ranks, 1 host, 32 links``."""
    plain = plain_machine(topology).machine
    sizes = (
        count(topology.ranks, "rank"),
        count(topology.hosts, "host"),
        count(len(plain.links), "link"),
    )
    return f"{topology.name}: {', '.join(sizes)}"


def facts_of(topology: Topology) -> dict[str, Any]:
    """Return the JSON facts of a topology, without its links."""
    plain = plain_machine(topology).machine
    return {
        "topology": topology.name,
        "ranks": topology.ranks,
        "hosts": topology.hosts,
        "nodes": len(plain.nodes),
        "links": len(plain.links),
        "resources": len(plain.resources),
        "islands": [list(group) for group in islands(topology)],
        "digest": topology.digest(),
        "notes": list(topology.notes),
    }


def on_machine(schedule: Schedule, text: str) -> Schedule:
    """Return the schedule with the costs of another machine of the same shape.

    Raises:
        UserError: it has other links.
    """
    machine = read_topology(text)
    own = schedule.topology
    shape = [(x.src, x.dst) for x in machine.links]
    if len(machine.nodes) != len(own.nodes) or shape != [(x.src, x.dst) for x in own.links]:
        raise UserError(
            f"{machine.name} has other links than {own.name}, which the schedule is for",
            where=text,
            hint="only α and bandwidths may differ",
        )
    return replace(schedule, topology=machine)


def is_library(path: str) -> bool:
    """Return True if a path is the folder of a library."""
    try:
        return (Path(path) / MANIFEST).is_file()
    except (OSError, ValueError):
        return False


def read_topology(text: str) -> Topology:
    """Return a topology by catalogue name, path or ``-``, or that of a library by its folder.

    Raises:
        UnknownName: a number's key is unknown to the runtime model; the file is named.
    """
    if is_library(text):
        return read(text).topology
    found = topology_named(text)
    require_known((one.key for one in found.timing.numbers), f"{text}: timing")
    return found
