"""CPU seconds of whole commands in one checkout, or in two in turn."""

import os
from contextlib import ExitStack
from statistics import median

from . import commands
from .commands import Bench, Command, bench
from .tree import Figure, Tree

TURNS = 5
TIMED = (
    commands.HELP,
    commands.LIST,
    commands.SEARCH,
    commands.COMPILE,
    commands.CHECK,
    commands.SIMULATE,
    commands.TUNE,
)


def seconds(place: Bench, command: Command) -> float:
    """CPU seconds, user and system, of a command and of all processes that it started."""
    before = os.times()
    place.run(command)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def measured(trees: tuple[Tree, ...]) -> list[list[Figure]]:
    """For each tree the median of five runs of every command, the trees by turns.

    One run before the five fills the caches of compiled code.
    """
    found: list[list[Figure]] = [[] for _ in trees]
    with ExitStack() as stack:
        places = [stack.enter_context(bench(tree)) for tree in trees]
        for command in TIMED:
            for place in places:
                place.run(command)
            runs = [[seconds(place, command) for place in places] for _ in range(TURNS)]
            for figures, times in zip(found, zip(*runs, strict=True), strict=True):
                key = f"cpu_{command.name.strip('-').replace(' ', '_')}"
                figures.append(Figure(key, command.name, round(median(times), 2)))
    return found
