"""Notebooks of pages: the prose as it is, the examples as cells with the output that the page has.

``python tests/support/notebooks.py`` writes them beside their pages. A page is the source: its
examples are doctests, and in a notebook a cell ends where a page shows output.
"""

import doctest
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("library.md", "papers.md")

BLOCK = re.compile(r"```python\n(.*?)```\n?", re.DOTALL)


def notebook(page: str) -> dict[str, Any]:
    """Return the notebook of a page's text, as Jupyter's format 4.5 has it."""
    cells = [*_cells(page)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def text_of(page: Path) -> str:
    """Return the file of a page's notebook."""
    return json.dumps(notebook(page.read_text()), indent=1, ensure_ascii=False) + "\n"


def _cells(page: str) -> Iterator[dict[str, Any]]:
    parts = BLOCK.split(page)
    for at, part in enumerate(parts):
        if at % 2 == 0:
            if part.strip():
                yield {"cell_type": "markdown", "metadata": {}, "source": part.strip()}
            continue
        sources: list[str] = []
        examples = doctest.DocTestParser().get_examples(part)
        for example in examples:
            sources.append(example.source)
            if example.want or example is examples[-1]:
                yield _code("".join(sources).rstrip("\n"), example.want.rstrip("\n"))
                sources = []


def _code(source: str, shown: str) -> dict[str, Any]:
    outputs = []
    if shown:
        text = shown.replace("<BLANKLINE>", "")
        outputs = [{"name": "stdout", "output_type": "stream", "text": text + "\n"}]
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": outputs,
        "source": source,
    }


if __name__ == "__main__":
    for name in PAGES:
        page = DOCS / name
        page.with_suffix(".ipynb").write_text(text_of(page))
