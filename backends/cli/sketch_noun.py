"""Sketches as files: linted on a machine."""

from __future__ import annotations

from weft.dsl.language.format import format
from weft.dsl.language.parse import parse

from ..check.checks import Check
from .console import Console
from .flags.files import CheckFlags
from .flags.values import split_arguments
from .noun import FileKind, Noun, Subject
from .sketches import lint_sketch


class SketchNoun(Noun):
    """Sketches in weft's language."""

    kind = FileKind.SKETCH

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Return errors and warnings of a sketch on its own machine or that of ``-t``."""
        arguments = split_arguments(args.file)[1]
        return lint_sketch(parse(subject.text, subject.where), arguments, args.topology)

    def comparable(self, subject: Subject) -> str:
        """Return the sketch in canonical form, so that its layout makes no difference."""
        return format(parse(subject.text, subject.where))
