"""A quick look at what is installed: whether any package could offer entry points of a group.

``importlib.metadata`` takes 50 ms to load and 20 ms to read the entry points of a hundred packages.
Their files are searched for the name of the group first, and mostly none has it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder

FILE = "entry_points.txt"
"""File with the entry points of a package, in the folder of its metadata."""

FOLDERS = (".dist-info", ".egg-info")
"""Ends of the names of such folders."""


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
