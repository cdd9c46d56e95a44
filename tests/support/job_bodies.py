"""What jobs do in the tests of pools: functions of JSON that a process can be asked for."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import Infeasible, Refusal, UserError
from weft.dsl.base.spans import Source, Span


def double(number: int) -> int:
    return 2 * number


def process(_: Any) -> int:
    return os.getpid()


def surroundings(_: Any) -> dict[str, str | None]:
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "PYTHONHASHSEED")
    return {name: os.environ.get(name) for name in names}


def prints(number: int) -> int:
    print("words of a library")
    os.write(1, b"and of native code\n")
    subprocess.run(["echo", "and of a child"], check=True)
    return number


def refuses(kind: str) -> None:
    text = "chunks 2\nforbid 0 -> 9\n"
    raise {
        "user": UserError("no such rank", where=Span(Source("a.sketch", text), 16, 22), hint="0"),
        "refusal": Refusal("exact", "it is too large"),
        "infeasible": Infeasible("it cannot be", conflict=("line 1", "line 2"), where="here"),
    }[kind]


def fails(_: Any) -> None:
    raise ArithmeticError("out of luck")


def returns_a_set(_: Any) -> set[int]:
    return {1}


def dies(path: str) -> str:
    """The first time its process is killed; it is done the second time."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def always_dies(_: Any) -> None:
    print("no memory", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def stubborn(folder: str) -> None:
    """Hears no signal that can be ignored, and starts a solver in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(9999)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    part = Path(folder, f"part-{os.getpid()}")
    part.write_text(f"{os.getpid()} {child.pid}")
    part.rename(Path(folder, f"pids-{os.getpid()}"))
    threading.Event().wait(9999)


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def logged(argument: list[Any]) -> str:
    """Writes a line when it starts and one when it ends; sleeps between."""
    path, name, seconds = argument
    log(path, f"start {name}")
    time.sleep(seconds)
    log(path, f"end {name}")
    return str(name)


def log(path: str, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)
