"""Limits of a server."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """Limits of a server."""

    children: int = 16  # at once; a client that comes then runs its command itself
    idle_seconds: float = 3600.0  # without a command line after which it ends
    message_seconds: float = 5.0  # in which a client must have sent its command line
    waiting: int = 64  # connections that have not sent it yet
    grace_seconds: float = 5.0  # between SIGTERM and SIGKILL where a client has gone
    read_bytes: int = 1 << 16  # at a time


SERVE = ServeLimits()
