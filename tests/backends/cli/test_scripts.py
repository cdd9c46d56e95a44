"""Point-to-point programs on the command line: compiled, checked, shown, and refused in words."""

from pathlib import Path

import pytest
from command import Weft

RING = "classic:ring{collective=allreduce,ranks=4}"


@pytest.fixture
def ring(weft: Weft, tmp_path) -> str:
    made = weft("compile", RING, "--to", "mpi", "-o", str(tmp_path / "ring.py"), "--json").ended(0)
    assert made.json["rounds"] == 6
    assert made.json["messages"] == 24
    assert [c["name"] for c in made.json["checks"] if c["ok"]] == ["script", "execution"]
    return str(tmp_path / "ring.py")


def edited(path: str, old: str, new: str) -> None:
    file = Path(path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_file_is_checked_and_shown_by_what_is_in_it(weft: Weft, ring: str):
    assert weft("check", ring, "--json").ended(0).json["kind"] == "script"
    assert "    1  i[3] > 1, o[2] < 3; o[2] = o[2] + i[2]" in weft("show", ring).ended(0).out


def test_a_changed_number_fails_the_check(weft: Weft, ring: str):
    edited(ring, "o[{(r - step) % 4}] >", "o[{(r - step - 1) % 4}] >")
    assert "rank 3 o[0] is received while it is sent" in weft("check", ring, "-v").ended(1).out


def test_a_shape_that_does_not_fit_is_refused(weft: Weft, ring: str):
    edited(ring, "input=4", "input=5")
    weft("check", ring).ended(2, "SHAPE does not fit the collective: input")


@pytest.mark.parametrize("flags", [("--instances", "2"), ("--protocol", "LL"), ("-p", "fuse")])
def test_flags_about_thread_blocks_are_refused(weft: Weft, tmp_path, flags):
    out = tmp_path / "ring.py"
    weft("compile", RING, "--to", "mpi", *flags, "-o", str(out)).ended(
        2, "says nothing about a point-to-point program"
    )
    assert not out.exists()


def test_out_of_place_algorithms_cannot_be_asked_for_in_place(weft: Weft, tmp_path):
    xml = tmp_path / "ring.xml"
    assert weft("compile", RING, "-o", str(xml)).code == 0
    weft("compile", str(xml), "--to", "mpi", "--in-place", "-o", str(tmp_path / "x.py")).ended(2)


def test_programs_of_others_become_files_as_well(weft: Weft, tmp_path):
    xml, file = tmp_path / "ring.xml", tmp_path / "ring.py"
    assert weft("compile", RING, "-o", str(xml)).code == 0
    made = weft("compile", str(xml), "--to", "mpi", "-o", str(file), "--json").ended(0)
    assert made.json["collective"] == "allreduce"
    assert "for step in range" in file.read_text()


def test_segments_of_a_schedule_are_pieces_of_its_chunks(weft: Weft, tmp_path):
    schedule, file = tmp_path / "b.json", tmp_path / "b.py"
    weft(
        "synth", "-t", "line:4", "-c", "broadcast", "--objective", "latency", "-o", str(schedule)
    ).ended(0)
    whole = weft("compile", str(schedule), "--to", "mpi", "-o", str(file), "--json").json
    cut = weft(
        "compile", str(schedule), "--to", "mpi", "--segments", "4", "-o", str(file), "-f", "--json"
    ).json
    assert cut["rounds"] == whole["rounds"] + 3
    assert cut["messages"] == 4 * whole["messages"]
