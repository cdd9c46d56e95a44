"""How a topology, a collective, a group, roots and sizes are read from the command line."""

import json
from pathlib import Path

import pytest
from command import Weft

from weft.backends.cli.flags.values import DEFAULTS, ranks, seconds, whole
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import make
from weft.synth.base.engine import Budget


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", (0,)), ("0,3", (0, 3)), ("0,1,4..7", (0, 1, 4, 5, 6, 7)), (" 3 , 1 ,", (3, 1))],
)
def test_lists_of_ranks(text: str, expected: tuple[int, ...]) -> None:
    assert ranks(text) == expected


@pytest.mark.parametrize("text", ["", ",", "x", "-1", "1.5", "3..1", "0..", "9" * 5000, "²", "1_0"])
def test_what_is_no_list_of_ranks(text: str) -> None:
    with pytest.raises(UserError):
        ranks(text)


@pytest.mark.parametrize("text", ["0s", "-1s", "10", "fast", "1e999s", "nan s"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UserError):
        seconds(text)


def test_whole_numbers_have_limits() -> None:
    assert whole(1, 5)("5") == 5
    for text in ("0", "6", "five", "", "9" * 5000):
        with pytest.raises(UserError):
            whole(1, 5)(text)


def test_whole_numbers_fit_the_solvers() -> None:
    assert whole(0)("2147483647") == 2**31 - 1
    with pytest.raises(UserError, match="outside 0 … 2147483647"):
        whole(0)("2147483648")


def bound(weft: Weft, *arguments: object) -> dict[str, object]:
    data: dict[str, object] = weft("bound", "-t", "dgx1", *arguments, "--json").ended(0).json
    return data


@pytest.mark.parametrize("name", ["reduce_scatter", "reduce-scatter", "ReduceScatter"])
def test_a_collective_may_be_spelled_as_people_do(weft: Weft, name: str) -> None:
    assert bound(weft, "-c", name)["collective"] == "reduce_scatter"


def test_the_bound_of_the_published_machine(weft: Weft) -> None:
    data = bound(weft, "-c", "allgather", "--size", "1KB:1GB")
    assert data["schema"] == 1
    assert {"status", "topology", "collective", "ranks", "bound", "sizes"} <= set(data)
    found = data["bound"]
    assert isinstance(found, dict)
    # G01 of the grade cases: 1.4 µs, 2 hops, 7/6 rounds per chunk, 171.43 GB/s.
    assert (found["latency_us"], found["steps"], found["rounds_per_chunk"]) == ("7/5", 2, "7/6")
    assert found["algbw_GBps"] == "1200/7"
    assert found["certificate"]["text"]
    sizes = data["sizes"]
    assert isinstance(sizes, list)
    assert sizes[-1]["bytes"] == 10**9
    assert sizes[-1]["us"] == pytest.approx(5833.33 + 0.7, abs=0.01)
    assert sizes[-1]["certificate"]["kind"] == "composite"
    assert found["composite"][-1]["us"] == "7/10"


def test_the_bound_of_a_schedule_takes_all_from_its_file(
    weft: Weft, triangle: Path, tmp_path: Path
) -> None:
    ran = weft("bound", triangle, "--size", "3MiB", "--json").ended(0)
    stated = weft("bound", "-t", "ring:3", "-c", "allgather", "--size", "3MiB", "--json")
    found = ran.json
    chunks = [size.pop("in_chunks") for size in found["sizes"]]  # of the schedule's own pieces
    assert len(chunks) == 1
    assert found == stated.json
    sized = tmp_path / "sized.json"
    sized.write_text(json.dumps(json.loads(triangle.read_text()) | {"bytes": 3 << 20}))
    again = weft("bound", sized, "--json").json
    assert [size.pop("in_chunks") for size in again["sizes"]] == chunks
    assert again == stated.json


def test_a_group_is_a_machine_of_its_own(weft: Weft) -> None:
    group = ("--group", "0,1,4,5")
    assert bound(weft, "-c", "allgather", *group)["ranks"] == 4
    # A ring of four: 0-1, 0-4 and 4-5 are double links, 1-5 a single one, so 3/4 of M must enter
    # GPU 1 at 75 GB/s.
    found = bound(weft, "-c", "allgather", *group)["bound"]
    assert isinstance(found, dict)
    assert found["algbw_GBps"] == "100"


def test_a_root_is_a_rank_of_the_machine(weft: Weft) -> None:
    group = ("--group", "4,5,6")
    assert bound(weft, "-c", "broadcast", "--root", "5", *group)["ranks"] == 3
    weft("bound", "-t", "dgx1", "-c", "broadcast", "--root", "0", *group).ended(
        2, "root 0 is outside the group", "its ranks are 4, 5, 6"
    )


def test_a_custom_collective_from_json(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(make("alltoall", 8).to_json()))
    found = bound(weft, "-c", file)["bound"]
    assert isinstance(found, dict)
    assert found["algbw_GBps"] == "75"  # G02 of the grade cases
    assert "for 8 ranks, the group has 4" in weft("bound", "-t", "ring:4", "-c", file).err
    file.write_text('{"weft": "collective"')
    assert "not JSON" in weft("bound", "-t", "dgx1", "-c", file).err
    assert "has its own roots" in weft("bound", "-t", "dgx1", "-c", file, "--root", "0").err


PYTHON = """
from weft.dsl.nouns.collective import custom

# Everybody sends to the rank two further on.
collective = custom(
    "two-on", 8,
    [(r, r, [r], 0) for r in range(8)],
    [((r + 2) % 8, r, [r], 0) for r in range(8)],
)
"""


def test_a_custom_collective_from_python(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "two_on.py"
    file.write_text(PYTHON)
    data = bound(weft, "-c", file)
    assert (data["collective"], data["ranks"]) == ("two-on", 8)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("collective = (", "not Python", 1),
        ("x = 1\n1 / 0\n", "ZeroDivisionError", 2),
        ("x = 1\n", "defines no algorithm and no `collective`", None),
        ("collective = 3\n", "defines no algorithm and no `collective`", None),
        ("import sys\n\nsys.exit(3)\n", "SystemExit", 3),
        (
            "from weft.dsl.nouns.collective import make\n\ncollective = make('allgather', 0)\n",
            "the process group is empty",
            3,
        ),
    ],
)
def test_a_python_file_that_fails_is_pointed_at(
    weft: Weft, tmp_path: Path, text: str, message: str, line: int | None
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    ran = weft("bound", "-t", "dgx1", "-c", file).ended(2, message)
    if line:
        assert f"{file}:{line}:" in ran.err
        assert "^" in ran.err


def test_the_command_line_and_the_library_have_one_default_effort() -> None:
    assert Budget().effort == DEFAULTS.effort
