"""Point-to-point programs: files that processes of a runtime execute."""

from __future__ import annotations

from ...compile.request import Request
from ...compile.source import CompileSource
from ...formats.format import of_runtime
from ...formats.p2p.format import ScriptFile
from ..flags.files import LoweringFlags
from .noun import Subject

THREADS = "mpi"
"""Runtime whose files threads execute; threads also take the files of any other."""


def format_on(on: str) -> ScriptFile:
    """Return the format of the files that a runtime executes."""
    found = of_runtime(THREADS if on == "numpy" else on)
    assert isinstance(found, ScriptFile)
    return found


def script_text(
    format: ScriptFile, subject: Subject, source: CompileSource, args: LoweringFlags
) -> str:
    """Return the text of the file compiled for the processes of a runtime."""
    request = Request(
        source.noun,
        name=args.name,
        in_place=bool(args.in_place),
        segments=args.segments or 1,
        where=subject.where,
    )
    return format.write(format.script(request))


def require_runtime(subject: Subject, on: str) -> None:
    """Refuse an emitted file that is for another runtime; threads take any.

    Raises:
        UserError: it is.
    """
    if on == "numpy":
        format_on(on).read(subject.text, subject.where)
    else:
        format_on(on).require_runtime(subject.text, subject.where)
