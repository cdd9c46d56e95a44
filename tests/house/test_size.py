"""A function fits a screen, a file has one idea, and the formatter writes both."""

from functools import cache

import pytest

from measure import sizes
from measure.ratchets import ratchets, require_within
from measure.sizes import FILE_LIMIT, FUNCTION_LIMIT
from measure.tree import Tree, formatted, without_pragmas
from sources import ROOT, Source, parse

TREE = Tree(ROOT)


@cache
def formatted_tests() -> tuple[Source, ...]:
    return formatted(TREE.tests, ROOT)


def test_the_code_keeps_the_limits_as_the_formatter_writes_it() -> None:
    require_within([*sizes.as_formatted(TREE), *sizes.typography(TREE)], ratchets("size"))


def test_no_function_of_the_tests_is_too_long() -> None:
    found = [at for source in formatted_tests() for at in sizes.long_functions(source)]
    assert len(found) <= ratchets("size")["test_function_code_over"], found


def test_no_file_of_the_tests_is_too_long() -> None:
    found = [str(s) for s in formatted_tests() if sizes.lines(s) > FILE_LIMIT]
    assert len(found) <= ratchets("size")["test_file_over_900"], found


def _function(code: int) -> Source:
    body = [
        '    """Two lines',
        '    of prose."""',
        "    # a comment",
        "",
        *["    f()"] * (code - 1),
    ]
    return parse("\n".join(["def f():", *body]), "dsl/a.py")


def test_the_rule_counts_code_only() -> None:
    assert list(sizes.long_functions(_function(FUNCTION_LIMIT))) == []
    assert list(sizes.long_functions(_function(FUNCTION_LIMIT + 1))) == [
        f"dsl/a.py:1: f has {FUNCTION_LIMIT + 1} code lines"
    ]


SKIP = "# fmt: " + "skip"  # in two words, or this file would count


@pytest.mark.parametrize("pragma", [SKIP, "# fmt: " + "off"])
def test_the_rule_sees_what_keeps_the_formatter_away(pragma: str) -> None:
    source = parse(f"x = (1,\n     2)  {pragma}\ny = '{pragma}'\n", "dsl/a.py")
    assert sizes.fmt_skips((source,)) == ("dsl/a.py:2",)
    assert without_pragmas(source) == f"x = (1,\n     2)\ny = '{pragma}'\n"


def test_the_formatter_writes_what_was_packed_by_hand() -> None:
    packed = parse(f"x = f(\n    a, b,\n    c,\n)  {SKIP}\n", "dsl/a.py")
    (found,) = formatted((packed,), ROOT)
    assert found.text == "x = f(\n    a,\n    b,\n    c,\n)\n"
