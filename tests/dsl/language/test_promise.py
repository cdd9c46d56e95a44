"""The promise at the head of a sketch: read, and refused where it cannot be read."""

from fractions import Fraction

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.language.load import Promise, promised
from weft.dsl.language.parse import parse


def test_a_promise_is_read_wherever_it_stands_in_the_comment() -> None:
    text = (
        "# A ring.\n# Promise: alltoall of 64KiB within 1.5% of the bound under its\n"
        "# rules in 500ms.\n# Source: ours.\nsketch x\n"
    )
    wanted = Promise("alltoall", 64 << 10, Fraction(3, 200), 0.5, ruled=True)
    assert promised(parse(text)) == wanted


def test_a_sketch_need_not_promise_anything() -> None:
    assert promised(parse("# A ring.\nsketch x\n")) is None


@pytest.mark.parametrize(
    "line", ["Promise: soon.", "Promise: allgather of 1MiB within 2 of the bound in 5s."]
)
def test_a_promise_in_other_words_is_an_error(line: str) -> None:
    with pytest.raises(UserError, match="cannot be read") as caught:
        promised(parse(f"# {line}\nsketch x\n"))
    assert "within 2% of the bound" in caught.value.hint
