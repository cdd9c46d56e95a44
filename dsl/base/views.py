"""Rich views of nouns in notebooks, and their tables; their makers are loaded on use."""

from __future__ import annotations

from typing import Any, ClassVar

from .registry import FRAMES, VIEWS


class Viewed:
    """Mixin of values that a notebook shows as HTML; ``_view`` is their name in ``VIEWS``."""

    __slots__ = ()
    _view: ClassVar[str]

    def _repr_html_(self) -> str | None:
        """Return the view for Jupyter: figures, tables and a drawing, without script; None where
        that would take long, and Jupyter shows the short text."""
        shown: str | None = VIEWS.load(self._view)(self)
        return shown


class Tabled:
    """Mixin of values that are tables; ``_frame`` is their name in ``FRAMES``."""

    __slots__ = ()
    _frame: ClassVar[str]

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``; units are in the names of its columns.

        Raises:
            Missing: pandas is not installed.
        """
        return FRAMES.load(self._frame)(self)
