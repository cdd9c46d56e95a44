"""Requests of the compiler's front end to a format, and the artefacts it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from weft.dsl.base.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from weft.dsl.base.units import SizeRange
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.runtime import Target

    from ..check.checks import Check


@dataclass(frozen=True, slots=True)
class Request:
    """Something to compile: the noun itself, or its program for a target, compiled on demand.

    ``to``: the format as requested. ``where``: the file, for errors. ``module``: the Python
    name of the file to be written. ``output``: its path, or the prefix of several files.
    ``instances``: as requested; 0: not at all. ``provenance``: lines for people.
    """

    noun: Any = None
    program: Callable[[], Program] | None = None
    target: Target | None = None
    sizes: SizeRange | None = None
    to: str = ""
    name: str = ""
    in_place: bool = False
    segments: int = 1
    instances: int = 0
    where: str = ""
    module: str = ""
    output: str = ""
    provenance: tuple[str, ...] = ()


def shape(program: Program) -> dict[str, Any]:
    """Return the numbers by which people know a program, for ``--json``."""
    return {
        "protocol": str(program.protocol),
        "in_place": program.in_place,
        "chunks": program.message_chunks,
        "channels": program.channels,
        "thread_blocks": max(len(rank.blocks) for rank in program.ranks),
        "instructions": program.instructions,
    }


@dataclass(frozen=True, slots=True)
class ProvedArtefact:
    """An artefact, proved: its text, the program or script in it, words about it.

    ``lowered``: its size. ``checked``: what was judged, and ``check`` the entry of ``checks``.
    ``told``: more lines for people, each with its label.
    """

    text: str
    code: Any
    lowered: str
    checked: str
    check: Check
    facts: dict[str, Any] = field(default_factory=dict)
    told: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"<ProvedArtefact: {self.lowered}>"
