"""Objects of files described once: the keys of a noun, from which it is read and written.

>>> from weft.dsl.base.lazy_dataclass import dataclass, Frozen
>>> @dataclass(frozen=True)
... class Disk:
...     path: str
...     sizes: tuple[int, ...] = ()
>>> disk = Record(Disk, path=Key(str), sizes=Key(list, [], integers, unless=()))
>>> disk.write(Disk("a")), disk.read({"path": "a", "sizes": [7]}, "x.json")
({'path': 'a'}, Disk(path='a', sizes=(7,)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, Generic, TypeVar

from .errors import BadFile
from .files import Fields, only
from .lazy_dataclass import Frozen

T = TypeVar("T")
_REQUIRED: Any = object()


class Key(Frozen):
    """One key of an object.

    Attributes:
        kind: type of the value in JSON, or types. ``default``: as in a file; without one it is
            required.
        read: makes the noun's value of a file's, its key and its place; raises BadFile.
        write: makes JSON of the noun's value, as :func:`plain` does.
        field: of the noun, if it has another name. ``unless``: with this value it is not written.
    """

    kind: type | tuple[type, ...]
    default: Any = _REQUIRED
    read: Callable[[Any, str, str], Any] | None = None
    write: Callable[[Any], Any] | None = None
    field: str = ""
    unless: Any = _REQUIRED


class Record(Generic[T]):
    """The keys of a class, in the order in which files have them."""

    def __init__(self, made: Callable[..., T], **keys: Key) -> None:
        self._made, self._keys = made, keys

    def read(self, data: Any, where: str, ignore: Iterable[str] = ()) -> T:
        """Return the noun of an object at a place of a file; ``ignore``: keys that may be there.

        Raises:
            BadFile: a key that is missing, unknown or of a wrong type.
        """
        fields, values = Fields(data, where), {}
        for name, key in self._keys.items():
            given = fields.get(name, key.kind, *([] if key.default is _REQUIRED else [key.default]))
            read = given is not None and key.read
            values[key.field or name] = read(given, name, where) if read else given
        made = self._made(**values)
        fields.finish(ignore)
        return made

    def write(self, one: T) -> dict[str, Any]:
        """Return the object of a noun."""
        held = ((name, key, getattr(one, key.field or name)) for name, key in self._keys.items())
        return {n: (key.write or plain)(value) for n, key, value in held if value != key.unless}

    def several(self, default: Any = _REQUIRED) -> Key:
        """Return the key of a list of such objects; the place of each is that of the list."""

        def read(rows: list[Any], key: str, where: str) -> tuple[T, ...]:
            return tuple(self.read(row, f"{where}: {key}") for row in rows)

        return Key(list, default, read, lambda some: [*map(self.write, some)])

    def one(self, default: Any = _REQUIRED) -> Key:
        """Return the key of one such object."""

        def read(data: Any, key: str, where: str) -> T:
            return self.read(data, f"{where}: {key}")

        kind = dict if default is _REQUIRED else (dict, type(None))
        return Key(kind, default, read, self.write, unless=None)


def plain(value: Any) -> Any:
    """Return a value as JSON: tuples are lists, an exact number is an integer or ``7/6``."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else str(value)
    if isinstance(value, tuple):
        return [*value] if only(value, int) else [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return value.value if isinstance(value, Enum) else value


def without_empty(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON; empty texts, lists and objects are left out, but numbers are not."""
    empty: tuple[Any, ...] = (None, "", (), [], {})
    return {key: plain(value) for key, value in held.items() if value not in empty}


# --- readers of values ----------------------------------------------------------------------------


def line(value: str, key: str, where: str) -> str:
    """Return a text, refusing one with control characters, such as the ends of lines."""
    if not value.isprintable():
        raise BadFile(f"{key!r} must be one line of text, not {value!r}", where=where)
    return value


def texts(values: list[Any], key: str, where: str) -> tuple[str, ...]:
    """Return a list of texts of one line each."""
    if not only(values, str):
        raise BadFile(f"{key!r} must hold texts", where=where)
    return tuple(line(value, key, where) for value in values)


def integers(values: list[Any], key: str, where: str) -> tuple[int, ...]:
    """Return a list of integers."""
    return tuple(Fields({key: values}, where).integers(key))
