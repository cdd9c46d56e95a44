"""Version of weft, for provenance and reports."""

from __future__ import annotations

from importlib import import_module


def version() -> str:
    """Return ``weft.__version__``; the package is always loaded before any of its modules."""
    return str(getattr(import_module("weft"), "__version__", "unknown"))
