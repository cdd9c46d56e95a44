"""Telling what is done next, for those who watch."""

from __future__ import annotations

from collections.abc import Callable

Telling = Callable[[str], None]
"""Hears in a word or two what is done next."""


def silent(_: str) -> None:
    """For those who do not want to hear it."""
