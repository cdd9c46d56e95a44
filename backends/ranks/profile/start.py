"""Start the ranks of a program as processes, and end every one of them, whatever happens."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import CheckFailed, Missing
from weft.dsl.base.processes import STARTING, STDERR, STDOUT, Command, owning, python, running, wait

from ..launch import under_mpiexec

GRACE = 2.0
"""Seconds for ranks that must end to do so by themselves."""

PLAN, FOUND = "plan.json", "found.json"
"""Files in the folder of the ranks."""


def carry_out(
    program: str,
    on: str,
    ranks: int,
    plan: dict[str, Any],
    seconds: float,
    tell: Callable[[str], None],
) -> Any:
    """What rank 0 of a program leaves: a module that is run with the runtime's name and a folder.

    ``plan`` is what it finds there; ``seconds`` how long it may take, starting not counted.

    Raises:
        Missing: the runtime is not installed. CheckFailed: a rank failed, or it takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="weft-ranks-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / PLAN).write_text(json.dumps(plan), "utf-8")
        limit = seconds + 2 * STARTING
        commands = _commands(program, on, ranks, folder, limit)
        with (
            owning(folder),
            running(commands, folder, grace=GRACE) as processes,
            (folder / STDOUT).open(encoding="utf-8", errors="replace") as lines,
        ):

            def heard() -> bool:
                for line in lines.readlines():
                    tell(line.strip())
                return False

            wait(processes, limit, heard)
        if not (folder / FOUND).exists():
            raise CheckFailed(
                f"the ranks did not end well: {_last_words(folder)}",
                hint="does weft run work with the same --on?",
            )
        return json.loads((folder / FOUND).read_text("utf-8"))


def _last_words(folder: Path) -> str:
    """The error that a rank ended with."""
    words = (folder / STDERR).read_text("utf-8", "replace").splitlines()
    errors = [line for line in words if re.match(r"\w+(\.\w+)*(Error|Exception)\b", line)]
    told = [*(line.strip() for line in words if line.strip()), *errors[:1]]
    return told[-1][:300] if told else "nothing was heard of them in time"


def leave(place: Path, found: Any) -> None:
    """Leave what was found; it appears whole or not at all."""
    part = place.with_suffix(".part")
    part.write_text(json.dumps(found), "utf-8")
    part.rename(place)


def _commands(program: str, on: str, ranks: int, folder: Path, seconds: float) -> list[Command]:
    """What starts the ranks."""
    rank = ("-m", program, on, str(folder))
    if on == "torch":
        if find_spec("torch") is None:
            raise Missing("torch is not installed", hint="pip install 'weft[torch]'")
        return [python(*rank, WEFT_RANK=str(r)) for r in range(ranks)]
    # As a module of mpi4py: an exception in one rank ends the job.
    return [under_mpiexec(("-m", "mpi4py", *rank), ranks, seconds)]
