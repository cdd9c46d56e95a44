"""``weft plan`` of collectives that start together: the joint bound, and schedules for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import write_folder
from weft.dsl.base.tables import count
from weft.dsl.nouns.schedule import dumps, write
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import Workload, WorkloadOperation, require_ranks
from weft.synth.base.engine import Budget
from weft.synth.joint.demands import demands_of
from weft.synth.joint.merge import part_schedule
from weft.synth.joint.times import collective_times
from weft.synth.ordering.tasks import TaskCost
from weft.synth.planning.joint_plan import PLAN_EFFORT, JointPlan, JointPlanner

from ...report.plan_text import joint_facts, joint_text
from ..flags.search import PlanFlags
from ..flags.values import DEFAULTS
from ..inputs.machines import machine_line
from ..output.console import Console, Exit
from ..output.outputs import check_file_output, check_folder

MERGED = "plan.json"
"""Name of the merged schedule in the folder of a plan."""


def plan_at_once(
    args: PlanFlags, workload: Workload, machine: Topology | None, console: Console
) -> int:
    """Bound, plan, print, write.

    Raises:
        UserError: the machine is missing, or lacks ranks.
    """
    if machine is None:
        one = workload.operations[0]
        raise UserError(
            f"{one.name}: {one.kind} takes a time only on a machine", hint="-t TOPO names one"
        )
    if args.judge is not None:
        raise UserError("--judge is of the order of operations; these start together")
    _check_output(args, console)
    require_ranks(workload, machine.ranks, machine.name)
    console.say("Read", f"{count(len(workload.operations), 'operation')}; {machine_line(machine)}")
    for note in workload.notes:
        console.say("Assumed", note)
    demands = demands_of(workload, machine.ranks)
    times = collective_times(machine, demands)
    effort = replace(PLAN_EFFORT, engine=PLAN_EFFORT.engine * args.effort / DEFAULTS.order_effort)
    budget = Budget(effort=effort.engine, seed=args.seed)
    planner = JointPlanner(machine, times.joint, budget, effort=effort)
    plan = None
    if not args.bound:
        plan = planner.plan()
        console.say("Verified", f"{count(len(plan.schedule), 'transfer')} for all collectives")
    file = _write(args, plan, console)
    data = {"status": "ok", "topology": machine.name, "ranks": machine.ranks}
    if args.output != "-":
        facts = {**data, **joint_facts(times, plan, planner.alone, file)}
        facts["notes"] = list(workload.notes)
        console.result(joint_text(times, plan, planner.alone), facts)
    return Exit.DONE


def costs_on(topology: Topology, workload: Workload) -> Callable[[WorkloadOperation], TaskCost]:
    """Return the costs of each collective on a machine: by the own routes of its class.

    Those of one rank each move nothing, and take no time.
    """
    demands = demands_of(workload, topology.ranks)
    if not any(one.parts for one in demands):
        return lambda _: TaskCost(Fraction(0), {})
    times = collective_times(topology, demands)
    names = {one.name: k for k, one in enumerate(times.demands)}

    def cost(one: WorkloadOperation) -> TaskCost:
        loads = times.resource_us(names[one.name])
        return TaskCost(max(loads.values(), default=Fraction(0)), loads)

    return cost


def _write(args: PlanFlags, plan: JointPlan | None, console: Console) -> str | None:
    if args.output is None or plan is None:
        return None
    if _one_file(args.output):
        write(args.output, plan.schedule, force=args.force)
        return args.output
    texts = {MERGED: dumps(plan.schedule)}
    for part in plan.schedule.parts:
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in part.name).lstrip(".")
        name = f"{safe or 'part'}.json"
        while name in texts:
            name = f"_{name}"
        texts[name] = dumps(part_schedule(plan.schedule, part))
    write_folder(args.output, texts, force=args.force)
    console.say("Wrote", f"{count(len(texts), 'file')} in {args.output}")
    return str(Path(args.output) / MERGED)


def _check_output(args: PlanFlags, console: Console) -> None:
    """Check before the search that the schedules can be written."""
    if args.output is None:
        return
    if args.bound:
        raise UserError("--bound makes no schedules to write", hint="leave out -o, or --bound")
    if _one_file(args.output):
        check_file_output(args, console)
    else:
        hint = "name a folder, or a file.json for the schedule of all alone"
        check_folder(args.output, "the schedules", hint, force=args.force)


def _one_file(output: str) -> bool:
    return output == "-" or Path(output).suffix == ".json"
