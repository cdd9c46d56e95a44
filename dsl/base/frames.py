"""JSON values over a pipe, each behind its length: eight bytes, the most significant first."""

from __future__ import annotations

import json
import os
from typing import Any

_HEAD = 8


def frame(value: Any) -> bytes:
    """Return a value as it is sent."""
    body = json.dumps(value, allow_nan=False).encode()
    return len(body).to_bytes(_HEAD, "big") + body


def write(pipe: int, value: Any) -> None:
    """Send a value.

    Raises:
        BrokenPipeError: the other end is closed.
    """
    rest = memoryview(frame(value))
    while rest:
        rest = rest[os.write(pipe, rest) :]


class FrameReader:
    """Puts values together from whatever part of them has come."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, part: bytes) -> None:
        """More bytes of the stream."""
        self._held += part

    def value(self) -> tuple[Any] | None:
        """Return the next whole value, alone in a tuple; None if it has not all come."""
        if len(self._held) < _HEAD:
            return None
        end = _HEAD + int.from_bytes(self._held[:_HEAD], "big")
        if len(self._held) < end:
            return None
        found = json.loads(bytes(self._held[_HEAD:end]))
        del self._held[:end]
        return (found,)
