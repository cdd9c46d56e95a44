"""Start of the command ``weft``: loads its entry, and ends quietly if that is interrupted."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from weft.dsl.base.import_path import module_folders

from ...serve.client import ask_server

TYPE_CHECKING = False  # `typing` takes as long to load as all that a client of a server needs
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def command() -> NoReturn:
    """Run the command line of the process, which ends here with its exit code.

    The interpreter is not taken apart, which takes up to 0.09 CPU seconds.
    """
    code = main()
    from weft.dsl.base.liveness import end_this_process  # only where no server answered

    end_this_process(code)


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
        if argv is None:
            ask_server()
        from .entry import run  # takes 50 ms, in which Ctrl-C may come
    except KeyboardInterrupt:
        return 130
    return run(argv)
