"""A quick look at installed packages: the entry points of a group that packages offer.

``importlib.metadata`` takes 50 ms to load and 20 ms to read the entry points of a hundred packages.
Their files are searched for the name of the group first, and mostly none has it. The result is
kept while the folders on the path are as they were: every pass of a compilation is looked up by
its name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FILE = "entry_points.txt"
"""File with the entry points of a package, in the folder of its metadata."""

FOLDERS = (".dist-info", ".egg-info")
"""Ends of the names of such folders."""


def points_of(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group that installed packages offer, by name and value."""
    return _points(group, tuple(map(_state, sys.path)), tuple(map(id, sys.meta_path)))


@lru_cache(maxsize=256)
def _points(
    group: str, _places: tuple[tuple[str, int], ...], _finders: tuple[int, ...]
) -> tuple[EntryPoint, ...]:
    if not mentioned(group):
        return ()
    # 50 ms at start-up, as long as all else that `weft --help` loads.
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=group), key=lambda p: (p.name, p.value)))


def _state(place: str) -> tuple[str, int]:
    """Return an entry of ``sys.path`` and when it changed: installing and removing change it."""
    path = os.path.abspath(place)
    try:
        return path, os.stat(path).st_mtime_ns
    except OSError:
        return path, -1


def mentioned(group: str) -> bool:
    """Return False if no installed package has entry points of a group; True if one may have."""
    return _found_otherwise() or any(_mentions(path, group.encode()) for path in sys.path)


def _found_otherwise() -> bool:
    """True if packages are found by something else than folders on the path."""
    others = (finder for finder in sys.meta_path if finder is not PathFinder)
    return any(hasattr(finder, "find_distributions") for finder in others)


def _mentions(place: str, group: bytes) -> bool:
    """Search one entry of ``sys.path``; a wheel or an egg is not searched, and may have any."""
    if place.endswith(".egg") or os.path.isfile(place):
        return True
    return any(group in text for text in _texts(place))


def _texts(place: str) -> Iterator[bytes]:
    try:
        names = os.listdir(place or ".")
    except OSError:  # importlib.metadata passes over it too
        return
    for name in names:
        if name.lower().endswith(FOLDERS):
            try:
                with open(os.path.join(place, name, FILE), "rb") as file:
                    yield file.read()
            except OSError:
                continue
