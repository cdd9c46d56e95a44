"""The command ``weft``: a thin shell over the library; its verbs are the modules of ``verbs``."""

from __future__ import annotations

from .frame.start import command, main

__all__ = ["command", "main"]
