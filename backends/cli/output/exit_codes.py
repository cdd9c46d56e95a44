"""Exit codes of ``weft``, a contract with scripts."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command."""

    DONE = 0  #: done; also a time-out or Ctrl-C (or SIGTERM) with an incumbent
    NO = 1  #: the answer is no: infeasible, a failed check, a wrong result
    WRONG_QUESTION = 2  #: usage, an unknown name, a bad file
    NOTHING_FOUND = 3  #: nothing within the budget; with --require-optimal: not proved best
    MISSING = 4  #: something needed is not here; the hint says what to install
    BUG = 70  #: a bug, in weft or in the plug-in that the message names
    INTERRUPTED = 130  #: Ctrl-C or SIGTERM, and nothing was found
