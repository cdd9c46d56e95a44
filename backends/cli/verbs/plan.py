"""``weft plan``: a whole job in time, and jobs beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import write_text
from weft.dsl.base.tables import number
from weft.dsl.nouns.workload_plan import WorkloadPlan
from weft.synth.base.meter import STEPS, Meter
from weft.synth.ordering.plan import graph_of, plan_in_time

from ...report.plan_text import plan_facts, plan_text, shift_facts, shift_text
from ..flags.search import PlanFlags
from ..inputs.workloads import machine_of_workload, workload_at
from ..output.console import Console, Exit
from ..output.outputs import check_file_output


def run(args: PlanFlags, console: Console) -> int:
    if len(args.workloads) > 1 and not args.shift:
        raise UserError(
            f"{len(args.workloads)} workloads are several jobs",
            hint="--shift says when each should start; or put them into one file as one job",
        )
    machine = None if args.topology is None else machine_of_workload(args.topology, console)
    workloads = [workload_at(path, args, machine) for path in args.workloads]
    one = workloads[0]  # of collectives that start together there is nothing to order
    if not args.shift and not one.ordered and all(x.needs_machine for x in one.operations):
        from ..work.joint_planning import plan_at_once  # all engines

        return plan_at_once(args, one, machine, console)
    if args.output is not None and (args.output.endswith("/") or Path(args.output).is_dir()):
        raise UserError(
            "a plan in time is one file, not a folder (folders are for collectives at once)",
            where=args.output,
            hint=f"name a file in it: -o {args.output.rstrip('/')}/plan.json",
        )
    check_file_output(args, console)
    if args.bound:
        raise UserError("--bound is of collectives that start together, with nothing else")
    plans = []
    for one in workloads:
        meter, name = Meter(int(args.effort * STEPS)), machine.name if machine else ""
        cost_of = None
        if machine and one.needs_machine:
            from ..work.joint_planning import costs_on

            cost_of = costs_on(machine, one)
        plans.append(plan_in_time(one, meter, machine=name, cost_of=cost_of, seed=args.seed))
    if not args.shift:
        return _one(args, plans[0], console)
    if len(plans) < 2:
        raise UserError("expected two workloads or more, got one", hint="leave out --shift")
    if args.output is not None:
        raise UserError("--shift writes no file", hint="leave out -o; --json prints the shifts")
    from weft.synth.ordering.jobs import shared_jobs  # CP-SAT

    found = shared_jobs(plans, args.workloads, args.seed)
    console.result(shift_text(found), {"status": "ok", **shift_facts(found)})
    return Exit.DONE


def _one(args: PlanFlags, plan: WorkloadPlan, console: Console) -> int:
    facts: dict[str, Any] = {"status": "ok", **plan_facts(plan), "file": args.output}
    text = plan_text(plan)
    if args.judge is not None:
        verdict, data = _judged(args, plan)
        facts["judge"] = data
        text += f"\n\n{verdict}"
    for note in plan.workload.notes:
        console.say("Assumed", note)
    facts["notes"] = list(plan.workload.notes)
    if args.output is not None:
        write_text(args.output, json.dumps(plan.to_json()) + "\n", force=args.force)
        if args.output != "-":
            console.say("Wrote", args.output)
    if args.output != "-":
        console.result(text, facts)
    return Exit.DONE


def _judged(args: PlanFlags, plan: WorkloadPlan) -> tuple[str, dict[str, Any]]:
    """Return CP-SAT's answer, in words and as facts."""
    from weft.synth.ordering.judge import judged  # CP-SAT

    assert args.judge is not None
    found = judged(graph_of(plan), args.judge, seed=args.seed)
    if found is None or found.us is None:
        why = "too many pieces" if found is None else "nothing found within its steps"
        return f"CP-SAT: {why}", {"us": None, "optimal": False, "pieces": args.judge}
    best = "no order is better" if found.optimal else "the best it found"
    text = f"CP-SAT, {args.judge} pieces each: {float(found.us):,.6g} µs, {best}"
    facts = {"us": number(found.us), "optimal": found.optimal, "pieces": args.judge}
    return text, facts
