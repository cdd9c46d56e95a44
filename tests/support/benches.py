"""Several ``weft bench`` on the same ranks.

A command ends where its ranks would start; what all would start runs in one job of real ranks; then
each command runs again and is given what its ranks found. How ``weft bench`` starts ranks of its
own is tested by commands that are left alone.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench_ranks
import pytest
from command import Ran, Weft

from weft.backends.cli.verbs import bench
from weft.backends.ranks.launcher import run_program
from weft.dsl.base.errors import CheckFailed

SECONDS = 120.0
"""For all benches of a job."""

Argv = tuple[object, ...]


def bench_together(weft: Weft, on: str, commands: Sequence[Argv]) -> list[Ran]:
    """Run the commands, which are for equally many ranks of one runtime."""
    noted: list[dict[str, Any]] = []
    sizes: set[int] = set()

    def note(_program: str, asked: str, ranks: int, plan: dict[str, Any], *_: object) -> None:
        assert asked == on
        noted.append(plan)
        sizes.add(ranks)
        raise CheckFailed("noted")

    said = [ran.err for ran in run_all(weft, note, commands)]
    assert len(noted) == len(commands), said
    (ranks,) = sizes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(bench_ranks.__file__).parent), prepend=":")
        found = run_program("bench_ranks", on, ranks, noted, SECONDS, lambda _: None)

    def give(_program: str, _on: str, _ranks: int, plan: dict[str, Any], *_: object) -> Any:
        assert plan == noted[0]
        del noted[0]
        return found.pop(0)

    return run_all(weft, give, commands)


def run_all(weft: Weft, launcher: Callable[..., Any], commands: Sequence[Argv]) -> list[Ran]:
    """Run the commands with something in place of the launcher of programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "run_program", launcher)
        return [weft("bench", *one) for one in commands]
