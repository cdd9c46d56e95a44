"""Write scripts whose ranks differ only in numbers as formulas in the rank, with loops.

Before (a line for every rank and round)::

    "o[3] > 1, o[2] < 3; o[2] = o[2] + i[2]",          and 23 more

After::

    for step in range(6):
        yield f"o[{(r - step - 1) % 4}] > {(r + 1) % 4}, o[{(r - step - 2) % 4}] < …"

Every number of a round (a peer, a chunk) is a column with one entry per rank, and becomes a formula
in the rank r: ``base + factor * u``, where u is r turned, mirrored or flipped, among all ranks or
among equal groups of neighbours. Rounds that follow each other and whose formulas change by a
constant become a loop. The caller compares the evaluated formulas with the script; a script
without formulas is written line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass

from .model import ChunkRange, Round, Script

SHORTEST = 3
"""Rounds that make a loop."""

WIDE = 92
"""Columns of a line of code, without its indentation."""


class PeerFormula(StrEnum):
    """Formula of u in the rank r; c is the turn, g the ranks of a group."""

    CONSTANT = "0"
    TURNED = "(r + c) % ranks"
    MIRRORED = "(c - r) % ranks"
    FLIPPED = "r ^ c"
    INSIDE = "r // g * g + (r + c) % g"
    PLACE = "(r + c) % g"
    GROUP = "(r // g + c) % (ranks // g)"


@dataclass(frozen=True, slots=True)
class Formula:
    """``base + factor * u(r)``; u is as ``shape`` says, with ``turn``, modulo ``modulus``.

    ``groups``: ranks of a group, where u is about groups, else all of them.
    """

    shape: PeerFormula
    base: int
    factor: int = 0
    turn: int = 0
    modulus: int = 1
    groups: int = 1

    def key(self) -> tuple[PeerFormula, int, int, int]:
        """Return the part that must be equal in all rounds of a loop."""
        return self.shape, self.factor, self.modulus, self.groups


def code_of(script: Script) -> list[str] | None:
    """The body of the function that yields the lines of rank r; None without formulas."""
    patterns = []
    for rounds in zip(*script.ranks, strict=True):
        pattern = _pattern(rounds)
        if pattern is None:
            return None
        patterns.append(pattern)
    lines: list[str] = []
    at = 0
    while at < len(patterns):
        length, change = _run(patterns[at:])
        if length < SHORTEST:
            lines += _statement(patterns[at], None)
            at += 1
        else:
            lines.append(f"for step in range({length}):")
            lines += [f"    {line}" for line in _statement(patterns[at], change)]
            at += length
    return lines


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A round of all ranks: its line in pieces, with formulas between them."""

    text: tuple[str, ...]
    numbers: tuple[Formula, ...]


def _pattern(rounds: Sequence[Round]) -> _Pattern | None:
    """Return the pattern of one round; None if the ranks do different things in it."""
    pieces = [list(_pieces(one)) for one in rounds]
    texts = {tuple(text for text, _ in own) for own in pieces}
    if len(texts) > 1:
        return None
    numbers = []
    for column in zip(*pieces, strict=True):
        found = fit(np.array([number for _, number in column], np.int64))
        if found is None:
            return None
        numbers.append(found)
    return _Pattern(next(iter(texts)), tuple(numbers))


def _pieces(one: Round) -> Iterator[tuple[str, int]]:
    """Yield the line of a round as (text, number) pairs.

    The text of chunks ends in ``[`` and how many there are: it is the same on all ranks.
    """
    first = True
    for way, messages in (("> ", one.sends), ("< ", one.recvs)):
        for m in messages:
            yield from _part("" if first else ", ", m.part)
            yield f" {way}", m.peer
            first = False
    for place, work in enumerate(one.work):
        yield from _part(", " if place else "; ", work.into)
        for term, sign in zip(work.terms, (" = ", " + "), strict=False):
            yield from _part(sign, term)


def _part(before: str, part: ChunkRange) -> Iterator[tuple[str, int]]:
    yield f"{before}{part.buffer}[{part.count}", part.first


def fit(column: Ints) -> Formula | None:
    """Return the formula that gives a column, by the rank; the first of the simplest shape."""
    ranks = len(column)
    base = int(column.min())
    apart = column - base
    if not apart.any():
        return Formula(PeerFormula.CONSTANT, base)
    factor = int(np.gcd.reduce(apart))
    u, r = apart // factor, np.arange(ranks)
    groups = [g for g in range(2, ranks) if ranks % g == 0]
    tried: list[Formula] = [
        Formula(PeerFormula.TURNED, base, factor, int(u[0]), ranks),
        Formula(PeerFormula.MIRRORED, base, factor, int(u[0]), ranks),
        Formula(PeerFormula.FLIPPED, base, factor, int(u[0]), ranks),
    ]
    for g in groups:
        tried += [
            Formula(PeerFormula.INSIDE, base, factor, int(u[0]), g, g),
            Formula(PeerFormula.PLACE, base, factor, int(u[0]), g, g),
            Formula(PeerFormula.GROUP, base, factor, int(u[0]), ranks // g, g),
        ]
    return next((one for one in tried if (_values(one, r) == u).all()), None)


def _values(one: Formula, r: Ints) -> Ints:
    """u of every rank."""
    m, c, g = one.modulus, one.turn, one.groups
    result: Ints
    match one.shape:
        case PeerFormula.TURNED:
            result = (r + c) % m
        case PeerFormula.MIRRORED:
            result = (c - r) % m
        case PeerFormula.FLIPPED:
            result = r ^ c
        case PeerFormula.INSIDE:
            result = r // g * g + (r + c) % m
        case PeerFormula.PLACE:
            result = (r + c) % m
        case _:
            result = (r // g + c) % m
    return result


def _run(patterns: Sequence[_Pattern]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the number of leading rounds that form a loop, and its changes of (base, turn)."""
    first = patterns[0]
    if len(patterns) < SHORTEST:
        return 1, ()
    change: tuple[tuple[int, int], ...] | None = None
    length = 1
    for before, after in pairwise(patterns):
        if after.text != first.text:
            break
        if any(a.key() != b.key() for a, b in zip(before.numbers, after.numbers, strict=True)):
            break
        step = tuple(_change(a, b) for a, b in zip(before.numbers, after.numbers, strict=True))
        if change is not None and step != change:
            break
        if any(
            turn and f.shape == PeerFormula.FLIPPED
            for (_, turn), f in zip(step, first.numbers, strict=True)
        ):
            break
        change, length = step, length + 1
    return length, change or ()


def _change(a: Formula, b: Formula) -> tuple[int, int]:
    return b.base - a.base, _centred(b.turn - a.turn, a.modulus)


def _centred(number: int, modulus: int) -> int:
    """Return the number of least magnitude that is the same modulo ``modulus``."""
    number %= modulus
    return number - modulus if 2 * number > modulus else number


def _statement(pattern: _Pattern, change: tuple[tuple[int, int], ...] | None) -> list[str]:
    """``yield f"…"``, on several lines where it is long."""
    changes = change or ((0, 0),) * len(pattern.numbers)
    pieces = []
    for text, number, (base, turn) in zip(pattern.text, pattern.numbers, changes, strict=True):
        start, bracket, count = text.partition("[")
        if bracket:
            pieces.append(start + "[" + _slice(number, int(count), base, turn) + "]")
        else:
            pieces.append(text + _braced(_expression(number, base, turn)))
    words: list[str] = []
    for piece in pieces:  # a new word begins with every message and every piece of work
        if piece.startswith((", ", "; ")) or not words:
            if words:
                words[-1] += piece[:2]
                piece = piece[2:]
            words.append(piece)
        else:
            words[-1] += piece
    return _yielded(words)


def _yielded(words: list[str]) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > WIDE - 10:
            lines.append("")
        lines[-1] += word
    texts = [f'{"f" if "{" in line else ""}"{line}"' for line in lines]
    if len(texts) == 1:
        return [f"yield {texts[0]}"]
    return ["yield (", *(f"    {text}" for text in texts), ")"]


def _slice(number: Formula, count: int, base: int, turn: int) -> str:
    first = _expression(number, base, turn)
    if count == 1:
        return _braced(first)
    end = _expression(replace(number, base=number.base + count), base, turn)
    return f"{_braced(first)}:{_braced(end)}"


def _braced(expression: str) -> str:
    return expression if expression.isdigit() else f"{{{expression}}}"


def _expression(number: Formula, base: int, turn: int) -> str:
    """Return the formula in r, and in step where it changes."""
    constant = _sum([(base, "step")], number.base)
    if number.shape == PeerFormula.CONSTANT:
        return constant
    m, g = number.modulus, number.groups
    fixed = _centred(number.turn, m) if number.shape != PeerFormula.FLIPPED else number.turn
    moved = [(turn, "step")]
    match number.shape:
        case PeerFormula.TURNED:
            u = _modulo([(1, "r"), *moved], fixed, m) if fixed or turn else "r"
        case PeerFormula.MIRRORED:
            u = _modulo([*moved, (-1, "r")], number.turn, m)
        case PeerFormula.FLIPPED:
            u = f"(r ^ {fixed})"
        case PeerFormula.INSIDE:
            u = f"(r // {g} * {g} + {_modulo([(1, 'r'), *moved], fixed, m)})"
        case PeerFormula.PLACE:
            u = _modulo([(1, "r"), *moved], fixed, m)
        case _:
            u = _modulo([(1, f"r // {g}"), *moved], fixed, m)
            u = f"r // {g}" if not fixed and not turn else u
    if number.factor != 1:
        alone = u.isalnum() or number.shape in (PeerFormula.FLIPPED, PeerFormula.INSIDE)
        u = f"{number.factor} * {u if alone else f'({u})'}"
    return u if constant == "0" else f"{u} + {constant}".replace("+ -", "- ")


def _modulo(terms: list[tuple[int, str]], constant: int, modulus: int) -> str:
    inside = _sum(terms, constant)
    return f"{inside if inside.isalnum() else f'({inside})'} % {modulus}"


def _sum(terms: list[tuple[int, str]], constant: int) -> str:
    """``r - step + 3``; the constant first where no term is positive."""
    parts = [(c, name) for c, name in terms if c]
    parts.sort(key=lambda x: x[0] < 0)
    if not parts or (parts[0][0] < 0 and constant >= 0):
        parts.insert(0, (constant, ""))
    elif constant:
        parts.append((constant, ""))
    text = ""
    for c, name in parts:
        size = f"{abs(c)}" if not name else name if abs(c) == 1 else f"{abs(c)} * {name}"
        sign = " - " if c < 0 else " + "
        text += (sign if text else "-" if c < 0 else "") + size
    return text
