"""The report of a library, from its files in memory."""

from __future__ import annotations

from collections.abc import Mapping

from weft.dsl.base.files import parse_json
from weft.dsl.nouns.library import Library
from weft.dsl.nouns.schedule import Schedule, load

from .library_page import library_page
from .page import fitted

REPORT = "report.html"
"""File name of the library's page."""

MOST_DRAWN = 128
"""Largest number of ranks with a picture of each plan on the page; more take minutes."""


def library_html(library: Library, texts: Mapping[str, str]) -> str:
    """Return the library's page; ``texts``: its files by path in its folder."""

    def find(file: str) -> Schedule | None:
        small = library.topology.ranks <= MOST_DRAWN
        return load(parse_json(texts[file], file), file) if small and file in texts else None

    return fitted(lambda most: library_page(library, find, library.name, most))[1]
