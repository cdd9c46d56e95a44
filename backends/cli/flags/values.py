"""Parsers of flag values: sizes, times, ranks, integers."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from weft.dsl.base.errors import UserError, suggest
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spans import Span
from weft.dsl.base.spec import Item, colon_text, split
from weft.dsl.base.units import (
    LARGEST_MESSAGE,
    SizeRange,
    parse_microseconds,
    parse_size_range,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlagDefaults:
    """Values of flags that are not given, where help states them or several verbs share them."""

    effort: float = 20.0  # of a search, as of :class:`~weft.synth.base.engine.Budget`
    tune_effort: float = 3.0  # of each question to an engine, also of ``weft resynth``
    resynth_within: float = 0.01  # low, since the failures have already cost time
    order_effort: float = 0.4  # of ``weft plan`` in ordering: 160 operations take less
    worst: int = 3  # failures for which schedules are found
    orders: int = 12  # in which an artefact is executed before it is written
    repeat: int = 5  # timed calls of each size and type
    profile_ranks: int = 8  # that ``weft profile`` starts
    rank_seconds: float = 60.0  # that ranks wait for each other
    stream_bytes: int = 1 << 30  # of a message of a schedule that is written as it is found
    served_children: int = 16  # of a server at once; further commands run without it
    serve_idle_seconds: float = 3600.0  # without a command after which a server ends


DEFAULTS = FlagDefaults()


@dataclass(frozen=True, slots=True)
class VerbLimits:
    """Limits of values, and of the work that a verb does beside its own."""

    whole: int = 2**31 - 1  # seeds and counts go to solvers as 32-bit integers
    group_ranks: int = 1 << 20  # of a group or range; a longer one is taken for a mistake
    time_us: int = 365 * 24 * 3600 * 10**6  # a year
    effort: float = 1e9  # some thirty CPU years
    sweep_jobs: int = 100_000  # in a list; a longer one is taken for a mistake
    # For a unit of effort, ten times what it takes alone; then a job is killed.
    sweep_seconds: float = 10.0
    profile_ranks: int = 512  # the number of pairs grows with its square
    executed_ranks: int = 128  # beyond which an artefact is proved only: their data takes minutes
    # Of a message; one machine may hold the data of all ranks several times.
    run_bytes: int = 1 << 30
    rough_bytes: int = 1 << 24  # of a message whose float sums are compared with error bounds
    # Ranks² of an allgather in memory: the collective alone takes a GiB.
    stream_places: int = 1 << 26
    compared_stride: int = 4  # over the usual sizes, of those at which ``weft diff`` compares times
    compared_slices: int = 1_000_000  # transfers x segments of a schedule whose times are compared
    load_bytes: int = 1 << 20  # of the message for which the load of links is stated
    # Of the new gap to the old one, beyond which a longer search pays off.
    longer_ratio: float = 1.1
    ordered_ratio: int = 2  # of the old transfers, beyond which schedules race in one order
    relay_gain: float = 1.05  # least factor on the bandwidth that is reported
    relay_ranks: int = 64  # of a machine for which it is computed: bounds take long
    # For which the cost of an algorithm is shown, hierarchical ones on two hosts.
    example_ranks: int = 8
    example_lanes: int = 2  # the same
    served_children: int = 4096  # of a server at once; each takes some 20 MB


LIMITS = VerbLimits()


def valued(flag: str, parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser for argparse's ``type=``: its errors are weft's and name the flag."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except UserError as error:
            error.where = error.where or f"{flag} {text[:60]}"
            raise

    return convert


def whole(low: int, high: int = LIMITS.whole) -> Callable[[str], int]:
    """Return a parser of integers between two limits."""

    def parse(text: str) -> int:
        digits = text.strip().removeprefix("-")
        if not digits.isdecimal() or not digits.isascii():
            raise UserError(f"{text[:40]!r} is not an integer")
        value = int(text) if len(digits) < 20 else high + 1
        if not low <= value <= high:
            raise UserError(f"{text[:40]} is outside {low} … {high}")
        return value

    return parse


class Once(argparse.Action):
    """Action of a flag that may be given only once; argparse alone would keep the last value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Keep the value, if it is the first."""
        if getattr(namespace, self.dest) is not None:
            raise UserError(f"{option_string} is given twice", hint="one at a time")
        setattr(namespace, self.dest, values)


def sizes(text: str) -> SizeRange:
    """Parse a size or range of sizes of at most 1024 TiB."""
    size = parse_size_range(text)
    if size.high > LARGEST_MESSAGE:
        raise UserError(f"size {text[:40]!r} is more than 1024 TiB")
    return size


def several_sizes(text: str) -> tuple[int, ...]:
    """Parse comma-separated sizes and ranges; each size once, in order."""
    found = {size for part in text.split(",") for size in sizes(part.strip()).powers()}
    return tuple(sorted(found))


def some_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of comma-separated words, each of those that are known."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(text.split(",")))
        for word in words:
            if word not in known:
                raise UserError(f"{word!r} is not one of {', '.join(known)}")
        return words

    return parse


def amount(text: str) -> float:
    """Parse a number greater than 0.

    Raises:
        UserError: something else.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= LIMITS.effort:
        raise UserError(
            f"{text[:40]!r} is not a number from above 0 to {LIMITS.effort:g}",
            hint="write for example 10, or 0.5",
        )
    return value


def seconds(text: str) -> float:
    """Parse a positive time in seconds."""
    value = parse_microseconds(text, example="10s")
    if not 0 < value <= LIMITS.time_us:
        what = "not positive" if value <= 0 else "longer than a year"
        raise UserError(f"time {text[:40]!r} is {what}", hint="write for example 60s")
    return float(value) / 1e6


_GPU_NAME = re.compile(
    r"(host\d+\.)?([A-Za-z_]+\d+|([0-9a-f]{4,8}:)?[0-9a-f]{1,2}:[0-9a-f]{1,2}\.[0-7])"
)
"""Names of GPUs, and PCI bus ids, with or without their host."""


def ranks(text: str) -> tuple[int | str, ...]:
    """Parse ``0,1,4..7`` as (0, 1, 4, 5, 6, 7); names of GPUs stay names.

    Raises:
        UserError: nothing, or something else, is named.
    """
    result: list[int | str] = []
    number = whole(0, LIMITS.group_ranks)
    for part in filter(None, (p.strip() for p in text.split(","))):
        if _GPU_NAME.fullmatch(part):
            result.append(part)
            continue
        if part.replace("-", "", 1).isdecimal() and "-" in part[1:]:
            raise UserError(
                f"{part[:40]!r} is not a rank",
                hint=f"a range is written {part[:40].replace('-', '..')}",
            )
        first, dots, last = part.partition("..")
        low = number(first)
        high = number(last) if dots else low
        if high < low:
            raise UserError(f"the range {part} is empty", hint=f"write {high}..{low}")
        result += range(low, high + 1)
    if not result:
        raise UserError("no rank is named", hint="write for example 0,1,4..7")
    return tuple(result)


def axes(text: str) -> tuple[tuple[str, int], ...]:
    """Parse ``tp=8,dp=4`` as names and sizes of axes, in order.

    Raises:
        UserError: something else, or a name twice.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*([0-9]{1,7})\s*", part)
        if match is None or not 1 <= int(match[2]) <= LIMITS.group_ranks:
            raise UserError(
                f"{part[:40]!r} is not an axis and its size", hint="write for example tp=8,dp=4"
            )
        if match[1] in found:
            raise UserError(f"axis {match[1]!r} is named twice", hint="each axis has one size")
        found[match[1]] = int(match[2])
    return tuple(found.items())


def split_arguments(text: str) -> tuple[str, dict[str, int]]:
    """Parse ``dgx2_relay:nodes=4`` as the name and the values of the sketch's parameters.

    Raises:
        UserError: a value that is not an integer.
    """
    name, given = _colon_items(text, "--sketch")
    arguments = {}
    for key, value, part in given:
        if not (re.fullmatch(r"\w+", key) and re.fullmatch(r"-?\d{1,9}", value)):
            raise UserError(
                f"{part.text!r} is not the value of a parameter",
                hint="write for example nodes=2",
                where=part,
            )
        arguments[key] = int(value)
    return name, arguments


def file_words(text: str, known: Collection[str]) -> tuple[str, dict[str, str]]:
    """Parse ``ring.txt:algorithm=ring,protocol=ll`` as a path and the words behind it.

    Raises:
        UserError: a key that is not known, or no value.
    """
    path, given = _colon_items(text, "")
    found = {}
    for key, value, part in given:
        if key not in known or not value:
            raise UserError(
                f"expected an option of a file, got {part.text!r}",
                hint=suggest(key, known) or f"{next(iter(known))}=…",
                where=part,
            )
        found[key] = value
    return path, found


def _colon_items(text: str, origin: str) -> tuple[str, list[tuple[str, str, Span]]]:
    """Split ``NAME:key=value,…`` into the name, and key, value and place of each option; a text
    that is a path has none."""
    name, given = colon_text(text, origin)
    if given is None or os.path.exists(text):
        return text, []
    found = []
    for part in split(given, braces=False):
        item = Item.of(part)
        found.append((item.key.text.strip() if item.key else "", item.value.text.strip(), part))
    return name, found
