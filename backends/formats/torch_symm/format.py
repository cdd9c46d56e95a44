"""Programs for torch symmetric memory: one Python file with a Triton kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCLPP, UNLIMITED

from ...check.checks import Check, of_findings
from ...compile.request import Request
from ...execute.execute import Execution
from ..format import ExecutionReport, ExecutionRequest, Format, Requirements
from .program import KERNEL_LIMITS
from .read import SymmProgram, read_program

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.runtime import Target
    from weft.dsl.nouns.topology import Topology

    from ...check.findings import Finding
    from ...compile.request import ProvedArtefact

GOOD = "no wrong number, deadlock, race, missing handshake or nop"


@dataclass(frozen=True, slots=True)
class TorchSymm(Format):
    """A Python file for torch symmetric memory: a Triton kernel that pushes, on one NVLink or PCIe
    domain.

    ``domain``: ranks of an NVLink or PCIe domain (0: as the topology says); ``nodes``: the domain
    of each rank. All ranks must be in one. ``specialised``: the numbers of the
    program are constants of the kernel (small programs: it compiles some 0.02 s per operation and
    more). ``vllm``: with a class that stands for vLLM's custom allreduce. ``dtype``, ``op``: the
    defaults of the file (bfloat16, sum).
    """

    name: ClassVar[str] = "torch-symm"
    cites: ClassVar[str] = "PyTorch, torch.distributed._symmetric_memory, 2024"
    noun: ClassVar[str] = "torch symmetric-memory program"
    suffix: ClassVar[str] = ".py"
    peer_access: ClassVar[bool] = True
    casts: ClassVar[bool] = True
    any_buffers: ClassVar[bool] = True
    protocols: ClassVar[tuple[str, ...]] = ("Simple", "LL")
    elsewhere: ClassVar[str] = "`torchrun --nproc-per-node RANKS FILE`, on as many GPUs"
    domain: int = 0
    nodes: tuple[int, ...] = ()
    specialised: bool = False
    vllm: bool = False
    dtype: str = ""
    op: str = "sum"

    # --- files ------------------------------------------------------------------------------------

    def read(self, text: str, where: str) -> SymmProgram:
        return read_program(text, where)

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        """Return the form, the findings of the plan checker, and the collective of the plan.

        The file is not executed, but what weft writes for its program: where its code is another,
        a finding says that it is not judged, and the plan alone is executed.
        """
        from ..mscclpp.format import size_of
        from .judge import judge, own_text

        if asked.target:
            raise UserError("--target is for MSCCL XML", where=where)
        program, found = judge(text, where)
        plan, more = program.plan, ", specialised" if program.specialised else ""
        size = f"{program.collective}, {size_of(plan)}, {plan.protocol}{more}"
        checks = [Check("form", True, size), *of_findings(found, GOOD)]
        if all(c.ok for c in checks):
            request = ExecutionRequest(("int64",), interleavings=6)
            edited = any(one.check == "code" for one in found)
            done = _executed(program, None if edited else own_text(program), request)
            checks.append(Check("result", done.ok, f"executed {done.detail}"))
        return checks

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        from .judge import judge

        return judge(text, where)[1]

    def collective(self, text: str, where: str) -> Collective:
        return self.read(text, where).collective

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        """Run the plan in the interpreter of plans, and the file's kernel under weak memory.

        A large one is run in fewer orders.
        """
        return _executed(self.read(text, where), text, request, tell)

    def run(
        self,
        text: str,
        where: str,
        asked: Requirements,
        request: ExecutionRequest,
        tell: ProgressCallback = silent,
    ) -> ExecutionReport:
        report = Format.run(self, text, where, asked, request, tell)
        told = "nothing was run on one"
        if "__main__" in text:  # there is an expression of what to compare with
            there = self.elsewhere.replace("RANKS", str(report.ranks)).replace("FILE", where)
            told = f"{told}; {there}, compares results"
        report.checks.append(Check("GPU", True, told, "note"))
        return report

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        from ..mscclpp.text import plan_text

        program = self.read(text, where)
        return plan_text(program.plan), {
            "name": program.plan.name,
            "collective": str(program.collective.kind),
            "ranks": len(program.plan.gpus),
            "specialised": program.specialised,
        }

    # --- compiling --------------------------------------------------------------------------------

    def on(self, topology: Topology) -> TorchSymm:
        if self.domain or self.nodes or None in topology.host_of:
            return self
        return replace(self, nodes=domains(topology))

    def assumed(self, ranks: int, machine: str | None = None) -> str | None:
        if self.domain or self.nodes:
            return None
        return f"all {ranks} GPUs are taken to reach each other's memory by NVLink or PCIe"

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        if not len(getattr(request.noun, "casts", ())):
            return Format.make(self, request, tell)
        from .casts import cast_file

        self._require_vllm(request.noun.collective.kind)
        nodes = self._nodes(request.noun.collective.ranks)
        return cast_file(
            request,
            nodes,
            specialised=self.specialised,
            vllm=self.vllm,
            dtype=self.dtype,
            op=self.op,
            tell=tell,
        )

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        return self.emit_for(Request(target=target, sizes=sizes), program)

    def emit_for(self, request: Request, program: Program) -> str:
        from ..mscclpp.lower.emit import plan_of
        from .emit import emit, require_operator

        if program.protocol is Protocol.LL128:
            raise UserError(
                "expected protocol Simple or LL, got LL128",
                where=self.name,
                hint="--protocol LL for small messages, Simple for large ones",
            )
        plan = plan_of(program, self._nodes(program.rank_count), request.sizes, UNLIMITED)
        require_operator(plan, self.dtype, self.op)
        self._require_vllm(program.collective.kind)
        pieces = program.message_chunks // program.collective.message_chunks
        return emit(
            plan,
            program.collective.split(pieces),
            specialised=self.specialised,
            vllm=self.vllm,
            dtype=self.dtype,
            op=self.op,
            provenance=request.provenance,
            module=request.module,
        )

    def _require_vllm(self, kind: Kind) -> None:
        if self.vllm and kind is not Kind.ALLREDUCE:
            raise UserError(
                f"vllm=true: expected an allreduce, got {kind}",
                where=self.name,
                hint="leave vllm=true out",
            )

    def _nodes(self, ranks: int) -> Sequence[int] | None:
        """Return the node of each rank; None: all in one, as ``domain`` says of NVLink racks."""
        if self.domain < 0 or (self.domain and self.nodes):
            twice = "domain and nodes say the same thing twice"
            raise UserError(
                f"domain is {self.domain}" if self.domain < 0 else twice,
                where=self.name,
                hint="domain=8 for domains of 8 ranks; nodes=0+0+1+1 names that of each",
            )
        if self.domain:
            return [rank // self.domain for rank in range(ranks)]
        return self.nodes or None

    def checked(self, target: str) -> str:
        return "program and plan"

    def timed_runtime(self, target: str) -> str | None:
        return MSCCLPP


_REACHED = frozenset({Medium.NVLINK, Medium.XGMI, Medium.PCIE})


def domains(topology: Topology) -> tuple[int, ...]:
    """Return for each rank the least rank whose memory it reaches by loads and stores.

    Those are the ranks joined by links inside hosts, and by NVLink between hosts.
    """
    least = list(range(len(topology.nodes)))

    def root(node: int) -> int:
        while least[node] != node:
            node = least[node]
        return node

    for link in topology.links:
        ends = [topology.nodes[end].host for end in (link.src, link.dst)]
        if ends[0] == ends[1] is not None or link.medium in _REACHED:
            a, b = sorted((root(link.src), root(link.dst)))
            least[b] = a
    return tuple(root(rank) for rank in range(topology.ranks))


def _executed(
    program: SymmProgram,
    text: str | None,
    request: ExecutionRequest,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a plan, and the kernel in a file's text, if there is one, under weak memory."""
    from ..mscclpp.format import orders_of, steps
    from ..mscclpp.interpret import run_plan
    from .model.machine import run_kernel

    plan, wanted = program.plan, request.collective or program.collective
    orders = orders_of(request, plan)
    kernel_orders = min(request.interleavings // 6, KERNEL_LIMITS.plan_steps // max(1, steps(plan)))
    done = run_plan(
        plan, wanted, dtypes=request.dtypes, orders=orders, seed=request.seed, tell=tell
    )
    if not done.ok or text is None:
        return done
    ran = run_kernel(
        text,
        plan,
        program.collective,
        orders=max(1, kernel_orders),
        dtypes=request.dtypes,
        seed=request.seed,
        tell=tell,
    )
    told = f"by the plan interpreter: {done.detail}; {ran.detail}"
    return Execution(ran.ok, told if ran.ok else ran.detail)
