"""Workloads that a command line names."""

from __future__ import annotations

from weft.dsl.importers.workloads.read import WorkloadSource, read_workload
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import Workload, require_ranks

from .flags.shared import WorkloadFlags


def workload_at(path: str, args: WorkloadFlags, machine: Topology | None) -> Workload:
    """Return a workload, whose ranks a machine must have.

    Raises:
        BadFile: it is not one; BadTopology: the machine has too few ranks.
    """
    ranks = args.ranks or (machine.ranks if machine is not None else None)
    workload = read_workload(WorkloadSource(path, args.form, args.groups, ranks))
    if machine is not None:
        require_ranks(workload, machine.ranks, machine.name)
    return workload
