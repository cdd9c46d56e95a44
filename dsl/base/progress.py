"""Progress callbacks."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[str], None]
"""Callback that receives a short message about the next stage of the work."""


def silent(_: str) -> None:
    """Discard the message."""
