"""MSCCL++ execution plans as a backend of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from weft.dsl.errors import UserError
from weft.dsl.units import SizeRange

if TYPE_CHECKING:
    from weft.dsl.collective import Collective
    from weft.dsl.program import Program
    from weft.dsl.topology import Topology

    from ..check import Finding
    from ..interpret import Execution
    from ..target import Target
    from .model import Plan

MOST_STEPS = 2_000_000
"""Steps of threads after which an execution is cut to fewer orders (some ten seconds)."""


@dataclass(frozen=True, slots=True)
class MscclppJson:
    """MSCCL++ execution plans (JSON), for its executor and the NCCL shim.

    ``gpus_per_node``: ranks of a node, in order; 0: as the schedule's topology says.
    ``nodes``: the node of each rank. GPUs of one node talk through memory channels, others through
    port channels.
    """

    name: ClassVar[str] = "mscclpp-json"
    cites: ClassVar[str] = "Shah et al., MSCCL++, 2025, arXiv:2504.09014"
    gpus_per_node: int = 0
    nodes: tuple[int, ...] = ()

    @classmethod
    def availability(cls) -> str | None:
        """Nothing is needed to write text."""
        return None

    def on(self, topology: Topology) -> MscclppJson:
        """With the nodes of a topology, unless they are given."""
        hosts = topology.host_of
        if self.gpus_per_node or self.nodes or None in hosts:
            return self
        return replace(self, nodes=tuple(h for h in hosts if h is not None))

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """The plan as JSON.

        Raises:
            UserError: the program does not fit a plan, or the options make no sense.
        """
        from .emit import emit

        if self.gpus_per_node < 0 or (self.gpus_per_node and self.nodes):
            raise UserError("gpus_per_node is a positive number, and excludes nodes")
        nodes: Sequence[int] | None = self.nodes or None
        if self.gpus_per_node:
            nodes = [rank // self.gpus_per_node for rank in range(len(program.ranks))]
        return emit(program, nodes, sizes)

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        """What the plan checker finds; a plan is for one runtime, whatever the target."""
        from .check import check_plan
        from .read import read_plan

        return check_plan(read_plan(text, where))

    def execute(
        self, text: str, where: str, collective: Collective, *, interleavings: int, seed: int
    ) -> Execution:
        """Run the plan in the interpreter; a large one in fewer orders."""
        from .interpret import run_plan
        from .read import read_plan

        plan = read_plan(text, where)
        orders = max(2, min(interleavings, MOST_STEPS // max(1, steps(plan))))
        return run_plan(plan, collective, orders=orders, seed=seed)


def steps(plan: Plan) -> int:
    """About how many steps one order takes: two threads, three launches."""
    return 6 * sum(len(b.ops) for g in plan.gpus for b in g.blocks)
