"""Folders that Python imports from: never the working one, which may hold any names.

Loaded before all else of the command, so it imports next to nothing itself.
"""

from __future__ import annotations

import os
import sys

_ROOT = os.path.dirname(os.path.abspath(__file__ + "/../../.."))
"""Folder of the package ``weft``."""


def module_folders() -> list[str]:
    """Return the absolute folders that this process imports from, without the working folder.

    People unpack files that they were sent and work there: a ``random.py`` or ``numpy/`` among
    them would be executed instead of the module. Only folders after the standard library can hide
    nothing of it: the folders that ``.pth`` files name, such as a package installed in place, stay.
    """
    try:
        working = os.path.realpath(os.curdir)
    except OSError:  # it was removed
        working = ""
    standard = os.path.dirname(os.__file__)
    found, behind = [], False
    for entry in [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path]:
        behind = behind or entry == standard
        if os.path.isabs(entry):
            if behind or os.path.realpath(entry) != working:
                found.append(entry)
        elif working and os.path.realpath(entry) != working:
            found.append(os.path.abspath(entry))
    return list(dict.fromkeys([*found, _ROOT]))
