"""``weft explain``: conflicts at their lines, costs of rules, what binds a schedule."""

from pathlib import Path

import pytest
from command import Weft

SKETCH = """\
sketch near
machine ring:8
collective allgather

max hops 4
chunks 1
forbid links 0 -> 1
"""
PROBLEM = ("-t", "ring:8", "-c", "allgather")


@pytest.fixture
def sketch(tmp_path: Path) -> Path:
    file = tmp_path / "near.sketch"
    file.write_text(SKETCH)
    return file


def test_rules_that_exclude_each_other_are_shown_at_their_lines(weft: Weft, sketch: Path) -> None:
    ran = weft("explain", *PROBLEM, "-s", sketch).ended(1)
    assert f" --> {sketch}:5:1\n  |\n5 | max hops 4\n  | ^^^^^^^^^^\n" in ran.out
    assert f" --> {sketch}:7:1\n" in ran.out
    assert "chunks 1" not in ran.out
    assert "what starts on rank 0 cannot come to rank 1 in 4 hops" in ran.out
    assert "any one of them may go" in ran.out


def test_a_conflict_in_json(weft: Weft, sketch: Path) -> None:
    ran = weft("explain", *PROBLEM, "-s", sketch, "--json").ended(1)
    assert ran.json["status"] == "infeasible"
    assert ran.json["conflict"] == ["max hops 4 (line 5)", "forbid links 0 -> 1 (line 7)"]
    assert ran.json["where"] == [f"{sketch}:5:1", f"{sketch}:7:1"]
    assert ran.json["cures"] == ran.json["conflict"]
    assert ran.json["why"]


def test_what_rules_cost(weft: Weft, sketch: Path) -> None:
    sketch.write_text(SKETCH.replace("hops 4", "hops 7"))
    ran = weft("explain", *PROBLEM, "-s", sketch, "--size", "1KiB:4KiB", "--json").ended(0)
    assert [x["bytes"] for x in ran.json["sizes"]] == [1024, 2048, 4096]
    for size in ran.json["sizes"]:
        first = size["rules"][0]
        assert first["where"] == f"{sketch}:7:1"
        assert first["us_without"] + first["saves_us"] == pytest.approx(size["us"])
        assert size["without_rules_us"] <= first["us_without"] < size["us"]
    text = weft("explain", *PROBLEM, "-s", sketch, "--size", "1KiB").out
    assert "forbid links 0 -> 1 (line 7) costs most" in text


def test_a_sketch_is_explained_at_the_sizes_it_is_for(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "s.sketch"
    file.write_text("sketch s\nsize 1KiB..1MiB\nmax hops 4\n")
    ran = weft("explain", "-t", "ring:4", "-c", "allgather", "-s", file, "--json")
    assert [x["bytes"] for x in ran.json["sizes"]] == [1 << 10, 1 << 20]


def test_what_binds_a_schedule(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "ag.json"
    flags = ("--objective", "latency", "-o", file)
    assert weft("synth", "-t", "ring:4", "-c", "allgather", "-e", "exact", *flags).code == 0
    (size,) = weft("explain", file, "--size", "1MiB", "--json").json["sizes"]
    timed = weft("simulate", file, "--size", "1MiB", "--json").json["sizes"][0]
    assert size["us"] == timed["us"]
    assert size["of_bound"] == pytest.approx(timed["of_bound"])
    assert size["chain"][0]["waits"] == "start"
    assert size["chain"][-1]["end_us"] == size["us"]
    weft("explain", file, "-t", "ring:4").ended(2, "a schedule has its own machine")
    text = weft("explain", file, "--size", "1MiB").out
    for word in ("busiest", "bound", "gap", "the clock starts"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "required: -t/--topology, -c/--collective, -s/--sketch"),
        (("-t", "ring:4", "-c", "allgather"), "required: -s/--sketch"),
        (("{file}", "-s", "{file}"), "two sketches"),
        (("ring:4",), "expected a schedule, got a topology"),
    ],
)
def test_wrong_questions(
    weft: Weft, sketch: Path, arguments: tuple[str, ...], message: str
) -> None:
    weft("explain", *(a.format(file=sketch) for a in arguments)).ended(2, message)


def test_a_sketch_without_rules_has_nothing_to_explain(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "s.sketch"
    file.write_text("sketch s\nengine exact\n")
    weft("explain", "-t", "ring:4", "-c", "allgather", "-s", file).ended(2, "lacks rules")


def test_lines_that_make_a_time_impossible(weft: Weft, sketch: Path) -> None:
    """A sketch names its machine and collective; without -t and -c they are taken from it."""
    sketch.write_text(SKETCH.replace("hops 4", "hops 7"))
    ran = weft("explain", sketch, "--at", "1MiB", "--within", "30us", "--json").ended(1)
    assert ran.json["status"] == "infeasible"
    assert ran.json["minimal"]
    (line,) = ran.json["core"]
    assert (line["line"], line["text"]) == (7, "forbid links 0 -> 1")
    assert line["without"]["verdict"] == "possible"
    assert line["without"]["bound_us"] <= line["without"]["us"] <= 30
    text = weft("explain", *PROBLEM, "-s", sketch, "--at", "1MiB", "--within", "30us").ended(1).out
    assert f" --> {sketch}:7:1\n" in text
    assert "this line makes it impossible" in text
    assert "without it the machine allows that time" in text


def test_a_time_that_is_possible_or_not_decided(weft: Weft, sketch: Path) -> None:
    sketch.write_text(SKETCH.replace("hops 4", "hops 7"))
    ran = weft("explain", sketch, "--at", "1MiB", "--within", "60us").ended(0)
    assert "60.000 µs at 1MiB is possible" in ran.out
    weft("explain", sketch, "--within", "0us").ended(2, "expected a time above 0")
    flags = ("-t", "dgx1", "--within", "9.9us", "--effort", "0.0001")
    sketch.write_text("sketch s\ncollective allgather\nchunks 1\n")
    weft("explain", sketch, *flags, "--at", "1MiB").ended(3)


def test_one_message_size_for_a_time(weft: Weft, sketch: Path) -> None:
    size = ("--size", "1KiB:1MiB")
    weft("explain", sketch, "--at", "1MiB", *size).ended(2, "got --at and --size")
    weft("explain", sketch, *size, "--within", "9us").ended(2, "a range for --within")


def test_a_sketch_from_stdin_needs_its_problem_beside_it(weft: Weft, sketch: Path) -> None:
    text = sketch.read_text()  # whose rules exclude each other
    weft("explain", "-", stdin=text).ended(2, "-t TOPO -c COLL -s -")
    weft("explain", *PROBLEM, "-s", "-", stdin=text).ended(1)


def test_the_least_time_is_not_that_of_coarse_ticks(weft: Weft, tmp_path: Path) -> None:
    """Within a very long time the model's ticks are coarse, and its best plan may not be."""
    file = tmp_path / "s.sketch"
    file.write_text(
        "sketch s\nmachine ring:4\ncollective allgather\nchunks 1\nforbid links 0 -> 1\n"
    )
    for within in ("1s", "99999999999s"):
        found = weft("explain", file, "--at", "1MiB", "--within", within, "--json").ended(0).json
        assert not found["least"] or found["us"] < 33.6
