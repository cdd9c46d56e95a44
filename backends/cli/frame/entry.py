"""Entry of the command line: parsing, dispatch, and the exit code of every ending."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from weft.dsl.base.environment import SOLVER_MEMORY
from weft.dsl.base.errors import (
    AnswerIsNo,
    BrokenPlugin,
    Infeasible,
    NothingFound,
    PluginFault,
    UserError,
    WeftError,
)
from weft.dsl.base.plugins import PluginWarning, expect, warnings_to

from ..output.console import Console, Exit, silence_stdout, stdout_errors
from ..output.outputs import require_inputs_kept
from .defaults import with_defaults
from .parser import build_parser, flags_of, other_verbs, verb_of


def run(argv: Sequence[str] | None) -> int:
    """Run one command line; never raises."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Known before parsing, because a parse error is reported in the requested form.
    console = _console(arguments)
    with final(process=argv is None), terminable(), interruptions() as came:
        try:
            with warnings_to(_teller(console)), notices_to(console):
                code = _dispatch(arguments, console)
            with stdout_errors():
                sys.stdout.flush()
        except BaseException as error:
            cut_off = came and isinstance(error, ImportError)
            code = _ending(KeyboardInterrupt() if cut_off else error, arguments, console)
    if argv is None:
        leave(code)
    return code


def _dispatch(arguments: list[str], console: Console) -> int:
    if arguments[:1] == ["help"]:  # `weft help topo show`
        arguments = [*arguments[1:], "--help"]
    parser = build_parser(other_verbs(arguments))
    if not arguments:
        # An error, so that a script whose verb is missing does not go on.
        parser.print_help(sys.stderr)
        return Exit.WRONG_QUESTION
    try:
        arguments, taken = with_defaults(parser, arguments, console)
        console = replace(_console(arguments), defaults=taken.to_json() if taken else None)
        args = parser.parse_args(arguments)
    except SystemExit as end:  # --help and --version
        return int(end.code or 0)
    return run_verb(args, console)


def run_verb(args: Namespace, console: Console) -> int:
    """Run the verb of a parsed command line, and return its exit code.

    Raises:
        WeftError: an error of the verb, or an output that is an input.
    """
    flags = flags_of(args.verb)
    verb = verb_of(args.verb)
    asked = flags.of(args) if flags else None
    if asked is not None:
        require_inputs_kept(asked)
    with _solver_memory(getattr(args, "solver_memory", None)):
        return expect(int, verb.run(args if asked is None else asked, console), verb, "run")


def _console(arguments: list[str]) -> Console:
    """Return the output settings that a command line requests."""
    colour = "auto"
    for word, value in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == "--color" or word.startswith("--color="):
            colour = word.partition("=")[2] or value
    return Console(
        "--json" in arguments, _count(arguments, "q") > 0, _count(arguments, "v"), colour
    )


@contextlib.contextmanager
def _solver_memory(most: int | None) -> Iterator[None]:
    """Limit the memory of solver processes, if requested, while a verb runs.

    By the environment: processes in which jobs run, and their solvers, inherit it.
    """
    before = os.environ.get(SOLVER_MEMORY)
    if most is not None:
        os.environ[SOLVER_MEMORY] = f"{most}B"
    try:
        yield
    finally:
        if before is not None:
            os.environ[SOLVER_MEMORY] = before
        elif most is not None:
            del os.environ[SOLVER_MEMORY]


def _teller(console: Console) -> Callable[[PluginWarning], None]:
    """Return a printer of warnings about plug-ins: each once, with its traceback under ``-v``."""
    told = set()

    def tell(warning: PluginWarning) -> None:
        if warning.text not in told:
            told.add(warning.text)
            hint = " (-v shows the traceback)" if warning.trace and not console.verbose else ""
            console.warn(warning.text + hint)
            if warning.trace:
                console.detail(warning.trace)

    return tell


def _ending(error: BaseException, arguments: list[str], console: Console) -> int:
    try:
        return _report(error, arguments, console)
    except (OSError, UserError):  # the output streams are closed
        silence_stdout()
        return error.exit_code if isinstance(error, WeftError) else int(Exit.BUG)


def _report(error: BaseException, arguments: list[str], console: Console) -> int:
    if isinstance(error, BrokenPipeError):
        # `weft show x | head`: a reader may stop early.
        silence_stdout()
        return Exit.DONE
    if isinstance(error, KeyboardInterrupt):
        told = WeftError("interrupted, nothing was found or written")
        console.fail(told.render(), {"status": "interrupted", "error": told.to_json()})
        return Exit.INTERRUPTED
    if isinstance(error, MemoryError):
        error = NothingFound("out of memory", hint="a smaller problem, or a larger machine")
    if not isinstance(error, WeftError):
        what = f"a bug in weft: {type(error).__name__}: {error}"[:400]
        report = _report_file(error, arguments, console)
        error = WeftError(what, hint=report or _AGAIN)
    elif isinstance(error, PluginFault | BrokenPlugin) and error.__cause__ is not None:
        report = _report_file(error, arguments, console)
        error.hint = f"{error.hint}; {report or _AGAIN}"
    console.fail(error.render(), _data(error))
    return error.exit_code


def _data(error: WeftError) -> dict[str, object]:
    data: dict[str, object] = {"status": _status(error), "error": error.to_json()}
    if isinstance(error, Infeasible):
        data["conflict"] = list(error.conflict)
    return data


def _status(error: WeftError) -> str:
    if isinstance(error, Infeasible):
        return "infeasible"
    if isinstance(error, AnswerIsNo):
        return "failed"
    return "nothing" if isinstance(error, NothingFound) else "error"


_AGAIN = "run it again with -v to see the traceback"


def _report_file(error: BaseException, arguments: list[str], console: Console) -> str:
    """Write the traceback of a bug, of weft's or a plug-in's, to a file (with ``-v`` also to
    stderr), and return the hint that names the file; '' if it cannot be written."""
    trace = "".join(traceback.format_exception(error))
    if console.verbose:
        console.detail(trace)
    with contextlib.suppress(OSError):
        prefix = "weft-plugin-fault-" if isinstance(error, WeftError) else "weft-bug-"
        handle, path = tempfile.mkstemp(prefix=prefix, suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"weft {' '.join(arguments)}\nPython {sys.version}\n\n{trace}")
        if isinstance(error, WeftError):
            return f"the traceback is in {path}"
        return f"please report it with {path}"
    return ""


def _count(arguments: list[str], letter: str) -> int:
    """Return the number of uses of a short flag without a value, also in ``-vv`` and ``-qv``."""
    words = {"q": "--quiet", "v": "--verbose"}
    short = [a[1:] for a in arguments if a[:1] == "-" and a[1:] and set(a[1:]) <= set(words)]
    return sum(a.count(letter) for a in short) + arguments.count(words[letter])


class _NoticeLines(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._console.warn(record.getMessage())
        else:
            self._console.say("", record.getMessage())


@contextmanager
def notices_to(console: Console) -> Iterator[None]:
    """Print the messages to the logger ``weft``, above all that loops are being compiled."""
    logger, lines = logging.getLogger("weft"), _NoticeLines(console)
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)


# Signal handling: SIGTERM ends a command as Ctrl-C does, with complete files only.
#
# Once a command has done its work nothing changes how the process ends.


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM as SIGINT while the block runs; the old handler is restored afterwards.

    Nothing is changed where the parent process ignores it or it is handled outside Python,
    nor in another thread than the main one, which alone may set handlers.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(
        signal.SIGTERM
    ) in (signal.SIG_IGN, None):
        yield
        return
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield
    finally:
        # Otherwise the work is done, and the signal is ignored until the end.
        if signal.getsignal(signal.SIGTERM) is _as_interrupt:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def interruptions() -> Iterator[list[int]]:
    """Yield a list that gets the number of SIGINT each time it comes while the block runs.

    A package written in C that is interrupted while it is imported may raise ImportError instead
    of KeyboardInterrupt (NumPy does); the list shows which it was.
    """
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield came
        return

    def record(number: int, frame: FrameType | None) -> None:
        came.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, record)
    try:
        yield came
    finally:
        if signal.getsignal(signal.SIGINT) is record:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def final(*, process: bool) -> Iterator[None]:
    """Leave Ctrl-C and SIGTERM as they are on entry; ignore them after the block if ``process``.

    With ``process`` the process ends with the block. The interpreter takes a moment to end, and
    finished work stays valid.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if process or handler is not None:  # None: set outside Python
                signal.signal(number, signal.SIG_IGN if process else handler)


def leave(code: int) -> None:
    """End the process at once if the interpreter's own exit would not suffice.

    That is so when a cancelled engine is still at work, or after Ctrl-C: Python ends
    by the signal itself if it came while a module was executed (``exec`` remembers it even if it
    was caught).
    """
    cancellable = sys.modules.get("weft.synth.base.cancellable")
    if code == Exit.INTERRUPTED or (cancellable is not None and cancellable.engine_at_work()):
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _as_interrupt(_: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # a shell ignores SIGINT for background jobs: SIGTERM still ends them
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
