"""The pictures of the docs are what the tool draws, every one is shown, and described in words."""

import re

import pytest
from pictures import COMMANDS, FOLDER, draw

IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
DOCS = FOLDER.parent


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_is_what_the_tool_draws(name, tmp_path, capsys):
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert draw(name, tmp_path) == kept, "python tests/support/pictures.py makes them anew"


def test_pages_show_every_picture_and_say_what_is_on_it():
    shown = set()
    for page in sorted(DOCS.glob("*.md")):
        for words, path in IMAGE.findall(page.read_text(encoding="utf-8")):
            assert len(words.split()) > 5, f"{page.name}: {path} has no description"
            shown.add(DOCS / path)
    drawn = {FOLDER / f"{name}.svg" for name in (*COMMANDS, "architecture")}
    assert shown == drawn == set(FOLDER.iterdir())
