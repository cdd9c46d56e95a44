"""Where the sample inputs lie that are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

from sources import ROOT

SHARED = Path(os.environ.get("WEFT_SHARED", ROOT.parent / "shared"))
"""Tests that need it skip where it is absent."""


def samples(folder: str, pattern: str = "*") -> list[Path]:
    """The sample files of a folder, sorted; empty where they are absent."""
    return sorted((SHARED / "data" / folder).glob(pattern))
