"""Runs one `weft` command under a profile hook and writes what it entered as JSON.

A child process of :mod:`.walks`: `probe.py ANSWER module:function ARGUMENT…`, where ANSWER is the
file to write and `module:function` the command line's entry.
"""

import inspect
import json
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Sites = set[tuple[str, str]]


def watch(seen: set[CodeType]) -> None:
    """Note the code of every function entered from now on, in all threads."""

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)


def sites(seen: set[CodeType], root: Path) -> Sites:
    """(File, qualified name) of code below a folder that is a function of a Python file.

    The bodies of modules and classes have no fast locals (``CO_OPTIMIZED``) and are left out.
    Comprehensions are functions here, several of one function count once.
    """
    found: Sites = set()
    for code in seen:
        path = Path(code.co_filename)
        if code.co_flags & inspect.CO_OPTIMIZED and path.suffix == ".py" and path.exists():
            real = path.resolve()
            if real.is_relative_to(root):
                found.add((str(real.relative_to(root)), code.co_qualname))
    return found


def main(answer: str, entry: str, arguments: list[str]) -> int:
    """Run the command; the exit status is the command's."""
    seen: set[CodeType] = set()
    module, _, function = entry.partition(":")
    sys.argv = ["weft", *arguments]
    watch(seen)
    try:
        status = getattr(import_module(module), function)()
    except SystemExit as end:
        status = end.code
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    home = Path(str(import_module("weft").__file__)).resolve().parents[1]
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "weft")
    found = {"home": str(home), "modules": loaded, "functions": sorted(sites(seen, home))}
    Path(answer).write_text(json.dumps(found), encoding="utf-8")
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
