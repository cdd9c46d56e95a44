"""Streams of allgather: when one is needed, and its recognition by the files of its folder."""

from __future__ import annotations

from pathlib import Path

from weft.dsl.base.errors import UserError

from ..flags.values import LIMITS
from ..inputs.inputs import canonical


def require_holdable(collective: str, ranks: int) -> None:
    """Refuse an allgather that would not fit into memory.

    Raises:
        UserError: it would not.
    """
    if canonical(collective) == "allgather" and ranks * ranks > LIMITS.stream_places:
        raise UserError(
            f"allgather on {ranks} ranks is too large to be held as a whole",
            hint="-e greedy --stream -o FOLDER writes it as it is made",
        )


def is_stream(path: str) -> bool:
    """Return True if a path is the folder of a stream."""
    try:
        return (Path(path) / "header.json").is_file()
    except (OSError, ValueError):
        return False
