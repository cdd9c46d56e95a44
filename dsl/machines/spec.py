"""Machine specifications such as ``torus:4x4,bw=50GB/s``, and typed access to their options.

The text is a name, then after a colon a comma-separated list. Items before the first ``key=`` are
positional; an item without ``=`` after one belongs to that key (``nics=8,8,4,2``).

>>> spec = parse_spec("dgx-a100:nodes=4,nics=8,8,4,2")
>>> spec.name, spec.integer("nodes", 1), spec.integers("nics", ())
('dgx-a100', 4, (8, 8, 4, 2))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from fractions import Fraction

from ..base.errors import UnknownName, UserError
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.spans import Source, Span
from ..base.spec import Item, split
from ..base.units import parse_bandwidth, parse_bytes, parse_microseconds

MAX_GPUS = 1 << 16
"""Largest number of GPUs; a larger one is taken for a typing error."""

MAX_LINKS = 1 << 22
"""More links than this do not fit in memory as Python objects."""


class OptionValue(Frozen):
    """One item of the text, with its span."""

    text: str
    span: Span


@dataclass(slots=True)
class MachineSpec:
    """A parsed text; each accessor marks its option as known, ``finish`` rejects the others."""

    name: str
    positional: tuple[OptionValue, ...]
    options: dict[str, tuple[OptionValue, ...]]
    keys: dict[str, Span]
    source: Source
    known: list[str] = field(default_factory=list)

    def span(self) -> Span:
        """Return the span of the whole text."""
        return Span(self.source, 0, len(self.source.text))

    def title(self) -> str:
        """Return the text without folders: the name of a topology that was read from it."""
        text = self.source.text or self.name
        # The options may have slashes of their own: bw=20GB/s.
        cut = len(self.name) if text.startswith(self.name) else len(text)
        path, options = text[:cut], text[cut:]
        return (path.rpartition("/")[2] if path != "-" else "stdin") + options

    def shape(self, default: str = "") -> tuple[int, ...]:
        """Return the positional ``4x4x2`` as positive integers.

        Raises:
            UserError: absent without a default, or not such a list.
        """
        self.known.append("")
        if len(self.positional) > 1:
            raise UserError(
                "one shape is expected", where=self.positional[1].span, hint="write it 4x4"
            )
        if not self.positional and not default:
            raise UserError(
                f"{self.name} needs a size", where=self.span(), hint=f"write {self.name}:8"
            )
        value = self.positional[0] if self.positional else OptionValue(default, self.span())
        return tuple(_integer(part, value, 1) for part in value.text.split("x"))

    def size(self) -> int:
        """Return the positional number of GPUs, at least 2."""
        shape = self.shape()
        if len(shape) != 1 or shape[0] < 2:
            raise UserError(
                f"{self.name} takes one number of GPUs, at least 2",
                where=self.positional[0].span,
                hint=f"write {self.name}:8",
            )
        check_size(self, shape[0])
        return shape[0]

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer option.

        Raises:
            UserError: absent without a default, not an integer, or below ``least``.
        """
        value = self._one(key)
        if value is not None:
            return _integer(value.text, value, least)
        if default is None:
            raise UserError(
                f"{self.name} needs {key}=", where=self.span(), hint=f"add {key}=2 for example"
            )
        return default

    def integers(self, key: str, default: tuple[int, ...], *, least: int = 0) -> tuple[int, ...]:
        """A list of integers."""
        values = self._all(key)
        return tuple(_integer(v.text, v, least) for v in values) if values else default

    def bandwidth(self, key: str, default: Fraction) -> Fraction:
        """A bandwidth with its unit, in GB/s."""
        return self.bandwidths(key, default, 1)[0]

    def bandwidths(self, key: str, default: Fraction, count: int) -> tuple[Fraction, ...]:
        """``count`` bandwidths in GB/s; one that is given stands for all."""
        values = self._all(key)
        if not values:
            return (default,) * count
        if len(values) not in (1, count):
            raise UserError(
                f"{key} has {len(values)} values, 1 or {count} fit here", where=values[-1].span
            )
        found = tuple(_quantity(v, "bandwidth") for v in values)
        return found if len(found) == count else found * count

    def microseconds(self, key: str, default: Fraction) -> Fraction:
        """A time with its unit, in µs."""
        value = self._one(key)
        return default if value is None else _quantity(value, "time")

    def bytes(self, key: str, default: int) -> int:
        """A size with its unit, in bytes."""
        value = self._one(key)
        return default if value is None else int(_quantity(value, "size"))

    def factor(self, key: str, default: Fraction = Fraction(1)) -> Fraction:
        """A positive number without a unit (``oversub=2``)."""
        value = self._one(key)
        if value is None:
            return default
        try:
            number = Fraction(value.text) if len(value.text) < 32 else Fraction(0)
        except (ValueError, ZeroDivisionError):
            number = Fraction(0)
        if number <= 0:
            raise UserError(f"{key} must be a positive number", where=value.span)
        return number

    def choice(self, key: str, default: str, known: Iterable[str]) -> str:
        """A word out of a fixed set."""
        value = self._one(key)
        if value is None:
            return default
        names = tuple(known)
        if value.text not in names:
            raise UnknownName(f"value of {key}", value.text, names, where=value.span)
        return value.text

    def word(self, key: str, default: str = "") -> tuple[str, Span]:
        """A free word and its place."""
        value = self._one(key)
        return (default, self.span()) if value is None else (value.text, value.span)

    def words(self, key: str) -> tuple[OptionValue, ...]:
        """A list of free words."""
        return self._all(key)

    def has(self, key: str) -> bool:
        """Return True if the option was written."""
        return key in self.options

    def finish(self) -> None:
        """Raise UnknownName for an option that no accessor has marked as known."""
        for key, span in self.keys.items():
            if key not in self.known:
                raise UnknownName(
                    f"option of {self.name}", key, filter(None, self.known), where=span
                )
        if self.positional and "" not in self.known:
            raise UserError(
                f"{self.name} takes no size",
                where=self.positional[0].span,
                hint=f"options are {', '.join(k + '=' for k in sorted(self.known) if k)}",
            )

    def _all(self, key: str) -> tuple[OptionValue, ...]:
        if key not in self.known:
            self.known.append(key)
        return self.options.get(key, ())

    def _one(self, key: str) -> OptionValue | None:
        values = self._all(key)
        if len(values) > 1:
            raise UserError(f"{key} takes one value", where=values[1].span)
        return values[0] if values else None


def parse_spec(text: str, origin: str = "topology") -> MachineSpec:
    """Parse the text of a machine: a name, then after a colon its options.

    Raises:
        UserError: an empty item, or an option given twice.
    """
    name, colon, _ = text.partition(":")
    return parse_options(name, Source(origin, text), len(name) + len(colon))


def parse_options(name: str, source: Source, start: int) -> MachineSpec:
    """Parse the comma-separated list of a source from ``start`` to its end."""
    spec = MachineSpec(name, (), {}, {}, source)
    if start >= len(source.text):
        return spec
    key = ""
    for part in split(Span(source, start, len(source.text)), braces=False):
        shown = Span(source, part.start, max(part.end, part.start + 1))
        if not part.text.strip():
            raise UserError("an empty item", where=shown, hint="items are separated by commas")
        item = Item.of(part)
        if item.key is None:
            value = OptionValue(item.value.text.strip(), shown)
        else:
            key, value = item.key.text.strip(), OptionValue(item.value.text.strip(), item.value)
            if key in spec.keys:
                raise UserError(
                    f"{key}= is given twice", where=shown, hint=f"where it takes several: {key}=A,B"
                )
            spec.keys[key] = item.key
            spec.options[key] = ()
            if not value.text:
                raise UserError(f"expected a value after {key}=, got none", where=item.key)
        if key:
            spec.options[key] += (value,)
        else:
            spec.positional += (value,)
    return spec


def check_size(spec: MachineSpec, gpus: int, links: int = 0) -> None:
    """Raise UserError for a machine too large to build."""
    if gpus > MAX_GPUS or links > MAX_LINKS:
        raise UserError(
            f"{spec.source.text} would have {gpus} GPUs" + f" and {links} links" * bool(links),
            where=spec.span(),
            hint=f"at most {MAX_GPUS} GPUs and {MAX_LINKS} links",
        )


def _integer(text: str, value: OptionValue, least: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise UserError(f"{(text or value.text)!r} is not an integer", where=value.span)
    number = int(text)
    if number < least:
        raise UserError(f"{number} is too small", where=value.span, hint=f"at least {least}")
    return number


def _quantity(value: OptionValue, what: str) -> Fraction:
    parsers: dict[str, Callable[[str], Fraction | int]] = {
        "bandwidth": parse_bandwidth,
        "time": parse_microseconds,
        "size": parse_bytes,
    }
    try:
        return Fraction(parsers[what](value.text))
    except UserError as error:
        raise UserError(error.message, where=value.span, hint=error.hint) from None
