"""The command ``weft``: a thin shell over the library; its verbs are the modules of this folder."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return its exit code."""
    try:
        from .entry import run
    except KeyboardInterrupt:  # it takes a moment, too
        return 130
    return run(argv)
