"""Broken sketches, each with all that is said about it: line, caret, expectation, hint.

They stand in ``golden/broken_sketches.txt``: a title, the sketch, and below ``---`` what it gets.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import machine_of
from weft.dsl.language.lint import lint
from weft.dsl.language.parse import parse

GOLDEN = Path(__file__).parents[2] / "golden" / "broken_sketches.txt"
CASES = re.findall(
    r"^=== (.*)\n((?:(?!---$|===).*\n)*)---\n((?:(?!===).*\n)*)",
    GOLDEN.read_text(encoding="utf-8"),
    re.MULTILINE,
)


def said(text: str) -> str:
    """The error, or the warnings, as a person reads them."""
    try:
        tree = parse(text, "a.sketch")
        machine = machine_of(tree) or topology("dgx1")
        return "\n\n".join(finding.render() for finding in lint(tree, machine))
    except UserError as error:
        return error.render()


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_broken_sketch_gets_its_message(text: str, expected: str) -> None:
    assert said(text) + "\n" == expected


def test_the_file_is_whole() -> None:
    """WEFT_GOLDEN=write rewrites it; read the difference before you commit it."""
    assert len(CASES) >= 50
    whole = "".join(f"=== {title}\n{text}---\n{said(text)}\n" for title, text, _ in CASES)
    if os.environ.get("WEFT_GOLDEN") == "write":
        GOLDEN.write_text(whole, encoding="utf-8")
    assert whole == GOLDEN.read_text(encoding="utf-8")
