"""Ranks as a text: ``0..7``, ``0 8 16``, ``0..24:8`` (every eighth), or names of axes."""

from __future__ import annotations

import re

from ..base.errors import BadFile

_RANGE = re.compile(r"(\d{1,8})(?:\.\.(\d{1,8})(?::(\d{1,8}))?)?")


def ranks_or_axes(text: str, where: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the ranks of a text such as ``0..7``, ``0 8 16`` or ``0..24:8``, or names of axes.

    Raises:
        BadFile: neither.
    """
    words = re.split(r"[\s,+]+", text.strip())
    if not text.strip():
        return (), ()
    if all(re.fullmatch(r"[A-Za-z_]\w*", word) for word in words):
        return (), tuple(words)
    ranks: list[int] = []
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None or (match[3] and not int(match[3])):
            raise BadFile(
                f"{word[:40]!r} is not a rank",
                where=where,
                hint="write 0..7, 0..24:8 (every eighth), 0 8 16, or the name of an axis",
            )
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        ranks += range(low, high + 1, step)
    return tuple(ranks), ()
