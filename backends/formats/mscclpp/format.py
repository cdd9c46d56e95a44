"""MSCCL++ execution plans: the format of its executor and of its NCCL shim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.runtime import MSCCLPP

from ...check.checks import Check, of_findings
from ...compile.request import ProvedArtefact, Request
from ..format import ExecutionReport, ExecutionRequest, Format, Requirements, executed_if_good
from .plan.model import LIMITS
from .plan.read import read_plan
from .text import plan_text

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.runtime import Target
    from weft.dsl.nouns.topology import Topology

    from ...check.checks import Check
    from ...check.findings import Finding
    from ...execute.execute import Execution
    from .plan.model import ExecutionPlan

GOOD = "no wrong number, broken limit, deadlock, race, missing handshake or nop"


@dataclass(frozen=True, slots=True)
class MscclppJson(Format):
    """MSCCL++ execution plans (JSON), for its executor and the NCCL shim.

    ``gpus_per_node``: ranks of a node, in order; 0: as the schedule's topology says.
    ``nodes``: the node of each rank. GPUs of one node talk through memory channels, others through
    port channels. ``sm``: compute capability × 10 (0: as the machine says), ``dtype``, ``op``: what
    a plan with operations on switches is for, to refuse what the hardware cannot sum.
    """

    name: ClassVar[str] = "mscclpp-json"
    cites: ClassVar[str] = "Shah et al., MSCCL++, 2025, arXiv:2504.09014"
    noun: ClassVar[str] = "MSCCL++ plan"
    suffix: ClassVar[str] = ".json"
    asks_collective: ClassVar[bool] = True
    peer_access: ClassVar[bool] = True
    casts: ClassVar[bool] = True
    protocols: ClassVar[tuple[str, ...]] = ("Simple", "LL")
    gpus_per_node: int = 0
    nodes: tuple[int, ...] = ()
    sm: int = 0
    dtype: str = ""
    op: str = "sum"

    # --- files ------------------------------------------------------------------------------------

    def read(self, text: str, where: str) -> ExecutionPlan:
        return read_plan(text, where)

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        if asked.target:
            raise UserError("a plan is for MSCCL++; --target is for MSCCL XML", where=where)
        plan = self.read(text, where)
        size = f"{plan.collective} on {count(len(plan.gpus), 'rank')}, {size_of(plan)}"
        wanted = _asked(asked, plan)
        checks = [Check("form", True, size), *of_findings(_findings(plan), GOOD)]
        return [*checks, _result(plan, wanted)] if all(c.ok for c in checks) else checks

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        return _findings(self.read(text, where))

    def run(
        self,
        text: str,
        where: str,
        asked: Requirements,
        request: ExecutionRequest,
        tell: ProgressCallback = silent,
    ) -> ExecutionReport:
        if request.given:
            flag = request.given[0].replace("_", "-")
            raise UserError(f"--{flag} says nothing about a plan", where=where)
        plan = self.read(text, where)
        if asked.in_place and not plan.in_place:
            raise UserError(
                "the plan is for separate buffers (inplace false)",
                where=where,
                hint="compile it with --in-place",
            )
        wanted = _asked(asked, plan)
        tell("check")
        checks = executed_if_good(
            _findings(plan), lambda: _executed(plan, replace(request, collective=wanted), tell)
        )
        return ExecutionReport(checks, plan.collective, len(plan.gpus))

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        plan = self.read(text, where)
        return _executed(plan, replace(request, interleavings=orders_of(request, plan)), tell)

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        plan = self.read(text, where)
        return plan_text(plan), {
            "name": plan.name,
            "collective": plan.collective,
            "ranks": len(plan.gpus),
        }

    # --- compiling --------------------------------------------------------------------------------

    def on(self, topology: Topology) -> MscclppJson:
        hosts = topology.host_of
        if self.gpus_per_node or self.nodes or None in hosts:
            return self
        return replace(self, nodes=tuple(h for h in hosts if h is not None))

    def assumed(self, ranks: int, machine: str | None = None) -> str | None:
        if self.gpus_per_node or self.nodes:
            return None
        silent = f"{machine} does not name its nodes" if machine else "no topology names the nodes"
        return (
            f"{silent}: all {ranks} ranks are on one node; --to "
            f"'{self.name}{{gpus_per_node=N}}' says otherwise"
        )

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        schedule = request.noun
        if not len(getattr(schedule, "casts", ())):
            return Format.make(self, request, tell)
        from .casts.artefact import Hardware, cast_artefact

        asked = Hardware(self.sm, self.dtype, self.op, schedule.topology.timing.family)
        nodes = self._nodes(schedule.collective.ranks)
        tell("emit")
        return cast_artefact(request, schedule, nodes, asked)

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        from .lower.emit import emit

        return emit(program, self._nodes(len(program.ranks)), sizes)

    def _nodes(self, ranks: int) -> Sequence[int] | None:
        """Return the node of each rank; None: all in one."""
        size = self.gpus_per_node
        if not size:
            return self.nodes or None
        if size < 0:
            raise UserError(
                f"gpus_per_node is {size}",
                where=self.name,
                hint="1 or more; 0 means as the topology says",
            )
        if self.nodes:
            raise UserError(
                "gpus_per_node and nodes say the same thing twice",
                where=self.name,
                hint="leave one of them out",
            )
        if ranks % size and size < ranks:
            raise UserError(
                f"gpus_per_node is {size}, and {ranks} ranks make no nodes of equal size",
                where=self.name,
                hint="for uneven nodes name the node of each rank: nodes=0+0+0+1",
            )
        return [rank // size for rank in range(ranks)]

    def checked(self, target: str) -> str:
        return "program and plan"

    def timed_runtime(self, target: str) -> str | None:
        return MSCCLPP


def size_of(plan: ExecutionPlan) -> str:
    """``at most 4 thread blocks per rank, 96 operations``."""
    blocks = count(max((len(g.blocks) for g in plan.gpus), default=0), "thread block")
    ops = sum(len(b.ops) for g in plan.gpus for b in g.blocks)
    return f"at most {blocks} per rank, {count(ops, 'operation')}"


def steps(plan: ExecutionPlan) -> int:
    """About how many steps one order takes: two threads, three launches."""
    return 6 * sum(len(b.ops) for g in plan.gpus for b in g.blocks)


def orders_of(request: ExecutionRequest, plan: ExecutionPlan) -> int:
    """Return in how many orders a plan is executed: a large one in fewer, but in two at least."""
    most = LIMITS.thread_steps if request.steps is None else min(request.steps, LIMITS.thread_steps)
    return max(2, min(request.interleavings, most // max(1, steps(plan))))


def _asked(asked: Requirements, plan: ExecutionPlan) -> Collective | None:
    """Return the collective that flags name: by ``-c``, or the plan's own with ``--root``."""
    return asked.resolve(plan.collective if asked.rooted else None, len(plan.gpus))


def _findings(plan: ExecutionPlan) -> Sequence[Finding]:
    from .check import check_plan

    return check_plan(plan)


def _executed(
    plan: ExecutionPlan, request: ExecutionRequest, tell: ProgressCallback = silent
) -> Execution:
    from .interpret import run_plan

    return run_plan(
        plan,
        request.collective,
        dtypes=request.dtypes,
        orders=request.interleavings,
        seed=request.seed,
        tell=tell,
    )


def _result(plan: ExecutionPlan, wanted: Collective | None) -> Check:
    """Execute a few orders, once the checker has found that all compute the same.

    Contributions are random 64-bit integers and a result is a fixed sum of some, so that a wrong
    one equals the right one with a probability of about 2^-64 per element.
    """
    from .interpret import collective_of

    def unjudged(why: str) -> Check:
        return Check("note", True, f"the result is not judged: {why}")

    if steps(plan) > LIMITS.thread_steps:
        return unjudged("the plan is large; weft run executes it")
    if wanted is None:
        try:
            wanted = collective_of(plan)
        except UserError as error:
            hint = "; -c names what it must achieve, and --root its root"
            return unjudged(f"{error.message}{hint}")
    orders = max(1, min(LIMITS.orders, LIMITS.thread_steps // 4 // max(1, steps(plan))))
    done = _executed(plan, ExecutionRequest(("int64",), orders, collective=wanted))
    return Check("result", done.ok, f"executed {done.detail}" if done.ok else done.detail)
