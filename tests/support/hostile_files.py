"""Mutants of files: what a hostile or careless hand makes of a right one, by its structure."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

NUMBERS = (
    *("0", "-1", "0.00", "1", "-0.0", "1e999", "1e-999", "nan", "inf", "-inf", "1e9999999999"),
    *("9" * 25, "9" * 4301, "0x" + "f" * 5000, "1/0", "2147483648", "18446744073709551616", "1e18"),
    *("00", "1_0", "٣", "½", "1e", ".", "-", "+5", "100000", "1000000000"),
)
WORDS = (
    *("", " ", "\0", "\x1b[2J", "\x9b", "\u202e", "\u2028", "\ufeff", "\ud800", "é", "😀", "N/A"),
    *(
        "../../etc/passwd",
        "/dev/zero",
        "{",
        "}",
        "[",
        "]",
        "<",
        ">",
        '"',
        "'",
        "\\",
        "#",
        "%s",
        "{}",
    ),
    *("true", "null", "__class__", "0..1000000000", "0..", "..", "a:b", "a=b", ",", ";", "=", "*9"),
)
LONG = 200_000
"""Characters of a long word: what is quadratic in them takes many seconds."""

CSV_FIELD = 131_073
"""Characters in one more than the module csv takes."""

Mutator = Callable[[random.Random, str], str]

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w.-]{0,40}|\d+(?:\.\d+)?")


def mutant(chance: random.Random, data: bytes) -> bytes:
    """Return another file: one to three changes of the text, of its JSON, or of its bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _bytes(chance, data)
    if chance.random() < 0.03:
        return _bytes(chance, data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kinds: tuple[Mutator, ...] = _TEXT
        if text[:1] in ("{", "[") and chance.random() < 0.7:
            kinds = (_json,)
        text = chance.choice(kinds)(chance, text)
    if chance.random() < 0.02:
        return text.encode("utf-16", "surrogatepass")
    return text.encode("utf-8", "surrogatepass")


def _bytes(chance: random.Random, data: bytes) -> bytes:
    """Flip, cut, repeat or insert bytes, as of a protobuf."""
    at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    end = min(end, at + 64)
    noise = bytes(chance.choice((0, 1, 0x7F, 0x80, 0xFF)) for _ in range(chance.randrange(1, 12)))
    parts = (noise, data[at:end] * chance.choice((0, 2, 50)), b"", b"\xff" * 9 + b"\x7f")
    return data[:at] + chance.choice(parts) + data[end:]


def _lines(chance: random.Random, text: str) -> str:
    """Remove, repeat, swap, cut or lengthen lines."""
    lines = text.split("\n")
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            del lines[min(at, to) : min(at, to) + chance.choice((1, 1, 3))]
        case 1:
            lines[at:at] = [lines[at]] * chance.choice((1, 1, 2, 300))
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
        case 3:
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        case 4:
            lines[at] += lines[to]
        case _:
            lines[at] = chance.choice((" ", "\t", "  ", "\r")) + lines[at]
    return "\n".join(lines)


def _token(chance: random.Random, text: str) -> str:
    """Put another number or word in the place of one."""
    found = list(_WORD.finditer(text, 0, 50_000))
    if not found:
        return text + chance.choice(WORDS)
    one = chance.choice(found)
    other = chance.choice(found)[0]
    new = chance.choice((*NUMBERS, other, other, other, *WORDS))
    return text[: one.start()] + new + text[one.end() :]


def _number(chance: random.Random, text: str) -> str:
    """Put a hostile number in the place of one, or of all that are equal to it."""
    found = list(_NUMBER.finditer(text, 0, 50_000))
    if not found:
        return _token(chance, text)
    one = chance.choice(found)
    new = chance.choice(NUMBERS)
    if chance.random() < 0.2:
        return re.sub(rf"\b{re.escape(one[0])}\b", lambda _: new, text)
    return text[: one.start()] + new + text[one.end() :]


def _piece(chance: random.Random, text: str) -> str:
    """Cut, insert or repeat a piece anywhere, a very long one now and then."""
    at, end = chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)
    match chance.randrange(12):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + chance.choice(("[", "(", "{", "<a>", "((", '"')) * 100_000
        case 2 | 3:
            unit = chance.choice(("a", "1", " ", "a ", "-", "\t", "0.", "a=", "x:", '"', "\n", "<"))
            return text[:at] + unit * (LONG // len(unit)) + text[at:]
        case 4:
            return text[:at] + "x" * CSV_FIELD + text[at:]
        case 5 | 6 | 7:
            return text[:at] + text[min(at, end) : max(at, end)][:2000] + text[at:]
        case _:
            return text[:at] + chance.choice((*WORDS, *NUMBERS)) + text[at + chance.randrange(3) :]


_TEXT: tuple[Mutator, ...] = (_lines, _lines, _token, _token, _number, _number, _piece)


def _json(chance: random.Random, text: str) -> str:
    """Change one value, key or member of a JSON text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return chance.choice(_TEXT)(chance, text)
    holders = _holders(data)
    if not holders:
        return chance.choice(_TEXT)(chance, text)
    holder = chance.choice(holders)
    key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1:
            other = chance.choice(holders)
            holder[key] = json.loads(json.dumps(chance.choice(_values(other))))
        case 2 if isinstance(holder, dict):
            holder[chance.choice(WORDS)] = holder.pop(key)
        case 3 if isinstance(holder, list):
            holder[key:key] = [holder[key]] * chance.choice((1, 2, 500))
        case 4 | 5:
            mark = "~~number~~"
            holder[key] = mark
            return json.dumps(data).replace(f'"{mark}"', chance.choice(NUMBERS), 1)
        case _:
            holder[key] = chance.choice(
                (None, True, False, [], {}, [[]], {"a": 1}, 0, -1, 1.5, 10**30, *WORDS, "9" * 300)
            )
    return json.dumps(data)


def _values(holder: Any) -> list[Any]:
    return list(holder.values()) if isinstance(holder, dict) else list(holder)


def _holders(data: Any) -> list[Any]:
    """Return all objects and lists that are not empty, each kind of place about as often."""
    found, queue = [], [data]
    while queue and len(found) < 3000:
        one = queue.pop()
        if isinstance(one, dict | list) and one:
            found.append(one)
            queue += _values(one)[:200]
    return found
