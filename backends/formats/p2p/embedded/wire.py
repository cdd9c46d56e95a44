"""The one interface to a point-to-point runtime, which every transport of this folder has.

An emitted file contains one of those modules and :mod:`.machine`, word for word, and nothing of
weft; so this interface is what their authors agree on, and is in no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Array = Any
"""A NumPy or CuPy array or a torch tensor of one dimension."""

Ends = Sequence[tuple[Array, int]]
"""Contiguous arrays, each with the rank at the other end, in the order in which they match."""


class Wire(Protocol):
    """One rank's connection to all others."""

    rank: int
    ranks: int

    def agree(self, call: str) -> None:
        """A call begins, of which the length of messages does not tell this; messages of calls
        that differ in it should not meet, where the runtime can keep them apart."""

    def exchange(self, number: int, sends: Ends, recvs: Ends) -> None:
        """Send and receive all of a round at once, and wait until it is done (on a device: order
        it before all that comes later). Messages between two ranks match by their order.

        Raises:
            RuntimeError: a message of another length. TimeoutError: nothing came; names the ranks.
        """

    def combine(self, op: str, out: Array, a: Array, b: Array) -> None:
        """``out = a op b``, element by element; ``op`` is sum, prod, max or min."""

    def copy(self, out: Array, a: Array) -> None:
        """``out = a``; for arrays of any equal shape."""

    def empty(self, count: int, like: Array) -> Array:
        """New memory of ``count`` elements, of the type and on the device of ``like``."""

    def flat(self, array: Array) -> Array | None:
        """The array's elements in one dimension, without copying; None if that cannot be."""

    def span(self, array: Array) -> tuple[int, int]:
        """The addresses of the first byte of a contiguous array and of the one behind it."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def clock(self) -> float:
        """Seconds, when all that was begun is done."""
