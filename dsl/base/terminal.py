"""Removal of marks that terminals, launchers, mails and web pages leave in copied output."""

from __future__ import annotations

import re
from collections.abc import Iterable

ESCAPES = re.compile(r"\x1b?\[[0-9;]*m|\x1b\[[0-9;?]*[A-Za-z]")
"""Colours and movements of the cursor; of colours also those whose first byte was lost."""

LONGEST = 4096
"""Characters of the longest line that a program prints."""

MOST_LABELS = 3
"""Labels that may stand before each other: a time, a pod and a rank."""

_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z]{2,8});", re.IGNORECASE)

_PLAIN = str.maketrans(
    dict.fromkeys("\xa0\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))), " ")
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\xad\r", "")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")
    | {"\u2502": "|", "\uff5c": "|"}
)
"""Blanks of web pages, marks without a width, dashes and minus signs, bars, as terminals have
them."""

_LABEL = re.compile(
    r"(?:\[\d+(?:,\d+)?\](?:<std(?:out|err)>:?)?|\s*\d+:(?=\s|$))[ \t]?"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s\]]*\]?[ \t]"
    r"|>[ \t]?"
)
"""Labels before a line: ``[0] `` of Hydra, ``[1,0]<stdout>:`` of Open MPI, ``0: `` of
Slurm; the time of a container's log; the mark of a quotation."""

_HOST = re.compile(r"[A-Za-z][\w.-]{0,99}:(?:[ \t]|$)|\[[A-Za-z][\w.-]{0,99}\](?:[ \t]|$)")
"""``node1: `` of pdsh, ``[node1] `` of others: a label where every line has one, else a word."""

_RULE = re.compile(r"[\s:+=-]*")


def plain_text(text: str) -> str:
    """Return a text with the characters of a terminal, line for line."""
    if _ENTITY.search(text):
        import html  # two thousand names: only copies of web pages have any

        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]).replace("\n", " "), text)
    return ESCAPES.sub("", text.translate(_PLAIN))


def plain_lines(text: str) -> list[str]:
    """Return the lines of a text without colours, and without labels that most of them have.

    A line of more than :data:`LONGEST` characters is empty: no table has one, and patterns that
    read lines may take the square of their length.
    """
    lines = [x if len(x) <= LONGEST else "" for x in plain_text(text).splitlines()]
    for _ in range(MOST_LABELS):
        labels = [_LABEL.match(line) for line in lines]
        if not lines or 2 * sum(map(bool, labels)) < len(lines):
            labels = [_HOST.match(line) for line in lines]
            if not all(label or not line for label, line in zip(labels, lines, strict=True)):
                break
        lines = [line[m.end() :] if m else line for line, m in zip(lines, labels, strict=True)]
    return lines


def without_bars(lines: Iterable[str]) -> list[str]:
    """Return lines of Markdown tables, ``| a | b |``, as plain words, rules as empty lines."""
    plain = (line.replace("|", " ") for line in lines)
    return ["" if _RULE.fullmatch(line) else line for line in plain]
