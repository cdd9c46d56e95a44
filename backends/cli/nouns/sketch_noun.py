"""Sketches as files: linted on a machine."""

from __future__ import annotations

from weft.dsl.language.format import format
from weft.dsl.language.parse import parse

from ...check.checks import Check
from ...formats.listings import Sheets
from ...report.sheets import text_sheets
from ..flags.files import CheckFlags, DiffFlags
from ..flags.values import split_arguments
from ..inputs.sketches import lint_sketch
from ..output.console import Console
from .noun import FileKind, Noun, Subject


class SketchNoun(Noun):
    """Sketches in weft's language."""

    kind = FileKind.SKETCH

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Return errors and warnings of a sketch on its own machine or that of ``-t``."""
        arguments = split_arguments(args.file)[1]
        return lint_sketch(parse(subject.text, subject.where), arguments, args.topology)

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return the lines of the canonical form, so that layout makes no difference."""
        return text_sheets(format(parse(subject.text, subject.where)))
