"""A collector of remarks: the same remark at many places is one remark with a count."""

from __future__ import annotations

from weft.dsl.base.spans import Source, Span

from .model import Remark

_MOST = 200


class Remarks:
    """Gathers remarks about one source; at most 200 different ones are kept."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: dict[tuple[str, str, bool], tuple[Span, int]] = {}

    def add(
        self, message: str, runtimes: str, place: tuple[int, int], *, rejected: bool = False
    ) -> None:
        """Note a remark at the characters ``place`` (start, end)."""
        key = (message, runtimes, rejected)
        if key not in self._found and len(self._found) >= _MOST:
            key = ("further remarks of other kinds", runtimes, rejected)
        span, times = self._found.get(key, (Span(self._source, *place), 0))
        self._found[key] = (span, times + 1)

    def all(self) -> tuple[Remark, ...]:
        """The remarks, in the order in which they were first met."""
        return tuple(
            Remark(message, runtimes, rejected, span, times)
            for (message, runtimes, rejected), (span, times) in self._found.items()
        )
