"""Common parts of the verbs that make libraries: the job pool with its progress, and the folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import check_replaceable

from ...jobs.job import Ending
from ...jobs.local import local
from ...report.html.library_text import REPORT
from ...tune.folder import files_in
from ..flags.search import TuningFlags
from ..output.console import Console
from ..output.outputs import require_writable
from ..output.progress import interruptible, live_line
from ..output.stages import StageProgress

if TYPE_CHECKING:
    from ...jobs.executor import Executor, Step


class TuningPool:
    """TuningPool of processes for the jobs of tuning, with a progress line.

    Ctrl-C ends the current round; its results are raced and written. A second one aborts.
    """

    def __init__(self, console: Console, workers: int | None, word: str) -> None:
        self._console, self._workers, self._word = console, workers, word
        self._stack = ExitStack()
        self._started = time.monotonic()
        self._pool: Executor | None = None
        self._stopping = False
        self.stopped = False
        self.about = ""

    @property
    def seconds(self) -> float:
        """Return the wall time since the start, in seconds."""
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        self._stages = StageProgress(self._console, self._word)
        self._pool = self._stack.enter_context(local(self._workers))
        self._stack.enter_context(live_line(self._stages, self._console))
        self._stack.enter_context(interruptible(self, self._console))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Request the end of the current round."""
        self.stopped = self._stopping = True

    def tell(self, text: str) -> None:
        """Show a progress message of measuring ranks."""
        self._stages(f"{self.about}: {text}")

    def jobs(self, label: str, function: str, arguments: Sequence[Any]) -> list[Any]:
        """Run jobs; see :data:`weft.backends.tune.race.MapJobs`."""
        assert self._pool is not None
        what = f"{self.about}: {label}"
        self._stages(f"{what} 0 of {len(arguments)}")

        def progress(step: Step) -> None:
            self._stages(f"{what} {step.ended} of {step.jobs}")

        told = self._pool.answers(
            function, arguments, progress=progress, cancelled=lambda: self._stopping
        )
        self._stopping = False
        return [None if a.ending is Ending.CANCELLED else a.get() for a in told]


# --- the folder -----------------------------------------------------------------------------------


def check_library_output(args: TuningFlags) -> None:
    """Check the output folder before a long race.

    Raises:
        UserError: the folder cannot be written, or holds files of others.
    """
    if args.output is None:
        return
    if args.output == "-":
        raise UserError("a library is a folder: stdout takes one file", hint="-o DIR")
    path = Path(args.output)
    require_writable(path, args.output)
    if path.exists() and not path.is_dir():
        raise UserError(
            "expected a folder for the library, got a file", where=args.output, hint="name a folder"
        )
    check_replaceable(path, args.output, force=args.force, replaces=replaceable(args.output))


def replaceable(folder: str) -> frozenset[str]:
    """Return the files, as paths in a folder, that an earlier library there has written."""
    found = files_in(folder)
    return found | {REPORT} if found else found
