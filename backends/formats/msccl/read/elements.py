"""The text level of MSCCL XML: elements, as the runtimes' hand-written reader finds them.

It is *not* XML: attributes are separated by one space and stand on the line
of their tag, only ``"`` closes a value, nothing is decoded, no declaration, no text, no tabs.
Entity bombs are just text here. One pass, linear time, constant depth of recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from weft.dsl.base.errors import BadFile
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spans import Source, Span

from .model import FACTS


class Tag(Enum):
    """Form in which an element is written."""

    OPEN = "open"
    CLOSE = "close"
    SINGLE = "single"


@dataclass(slots=True)
class XmlElement:
    """One tag; ``attributes`` in document order, duplicates and surplus ones included."""

    tag: Tag
    name: str
    attributes: list[tuple[str, str]]
    start: int
    end: int


# A token ends at the first of these; the fast path below takes a subset of the same language.
_TOKEN = re.compile(r"[^=> /\n\r]*+")
_BLANKS = re.compile(r"[ \n\r]*+")
_TAG = re.compile(r"<([^=> /\n\r!]{1,254}+)((?: [^=> /\n\r]{1,254}+=\"[^\"]*+\")*+)(/?)>")
_ATTRIBUTE = re.compile(r" ([^=> /\n\r]+)=\"([^\"]*)\"")
_CLOSE = re.compile(r"</([^=> /\n\r]{0,254}+)>")


class Elements:
    """The tags of a text in order; comments are skipped. ``at``: where the next one is looked for.

    Raises (while iterating):
        BadFile: an element that no runtime reads, with its place.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.at = 0

    def __iter__(self) -> Iterator[XmlElement]:
        return self

    def __next__(self) -> XmlElement:
        text = self.source.text
        self.at = at = _skip(self.source, self.at)
        if at >= len(text):
            raise StopIteration
        if match := _TAG.match(text, at):
            tag = Tag.SINGLE if match[3] else Tag.OPEN
            element = XmlElement(tag, match[1], _ATTRIBUTE.findall(match[2]), at, match.end())
        elif match := _CLOSE.match(text, at):
            element = XmlElement(Tag.CLOSE, match[1], [], at, match.end())
        else:
            element = _slow_tag(self.source, at)
        self.at = element.end
        return element


def fail(source: Source, start: int, end: int, message: str, hint: str = "") -> BadFile:
    """Return a :class:`BadFile` that points at characters; long lines are not quoted."""
    start = min(start, len(source.text))
    span = Span(source, start, max(end, start + 1))
    line_start = source.text.rfind("\n", 0, start) + 1
    line_end = source.text.find("\n", start)
    length = (line_end if line_end >= 0 else len(source.text)) - line_start
    where: Span | str = span if length <= 400 else str(span)
    return BadFile(message, where=where, hint=hint)


def _skip(source: Source, at: int) -> int:
    """Past blanks and comments, to the next ``<`` or the end."""
    text = source.text
    while True:
        blank = _BLANKS.match(text, at)
        at = blank.end() if blank else at
        if at >= len(text):
            return at
        if text[at] != "<":
            hint = {
                "\t": "indent with spaces: the runtimes reject tabs",
                "\ufeff": "save without a byte-order mark",
            }.get(text[at], "only spaces and line ends may stand between elements")
            raise fail(source, at, at + 1, f"'<' is expected, not {text[at]!r}", hint)
        if not text.startswith("<!--", at):
            return at
        word = _TOKEN.match(text, at + 4)
        stop = word.end() if word else at + 4
        if text.startswith("=", stop):
            raise fail(
                source,
                stop,
                stop + 1,
                "'=' in the first word of a comment",
                "the runtimes take it for an attribute; put a space before the word",
            )
        end = text.find("-->", at + 4)
        if end < 0:
            raise fail(source, at, at + 4, "the comment never ends")
        at = end + 3


def _slow_tag(source: Source, at: int) -> XmlElement:
    """Return a tag read token by token: for all that the fast path leaves, and all mistakes."""
    text = source.text
    if text.startswith("<?", at) or text.startswith("<!", at):
        raise fail(
            source,
            at,
            at + 2,
            "an XML declaration",
            "no runtime reads declarations; begin the file with <algo",
        )
    name, at_end = _token(source, at + 1)
    if text[at_end] == "=":
        raise fail(source, at_end, at_end + 1, f"unexpected value with name {name!r}")
    if name == "" and text[at_end] == "/":
        name, at_end = _token(source, at_end + 1)
        if text[at_end] != ">":
            raise fail(source, at_end, at_end + 1, f"'>' is expected to end </{name[:40]}")
        return XmlElement(Tag.CLOSE, name, [], at, at_end + 1)
    pairs: list[tuple[str, str]] = []
    while text[at_end] == " ":
        key, at_end = _token(source, at_end + 1)
        value = ""
        if text[at_end] == "=":
            value, at_end = _value(source, at_end + 1, key)
        pairs.append((key, value))
    tag = Tag.OPEN
    if text[at_end] == "/":
        tag = Tag.SINGLE
        _, at_end = _token(source, at_end + 1)
    if text[at_end] != ">":
        hint = ""
        if text[at_end] in "\r\n":
            hint = "a tag and its attributes must stand on one line"
        raise fail(
            source,
            at_end,
            at_end + 1,
            f"'>' is expected in <{name[:40]}>, not {text[at_end]!r}",
            hint,
        )
    return XmlElement(tag, name, pairs, at, at_end + 1)


def _token(source: Source, at: int) -> tuple[str, int]:
    """Return a name and the place of the character that ends it."""
    match = _TOKEN.match(source.text, at)
    end = match.end() if match else at
    if end - at > FACTS.name_characters:
        raise fail(source, at, at + 1, f"a name of more than {FACTS.name_characters} characters")
    if end >= len(source.text):
        raise fail(source, end, end, "the file ends inside a tag", "is it truncated?")
    return source.text[at:end], end


def _value(source: Source, at: int, key: str) -> tuple[str, int]:
    """Return an attribute value and the place after its closing quote."""
    text = source.text
    quote = text[at : at + 1]
    if quote not in ('"', "'") or not quote:
        raise fail(source, at, at + 1, f"the value of {key[:40]!r} must open with a double quote")
    end = text.find('"', at + 1)
    if quote == "'":
        raise fail(
            source,
            at,
            at + 1,
            f"the value of {key[:40]!r} is in single quotes",
            "the runtimes end a value only at a double quote",
        )
    if end < 0 or end + 1 >= len(text):
        raise fail(source, at, at + 1, f"the value of {key[:40]!r} never ends", "is it truncated?")
    return text[at + 1 : end], end + 1


_C_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX](?=[0-9a-fA-F]))?([0-9a-fA-F]*)")
_LARGEST = (1 << 63) - 1


def integer(text: str, bits: int = 32) -> tuple[int, str]:
    """Return the value the runtimes read, and its difference from the text ('' if none).

    >>> integer("010"), integer("0x1f"), integer("zero"), integer("7 apples")
    ((8, 'octal'), (31, 'hexadecimal'), (0, 'not a number'), (7, 'trailing text'))
    >>> wrap(65536, 16), wrap(40000, 16), wrap(128, 8)
    (0, -25536, -128)
    """
    if text.isascii() and text.isdigit() and len(text) < 10 and (text[0] != "0" or text == "0"):
        return int(text), ""
    if text == "-1":
        return -1, ""
    match = _C_INTEGER.match(text)
    assert match is not None
    sign, prefix, digits = match.groups()
    base = 16 if prefix else 8 if digits.startswith("0") else 10
    length = next((i for i, d in enumerate(digits) if int(d, 16) >= base), len(digits))
    digits, rest = digits[:length], digits[length:] + text[match.end() :]
    if not digits:
        return 0, "not a number"
    # strtol saturates; more than 22 octal digits are beyond 64 bits whatever they are.
    significant = digits.lstrip("0") or "0"
    size = int(significant, base) if len(significant) <= 22 else 1 << 64
    exact = -size if sign == "-" else size
    exact = max(min(exact, _LARGEST), -_LARGEST - 1)
    value = wrap(exact, bits)
    if rest:
        return value, "trailing text"
    if value != exact or size > _LARGEST:
        return value, f"more than {bits} bits"
    if base != 10 and significant != "0":
        return value, "octal" if base == 8 else "hexadecimal"
    return value, ""


def wrap(value: int, bits: int) -> int:
    """Return a value stored in a signed field of that many bits."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half
