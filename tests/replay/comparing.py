"""What is different between two recorded runs, which of it was accepted, and the bytes of it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from commands import COMMANDS, needs
from recording import Manifest, Record

LINES = 40  # of a difference that are shown
WIDE = 300  # characters from which on a line is shown from where it differs
AROUND = 60  # bytes before and behind a differing one


@dataclass(frozen=True)
class Change:
    """A part of a command's record (``exit``, ``stdout``, a file) that is not the same."""

    command: str
    part: str
    how: str

    def __str__(self) -> str:
        return f"{self.command}: {self.part} {self.how}"


@dataclass(frozen=True)
class Accepted:
    """A change that is meant: of which commands and parts, after which commit, and why."""

    command: str
    base: str
    reason: str
    parts: tuple[str, ...] = ("*",)

    def holds(self, change: Change) -> bool:
        """Tell if it speaks of a change."""
        named = fnmatch(change.command, self.command)
        return named and any(fnmatch(change.part, part) for part in self.parts)


@dataclass
class Report:
    """All changes, those that fail apart from those that are accepted."""

    changed: list[Change] = field(default_factory=list)
    accepted: list[tuple[Change, Accepted]] = field(default_factory=list)
    idle: list[Accepted] = field(default_factory=list)  # speak of nothing that differs


def changes(before: Manifest, after: Manifest) -> Iterator[Change]:
    """What differs in the commands that both manifests have, in the order of the list."""
    order = {command.name: at for at, command in enumerate(COMMANDS)}
    both = before["commands"].keys() & after["commands"].keys()
    for name in sorted(both, key=lambda name: (order.get(name, len(order)), name)):
        yield from _of_command(name, before["commands"][name], after["commands"][name])


def _of_command(name: str, old: Record, new: Record) -> Iterator[Change]:
    if old["exit"] != new["exit"]:
        yield Change(name, "exit", f"{old['exit']} -> {new['exit']}")
    for part in old["parts"] | new["parts"]:
        was, now = old["parts"].get(part), new["parts"].get(part)
        if was != now:
            how = "is missing" if now is None else "is new" if was is None else "changed"
            yield Change(name, part, how)


def read_accepted(file: Path, counts: Callable[[str], bool]) -> list[Accepted]:
    """The accepted changes of a file whose `base` counts for the comparison at hand."""
    entries = tomllib.loads(file.read_text()).get("accepted", [])
    found = [
        Accepted(e["command"], e["base"], e["reason"], tuple(e.get("parts", ["*"])))
        for e in entries
    ]
    return [each for each in found if counts(each.base)]


def report(found: Iterator[Change], accepted: list[Accepted]) -> Report:
    """Part the changes into those that are accepted and the others."""
    told = Report()
    for change in found:
        why = next((each for each in accepted if each.holds(change)), None)
        if why is None:
            told.changed.append(change)
        else:
            told.accepted.append((change, why))
    used = {why for _, why in told.accepted}
    told.idle = [each for each in accepted if each not in used]
    return told


def lines(told: Report, count: int) -> Iterator[str]:
    """The report as text; a change whose input changed as well says so."""
    before = needs(COMMANDS)
    differing = {change.command for change in told.changed}
    for change in told.changed:
        inputs = sorted(before.get(change.command, set()) & differing)
        yield f"changed   {change}" + (f"  (after {', '.join(inputs)})" if inputs else "")
    for change, why in told.accepted:
        yield f"accepted  {change}: {why.reason}"
    for why in told.idle:
        yield f"idle      accepted change of {why.command} (since {why.base}): nothing differs"
    meant = {change.command for change, _ in told.accepted} - differing
    yield f"{count} commands: {len(differing)} differ, {len(meant)} differ as accepted"


def shown(change: Change, before: Path, after: Path) -> Iterator[str]:
    """The difference of one part: lines where it has lines, else from the first differing byte."""
    sides = [folder / "parts" / change.command / change.part for folder in (before, after)]
    if not all(side.is_file() for side in sides):
        return
    old, new = (side.read_bytes() for side in sides)
    try:
        was, now = old.decode().splitlines(), new.decode().splitlines()
    except UnicodeDecodeError:
        was = now = []
    different = list(difflib.unified_diff(was, now, "before", "after", n=1))
    if different and max(map(len, different)) <= WIDE:
        yield from (line.rstrip("\n") for line in different[:LINES])
        if len(different) > LINES:
            yield f"... {len(different) - LINES} lines more"
        return
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    at = min(len(old), len(new)) if at is None else at
    yield f"first difference at byte {at} of {len(old)} and {len(new)}"
    for sign, data in (("-", old), ("+", new)):
        piece = data[max(0, at - AROUND) : at + AROUND]
        yield f"{sign} {piece.decode(errors='backslashreplace')!r}"
