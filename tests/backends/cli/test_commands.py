"""Command lines that say something: each a line of commands.txt."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Weft

NAMES = re.compile(r"\{(triangle|exchange|packets|experts|tmp_path)\}")


def cases() -> Iterator[tuple[int, str, list[str]]]:
    for line in Path(__file__).with_name("commands.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            command, *words = line.split(" | ")
            code, verbs, *rest = command.split(" ", 2)
            yield from ((int(code), " ".join([verb, *rest]), words) for verb in verbs.split(","))


CASES = list(cases())


@pytest.mark.parametrize(("code", "line", "words"), CASES, ids=[line for _, line, _ in CASES])
def test_it_says(
    weft: Weft, request: pytest.FixtureRequest, code: int, line: str, words: list[str]
) -> None:
    ran = weft(
        *(
            NAMES.sub(lambda name: str(request.getfixturevalue(name[1])), word)
            for word in shlex.split(line)
        )
    ).ended(code)
    for word in words:
        where = ran.out if word.startswith("> ") else ran.err
        assert (word.removeprefix("> ").removeprefix("! ") in where) != word.startswith("! "), where
    if code == 2:
        assert "Traceback" not in ran.err
        assert ran.out == "" or "--json" in line
