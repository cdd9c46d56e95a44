"""Every sketch on the page of the language is canonical and holds on the machine it names."""

import re
from pathlib import Path

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.language import ast
from weft.dsl.language.elaborate import elaborate, machine_text
from weft.dsl.language.format import format
from weft.dsl.language.lint import lint
from weft.dsl.language.parse import parse

PAGE = Path(__file__).parents[3] / "docs" / "sketch.md"
SKETCHES = re.findall(r"```sketch\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", SKETCHES, ids=lambda t: parse(t).name)
def test_a_sketch_of_the_page_holds(text: str) -> None:
    tree = parse(text, PAGE.name)
    assert format(tree) == text
    machine = topology(machine_text(tree))
    assert elaborate(tree, machine).rules
    assert lint(tree, machine) == ()


def test_the_page_shows_every_kind_of_rule() -> None:
    shown = {type(rule) for text in SKETCHES for rule in parse(text).rules()}
    assert shown == set(ast.Rule.__args__)
