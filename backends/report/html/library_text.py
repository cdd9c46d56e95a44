"""The report of a library, from its files in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.dsl.base.files import parse_json
from weft.dsl.nouns.library import Library
from weft.dsl.nouns.schedule import Schedule, load

from .library_page import library_page, plan_views
from .page import fitted

REPORT = "report.html"
"""File name of the library's page."""

MOST_DRAWN = 128
"""Largest number of ranks with a picture of each plan on the page; more take minutes."""


def library_html(library: Library, texts: Mapping[str, str]) -> str:
    """Return the library's page; ``texts``: its files by path in its folder."""

    read: dict[str, Schedule] = {}  # plans of different sizes may have one schedule

    def find(file: str) -> Schedule | None:
        if library.topology.ranks > MOST_DRAWN or file not in texts:
            return None
        text = texts[file]
        if text not in read:
            found = load(parse_json(text, file), file)
            same = found.topology.digest() == library.topology.digest()
            read[text] = replace(found, topology=library.topology) if same else found
        return read[text]

    views = plan_views(library, find)
    return fitted(lambda most: library_page(library, views, library.name, most))[1]
