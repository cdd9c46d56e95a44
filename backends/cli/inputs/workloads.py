"""Workloads that a command line names."""

from __future__ import annotations

from weft.dsl.importers.workloads.read import WorkloadSource, read_workload
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import Workload, require_ranks

from ..flags.shared import WorkloadFlags
from ..output.console import Console

FORWARDING = (
    "switches of {} copy or sum; here they only forward: bound and plans are of transfers between "
    "GPUs, and switches may do better"
)


def machine_of_workload(text: str, console: Console) -> Topology:
    """Return the machine that ``-t`` names, its switches forwarding only, and say so.

    Joint bounds and plans are made of trees and paths, without casts of switches.
    """
    from .machines import read_topology  # all families of machines

    machine = read_topology(text)
    plain = machine.without_capabilities()
    if plain is not machine:
        console.warn(FORWARDING.format(machine.name))
    return plain


def workload_at(path: str, args: WorkloadFlags, machine: Topology | None) -> Workload:
    """Return a workload, whose ranks a machine must have.

    Raises:
        BadFile: it is not one; BadTopology: the machine has too few ranks.
    """
    ranks = args.ranks or (machine.ranks if machine is not None else None)
    workload = read_workload(WorkloadSource(path, args.form, args.groups, ranks))
    if machine is not None:
        require_ranks(workload, machine.ranks, machine.name, path)
    return workload
