"""Keep results of frozen nouns: a function of a topology or a schedule is computed once.

Results are kept beside the nouns, not on them, so that equality, hashes, ``repr``, ``replace`` and
pickles do not see them. An entry goes when one of its nouns does, at the latest when ``most``
younger ones are there.

>>> from weft.dsl.nouns.topology import Topology, gpu
>>> calls = []
>>> @kept()
... def names(topology):
...     calls.append(topology.name)
...     return [node.name for node in topology.nodes]
>>> one = Topology("one", (gpu(0),), ())
>>> names(one) is names(one), calls
(True, ['one'])
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from fractions import Fraction
from functools import wraps
from threading import Lock, RLock
from typing import Any, ParamSpec, TypeVar
from weakref import ref

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

MOST = 32
"""Results that one function keeps, unless it says otherwise."""

_BY_VALUE = (type(None), bool, int, float, str, bytes, Fraction, Enum, tuple, frozenset)


def kept(most: int = MOST) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that memoizes a pure function of frozen nouns; never change its results.

    Numbers, texts and tuples are compared by value, everything else (topologies, collectives,
    arrays) is the same only if it is the same object. A class may name instead the objects and
    values that results depend on, by a method ``anchors() -> tuple``. Calls with a
    writable array are not memoized. Threads that need the same result compute it once.
    """

    def decorate(make: Callable[P, R]) -> Callable[P, R]:
        shelf = _Shelf(most)

        @wraps(make)
        def look(*args: P.args, **kwargs: P.kwargs) -> R:
            parts = _parts(args, kwargs)
            if parts is None:
                return make(*args, **kwargs)
            found: R = shelf.get(parts, lambda: make(*args, **kwargs))
            return found

        return look

    return decorate


Parts = tuple[tuple[Hashable, ...], list[Any]]
"""The key of a call, and the objects in it that differ by identity."""


def _parts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts | None:
    key: list[Hashable] = []
    objects: list[Any] = []
    for name, argument in [*((None, a) for a in args), *sorted(kwargs.items())]:
        anchors = getattr(type(argument), "anchors", None)
        members = (argument,) if anchors is None else anchors(argument)
        key.append(name)
        for member in members:
            if isinstance(member, _BY_VALUE):
                key.append((type(member), member))
            else:
                if isinstance(member, np.ndarray) and member.flags.writeable:
                    return None
                key.append(id(member))
                objects.append(member)
    return tuple(key), objects


class _Shelf:
    def __init__(self, most: int) -> None:
        self.most = most
        self.entries: dict[Any, tuple[list[ref[Any]], Any]] = {}
        self.lock = Lock()  # guards `gates` and eviction
        self.gates: dict[Any, Any] = {}  # one RLock for each result that is being computed

    def get(self, parts: Parts, make: Callable[[], Any]) -> Any:
        key, objects = parts
        found = self._find(key, objects)
        if found is None:
            with self.lock:
                gate = self.gates.setdefault(key, RLock())
            with gate:  # the second thread finds the result of the first
                found = self._find(key, objects)
                if found is None:
                    try:
                        found = (make(),)
                        self._put(key, objects, found[0])
                    finally:
                        with self.lock:
                            self.gates.pop(key, None)
        return found[0]

    def _find(self, key: Any, objects: list[Any]) -> tuple[Any] | None:
        entry = self.entries.get(key)
        if entry is None:
            return None
        refs, value = entry
        # The number of an object that is gone may belong to another one by now.
        same = all(one() is other for one, other in zip(refs, objects, strict=True))
        return (value,) if same else None

    def _put(self, key: Any, objects: list[Any], value: Any) -> None:
        entries = self.entries

        def gone(_: ref[Any]) -> None:  # one operation, for it may come amidst any other
            entries.pop(key, None)

        refs = [ref(one, gone) for one in objects]
        with self.lock:
            entries[key] = (refs, value)
            for old in [*entries][: max(0, len(entries) - self.most)]:
                entries.pop(old, None)
