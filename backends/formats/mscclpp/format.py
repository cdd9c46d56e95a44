"""MSCCL++ execution plans as a backend of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.progress import Telling, silent
from weft.dsl.base.units import SizeRange

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.topology import Topology

    from ...check import Finding
    from ...execute import Execution
    from ...runtime.target import Target
    from .plan.model import Plan

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

    def assumed(self, ranks: int, machine: str | None = None) -> str | None:
        """Where the ranks are taken to be when neither a topology nor an option says it."""
        if self.gpus_per_node or self.nodes:
            return None
        silent = f"{machine} does not name its nodes" if machine else "no topology names the nodes"
        return (
            f"{silent}: all {ranks} ranks are on one node; --to "
            f"'{self.name}{{gpus_per_node=N}}' says otherwise"
        )

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """The plan as JSON.

        Raises:
            UserError: the program does not fit a plan, or the options make no sense.
        """
        from .lower.emit import emit

        return emit(program, self._nodes(len(program.ranks)), sizes)

    def _nodes(self, ranks: int) -> Sequence[int] | None:
        """The node of each rank; None: all in one.

        Raises:
            UserError: the options make no sense, or do not cut so many ranks into equal nodes.
        """
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

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        """What the plan checker finds; a plan is for one runtime, whatever the target."""
        from .check import check_plan
        from .plan.read import read_plan

        return check_plan(read_plan(text, where))

    def execute(
        self,
        text: str,
        where: str,
        collective: Collective,
        *,
        interleavings: int,
        seed: int,
        tell: Telling = silent,
    ) -> Execution:
        """Run the plan in the interpreter; a large one in fewer orders."""
        from .interpret import run_plan
        from .plan.read import read_plan

        plan = read_plan(text, where)
        orders = max(2, min(interleavings, MOST_STEPS // max(1, steps(plan))))
        return run_plan(plan, collective, orders=orders, seed=seed, tell=tell)


def steps(plan: Plan) -> int:
    """About how many steps one order takes: two threads, three launches."""
    return 6 * sum(len(b.ops) for g in plan.gpus for b in g.blocks)
