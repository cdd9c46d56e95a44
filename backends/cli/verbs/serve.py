"""``weft serve``: load weft once, and fork for each command line that a client sends."""

from __future__ import annotations

import gc
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO

from weft.dsl.base.errors import WeftError

from ...serve.child import answer
from ...serve.place import held, listening
from ...serve.server import Server
from ...serve.wire import VARIABLE, default_address, identity
from ..flags.machines import ServeFlags
from ..frame import entry
from ..frame.defaults import VARIABLE as DEFAULTS_FILE
from ..output.console import Console, Exit

WARM_UP = """\
synth -t ring:4 -c allgather --effort 1 -o found
synth -t dgx1 -c allgather --objective latency -o found.json
bound -t dgx1 -c allgather
check found.json
simulate found.json --size 1KiB:1MiB
show found.json
compile found.json -o found.xml
check found.xml
"""
"""Command lines that the server runs for itself before it listens: so modules are loaded, methods
of dataclasses written, tables read and regular expressions compiled."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(args: ServeFlags, console: Console) -> int:
    like = identity()  # before this process changes its environment
    with held(args.socket or default_address()) as path:
        warm_up()
        with listening(path) as listener:
            text = f"serving at {path}\nexport {VARIABLE}={shlex.quote(path)}"
            console.result(text, {"status": "ok", "socket": path, "pid": os.getpid()})
            server = Server(
                listener, path, partial(answer, run=entry.run), args.children, args.idle, like
            )
            reason = server.serve()
    console.say("Ended", reason)
    return Exit.DONE


def warm_up() -> None:
    """Run small command lines here; afterwards this process has one thread and no children.

    Raises:
        WeftError: a thread is left, with which forking is not safe.
    """
    os.environ.update(dict.fromkeys(THREADS, "1"))
    with tempfile.TemporaryDirectory(prefix="weft-serve-") as folder, _apart(folder):
        for line in WARM_UP.splitlines():
            entry.run(shlex.split(line))
    pool = sys.modules.get("weft.synth.solvers.pool")
    if pool is not None:
        pool.solvers().close()
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        raise WeftError(f"the server has {threads} threads and cannot fork", hint="report it")
    gc.collect()
    gc.freeze()


@contextmanager
def _apart(folder: str) -> Iterator[None]:
    """Work in a folder, without the user's defaults, and print nothing."""
    here = os.open(".", os.O_RDONLY)
    before = os.environ.get(DEFAULTS_FILE)
    os.environ[DEFAULTS_FILE] = ""
    os.chdir(folder)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        os.fchdir(here)
        os.close(here)
        del os.environ[DEFAULTS_FILE]
        if before is not None:
            os.environ[DEFAULTS_FILE] = before
