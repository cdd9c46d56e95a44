"""Walks: the files that a command really enters, and the modules that it loads."""

import json
from collections.abc import Iterator
from pathlib import Path

from . import commands
from .commands import Bench, Command, bench
from .tree import Figure, Tree

WALKED = (
    commands.HELP,
    commands.BOUND,
    commands.SEARCH,
    commands.COMPILE,
    commands.SIMULATE,
    commands.TUNE,
)
PROBE = Path(__file__).with_name("probe.py")


def walk(place: Bench, command: Command) -> Iterator[Figure]:
    """Modules, files and functions of one command, in the process that was started."""
    answer = place.folder.with_name("answer.json")
    place.run(command, (str(PROBE), str(answer), place.entry().replace(":command", ":main")))
    found = json.loads(answer.read_text(encoding="utf-8"))
    if Path(found["home"]) != place.tree.root.resolve():
        raise RuntimeError(f"another weft was walked than that of {place.tree.root}")
    files = sorted({file for file, _ in found["functions"]})
    key = command.name.strip("-")
    yield Figure(f"walk_{key}_modules", f"{command.name}: modules loaded", len(found["modules"]))
    yield Figure(f"walk_{key}_files", "… files entered", len(files), tuple(files))
    yield Figure(f"walk_{key}_functions", "… functions entered", len(found["functions"]))


def measured(tree: Tree) -> Iterator[Figure]:
    """The walks of all commands, one after the other."""
    with bench(tree) as place:
        for command in WALKED:
            yield from walk(place, command)
