"""Passes from program to program, one after another, each checked where a checker is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from weft.dsl.errors import CheckFailed
from weft.dsl.program import Program

from .passes.elide import Elide
from .passes.fuse import Fuse
from .passes.prune import Prune
from .passes.scratch import Scratch
from .passes.sync import Sync
from .target import Target


class ProgramPass(Protocol):
    """A pure function on programs; a frozen dataclass whose fields are its options."""

    @property
    def name(self) -> str:
        """The name by which a pipeline text calls it: that of its module."""

    def apply(self, program: Program, target: Target) -> Program:
        """The program after this pass."""


DEFAULT_PASSES: tuple[ProgramPass, ...] = (Fuse(), Elide(), Sync(), Scratch(), Prune())
"""Fuse what comes in and goes out, drop copies nobody reads, then waits and scratch in excess."""


def run_pipeline(
    program: Program,
    target: Target,
    passes: Iterable[ProgramPass] = DEFAULT_PASSES,
    *,
    verify: Callable[[Program], None] | None = None,
    observe: Callable[[str, Program], None] | None = None,
) -> Program:
    """Run the passes; ``verify`` raises when a program is wrong, ``observe`` sees each result.

    A pass that changes nothing returns the program it was given, which is not proved again.

    Raises:
        CheckFailed: a pass produced a wrong program; names the pass.
    """
    _verified(program, "weave", verify)
    for one in passes:
        before, program = program, one.apply(program, target)
        if program is not before:
            _verified(program, one.name, verify)
        if observe is not None:
            observe(one.name, program)
    return program


def _verified(program: Program, name: str, verify: Callable[[Program], None] | None) -> None:
    if verify is None:
        return
    try:
        verify(program)
    except CheckFailed as error:
        raise CheckFailed(
            f"after the pass {name}: {error.message}", where=error.where, hint=error.hint
        ) from error
