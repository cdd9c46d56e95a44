"""``weft synth --stream`` and what is done with its folder."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command import Weft

TORUS = ("synth", "-t", "torus:3x4", "-c", "allgather", "-e", "greedy", "--stream")


def test_from_a_machine_to_a_checked_folder(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = weft(*TORUS, "--size", "12MB", "--seed", "3", "-o", out, "--json").ended(0).json
    assert (data["status"], data["collective"], data["ranks"]) == ("feasible", "allgather", 12)
    assert data["transfers"] == 12 * 11
    assert data["verified"] is True
    # 11 MB over four links of 25 GB/s into each GPU, the last of it 0.7 µs later.
    assert data["bound_us"] == pytest.approx(110.7)
    assert data["of_bound"] == pytest.approx(110.7 / data["value"])
    header = json.loads((out / "header.json").read_text())
    assert (header["weft"], header["seed"], header["transfers"]) == ("stream", 3, 132)
    assert np.fromfile(out / "counts.i4", "<i4").sum() == 132
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    checked = weft("check", out, "--json")
    assert (checked.code, checked.json["kind"]) == (0, "stream")


def test_the_table_names_the_default_size(weft: Weft) -> None:
    head, row = weft(*TORUS).out.splitlines()
    assert (head.split()[0], row.split()[0]) == ("size", "1GiB")


def test_long_times_are_written_out(weft: Weft) -> None:
    """Not as 1.432e+04."""
    row = weft(*TORUS).out.splitlines()[1].split()
    assert all(re.fullmatch(r"\d+,\d{3}\.\d{3}", time) for time in row[2:4])


def test_the_header_of_a_stream_is_shown(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = weft(*TORUS, "--size", "12MB", "-o", out, "--json").json
    shown = weft("show", out, "--json").json
    assert (shown["kind"], shown["ranks"]) == ("stream", 12)
    for key in ("topology", "collective", "bytes", "transfers", "value", "bound_us", "of_bound"):
        assert shown[key] == made[key]
    text = weft("show", out).out
    assert "allgather on torus:3x4" in text
    assert f"{made['value']:,.3f} µs" in text
    weft("simulate", out).ended(2, "`weft show` prints its header")
    (out / "header.json").write_text("[]")
    assert weft("show", out).code == 2


def test_pieces_are_the_engines_option(weft: Weft) -> None:
    ran = weft(*TORUS[:5], "-e", "greedy{chunks=3}", "--stream", "--json")
    assert ran.json["transfers"] == 3 * 12 * 11


def test_a_wrong_stream_is_found_out(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert weft(*TORUS, "-o", out).code == 0
    chunks = np.fromfile(out / "chunks.u2", "<u2")
    chunks[[5, 60]] = chunks[[60, 5]]
    chunks.tofile(out / "chunks.u2")
    weft("check", out).ended(1)
    (out / "links.u4").write_bytes(b"")
    weft("check", out).ended(2, "different lengths")


def test_what_is_there_stays_unless_forced(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert weft(*TORUS, "-o", out).code == 0
    before = (out / "links.u4").read_bytes()
    weft(*TORUS, "--seed", "5", "-o", out).ended(2, "not empty")
    assert (out / "links.u4").read_bytes() == before
    assert weft(*TORUS, "--seed", "5", "-o", out, "-f").code == 0
    assert json.loads((out / "header.json").read_text())["seed"] == 5
    (out / "notes.txt").write_text("mine")
    weft(*TORUS, "-o", out, "-f").ended(2, "'notes.txt'")


def test_verbs_that_need_the_whole_stream_name_those_that_read_it(
    weft: Weft, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert weft(*TORUS, "--size", "12MB", "-o", out).code == 0
    for verb in ("simulate", "compile", "run"):
        weft(verb, out).ended(2, "a stream of transfers", "weft check")
