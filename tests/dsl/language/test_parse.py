"""What the grammar reads, and what it says about what it cannot read."""

from textwrap import dedent

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import SeveralErrors, SyntaxProblem, UserError
from weft.dsl.language import ast
from weft.dsl.language.ast import RangeList
from weft.dsl.language.build import MAX_DEPTH
from weft.dsl.language.format import format
from weft.dsl.language.load import find_sketch
from weft.dsl.language.parse import parse


def only_line(text: str) -> ast.Statement:
    """The one statement of a sketch."""
    (line,) = parse(f"sketch x\n{text}\n").statements
    return line


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("1+2*3", "1+(2*3)"),
        ("8-4-2", "(8-4)-2"),
        ("6//2p", "6//(2*p)"),
        ("2p+1", "(2*p)+1"),
        ("(p+1)%8", "(p+1)%8"),
        ("7//2%3", "(7//2)%3"),
    ],
)
def test_arithmetic_groups_as_in_python(text: str, means: str) -> None:
    assert only_line(f"chunks {text}") == only_line(f"chunks {means}")


def test_blocks_nest_by_indentation() -> None:
    text = dedent("""\
        sketch x
        between nodes:
            for p in 0..1:
                relay p through p -> p

                max hops 1
            only links 0 -> 0
        chunks 1
    """)
    between, chunks = parse(text).statements
    assert isinstance(between, ast.RuleBlock)
    loop, only = between.body
    assert isinstance(loop, ast.RuleBlock)
    assert [type(x) for x in loop.body] == [ast.RelayRule, ast.MaxHopsRule]
    assert isinstance(only, ast.OnlyRule)
    assert isinstance(chunks, ast.ChunksRule)


def test_windows_line_ends_and_tabs_read_the_same() -> None:
    text = "sketch x\nwithin node:\n    only links 0 -> 1\n    max hops 2\n"
    other = text.replace("    ", "\t").replace("\n", "\r\n")
    assert parse(other) == parse(text)


def test_every_node_knows_where_it_stands() -> None:
    text = "sketch x  # a comment\nfor p in 0..7: relay (2p, 2p+1) through 2p+1 -> 2p  # why\n"
    tree = parse(text, "a.sketch")
    assert tree.span is not None
    assert tree.span.text == "sketch x"
    (loop,) = tree.statements
    assert isinstance(loop, ast.RuleBlock)
    (relay,) = loop.body
    assert isinstance(relay, ast.RelayRule)
    assert isinstance(relay.sources, RangeList)
    spans = [loop.head.span, relay.span, relay.sources.items[1].span, relay.through[0].dst.span]
    assert [s.text for s in spans if s is not None] == [
        "for p in 0..7",
        "relay (2p, 2p+1) through 2p+1 -> 2p",
        "2p+1",
        "2p",
    ]
    assert str(relay.span) == "a.sketch:2:16"


# ---- errors: the whole text that a person sees


DEEP = "".join(" " * i + "within node:\n" for i in range(300)) + " " * 300 + "max hops 1"


@pytest.mark.parametrize(
    "text",
    [
        "sketch x\nchunks " + "1+" * 5000 + "1",
        "sketch x\n" + "for p in 0..1: " * 500 + "max hops 1",
        "sketch x\n" + DEEP,
    ],
    ids=["sum", "loops", "blocks"],
)
def test_absurd_nesting_is_refused(text: str) -> None:
    with pytest.raises(SyntaxProblem, match="nested too deeply"):
        parse(text)


def test_parentheses_are_no_nesting() -> None:
    depth = 10 * MAX_DEPTH
    assert only_line("chunks " + "(" * depth + "7" + ")" * depth) == only_line("chunks 7")


SHIPPED = find_sketch("dgx2_relay").text
PIECES = st.sampled_from(
    [
        "",
        " ",
        "\n",
        "    ",
        "#",
        '"',
        "->",
        "..",
        "(",
        ")",
        ",",
        ":",
        "0",
        "2p",
        "any",
        "except",
        "only links",
        "for p in 0..3:",
        "within node:",
        "symmetry:",
        "as",
        "\t",
        "\r",
        "é",
        "\0",
    ]
)


@settings(max_examples=examples(47, 150))
@given(st.data())
def test_a_damaged_sketch_is_read_or_refused_in_words(data: st.DataObject) -> None:
    text = SHIPPED
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 6)))
        text = text[:at] + data.draw(PIECES) + text[end:]
    try:
        tree = parse(text)
    except UserError as error:
        shown = error.render()
    else:
        shown = format(tree)
        assert parse(shown) == tree
    assert shown


def test_all_errors_of_a_text_come_at_once_and_in_order() -> None:
    text = dedent("""\
        scetch x
        forbit links 0 -> 1
        size 3
        max hops
        fro p in 0..7:
            max hops p
            max hops p
        chunks 2 3
    """)
    with pytest.raises(SeveralErrors) as caught:
        parse(text, "f")
    places = [str(e.where) for e in caught.value.errors]
    assert places == ["f:1:1", "f:2:1", "f:3:6", "f:4:9", "f:5:1", "f:8:10"]
    assert caught.value.message == "expected 'sketch', found 'scetch' (and 5 more)"
    assert caught.value.render().count("error: ") == 6
