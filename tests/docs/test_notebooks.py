"""The notebooks are those of their pages, and their cells run as Jupyter runs them."""

import ast
import contextlib
import doctest
import io
import json
from typing import Any

import pytest
from kept_workers import kept_workers
from notebooks import DOCS, PAGES, text_of

__all__ = ["kept_workers"]

LARGEST = 40_000
"""Bytes of a notebook."""


def run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell; return what it prints, and all expressions as a prompt displays them.

    Jupyter displays the last one only. A page that is a doctest shows the others as well, and has
    each at the end of a cell.
    """
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        for statement in ast.parse(source).body:
            if not isinstance(statement, ast.Expr):
                exec(compile(ast.Module([statement], []), "<cell>", "exec"), names)
                continue
            value = eval(compile(ast.Expression(statement.value), "<cell>", "eval"), names)
            if value is not None:
                print(repr(value))
                html = getattr(value, "_repr_html_", lambda: None)()
                assert html is None or (len(html) < LARGEST and "<script" not in html)
    return told.getvalue()


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_is_that_of_its_page(name):
    file = (DOCS / name).with_suffix(".ipynb")
    assert file.read_text() == text_of(DOCS / name), "python tests/support/notebooks.py"
    assert file.stat().st_size < LARGEST


@pytest.mark.parametrize("name", PAGES)
def test_the_cells_of_a_notebook_run(name, tmp_path, monkeypatch, kept_workers):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS / name).with_suffix(".ipynb").read_text())["cells"]
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    names: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        shown = run_cell(cell["source"], names)
        kept = "".join(output["text"] for output in cell["outputs"])
        same = doctest.OutputChecker().check_output(kept, shown, flags)
        assert same, f"{cell['source']}\nexpected:\n{kept}\ngot:\n{shown}"
        ran += 1
    assert ran > 5
