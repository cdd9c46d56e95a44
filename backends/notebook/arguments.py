"""Arguments of people: machines, collectives, sizes and times by text, number or noun."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from os import PathLike
from typing import TypeAlias

from weft.dsl.base.errors import UserError, WrongType
from weft.dsl.base.integers import plain
from weft.dsl.base.units import SizeRange, parse_bytes, parse_microseconds, parse_size_range
from weft.dsl.catalogue import topology as topology_named
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.lint import lint
from weft.dsl.language.load import load_sketch
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology

from ..cli.flags.values import split_arguments

Size: TypeAlias = int | str
"""A message size: a number of bytes, or a text such as ``1MiB``."""

Machine: TypeAlias = Topology | str | PathLike[str]
Movement: TypeAlias = Collective | str


def machine_of(given: Machine) -> Topology:
    """Return a topology, or the one of a text as ``-t`` takes it."""
    if isinstance(given, Topology):
        return given
    if isinstance(given, str | PathLike):
        return topology_named(given)
    raise _wrong("topology", given, 'a Topology, or a text such as "dgx1"')


def collective_of(given: Movement, ranks: int) -> Collective:
    """Return a collective, or the standard one of a name."""
    if isinstance(given, Collective):
        return given
    if isinstance(given, str):
        return make(given, ranks)
    raise _wrong("collective", given, 'a Collective, or a name such as "allgather"')


def sketch_of(
    given: Sketch | str | None, topology: Topology, collective: Collective
) -> Sketch | None:
    """Return a sketch, or that of a name or path on the machine, with Python's warnings of what
    looks wrong in it.

    Raises:
        UserError: it does not fit the machine, or is for another collective.
    """
    if given is None or isinstance(given, Sketch):
        return given
    if not isinstance(given, str):
        raise _wrong("sketch", given, 'a Sketch, or the name of one such as "ndv2_relay"')
    name, values = split_arguments(given)
    tree = load_sketch(name)
    sketch = elaborate(tree, topology, values)
    if sketch.collective and sketch.collective not in (str(collective.kind), collective.name):
        raise UserError(f"the sketch {sketch.name} is for {sketch.collective}, not {collective}")
    for finding in lint(tree, topology, values):
        place = f" ({finding.span})" if finding.span else ""
        warnings.warn(f"{finding.message}{place}", stacklevel=3)
    return sketch


def size_of(given: object) -> int:
    """Return a message size in bytes."""
    given = plain(given)
    if isinstance(given, str):
        return parse_bytes(given)
    if isinstance(given, float):
        if not given.is_integer():
            told = f"message size: expected a whole number of bytes, got {given}"
            raise UserError(told, hint='it takes a number of bytes, or a text such as "1MiB"')
        given = int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise _wrong("message size", given, 'a number of bytes, or a text such as "1MiB"')


def sizes_of(given: Size | Iterable[Size]) -> tuple[int, ...]:
    """Return message sizes in bytes: a range of a text doubles from its low end."""
    given = plain(given)
    if isinstance(given, str):
        return parse_size_range(given).powers()
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        return tuple(map(size_of, given))
    return (size_of(given),)


def range_of(given: Size | Iterable[Size]) -> SizeRange:
    """Return the range of a text such as ``1KiB:1GiB``, of one size, of a tuple of two, or of a
    list in which each is twice the one before.

    Raises:
        UserError: a list of other sizes.
    """
    if isinstance(given, str):
        return parse_size_range(given)
    sizes = sizes_of(given)
    if isinstance(given, tuple) and len(sizes) == 2:
        return SizeRange(*sizes)
    found = SizeRange(min(sizes, default=0), max(sizes, default=0))
    if tuple(sorted(sizes)) != found.powers():
        raise UserError(
            f"sizes: expected a range, got a list of {len(sizes)} sizes that do not double",
            hint=f'a range is ({found.low}, {found.high}), or a text such as "1KiB:1GiB"',
        )
    return found


def seconds_of(given: float | str | None) -> float | None:
    """Return a time in seconds: a number of them, or a text such as ``60s``; None: no limit."""
    if given is None:
        return None
    if isinstance(given, str):
        return float(parse_microseconds(given, example="60s")) / 1e6
    return positive(given, "time", 'a number of seconds, or a text such as "60s"')


def positive(given: object, what: str, hint: str, *, zero: bool = False) -> float:
    """Return a number above 0, or (``zero``) from 0 on.

    Raises:
        WrongType, UserError: it is not.
    """
    given = plain(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise _wrong(what, given, hint)
    if not 0 <= given < float("inf") or (given == 0 and not zero):
        raise UserError(f"{what} is {given}", hint=f"it takes {hint}")
    return float(given)


def _wrong(what: str, given: object, wanted: str) -> WrongType:
    kind = type(given).__name__
    return WrongType(f"{what} cannot be of type {kind}", hint=f"it takes {wanted}")
