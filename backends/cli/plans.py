"""MSCCL++ plans in the verbs: check, run, show."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.progress import Telling
from weft.dsl.base.tables import count

from .inputs import collective_for
from .judging import Check, of_findings
from .subjects import Subject

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective

    from ..formats.mscclpp.plan.model import Plan

ORDERS = 6
"""Orders in which a plan is executed when it is checked: one of each policy of the interpreter."""

GOOD = "no wrong number, broken limit, deadlock, race, missing handshake or nop"


def check_plan_file(subject: Subject, args: argparse.Namespace, _: object) -> list[Check]:
    """The checks of a plan."""
    from ..formats.mscclpp.check import check_plan

    if args.target:
        raise UserError("a plan is for MSCCL++; --target is for MSCCL XML", where=subject.where)
    plan = read(subject)
    blocks = max((len(g.blocks) for g in plan.gpus), default=0)
    size = ", ".join(
        (
            f"{plan.collective} on {count(len(plan.gpus), 'rank')}",
            f"at most {count(blocks, 'thread block')} per rank",
            count(sum(len(b.ops) for g in plan.gpus for b in g.blocks), "operation"),
        )
    )
    wanted = _collective(args, plan)
    checks = [Check("form", True, size), *of_findings(check_plan(plan), GOOD)]
    return [*checks, _result(plan, wanted)] if all(c.ok for c in checks) else checks


def _result(plan: Plan, wanted: Collective | None) -> Check:
    """What a few orders compute, once the checker has found that all compute the same.

    Contributions are random 64-bit integers and a result is a fixed sum of some, so that a wrong
    one equals the right one with a probability of about 2^-64 per element.
    """
    from ..formats.mscclpp.check.form import SWITCH_OPS
    from ..formats.mscclpp.format import MOST_STEPS, steps
    from ..formats.mscclpp.interpret import collective_of, run_plan

    def unjudged(why: str) -> Check:
        return Check("note", True, f"the result is not judged: {why}")

    if any(op.op in SWITCH_OPS for g in plan.gpus for b in g.blocks for op in b.ops):
        return unjudged("operations on switches are not executed")
    if steps(plan) > MOST_STEPS:
        return unjudged("the plan is large; weft run executes it")
    if wanted is None:
        try:
            wanted = collective_of(plan)
        except UserError as error:
            hint = "; -c names what it must achieve, and --root its root"
            return unjudged(f"{error.message}{hint}")
    orders = max(1, min(ORDERS, MOST_STEPS // 4 // max(1, steps(plan))))
    done = run_plan(plan, wanted, dtypes=("int64",), orders=orders)
    return Check("result", done.ok, f"executed {done.detail}" if done.ok else done.detail)


def run_plan_file(
    subject: Subject, args: argparse.Namespace, given: Iterable[str], tell: Telling
) -> tuple[list[Check], Plan]:
    """Check a plan and execute it; the options ``given`` are for making one.

    Raises:
        UserError: an option that says nothing about a plan, or contradicts it.
    """
    from ..formats.mscclpp.check import check_plan
    from ..formats.mscclpp.interpret import run_plan

    for name in given:
        if getattr(args, name) is not None:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} says nothing about a plan", where=subject.where)
    plan = read(subject)
    if args.in_place and not plan.in_place:
        raise UserError(
            "the plan is for separate buffers (inplace false)",
            where=subject.where,
            hint="compile it with --in-place",
        )
    wanted = _collective(args, plan)
    tell("check")
    checks = of_findings(check_plan(plan), "no error found")
    if all(c.ok for c in checks):
        types = tuple(t.strip() for t in args.dtype.split(",") if t.strip())
        done = run_plan(
            plan, wanted, dtypes=types, orders=args.interleavings, seed=args.seed, tell=tell
        )
        checks.append(Check("execution", done.ok, done.detail))
    return checks, plan


def _collective(args: argparse.Namespace, plan: Plan) -> Collective | None:
    rooted = args.root is not None or args.roots is not None
    if args.collective is None and rooted:
        args.collective = plan.collective
    return collective_for(args, tuple(range(len(plan.gpus)))) if args.collective else None


def read(subject: Subject) -> Plan:
    """The plan in a file."""
    from ..formats.mscclpp import read_plan

    return read_plan(subject.text, subject.where)


def view_plan(subject: Subject) -> tuple[str, dict[str, Any]]:
    """A plan as text, and what a program wants to know of it."""
    from ..report.plan import plan_text

    plan = read(subject)
    return plan_text(plan), {
        "name": plan.name,
        "collective": plan.collective,
        "ranks": len(plan.gpus),
    }
