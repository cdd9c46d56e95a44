"""Start of the command ``weft``: loads its entry, and ends quietly if that is interrupted."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper

from weft.dsl.base.import_path import module_folders


def command() -> int:
    """Run the command line of the process, which ends here with its exit code.

    Exit hooks run and streams are flushed, but the interpreter is not taken apart: that takes up
    to 0.09 CPU seconds. Where threads are at work, which Python would wait for, the exit code is
    returned instead.
    """
    code = main()
    if all(one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return its exit code."""
    if argv is None:
        sys.path[:] = module_folders()  # `python -m` and an empty PYTHONPATH mean the working one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the parent process: no file may get its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    stdout = sys.stdout
    if isinstance(stdout, TextIOWrapper) and not stdout.encoding.lower().startswith("utf"):
        stdout.reconfigure(encoding="utf-8")  # µ and · are in tables, and JSON is UTF-8 everywhere
    try:
        from .entry import run  # takes 50 ms, in which Ctrl-C may come
    except KeyboardInterrupt:
        return 130
    return run(argv)
