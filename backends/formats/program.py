"""weft's own program file as a format: the compiler's output, for other tools and for later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from weft.dsl.base.files import parse_json
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.program import dump, load

from .format import ProgramFormat

if TYPE_CHECKING:
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.runtime import Target


@dataclass(frozen=True, slots=True)
class ProgramFile(ProgramFormat):
    """The program itself as JSON (docs/formats.md); good for every message size."""

    name: ClassVar[str] = "program"
    noun: ClassVar[str] = "program"
    suffix: ClassVar[str] = ".json"
    no_casts: ClassVar[str] = "a program is of sends and receives"
    says_kind: ClassVar[bool] = True

    def read(self, text: str, where: str) -> Program:
        return load(parse_json(text, where), where)

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        return json.dumps(dump(program), separators=(",", ":")) + "\n"

    def checked(self, target: str) -> str:
        return self.name
