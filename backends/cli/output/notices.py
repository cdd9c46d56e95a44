"""Messages of the library, which prints nothing, as lines of a command."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from .console import Console


class _NoticeLines(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._console.warn(record.getMessage())
        else:
            self._console.say("", record.getMessage())


@contextmanager
def notices_to(console: Console) -> Iterator[None]:
    """Print what the logger ``weft`` is told, above all that loops are being compiled."""
    logger, lines = logging.getLogger("weft"), _NoticeLines(console)
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)
