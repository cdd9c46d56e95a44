"""The version of weft."""

from __future__ import annotations


def version() -> str:
    """As the package states it; ``unknown`` when run from a bare tree without its root module."""
    import weft

    return str(getattr(weft, "__version__", "unknown"))
