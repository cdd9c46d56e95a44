"""Start of the command ``weft``: loads its entry, and ends quietly if that is interrupted."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return its exit code."""
    try:
        from .entry import run  # takes 50 ms, in which Ctrl-C may come
    except KeyboardInterrupt:
        return 130
    return run(argv)
