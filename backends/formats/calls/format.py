"""Allreduces by library calls on parts of the ranks: one Python file for torch.distributed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import SCHEMA, require_kind
from weft.dsl.base.integers import literal
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.schedule import Schedule

from ...check.checks import Check, of_findings
from ...check.findings import require_good
from ...compile.request import ProvedArtefact, Request
from ..format import ExecutionRequest, Format, Requirements
from ..templates import templates
from .judge import executed, findings
from .program import CallProgram, LibraryCall, program_of

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective

    from ...check.findings import Finding
    from ...execute.execute import Execution

GOOD = "every rank ends with the sum of all"
EDITED = "compile the file anew"


@dataclass(frozen=True, slots=True)
class TorchCalls(Format):
    """A Python file for torch.distributed (NCCL, gloo): allreduce by the library's own collectives
    in hosts and between them, whose sums its switches may make."""

    name: ClassVar[str] = "torch-calls"
    cites: ClassVar[str] = "Cho et al., BlueConnect, MLSys 2019"
    noun: ClassVar[str] = "program of library calls"
    suffix: ClassVar[str] = ".py"
    thread_blocks: ClassVar[bool] = False
    casts: ClassVar[bool] = True

    # --- files ------------------------------------------------------------------------------------

    def read(self, text: str, where: str) -> CallProgram:
        """Return the calls in a file that is as weft wrote it; nothing in it is executed."""
        try:
            compile(text, where, "exec", dont_inherit=True)  # what parses may still not compile
            found = {
                target.id: literal(node.value)
                for node in ast.parse(text).body
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name) and target.id in ("HEADER", "CALLS")
            }
            header = found["HEADER"]
            require_kind(header, self.name, where)
            calls = tuple(
                LibraryCall(str(name), tuple(tuple(map(int, part)) for part in parts))
                for name, parts in found["CALLS"]
            )
            program = CallProgram(str(header["name"]), int(header["ranks"]), calls)
            same = written(program, tuple(map(str, header["lines"]))) == text
        except (KeyError, TypeError, ValueError, SyntaxError, UserError) as error:
            told = getattr(error, "message", error)
            raise BadFile(
                f"HEADER or CALLS make no sense: {told}", where=where, hint=EDITED
            ) from None
        if not same:
            raise BadFile("it is not as weft wrote it", where=where, hint=EDITED)
        return program

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        if asked.target:
            raise UserError("--target is for MSCCL XML", where=where)
        program = self.read(text, where)
        form = Check("form", True, f"{program.name}, {count(len(program.calls), 'call')}")
        return [form, *of_findings(findings(program), GOOD)]

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        return findings(self.read(text, where))

    def collective(self, text: str, where: str) -> Collective:
        return make(Kind.ALLREDUCE, self.read(text, where).ranks)

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        """Run the calls as their definitions say, on NumPy; their order is fixed."""
        return executed(self.read(text, where), request.seed, request.dtypes)

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        program = self.read(text, where)
        lines = [f"{program.name}: allreduce on {program.ranks} ranks"]
        lines += [f"  {number}  {call}" for number, call in enumerate(program.calls, 1)]
        return "\n".join(lines), facts_of(program)

    # --- compiling --------------------------------------------------------------------------------

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        if not isinstance(request.noun, Schedule):
            raise UserError(
                f"{self.name} is made of a schedule, whose machine says which ranks share a host",
                where=request.where or "--to",
                hint="weft synth makes one",
            )
        program = program_of(request.noun, request.name)
        tell("emit")
        text = written(program, request.provenance)
        tell("check artefact")
        require_good(self.findings(text, "the artefact", None), "artefact")
        return ProvedArtefact(
            text,
            program,
            ", then ".join(map(str, program.calls)),
            "calls",
            Check("calls", True, GOOD),
            {"collective": "allreduce", "to": request.to, **facts_of(program)},
        )


def facts_of(program: CallProgram) -> dict[str, Any]:
    """Return a program's facts for ``--json``."""
    return {
        "name": program.name,
        "ranks": program.ranks,
        "calls": [call.to_list() for call in program.calls],
    }


def written(program: CallProgram, lines: Sequence[str] = ()) -> str:
    """Return the file of a program; ``lines``: where it comes from, for people."""
    header = {
        "weft": "torch-calls",
        "schema": SCHEMA,
        "name": program.name,
        "collective": "allreduce",
        "ranks": program.ranks,
        "lines": list(lines),
    }
    rows = "".join(f"    {call.to_list()!r},\n" for call in program.calls)
    return (
        templates(__package__)
        .get_template("torch-calls.py.j2")
        .render(
            ranks=program.ranks,
            lines=list(lines),
            header=header,
            calls=f"[\n{rows}]",
            pieces=program.pieces,
            command=f"torchrun --nproc-per-node=… FILE, {program.ranks} ranks in all,",
        )
    )
