"""Sketch lines from rows of ranks, folded into a ``for`` loop for arithmetic progressions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Row = tuple[int, ...]


def looped(rows: Sequence[Row], pattern: str, each: int) -> list[str]:
    """Return one line per row, or one loop over p if every column is an arithmetic progression.

    A row is a sender, ``each`` receivers, and the remaining ranks; the pattern has placeholders for
    these three.
    """
    if len(rows) > 2 and len(set(map(len, rows))) == 1:
        growth = {tuple(b - a for a, b in zip(*two, strict=True)) for two in pairwise(rows)}
        if len(growth) == 1:
            terms = [_term(step, start) for step, start in zip(*growth, rows[0], strict=True)]
            return [f"for p in 0..{len(rows) - 1}:", "    " + pattern.format(*_parts(terms, each))]
    return [pattern.format(*_parts(list(map(str, row)), each)) for row in rows]


def _parts(terms: list[str], each: int) -> tuple[str, str, str]:
    return terms[0], group(terms[1 : 1 + each]), group(terms[1 + each :])


def _term(step: int, start: int) -> str:
    """Return a linear term such as ``2p+1``."""
    if step == 0:
        return str(start)
    size = "p" if abs(step) == 1 else f"{abs(step)}p"
    if step < 0:
        return f"{start}-{size}"
    return size + (f"+{start}" if start else "")


def group(items: Sequence[object]) -> str:
    """Return a list as ``3`` or ``(3, 5)``."""
    shown = ", ".join(map(str, items))
    return shown if len(items) == 1 else f"({shown})"


def joined(lines: list[str]) -> list[str]:
    """Return the lines with loops of the same head merged."""
    heads = [line for line in lines if line.startswith("for ")]
    if len(heads) == 2 and heads[0] == heads[1] and len(lines) == 4:
        return [lines[0], lines[1], lines[3]]
    return lines
