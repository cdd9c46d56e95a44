"""MSCCL++ plans on switches: N01, N05, N07, N15 of 8 and 16 ranks, and mutants of each.

Run: ``python tests/grade/switch_plans.py [N01] [N05] [N07] [N15] [mutants]``. Each schedule is
found by ``packing``, compiled in place and out of place, proved, and executed in many orders on
integers and floats (integers exactly). ``mutants``: a missing handshake, nop or member, an
overlapping store, a moved operand and others of N01's and N07's plans; every one must be rejected,
by the checker or by execution. The exit code is 1 if a right one is found wrong, or a wrong one
right.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import switch_mutants

from weft import Objective, Problem, synthesize
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions
from weft.backends.compile.prepare import artefact
from weft.backends.formats.mscclpp.check import check_plan
from weft.backends.formats.mscclpp.interpret import run_plan
from weft.backends.formats.mscclpp.plan.model import ExecutionPlan, PlanOp
from weft.backends.formats.mscclpp.plan.read import read_plan
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule

GIB = 1 << 30
NVLS = "multicast+reduces+issuer_in_group"
MACHINES = {
    "N01": "dgx-h100:nvls=on",
    "N07": "dgx-h100:nodes=2,nvls=on",
    "N01 of 16": f"hub:16,bw=450GB/s,capable=hub:{NVLS}",
    **{f"N05 of {n}": f"hub:{n},bw=450GB/s,capable=hub:{NVLS}" for n in (4, 5, 6, 7)},
}
ORDERS = 48
MUTANTS = 60
"""Of each plan."""


@cache
def schedule(name: str) -> Schedule:
    """The schedule of a case, for 1 GiB."""
    found = topology(MACHINES[name])
    problem = Problem(found, make("allreduce", found.ranks), objective=Objective.TIME, bytes=GIB)
    return synthesize(problem, engine="packing").points[0].schedule


def plan_of(name: str, in_place: bool) -> ExecutionPlan:
    made = artefact(schedule(name), "mscclpp-json", CompileOptions(in_place=in_place))
    return read_plan(made.text)


def proved(name: str) -> Iterator[bool]:
    for in_place in (True, False):
        began = time.process_time()
        plan = plan_of(name, in_place)
        found = errors(check_plan(plan))
        done = run_plan(plan, schedule(name).collective, orders=ORDERS)
        sums = sum(
            o.op is PlanOp.MULTICAST_REDUCE_STORE
            for g in plan.gpus
            for b in g.blocks
            for o in b.ops
        )
        spent = time.process_time() - began
        good = not found and done.ok
        print(
            f"{'yes' if good else 'NO':3} {name:10} {len(plan.gpus):2} ranks, {sums:3} glres, "
            f"{len(schedule(name).casts)} casts, {len(schedule(name))} transfers: {done.detail} "
            f"({spent:.1f} CPU s)"
        )
        yield good


def refused() -> Iterator[bool]:
    """N15: what the hardware cannot do is refused, and the fields are those of the loader."""
    for asked, words in (("sm=80", "sm_80"), ("dtype=float64", "float64"), ("op=max", "max")):
        try:
            artefact(schedule("N01"), f"mscclpp-json{{{asked}}}")
            text = "not refused"
        except UserError as error:
            text = error.message
        print(f"{'yes' if words in text else 'NO':3} N15 {asked}: {text}")
        yield words in text


def mutants(seed: int = 0) -> Iterator[bool]:
    rng = random.Random(seed)
    for name in ("N01", "N07"):
        for in_place in (True, False):
            plan = plan_of(name, in_place)
            found = list(switch_mutants.mutants(plan))
            tried = rng.sample(found, min(MUTANTS, len(found)))
            by: Counter[str] = Counter()
            for what, mutant in tried:
                if bad := errors(check_plan(mutant)):
                    by[bad[0].check] += 1
                elif not run_plan(mutant, schedule(name).collective, orders=12).ok:
                    by["execution"] += 1
                else:
                    print(f"NO  accepted: {what}")
                    yield False
            place = "in" if in_place else "out of"
            print(f"{name}, {place} place: {len(tried)} of {len(found)} mutants, {dict(by)}")
            yield sum(by.values()) == len(tried)


def main(asked: list[str]) -> int:
    good = True
    for name in MACHINES:
        if not asked or name.split()[0] in asked:
            good &= all(list(proved(name)))
    if not asked or "N15" in asked:
        good &= all(list(refused()))
    if not asked or "mutants" in asked:
        good &= all(list(mutants()))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
