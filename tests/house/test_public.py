"""What a module promises in `__all__` exists, once, in order."""

import ast
import re
from importlib import import_module

import pytest

import weft
from sources import Source, code

CURATED_LIMIT = 72  # the root is a face, not a heap: nouns, verbs, collectives by name


def promises(source: Source) -> bool:
    """Whether the file assigns `__all__` at its top level.

    Asked when tests are collected, by every process of a run: most files need no syntax tree.
    """
    if "__all__" not in source.text:
        return False
    targets = {
        ast.unparse(target)
        for node in source.tree.body
        for target in (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
    }
    return "__all__" in targets


def order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Constants, then classes, then the rest, numbers by value: the order that ruff keeps."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    parts = re.findall(r"\d+|\D+", name)
    return kind, [(int(p), "") if p.isdigit() else (-1, p) for p in parts]


@pytest.mark.parametrize(
    "name", [s.module for s in code() if promises(s) and s.module != "weft.backends._root"]
)
def test_all_is_sorted_and_resolves(name: str) -> None:
    check(name)


def test_the_public_face_is_sorted_and_resolves() -> None:
    check("weft")
    assert len(weft.__all__) <= CURATED_LIMIT


def check(name: str) -> None:
    module = import_module(name)
    names = list(module.__all__)
    assert names == sorted(set(names), key=order)
    assert [n for n in names if not hasattr(module, n)] == []


def test_the_table_of_lazy_names_is_the_public_face() -> None:
    assert set(weft._HOME) | {"__version__"} >= set(weft.__all__)
    assert set(weft._HOME) <= set(weft.__all__)


def test_type_checkers_see_what_is_loaded() -> None:
    (root,) = (s for s in code() if s.module == "weft.backends._root")
    (block,) = (n for n in root.tree.body if isinstance(n, ast.If))
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == dict(weft._HOME)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = weft.nonsense
