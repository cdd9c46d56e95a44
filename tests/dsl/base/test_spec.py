from __future__ import annotations

import string
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import SyntaxProblem, UnknownName, UserError
from weft.dsl.base.spec import build, format_spec, option_texts, parse_spec, parse_specs


class Colour(StrEnum):
    RED = "red"
    DARK_BLUE = "dark-blue"


@dataclass(frozen=True)
class Sample:
    trees: int = 1
    ratio: Fraction = Fraction(1, 2)
    weight: float = 1.0
    max_height: int | None = None
    colour: Colour = Colour.RED
    solver: Literal["cp-sat", "z3"] = "cp-sat"
    fast: bool = False
    label: str = "x"
    engines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Needy:
    count: int
    extra: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class Picky:
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError("count must be positive")


@dataclass(frozen=True)
class Knobs:
    passes: int = field(default=4, metadata={"doc": "passes over the columns"})
    max_share: float = 0.5


@dataclass(frozen=True)
class Tunable:
    """An engine whose search can be tuned.

    Options:
        trees: trees per root;
            0 chooses.
    """

    trees: int = 1
    effort: Knobs = Knobs()


def of(text: str) -> Sample:
    return build(parse_spec(text), Sample)


def test_every_type_of_option() -> None:
    text = (
        "sample{trees=4, ratio=7/6, weight=2.5, max-height=none, colour=dark-blue, solver=z3,"
        " fast=yes, label=a-b.c, engines=classic+exact{solver=z3,steps=1+2}+greedy}"
    )
    assert of(text) == Sample(
        4,
        Fraction(7, 6),
        2.5,
        None,
        Colour.DARK_BLUE,
        "z3",
        True,
        "a-b.c",
        ("classic", "exact{solver=z3,steps=1+2}", "greedy"),
    )


def test_underscores_and_hyphens_name_one_option() -> None:
    assert of("sample{max_height=3}") == of("sample{max-height=3}") == Sample(max_height=3)


def test_only_what_differs_is_printed() -> None:
    assert format_spec(Sample(), "sample") == "sample"
    assert (
        format_spec(Sample(fast=True, max_height=2), "sample") == "sample{max-height=2,fast=true}"
    )
    assert format_spec(Needy(3), "needy") == "needy{count=3}"


SAMPLES = st.builds(
    Sample,
    trees=st.integers(-(10**9), 10**9),
    ratio=st.fractions(max_denominator=10**6, min_value=-1000, max_value=1000),
    weight=st.floats(allow_nan=False, allow_infinity=False, width=32),
    max_height=st.none() | st.integers(0, 100),
    colour=st.sampled_from(Colour),
    solver=st.sampled_from(["cp-sat", "z3"]),
    fast=st.booleans(),
    label=st.text(string.ascii_letters + string.digits + "-._/:", min_size=1),
    engines=st.lists(st.sampled_from(["a", "b{x=1,y=2}", "c"]), max_size=3).map(tuple),
)


@given(SAMPLES)
def test_what_is_printed_reads_back(sample: Sample) -> None:
    assert of(format_spec(sample, "sample")) == sample


def test_a_list_of_specs_splits_outside_braces() -> None:
    specs = parse_specs("channels, threadblocks{policy=auto,limit=2},fuse")
    assert [str(s) for s in specs] == ["channels", "threadblocks{policy=auto,limit=2}", "fuse"]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "a name is expected"),
        ("{a=1}", 1, "a name is expected"),
        ("sample{trees=4", 7, "never closed"),
        ("sample}", 7, "unmatched closing brace"),
        ("sample{trees}", 8, "option=value"),
        ("sample{trees=1,trees=2}", 16, "given twice"),
        ("sample{trees=1}x", 7, "braces"),
        ("sample,other", 8, "one name"),
        ("sample{=3}", 8, "option=value"),
        ("sample{,}", 8, "option=value"),
    ],
)
def test_a_slip_is_pointed_at(text: str, column: int, message: str) -> None:
    with pytest.raises(SyntaxProblem, match=message) as caught:
        parse_spec(text, "--engine")
    assert str(caught.value.where) == f"--engine:1:{column}"


def test_an_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        of("sample{tres=4}")
    assert caught.value.hint == "did you mean 'trees'?"
    assert caught.value.where is not None
    assert "^^^^" in caught.value.render()


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("trees=x", "an integer"),
        ("trees=1.5", "an integer"),
        ("trees=" + "9" * 70, "sensible size"),
        ("ratio=1/0", "7/6"),
        ("weight=nan", "finite"),
        ("weight=inf", "finite"),
        ("weight=1e99999", "sensible size"),
        ("max-height=tall", "an integer"),
        ("colour=blue", "one of red, dark-blue"),
        ("solver=z4", "one of cp-sat, z3"),
        ("fast=maybe", "true or false"),
        ("label=", "a text"),
    ],
)
def test_a_value_of_the_wrong_type_says_what_is_wanted(option: str, wanted: str) -> None:
    with pytest.raises(UserError, match=wanted) as caught:
        of(f"sample{{{option}}}")
    assert caught.value.where is not None


def test_a_required_option_is_asked_for() -> None:
    assert build(parse_spec("needy{count=2,extra=1+2}"), Needy) == Needy(2, (1, 2))
    with pytest.raises(UserError, match="needs the option 'count'"):
        build(parse_spec("needy"), Needy)


def test_an_error_of_the_class_itself_gets_a_place() -> None:
    with pytest.raises(UserError, match="positive") as caught:
        build(parse_spec("picky{count=0}"), Picky)
    assert str(caught.value.where) == "spec:1:1"


def test_options_of_a_group_are_written_with_a_dot() -> None:
    built = build(parse_spec("tunable{effort.max-share=0.25, trees=2, effort.passes=8}"), Tunable)
    assert built == Tunable(2, Knobs(8, 0.25))
    assert format_spec(built, "tunable") == "tunable{trees=2,effort.passes=8,effort.max-share=0.25}"
    assert format_spec(Tunable(effort=Knobs()), "tunable") == "tunable"
    assert build(parse_spec("tunable{effort.max_share=1}"), Tunable).effort == Knobs(4, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        "tunable{effort.passs=1}",
        "tunable{efort.passes=1}",
        "tunable{passes=1}",
        "tunable{effort=1}",
    ],
)
def test_an_unknown_option_of_a_group_suggests_the_nearest(text: str) -> None:
    with pytest.raises(UnknownName, match="unknown option of tunable") as caught:
        build(parse_spec(text), Tunable)
    assert text == "tunable{effort=1}" or "did you mean 'effort.passes'" in str(caught.value.hint)


def test_a_wrong_value_in_a_group_is_named_in_full() -> None:
    with pytest.raises(UserError, match=r"effort\.passes must be an integer, not 'x'"):
        build(parse_spec("tunable{effort.passes=x}"), Tunable)


def test_options_in_words() -> None:
    assert [(o.name, o.default, o.doc) for o in option_texts(Tunable)] == [
        ("trees", "1", "trees per root; 0 chooses"),
        ("effort.passes", "4", "passes over the columns"),
        ("effort.max-share", "0.5", "a number"),
    ]
    assert [(o.name, o.default) for o in option_texts(Needy)] == [("count", None), ("extra", "")]


def test_an_option_without_a_meaning_is_described_by_its_values() -> None:
    assert {o.name: o.doc for o in option_texts(Sample)} == {
        "trees": "an integer",
        "ratio": "a number such as 7/6",
        "weight": "a number",
        "max-height": "an integer or none",
        "colour": "one of red, dark-blue",
        "solver": "one of cp-sat, z3",
        "fast": "true or false",
        "label": "a text",
        "engines": "a text, or several joined by +",
    }
