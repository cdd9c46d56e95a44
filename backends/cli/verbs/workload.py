"""``weft workload``: a look at the operations of a training step, in any format."""

from __future__ import annotations

from weft.dsl.importers.workloads.read import read_workload
from weft.dsl.nouns.workload import require_ranks

from ...report.workload_text import workload_facts, workload_text
from ..console import Console
from ..exit_codes import Exit
from ..flags.nested import WorkloadShowFlags
from ..machines import read_topology


def run(args: WorkloadShowFlags, console: Console) -> int:
    """Show it."""
    workload = read_workload(args.workload)
    if args.topology is not None:
        machine = read_topology(args.topology)
        require_ranks(workload, machine.ranks, machine.name)
    console.result(workload_text(workload), {"status": "ok", **workload_facts(workload)})
    return Exit.DONE
