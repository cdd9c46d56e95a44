"""MSCCL algorithm XML: the format that microsoft/msccl, RCCL and msccl-executor-nccl read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange

from ...check.checks import Check, of_report
from ...check.findings import require_good
from ..format import (
    GOOD,
    ExecutionReport,
    ExecutionRequest,
    Format,
    ProgramContent,
    Requirements,
    executed_if_good,
)
from ..listings import xml_sheets, xml_text

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.runtime import Target

    from ...check.checks import Check
    from ...check.findings import Finding
    from ...execute.execute import Execution
    from ..listings import Sheets
    from .read.model import XmlAlgo


@dataclass(frozen=True, slots=True)
class MscclXml(Format):
    """MSCCL XML, which microsoft/msccl, RCCL and msccl-executor-nccl read."""

    name: ClassVar[str] = "msccl-xml"
    cites: ClassVar[str] = "Cowan et al., MSCCLang, ASPLOS 2023, arXiv:2201.11840"
    noun: ClassVar[str] = "MSCCL XML file"
    suffix: ClassVar[str] = ".xml"
    no_casts: ClassVar[str] = "MSCCL XML lacks instructions and channel types for switches"
    asks_collective: ClassVar[bool] = True
    compiled: ClassVar[bool] = True

    # --- files ------------------------------------------------------------------------------------

    def read(self, text: str, where: str) -> XmlAlgo:
        return _read(text, where)

    def held(self, text: str, where: str, asked: Requirements) -> ProgramContent:
        from .read import program_of

        algo = _read(text, where)
        if asked.in_place and True not in algo.placements:
            raise UserError("the file is for separate buffers (inplace=0)", where=algo.where)
        if asked.may_hang:
            found = _findings(algo, asked.target)
            require_good([f for f in found if f.check != "deadlock"], where)
            collective = _collective(asked, algo)
        else:
            collective = _collective(asked, algo)
            require_good(_findings(algo, asked.target, collective), where)
        program = program_of(algo, collective, in_place=True if asked.in_place else None)
        remarks = tuple(str(one) for one in algo.remarks)
        return ProgramContent(program, algo.min_bytes, algo.max_bytes, remarks)

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        from .check import report_xml

        algo = _read(text, where)
        collective = _asked(asked, algo)
        size = ", ".join(
            (
                f"{algo.coll} on {count(algo.ngpus, 'rank')}",
                count(algo.channels, "channel"),
                count(algo.steps, "instruction"),
            )
        )
        report = report_xml(algo, asked.target, collective)
        return [Check("form", True, size), *of_report(report, GOOD)]

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        return _findings(_read(text, where), target)

    def run(
        self,
        text: str,
        where: str,
        asked: Requirements,
        request: ExecutionRequest,
        tell: ProgressCallback = silent,
    ) -> ExecutionReport:
        given = [name for name in request.given if name not in ("target", "size")]
        if given:
            flag = given[0].replace("_", "-")
            raise UserError(
                f"--{flag} is for schedules; an XML program is compiled already", where=where
            )
        algo = _read(text, where)
        if asked.in_place and True not in algo.placements:
            raise UserError(
                "the file is for separate buffers (inplace=0)",
                where=algo.where,
                hint="compile it with --in-place",
            )
        collective = _asked(asked, algo) or request.collective
        tell("check")
        # The result is judged by executing, not by the proof.
        found = [f for f in _findings(algo, asked.target, collective) if f.check != "result"]
        checks = executed_if_good(
            found, lambda: _executed(algo, replace(request, collective=collective), tell)
        )
        return ExecutionReport(checks, algo.coll, algo.ngpus)

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        return _executed(_read(text, where), request, tell)

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        algo = _read(text, where)
        return xml_text(algo), {"name": algo.name, "collective": algo.coll, "ranks": algo.ngpus}

    def sheets(self, text: str, where: str) -> Sheets | None:
        return xml_sheets(_read(text, where))

    # --- compiling --------------------------------------------------------------------------------

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        from .emit import LIMITS, emit

        low, high = (sizes.low, sizes.high) if sizes else (0, LIMITS.message_bytes)
        if target.max_bytes_excluded:  # one size needs one byte more
            high = max(high, low + 1)
        return emit(program, target, min_bytes=low, max_bytes=high)

    def timed_runtime(self, target: str) -> str | None:
        return target

    def require_fit(self, program: Program, target: Target) -> None:
        from .emit import require_fit

        require_fit(program, target)

    def sizes_remark(self, program: Program, chunks: int) -> str:
        from ...compile.source import binary

        if binary(chunks, program.message_chunks):
            return ""
        return (
            f"messages of a multiple of {program.message_chunks} elements: the runtime passes the "
            "file over at others"
        )

    def checked(self, target: str) -> str:
        return f"program and {self.name} for {target}"


@lru_cache(maxsize=1)
def _read(text: str, where: str) -> XmlAlgo:
    """Return the algorithm in a file; kept, because it is often judged and then executed."""
    from .read import read_msccl_xml

    return read_msccl_xml(text, where)


def _findings(
    algo: XmlAlgo, target: str | None, collective: Collective | None = None
) -> Sequence[Finding]:
    from .check import check_xml

    return check_xml(algo, target, collective)


def _executed(algo: XmlAlgo, request: ExecutionRequest, tell: ProgressCallback) -> Execution:
    """Run a file in the interpreter."""
    from .run import elements_of, run_algo

    return run_algo(
        algo,
        request.collective,
        elements_per_chunk=elements_of(request.message_bytes, algo),
        dtypes=request.dtypes,
        interleavings=request.interleavings,
        seed=request.seed,
        tell=tell,
    )


def _asked(asked: Requirements, algo: XmlAlgo) -> Collective | None:
    """Return the collective that flags name: by ``-c``, or the file's own with ``--root``."""
    if asked.rooted and algo.coll not in ("broadcast", "reduce"):
        raise UserError(
            f"--root says nothing about the {algo.coll} of the file",
            where=algo.where,
            hint="name the collective with -c",
        )
    return asked.resolve(algo.coll if asked.rooted else None, algo.ngpus)


def _collective(asked: Requirements, algo: XmlAlgo) -> Collective:
    """Return the collective that flags or the file name, in chunks of the file."""
    from .read import collective_of, fit

    named = _asked(asked, algo)
    return collective_of(algo) if named is None else fit(named, algo)
