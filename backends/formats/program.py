"""weft's own program file as a backend: what the compiler made, for other tools and for later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from weft.dsl.base.progress import Telling, silent
from weft.dsl.base.units import SizeRange

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program

    from ..check import Finding
    from ..execute import Execution
    from ..runtime.target import Target


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """The program itself as JSON (docs/formats.md); good for every message size."""

    name: ClassVar[str] = "program"

    @classmethod
    def availability(cls) -> str | None:
        """Nothing is needed to write text."""
        return None

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """The JSON text; the sizes make no difference to it."""
        from weft.dsl.nouns.program import dump

        return json.dumps(dump(program), separators=(",", ":")) + "\n"

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        """What the program checker finds in the file."""
        from ..check import check_program

        return check_program(_read(text, where), target)

    def execute(
        self,
        text: str,
        where: str,
        collective: Collective,
        *,
        interleavings: int,
        seed: int,
        tell: Telling = silent,
    ) -> Execution:
        """Run the program in the interpreter."""
        from ..execute import run_program

        return run_program(_read(text, where), interleavings=interleavings, seed=seed, tell=tell)


def _read(text: str, where: str) -> Program:
    from weft.dsl.base.files import parse_json
    from weft.dsl.nouns.program import load

    return load(parse_json(text, where), where)
