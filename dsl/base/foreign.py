"""Texts of other programs that people give to weft and no reader takes (``foreign.toml``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

from .errors import BadFile
from .files import parse_toml
from .terminal import plain_text

BEGINNING = 100_000
"""Characters of a text by which it is recognized."""

Signature = tuple[str, str, str]
"""A pattern of the beginning of a text, its kind, and the form that weft needs instead."""


@cache
def signatures(*kinds: str) -> tuple[Signature, ...]:
    """Return the rows of ``program`` (texts in Python) and ``text``; all if none is named."""
    name = "foreign.toml"  # read only where a text is refused
    table = parse_toml((resources.files(__package__) / name).read_text(encoding="utf-8"), name)
    wants = table["wants"]
    rows = [row for kind in kinds or ("program", "text") for row in table[kind]]
    return tuple((row["pattern"], row["is"], wants.get(row["wants"], row["wants"])) for row in rows)


def refuse_foreign(text: str, where: str, known: Sequence[Signature] | None = None) -> None:
    """Raise BadFile for a text of another program, named by its beginning."""
    start = plain_text(text[:BEGINNING])
    for pattern, what, wanted in signatures() if known is None else known:
        if re.search(pattern, start, re.MULTILINE):
            raise BadFile(f"this is {what}", where=where, hint=wanted)
