"""What the grammar reads, and what it says about what it cannot read."""

from __future__ import annotations

from textwrap import dedent

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import SeveralErrors, SyntaxProblem, UserError, WeftError
from weft.dsl.language import ast
from weft.dsl.language.ast import Binary, Name, Number, Operator, Pair, Range, RangeList
from weft.dsl.language.build import MAX_DEPTH
from weft.dsl.language.format import format
from weft.dsl.language.load import find_sketch
from weft.dsl.language.parse import parse


def only_line(text: str) -> ast.Statement:
    """The one statement of a sketch."""
    (line,) = parse(f"sketch x\n{text}\n").statements
    return line


TWO_P = Binary(Operator.MULTIPLY, Number(2), Name("p"))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("machine dgx1", ast.MachineLine("dgx1")),
        ("machine dgx-a100:nodes=4,bw=25GB/s", ast.MachineLine("dgx-a100:nodes=4,bw=25GB/s")),
        ("machine torus:4x4", ast.MachineLine("torus:4x4")),
        (
            'machine dgx2(nodes, nics = 2k, fabric = "star")',
            ast.MachineLine(
                "dgx2",
                (
                    ast.Argument("nodes"),
                    ast.Argument("nics", Binary(Operator.MULTIPLY, Number(2), Name("k"))),
                    ast.Argument("fabric", ast.Quoted("star")),
                ),
            ),
        ),
        ("collective reduce_scatter", ast.CollectiveLine("reduce_scatter")),
        ("size 1MiB..1GiB", ast.SizeLine(1 << 20, 1 << 30)),
        ("size 1.5KB", ast.SizeLine(1500, 1500)),
        ("chunks 2", ast.ChunksRule(Number(2))),
        ("max hops 3", ast.MaxHopsRule(Number(3))),
        ("max steps 4", ast.MaxStepsRule(Number(4))),
        (
            "only links 0 -> 3, 1 <-> 2",
            ast.OnlyRule(
                ast.Selection((Pair(Number(0), Number(3)), Pair(Number(1), Number(2), True)))
            ),
        ),
        (
            "forbid links between nodes except same local rank, within node",
            ast.ForbidRule(
                ast.Selection((ast.BetweenNodes(),), (ast.SameLocalRank(), ast.WithinNode()))
            ),
        ),
        (
            'forbid links any -> (0, 2..4), gpu0 -> "leaf-3", 1..2 -> nic0.1',
            ast.ForbidRule(
                ast.Selection(
                    (
                        Pair(ast.Any(), RangeList((Number(0), Range(Number(2), Number(4))))),
                        Pair(Name("gpu0"), ast.Quoted("leaf-3")),
                        Pair(Range(Number(1), Number(2)), Name("nic0.1")),
                    )
                )
            ),
        ),
        (
            "relay 0,1,2 through 1 -> 0, 3 -> 2, own data first",
            ast.RelayRule(
                RangeList((Number(0), Number(1), Number(2))),
                (Pair(Number(1), Number(0)), Pair(Number(3), Number(2))),
                True,
            ),
        ),
        ("relay any through 0 -> 1", ast.RelayRule(ast.Any(), (Pair(Number(0), Number(1)),))),
        ("switch nvswitch: few peers", ast.SwitchRule(Name("nvswitch"), ast.Few())),
        ("switch any: many peers", ast.SwitchRule(ast.Any(), ast.Many())),
        (
            "switch any: reduce",
            ast.SwitchRule(ast.Any(), ast.UseOnly(ast.SwitchUse.REDUCE)),
        ),
        (
            "switch rail0: multicast",
            ast.SwitchRule(Name("rail0"), ast.UseOnly(ast.SwitchUse.MULTICAST)),
        ),
        ("switch off: off", ast.SwitchRule(Name("off"), ast.UseOnly(ast.SwitchUse.OFF))),
        (
            "switch rail0: groups at most 2",
            ast.SwitchRule(Name("rail0"), ast.GroupsAtMost(Number(2))),
        ),
        (
            'switch "leaf-3": at most 4 peers',
            ast.SwitchRule(ast.Quoted("leaf-3"), ast.AtMost(Number(4))),
        ),
        (
            "symmetry: rotate 2 within node, rotate nodes, rotate nodes by 2, rotate 1",
            ast.SymmetryRule(
                (
                    ast.Rotate(Number(2), within_node=True),
                    ast.RotateNodes(),
                    ast.RotateNodes(Number(2)),
                    ast.Rotate(Number(1)),
                )
            ),
        ),
        (
            "symmetry: rotate 1 in blocks of 4, permute (0 1 2p)(4 (p+1)) within node",
            ast.SymmetryRule(
                (
                    ast.Rotate(Number(1), blocks=Number(4)),
                    ast.Permute(
                        (
                            (Number(0), Number(1), TWO_P),
                            (Number(4), Binary(Operator.ADD, Name("p"), Number(1))),
                        ),
                        True,
                    ),
                )
            ),
        ),
        (
            "send chunk 0 of rank 2 to rank 5 over 2 -> 3 at step 1",
            ast.SendRule(Number(0), Number(2), Number(5), Number(2), Number(3), Number(1)),
        ),
        (
            "never send any chunk of rank 2 over 2 -> 3",
            ast.SendRule(None, Number(2), None, Number(2), Number(3), never=True),
        ),
        (
            'send every chunk of rank 0 over 0 -> 1 as "the \\"first\\" one"',
            ast.SendRule(None, Number(0), None, Number(0), Number(1), label='the "first" one'),
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_line_reads_as(text: str, tree: ast.Statement) -> None:
    assert only_line(text) == tree


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

ERRORS = [
    (
        "",
        """\
        error: expected 'sketch', found the end of the file
         --> f:1:1
          |
        1 |
          | ^""",
    ),
    (
        "forbid links 0 -> 1",
        """\
        error: expected 'sketch', found 'forbid'
         --> f:1:1
          |
        1 | forbid links 0 -> 1
          | ^^^^^^""",
    ),
    (
        "sketch x\nforbit links 0 -> 1",
        """\
        error: expected a rule or a header, found 'forbit'
         --> f:2:1
          |
        2 | forbit links 0 -> 1
          | ^^^^^^

        hint: did you mean 'forbid'?""",
    ),
    (
        "sketch x\nforbid link 0 -> 1",
        """\
        error: expected 'links', found 'link'
         --> f:2:8
          |
        2 | forbid link 0 -> 1
          |        ^^^^

        hint: did you mean 'links'?""",
    ),
    (
        "sketch x\nforbid links 0 1",
        """\
        error: expected '->', '<->' or '..', found '1'
         --> f:2:16
          |
        2 | forbid links 0 1
          |                ^""",
    ),
    (
        "sketch x\nforbid links 0 ->   # nothing\nchunks 1",
        """\
        error: expected a number, a name or 'any', found the end of the line
         --> f:2:18
          |
        2 | forbid links 0 ->   # nothing
          |                  ^""",
    ),
    (
        "sketch x\nswitch nvswitch: fev peers",
        """\
        error: expected 'at', 'few', 'groups', 'many', 'multicast', 'off' or 'reduce', found 'fev'
         --> f:2:18
          |
        2 | switch nvswitch: fev peers
          |                  ^^^

        hint: did you mean 'few'?""",
    ),
    (
        "sketch x\nsize 1MiX",
        """\
        error: unknown unit 'MiX' in size '1MiX'
         --> f:2:6
          |
        2 | size 1MiX
          |      ^^^^

        hint: did you mean 'MiB'?""",
    ),
    (
        "sketch x\nsize 2MiB..1MiB",
        """\
        error: not a valid range of message sizes
         --> f:2:1
          |
        2 | size 2MiB..1MiB
          | ^^^^^^^^^^^^^^^

        hint: sizes are positive, the smaller one first: size 1KiB..1GiB""",
    ),
    (
        "sketch x\ncollective allgater",
        """\
        error: unknown collective 'allgater'
         --> f:2:12
          |
        2 | collective allgater
          |            ^^^^^^^^

        hint: did you mean 'allgather' or 'gather'?""",
    ),
    (
        "sketch x\nchunks 1\n\nchunks 2",
        """\
        error: 'chunks' is given twice, first on line 2
         --> f:4:1
          |
        4 | chunks 2
          | ^^^^^^^^

        hint: keep one of them""",
    ),
    (
        "sketch x(p, p = 2)",
        """\
        error: the parameter 'p' is defined twice
         --> f:1:13
          |
        1 | sketch x(p, p = 2)
          |             ^^^^^""",
    ),
    (
        "sketch x\nwithin node:\n    machine dgx1",
        """\
        error: expected a rule, found 'machine'
         --> f:3:5
          |
        3 |     machine dgx1
          |     ^^^^^^^

        hint: 'machine' is at the left margin, outside all blocks""",
    ),
    (
        "sketch x\n  chunks 2",
        """\
        error: this line is indented, but no block begins above it
         --> f:2:3
          |
        2 |   chunks 2
          |   ^^^^^^

        hint: blocks begin with 'between nodes:', 'within node:', 'for … in …:' or 'phases:'""",
    ),
    (
        "sketch x\nwithin node:\n        max hops 1\n    max hops 2",
        """\
        error: the indentation matches no line above
         --> f:4:5
          |
        4 |     max hops 2
          |     ^^^

        hint: indent a line like its neighbours in the block""",
    ),
    (
        "sketch x\nfor p in 0..3:\nchunks 2",
        """\
        error: expected an indented line, found 'chunks'
         --> f:3:1
          |
        3 | chunks 2
          | ^^^^^^

        hint: what belongs to a line that ends in ':' is indented below it""",
    ),
    (
        "sketch x\nfor p in 0..3:\n",
        """\
        error: expected an indented line, found the end of the file
         --> f:2:15
          |
        2 | for p in 0..3:
          |               ^

        hint: what belongs to a line that ends in ':' is indented below it""",
    ),
    (
        "sketch x\nfor within in 0..3: max hops 1",
        """\
        error: expected a name, found 'within'
         --> f:2:5
          |
        2 | for within in 0..3: max hops 1
          |     ^^^^^^""",
    ),
    (
        'sketch x\nmax hops 2 as "short',
        """\
        error: a quotation mark that is not closed, or quotes nothing
         --> f:2:15
          |
        2 | max hops 2 as "short
          |               ^

        hint: quotes open and close on one line""",
    ),
    (
        "sketch x\nmax hops 99999999999",
        """\
        error: the number is too large
         --> f:2:10
          |
        2 | max hops 99999999999
          |          ^^^^^^^^^^^""",
    ),
    (
        "sketch x\nmax hops 2 3",
        """\
        error: expected the end of the line or 'as', found '3'
         --> f:2:12
          |
        2 | max hops 2 3
          |            ^""",
    ),
    (
        "sketch x\nmachine",
        """\
        error: expected a machine such as dgx2:nodes=2, found the end of the line
         --> f:2:8
          |
        2 | machine
          |        ^""",
    ),
    (
        "sketch x\nforbidlinks 0 -> 1",
        """\
        error: expected a rule or a header, found 'forbidlinks'
         --> f:2:1
          |
        2 | forbidlinks 0 -> 1
          | ^^^^^^^^^^^

        hint: did you mean 'forbid'?""",
    ),
]


def rendered(error: WeftError) -> str:
    """As shown, without spaces at line ends."""
    return "\n".join(line.rstrip() for line in error.render().split("\n"))


@pytest.mark.parametrize(("text", "shown"), ERRORS, ids=[t[-24:] for t, _ in ERRORS])
def test_an_error_says_what_where_and_what_was_expected(text: str, shown: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, "f")
    assert rendered(caught.value) == dedent(shown)
    assert caught.value.exit_code == 2


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


def test_errors_of_grammar_and_of_meaning_are_reported_together() -> None:
    with pytest.raises(SeveralErrors) as caught:
        parse("sketch x\ncollective alltoal\nmax hop 2\nsize 3\n", "f")
    assert [str(e.where) for e in caught.value.errors] == ["f:2:12", "f:3:5", "f:4:6"]


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
