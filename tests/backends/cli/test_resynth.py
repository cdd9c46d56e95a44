"""``weft resynth``: libraries for what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.backends.cli import main
from weft.dsl.library import read
from weft.dsl.schedule import read as read_schedule
from weft.synth.verify import verify

pytestmark = pytest.mark.slow  # tuning takes tens of seconds

QUICK = ("-e", "packing", "--protocols", "Simple", "--time", "2s", "-q", "--jobs", "1")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("resynth") / "library")
    words = ("-t", "ring:4", "-c", "allgather", "-c", "broadcast", "--sizes", "1MiB")
    assert main(["tune", *words, *QUICK, "-o", folder]) == 0
    return folder


def test_a_library_for_what_is_left(
    library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mended"
    words = ("--down", "gpu0-gpu1", "-o", str(folder))
    assert main(["resynth", library, *words, *QUICK]) == 0
    assert "bound rose" in capsys.readouterr().out
    made = read(folder)
    assert len(made.topology.links) == 6
    assert made.provenance["down"] == ["gpu0-gpu1"]
    for one in made.tuned:
        assert all(verify(read_schedule(folder / plan.schedule)).ok for plan in one.plans)
        assert any(candidate.name.startswith("mended") for candidate in one.candidates)


def test_files_are_for_what_the_old_ones_were_for(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    quick = ("-e", "packing", "--time", "2s", "-q", "--jobs", "1")
    words = ("-t", "ring:4", "-c", "allgather", "--sizes", "1MiB", "--target", "rccl",
             "--placement", "out", "--protocols", "LL", "--to", "msccl-xml,mpi")  # fmt: skip
    assert main(["tune", *words, *quick, "-o", old]) == 0
    assert main(["resynth", old, "--down", "gpu0-gpu1", *quick, "-o", new]) == 0
    was, made = read(old), read(new)
    kinds = [{(a.format, a.target, a.in_place) for one in x.tuned for plan in one.plans
              for a in plan.artefacts} for x in (was, made)]  # fmt: skip
    assert kinds[0] == kinds[1] == {("msccl-xml", "rccl", False), ("mpi", "", False)}
    assert made.timing == {**was.timing, "within": 0.01}
    assert main(["resynth", old, "--down", "gpu0-gpu1", *quick, "--target", "msccl", "--to",
                 "msccl-xml", "-o", new, "-f"]) == 0  # fmt: skip
    assert {a.target for one in read(new).tuned for plan in one.plans
            for a in plan.artefacts} == {"msccl"}  # fmt: skip


def test_nothing_is_lost_with_what_was_not_used(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    words = ("-t", "line:3", "-c", "broadcast", "--sizes", "1KiB:256KiB")
    assert main(["tune", *words, *QUICK, "-o", old]) == 0
    assert main(["resynth", old, "--down", "gpu1->gpu0", *QUICK, "-o", new]) == 0
    (was,), (made,) = read(old).tuned, read(new).tuned
    known = dict(zip(was.grid, was.chosen_us, strict=True))
    for size, us in zip(made.grid, made.chosen_us, strict=True):
        assert us <= known[size] * 1.011  # --within of resynth


def test_ranks_that_are_gone_leave_the_collective(library: str, tmp_path: Path) -> None:
    folder = tmp_path / "smaller"
    words = ("--down-rank", "2", "-o", str(folder))
    assert main(["resynth", library, *words, *QUICK]) == 0
    assert {one.collective.ranks for one in read(folder).tuned} == {3}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "nothing is down"),
        (("--down-rank", "0"), "the root of broadcast is gone"),
        (("--down", "gpu0-gpu1", "gpu1-gpu2"), "gpu1 is cut off"),
        (("--down-nic", "nic0"), "no NICs"),
    ],
)
def test_questions_that_are_wrong(
    library: str, words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resynth", library, *words, *QUICK]) == 2
    assert says in capsys.readouterr().err
