"""Point-to-point programs: one Python file for each runtime of processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.runtime import P2P
from weft.dsl.nouns.schedule import Schedule

from ...check.checks import Check, of_findings
from ...check.findings import require_good
from ...compile.request import ProvedArtefact, Request
from ..format import ExecutionRequest, Format, Requirements
from ..recognition import RECOGNIZERS
from .model import LIMITS, Script
from .read import read_script, runtime_of
from .text import write

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.runtime import Target
    from weft.dsl.nouns.topology import Topology

    from ...check.checks import Check
    from ...check.findings import Finding
    from ...execute.execute import Execution

GOOD = "no wrong address, unmatched message or buffer in use twice; every output is proved"


@dataclass(frozen=True, slots=True)
class ScriptFile(Format):
    """A Python file of sends and receives; each subclass is for a runtime."""

    name: ClassVar[str] = ""
    kind: ClassVar[str] = "script"
    any_buffers: ClassVar[bool] = True
    noun: ClassVar[str] = "point-to-point program"
    suffix: ClassVar[str] = ".py"
    no_casts: ClassVar[str] = (
        "a send has one receiver and no sum on its way; the library's own allreduce on the ranks "
        "of a box is what reaches the switch"
    )
    thread_blocks: ClassVar[bool] = False
    interpreted: ClassVar[bool] = False
    most_executed: ClassVar[int | None] = 128  # each rank is a thread

    # --- files ------------------------------------------------------------------------------------

    def recognizes(self, text: str, data: object) -> bool:
        return RECOGNIZERS["mpi"](text, data)

    def read(self, text: str, where: str) -> Script:
        return read_script(text, where)

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        from .judge import judge

        if asked.target:
            raise UserError("--target is for MSCCL XML", where=where)
        script, found = judge(text, where)
        form = Check("form", True, f"{script.collective}, {size_of(script)}")
        return [form, *of_findings(found, GOOD)]

    def collective(self, text: str, where: str) -> Collective:
        return self.read(text, where).collective

    def findings(self, text: str, where: str, target: str | None = None) -> Sequence[Finding]:
        from .judge import judge

        return judge(text, where)[1]

    def require_runtime(self, text: str, where: str) -> None:
        read_script(text, where)
        made_for = runtime_of(text)
        if made_for not in (self.name, None):
            place = next(
                (c.runtime for c in (MpiFile, TorchFile, JaxFile) if c.name == made_for),
                CupyNcclFile.runtime,
            )
            raise UserError(
                f"the file is for {made_for}",
                where=where,
                hint=f"--on {place}, or compile it --to {self.name}",
            )

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        """Run the file's own code on ranks that are threads, in and out of place.

        The order of messages makes no difference, so the interleavings do not either.
        """
        from .execute import execute
        from .judge import for_threads

        text = for_threads(text, where)
        collective = request.collective or self.read(text, where).collective
        return execute(text, collective, seed=request.seed, tell=tell)

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        script = self.read(text, where)
        lines = [f"{script.name}: {script.collective}, {size_of(script)}"]
        for rank, own in enumerate(script.ranks):
            lines += [f"rank {rank}"]
            lines += [f"  {number:>3}  {write(one)}".rstrip() for number, one in enumerate(own, 1)]
        return "\n".join(lines), facts_of(script)

    # --- compiling --------------------------------------------------------------------------------

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        from .compile import compile_script

        return self.write(compile_script(program, program.name))

    def write(self, script: Script, provenance: Iterable[str] = (), module: str = "") -> str:
        """Return the file of a script, which will be called ``module`` and ``.py``."""
        from .emit import emit

        return emit(script, self.name, provenance, module)

    def script(self, request: Request) -> Script:
        """Return the script of something to compile.

        Raises:
            UserError: a program that was written for separate buffers is requested in place.
        """
        from .compile import compile_script

        script = compile_script(
            request.noun, request.name, in_place=request.in_place, segments=request.segments
        )
        if request.in_place and not script.in_place:
            raise UserError(
                "it is written for separate buffers",
                where=request.where,
                hint="leave --in-place out: the file's function takes one buffer as well",
            )
        return script

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        tell("rounds")
        script = self.script(request)
        text = self.write(script, request.provenance, request.module)
        tell("prove")
        require_good(self.findings(text, "the file"), "the file")
        size, more = self.size(script)
        facts = {**facts_of(script), **more, "to": self.name}
        return ProvedArtefact(text, script, size, GOOD, Check("script", True, GOOD), facts)

    def timed_runtime(self, target: str) -> str | None:
        return P2P.name

    def rounds_us(self, request: Request, topology: Topology, message_bytes: int) -> float:
        from .compile import compile_script
        from .predict import predict

        script = compile_script(request.noun, in_place=request.in_place, segments=request.segments)
        return predict(script, topology, message_bytes, overhead_us=LIMITS.message_us).time_us

    def size(self, script: Script) -> tuple[str, dict[str, Any]]:
        """Return the size of a script, in words, and the facts that this runtime adds."""
        return size_of(script), {}


class MpiFile(ScriptFile):
    """A Python file for mpi4py; NumPy arrays."""

    name: ClassVar[str] = "mpi"
    runtime: ClassVar[str] = "mpi"


class TorchFile(ScriptFile):
    """A Python file for torch.distributed; tensors on the host (gloo) or on GPUs (NCCL)."""

    name: ClassVar[str] = "torch"
    runtime: ClassVar[str] = "torch"


class CupyNcclFile(ScriptFile):
    """A Python file for NCCL through CuPy; arrays on GPUs."""

    name: ClassVar[str] = "cupy-nccl"
    runtime: ClassVar[str] = "nccl"


class JaxFile(ScriptFile):
    """A Python file for JAX: a function for shard_map, on TPUs, GPUs or the host."""

    name: ClassVar[str] = "jax"
    runtime: ClassVar[str] = "jax"
    no_casts: ClassVar[str] = "a permute has one source for each destination, and no sum"

    def script(self, request: Request) -> Script:
        """Return the script; of a schedule in place, if that takes less memory.

        JAX's functions overwrite nothing that the caller sees, so that either is right.
        """
        from .matchings import grid_of
        from .permutes import rows_of

        script = ScriptFile.script(self, request)
        if not isinstance(request.noun, Schedule):
            return script
        if not script.in_place and request.noun.collective.kind is not Kind.CUSTOM:
            other = ScriptFile.script(self, replace(request, in_place=True))
            script = min(script, other, key=rows_of)
        return replace(script, grid=grid_of(request.noun.topology))

    def write(self, script: Script, provenance: Iterable[str] = (), module: str = "") -> str:
        """Return the file of a script, with its rounds as permutations."""
        from .emit_jax import emit_jax
        from .permutes import permuted

        return emit_jax(script, permuted(script), provenance, module)

    def size(self, script: Script) -> tuple[str, dict[str, Any]]:
        """Return the permutations as well, and how much their messages are padded."""
        from .permutes import cost_of, permuted, rows_of

        cost = cost_of(permuted(script))
        text = (
            f"{count(script.rounds, 'round')}, {count(cost.permutes, 'permutation')} with "
            f"{100 * cost.padding:.1f} % of padding, {count(rows_of(script), 'chunk')} of memory "
            "per rank"
        )
        facts = {"permutations": cost.permutes, "padding": cost.padding, "rows": rows_of(script)}
        return text, facts


def size_of(script: Script) -> str:
    """``14 rounds, 112 messages, at most 3 chunks of scratch memory``."""
    room = max(script.scratch, default=0)
    return ", ".join(
        (
            count(script.rounds, "round"),
            count(script.messages, "message"),
            f"at most {count(room, 'chunk')} of scratch memory per rank",
        )
    )


def facts_of(script: Script) -> dict[str, Any]:
    """Return a script for ``--json``."""
    c = script.collective
    return {
        "name": script.name,
        "collective": c.name or str(c.kind),
        "ranks": c.ranks,
        "in_place": script.in_place,
        "chunks": c.message_chunks,
        "rounds": script.rounds,
        "messages": script.messages,
        "scratch_chunks": max(script.scratch, default=0),
    }
