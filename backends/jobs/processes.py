"""Ending a process with all that it has started, whatever they do about signals and sessions."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path


def end_tree(root: int) -> None:
    """Kill a process and all that descend from it; those that are gone already do not matter.

    All are stopped before the first is killed: else one could start another, or the children of
    one that died would be nobody's. If ``root`` is this process, it goes last.
    """
    ours = os.getpid()
    found = [root]
    _signal(root, signal.SIGSTOP, but=ours)
    while new := [pid for pid in descendants(root) if pid not in found]:
        for pid in new:
            _signal(pid, signal.SIGSTOP, but=ours)
        found += new
    for pid in reversed(found):
        _signal(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """The processes that a process has started, those that they have started, and so on."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        next_ones = children.get(queue.pop(), [])
        found += next_ones
        queue += next_ones
    return found


def _parents() -> list[tuple[int, int]]:
    """Every process here and its parent."""
    if not Path("/proc/self/stat").exists():
        return _parents_by_ps()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything, also parentheses.
                state = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found.append((int(place.name), int(state[1])))
    return found


def _parents_by_ps() -> list[tuple[int, int]]:
    """As :func:`_parents`, where the system has no ``/proc``."""
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def _signal(pid: int, number: signal.Signals, but: int = 0) -> None:
    if pid != but:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
