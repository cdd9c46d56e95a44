"""Sketches on the command line: listed, shown, formatted, linted, obeyed."""

from pathlib import Path

import pytest
from command import Weft

from weft.backends.cli.flags.values import split_arguments
from weft.dsl.base.errors import UserError

IMPOSSIBLE = """\
# Nobody can do this.
sketch impossible
collective allgather

max hops 1
chunks 1
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dgx2_relay", ("dgx2_relay", {})),
        ("dgx2_relay:nodes=4", ("dgx2_relay", {"nodes": 4})),
        ("a/b.sketch:x=1, y = -2", ("a/b.sketch", {"x": 1, "y": -2})),
        ("c:/x", ("c:/x", {})),
    ],
)
def test_parameters_follow_the_name(text: str, expected: tuple[str, dict[str, int]]) -> None:
    assert split_arguments(text) == expected


def test_a_parameter_is_a_number() -> None:
    with pytest.raises(UserError, match="not the value of a parameter") as caught:
        split_arguments("x:nodes=4,rails=many")
    assert str(caught.value.where) == "--sketch:1:11"


def test_the_catalogue_is_listed_and_shown(weft: Weft) -> None:
    listed = weft("sketch", "list", "--json").json["sketches"]
    names = [s["name"] for s in listed]
    assert {"dgx1_double_links", "dgx2_relay"} <= set(names)
    assert all(s["summary"] for s in listed)
    assert all(0 <= s["promise"]["gap"] < 0.5 and s["promise"]["bytes"] for s in listed)
    for name in ("dgx1_double_links", "dgx2_relay", "ndv2_phases"):  # all: dsl/language/test_load
        text = weft("sketch", "show", name).out
        assert f"sketch {name}" in text
        assert weft("sketch", "fmt", "-", stdin=text).out == text
        assert weft("check", name).code == 0


def test_a_file_is_formatted_in_place(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "my.sketch"
    file.write_text(IMPOSSIBLE.replace("max hops 1", "max   hops   1"))
    assert weft("sketch", "fmt", "--check", file).code == 1
    assert weft("sketch", "fmt", file).code == 0
    assert file.read_text() == IMPOSSIBLE
    assert weft("sketch", "fmt", "--check", file).code == 0
    assert weft("sketch", "fmt", file, "--json").json["changed"] is False


def test_a_slip_of_the_pen_is_shown_at_its_place(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "my.sketch"
    file.write_text(IMPOSSIBLE.replace("max hops", "mxa hops"))
    for arguments in (
        ("check", file),
        ("sketch", "fmt", file),
        ("synth", "-t", "ring:4", "-c", "allgather", "-s", file),
    ):
        weft(*arguments).ended(
            2, f" --> {file}:5:1", "5 | mxa hops 1\n  | ^^^", "did you mean 'max'"
        )
    assert "mxa" in file.read_text()


def test_infeasible_points_at_the_rule(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "my.sketch"
    file.write_text(IMPOSSIBLE)
    ran = weft("synth", "-t", "ring:4", "-c", "allgather", "-s", file, "--json").ended(1)
    assert ran.json["status"] == "infeasible"
    (label,) = ran.json["conflict"]
    assert "max hops 1" in label
    assert ran.json["error"]["where"] == f"{file}:5:1"
    assert "5 | max hops 1\n  | ^^^^^^^^^^" in ran.err
    linted = weft("check", file, "-t", "ring:4").ended(1)
    assert "rank 1 is" in linted.out or "rank 2 is" in linted.out


def test_a_schedule_obeys_its_sketch(weft: Weft, tmp_path: Path) -> None:
    sketch, schedule = tmp_path / "my.sketch", tmp_path / "s.json"
    rule = 'forbid links 1 -> 0, 2 -> 1, 0 -> 2 as "one way round"'
    sketch.write_text(f"sketch one_way\n\n{rule}\n")
    problem = ("-t", "ring:3", "-c", "allgather")
    flags = ("--objective", "latency", "--effort", "1", "-o", schedule)
    assert weft("synth", *problem, "-s", sketch, *flags).code == 0
    assert weft("check", schedule, "-s", sketch).code == 0
    assert weft("synth", *problem, *flags, "-f").code == 0
    assert "one way round" in weft("check", schedule, "-s", sketch).ended(1).out


def test_a_sketch_proposes_an_engine(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "trees.sketch"
    file.write_text("sketch trees\nengine packing{trees=4}\n")
    problem = ("synth", "-t", "ring:4", "-c", "allgather", "--objective", "bandwidth", "--json")
    assert weft(*problem, "-s", file).json["engine"] == "packing{trees=4}"
    assert weft(*problem, "-s", file, "-e", "classic").json["engine"] == "classic"
    assert weft(*problem).json["engine"] == "portfolio"


def test_a_sketch_with_phases_is_for_what_they_make(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "rails.sketch"
    file.write_text("sketch rails\nphases:\n    allgather along x\n    allgather along y\n")
    weft("synth", "-t", "torus:2x2", "-c", "alltoall", "-s", file).ended(
        2, "the sketch rails is for allgather, not for alltoall"
    )


def test_an_engine_says_what_it_cannot_obey(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "x.sketch"
    problem = ("synth", "-t", "ring:4", "-c", "allgather", "-s", file)
    for engine, rule, reason in [
        ("packing", "max hops 3", "packings cannot follow the rule 'max hops 3"),
        ("exact", "own data first", "exact cannot order the sends"),
    ]:
        file.write_text(f"sketch x\n{rule}\n")
        weft(*problem, "-e", engine).ended(2, reason)


BAD = """
sketch bad
chunks 1
max hops 2 as "stay near"
between nodes: relay any through 0 -> 1
symmetry: rotate nodes
"""


def test_rules_that_exclude_each_other_are_named_by_synth_as_well(weft: Weft, tmp_path: Path):
    sketch, out = tmp_path / "bad.sketch", tmp_path / "out.json"
    sketch.write_text(BAD)
    weft(
        *"synth -t ndv2:nodes=2 -c allgather -s".split(),
        sketch,
        *"--size 1MiB --objective time --effort 5 -o".split(),
        out,
    ).ended(1, "these exclude each other: ", "stay near")
    assert not out.exists()


def test_sketches_are_derived_as_text_to_edit(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "start.sketch"
    flags = ("-c", "allgather", "--effort", "0.2", "--size", "64KiB")
    ran = weft("sketch", "derive", "-t", "ring:4", *flags, "-o", file, "--json").ended(0)
    assert ran.json["text"] == file.read_text()
    assert {one["name"] for one in ran.json["sketches"]} == {"moves", "ring"}
    weft("check", file).ended(0)
    weft("synth", "-t", "ring:4", "-c", "allgather", "-s", file, "--size", "64KiB").ended(0)
    weft("sketch", "derive", "-t", "ring:4", *flags, "-o", file).ended(2, "exists")
    weft("sketch", "derive", "-t", "star:4", *flags).ended(3, "no idea for a sketch fits")
    weft("sketch", "derive", "-t", "ring:4").ended(2, "-c/--collective")
