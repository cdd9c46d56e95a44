"""Long sweeps in pieces: their lines are kept in a file, and what is in it is not done again.

A sweep is a list of named cases. With ``--kept FILE`` the line of each finished case is appended to
that file, and a run that was cut off goes on where it ended. ``--part K/N`` takes every N-th case,
from the K-th on, for several runs, with a file each.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Case = tuple[str, Callable[[], Any]]
"""The name of a case, and what makes its noun (None: there is none), only if the case is run."""


@dataclass(frozen=True)
class Line:
    """What a case gave: its text for the reader, the results that were compared, those wrong."""

    name: str
    text: str
    results: int
    wrong: int


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--kept`` and ``--part``."""
    parser.add_argument("--kept", type=Path, help="file of finished lines; they are not run again")
    parser.add_argument("--part", default="1/1", help="K/N: every N-th case, from the K-th on")


def part(cases: Iterator[Case], which: str) -> Iterator[Case]:
    """The cases of one part of some."""
    first, of = map(int, which.split("/"))
    if not 1 <= first <= of:
        raise SystemExit(f"--part {which}: K/N with 1 ≤ K ≤ N")
    return (case for number, case in enumerate(cases) if number % of == first - 1)


def finished(path: Path | None) -> dict[str, Line]:
    """The lines in a file, by name; none where there is no file. A torn last line is left out."""
    if path is None or not path.exists():
        return {}
    whole = (text for text in path.read_text("utf-8").splitlines(True) if text.endswith("\n"))
    lines = [Line(**json.loads(text)) for text in whole]
    return {line.name: line for line in lines}


def swept(cases: Iterator[Case], run: Callable[[str, Any], Line], path: Path | None) -> list[Line]:
    """Run what is not finished; print and keep each line. Returns all lines, old ones too."""
    lines = finished(path)
    for name, make in cases:
        if name in lines:
            continue
        lines[name] = line = _line(name, make, run)
        sys.stdout.write(f"{line.text}\n")
        sys.stdout.flush()
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line)) + "\n")
    return list(lines.values())


def _line(name: str, make: Callable[[], Any], run: Callable[[str, Any], Line]) -> Line:
    """The line of a case; an exception is a wrong result, and the sweep goes on."""
    try:
        noun = make()
        return Line(name, f"{name}: none", 0, 0) if noun is None else run(name, noun)
    except Exception as error:
        return Line(name, f"{name}: {type(error).__name__}: {error}", 1, 1)


def told(lines: list[Line]) -> int:
    """Say how many results are wrong; the exit code."""
    results, wrong = sum(x.results for x in lines), [x for x in lines if x.wrong]
    for line in wrong:
        sys.stdout.write(f"WRONG: {line.text}\n")
    sys.stdout.write(f"{len(lines)} cases, {results} results, {len(wrong)} cases wrong\n")
    return 1 if wrong else 0
