"""The version of weft, for provenance and reports."""

from __future__ import annotations

from importlib import import_module


def version() -> str:
    """As the package's face states it; that is loaded whenever any part of weft is."""
    return str(getattr(import_module("weft"), "__version__", "unknown"))
