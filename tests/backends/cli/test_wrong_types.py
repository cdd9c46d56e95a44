"""Values of another type, given to functions of the Python face, and hints that help."""

from collections.abc import Callable
from typing import Any

import pytest

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
