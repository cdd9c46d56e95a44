"""Values of another type, given to functions of the Python face, and hints that help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import Weft

import weft as face
from weft.dsl.base.errors import WrongType


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f.check_program("x"),
        lambda f: f.simulate_program(None, None, 1024),
        lambda f: f.emit_msccl_xml(1, "msccl"),
        lambda f: f.run_msccl_xml(1, "a.xml"),
        lambda f: f.run_msccl_xml("<algo/>", None),
        lambda f: f.write_schedule("a.json", "x"),
        lambda f: f.Budget("x"),
        lambda f: f.Budget(1, threads="x"),
        lambda f: f.Budget(1, seconds="x"),
        lambda f: f.Budget(True),
    ],
)
def test_wrong_types_are_told(call: Callable[[Any], object]) -> None:
    with pytest.raises(WrongType):
        call(face)


@pytest.mark.parametrize(
    ("size", "hint"), [("64GiB", "--segments 11 cuts"), ("1024TiB", "no --segments is enough")]
)
def test_the_hint_of_a_large_goal_message_helps(
    weft: Weft, triangle: Path, size: str, hint: str
) -> None:
    told = weft("compile", triangle, "--to", "goal", "--size", size)
    assert told.code == 2
    assert hint in told.err
