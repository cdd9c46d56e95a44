"""``weft workload``: a look at the operations of a training step, in any format."""

from __future__ import annotations

from ..flags.nested import WorkloadShowFlags
from ..inputs.machines import read_topology
from ..inputs.workloads import workload_at
from ..nouns.workload_noun import workload_facts, workload_text
from ..output.console import Console, Exit


def run(args: WorkloadShowFlags, console: Console) -> int:
    machine = None if args.topology is None else read_topology(args.topology)
    workload = workload_at(args.workload, args, machine)
    console.result(workload_text(workload), {"status": "ok", **workload_facts(workload)})
    return Exit.DONE
