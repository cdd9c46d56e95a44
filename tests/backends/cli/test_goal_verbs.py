"""GOAL files on the command line."""

from pathlib import Path

import patterns
import pytest
from command import Weft

from weft.dsl.nouns.schedule import write


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    write(tmp_path / "ring.json", patterns.ring_allreduce(4, 1))
    return tmp_path / "ring.json"


def test_a_file_is_made_checked_shown_run_and_timed(weft: Weft, ring: Path) -> None:
    file = ring.with_suffix(".goal")
    made = weft("compile", ring, "--to", "goal", "--size", "1MiB", "-o", file, "--json").ended(0)
    (one,) = made.json["times"]
    assert one["us"] == pytest.approx(one["schedule_us"], rel=1e-3)
    assert weft("check", file, "--json").json["kind"] == "goal"
    assert "send 262144 B, to 1, tag" in weft("show", file).out
    assert weft("run", file).code == 0
    timed = weft("simulate", file, "-t", "ring:4", "--json")
    assert timed.json["rule"] == "ATLAHS' rule"
    # The machine of -t is another one than that of the schedule.
    assert timed.json["sizes"][0]["us"] != pytest.approx(one["us"], rel=1e-3)


def test_a_changed_file_is_found_wrong(weft: Weft, ring: Path) -> None:
    file = ring.with_suffix(".goal")
    weft("compile", ring, "--to", "goal", "--size", "1MiB", "-o", file)
    text = file.read_text()
    line = next(one for one in text.split("\n") if " requires " in one)
    file.write_text(text.replace(line + "\n", "", 1))
    assert weft("check", file).code == 1


def test_another_collective_than_the_files_is_refused(weft: Weft, ring: Path) -> None:
    made = ring.with_suffix(".own")
    assert weft("compile", ring, "--to", "goal", "--size", "1MiB", "-o", made).code == 0
    for verb in ("run", "check"):
        assert weft(verb, made).code == 0
        weft(verb, made, "-c", "alltoall").ended(2, "other files say it themselves")


def test_what_makes_no_sense_is_refused(weft: Weft, ring: Path) -> None:
    def told(*flags: object) -> str:
        done = weft("compile", ring, "--to", "goal", "-o", ring.with_suffix(".no"), *flags).ended(2)
        assert not ring.with_suffix(".no").exists()
        return done.err

    assert "--size 1MiB" in told()
    assert "for one message size" in told("--size", "1KiB:1MiB")
    assert "--segments 3 " in told("--size", "16GiB")
    assert "--lanes says nothing about" in told("--size", "1MiB", "--lanes", 2)
