"""``weft resynth``: libraries for what is left."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from kept_workers import kept_workers

from weft.backends.cli import main
from weft.backends.tune.timing import Interrupted
from weft.backends.tune.tune import tune
from weft.dsl.nouns.library import read
from weft.dsl.nouns.schedule import read as read_schedule
from weft.synth.judge.verify import verify

__all__ = ["kept_workers"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("kept_workers")]

DATASHEET = ("--model", "datasheet")
QUICK = (*"-e packing --protocols Simple --effort 0.5 -q --jobs 1".split(), *DATASHEET)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, kept_workers: None) -> str:
    folder = str(tmp_path_factory.mktemp("resynth") / "library")
    words = ("-t", "ring:3", "-c", "allgather", "-c", "broadcast", "--sizes", "1MiB")
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
    assert len(made.topology.links) == 4
    assert made.provenance["down"] == ["gpu0-gpu1"]
    for one in made.tuned:
        assert all(verify(read_schedule(folder / plan.schedule)).ok for plan in one.plans)
        assert any(candidate.name.startswith("mended") for candidate in one.candidates)


def test_files_are_for_what_the_old_ones_were_for(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    quick = ("-e", "packing", "--effort", "0.5", "-q", "--jobs", "1", *DATASHEET)
    words = (
        "-t ring:3 -c allgather --sizes 1MiB --target rccl --placement out --protocols LL "
        "--to msccl-xml,mpi"
    ).split()
    assert main(["tune", *words, *quick, "-o", old]) == 0
    assert main(["resynth", old, "--down", "gpu0-gpu1", *quick, "-o", new]) == 0
    was, made = read(old), read(new)
    kinds = [
        {
            (a.format, a.target, a.in_place)
            for one in x.tuned
            for plan in one.plans
            for a in plan.artefacts
        }
        for x in (was, made)
    ]
    assert kinds[0] == kinds[1] == {("msccl-xml", "rccl", False), ("mpi", "", False)}
    assert made.timing == {**was.timing, "within": 0.01}
    assert (
        main(
            [
                "resynth",
                old,
                "--down",
                "gpu0-gpu1",
                *quick,
                *"--target msccl --to msccl-xml -o".split(),
                new,
                "-f",
            ]
        )
        == 0
    )
    assert {a.target for one in read(new).tuned for plan in one.plans for a in plan.artefacts} == {
        "msccl"
    }


def test_nothing_is_lost_with_what_was_not_used(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    words = ("-t", "line:3", "-c", "broadcast", "--sizes", "4KiB:8KiB")
    assert main(["tune", *words, *QUICK, "-o", old]) == 0
    assert main(["resynth", old, "--down", "gpu1->gpu0", *QUICK, "-o", new]) == 0
    (was,), (made,) = read(old).tuned, read(new).tuned
    known = dict(zip(was.grid, was.chosen_us, strict=True))
    for size, us in zip(made.grid, made.chosen_us, strict=True):
        assert us <= known[size] * 1.011  # --within of resynth


def test_a_file_of_another_collective_or_machine_is_refused(
    library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is mended must achieve what the library is for, not what its file says."""
    copy = tmp_path / "copy"
    shutil.copytree(library, copy)
    file = copy / "schedules" / "allgather-1.json"
    file.write_text((copy / "schedules" / "broadcast-1.json").read_text())
    words = ("resynth", str(copy), "--down", "gpu0-gpu1", *QUICK, "-o", str(tmp_path / "new"))
    assert main([*words]) == 2
    assert "not the library's allgather" in capsys.readouterr().err
    quick = ("-c", "allgather", "--objective", "latency", "-q", "-f")
    assert main(["synth", "-t", "full:3", *quick, "-o", str(file)]) == 0
    assert main([*words]) == 2
    assert "made for full:3" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_protocols_are_those_that_are_asked_for(library: str, tmp_path: Path) -> None:
    words = ("--down", "gpu0-gpu1", "-o", str(tmp_path / "new"), "--protocols", "LL")
    quick = ("-e", "packing", "--effort", "0.5", "-q", "--jobs", "1", *DATASHEET)
    assert main(["resynth", library, *words, *quick]) == 0
    assert {plan.protocol for one in read(tmp_path / "new").tuned for plan in one.plans} == {"LL"}


def test_an_interruption_keeps_the_collectives_that_are_done(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def once(*given: Any) -> Any:
        asked.append(given)
        if len(asked) > 1:
            raise Interrupted
        return tune(*given)

    monkeypatch.setattr("weft.backends.cli.verbs.tune.tune", once)
    words = ("--down", "gpu0-gpu1", "-o", str(tmp_path / "new"))
    assert main(["resynth", library, *words, *QUICK]) == 0
    assert [one.name for one in read(tmp_path / "new").tuned] == ["allgather"]


def test_a_manifest_whose_protocols_are_no_list(
    library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(library, copy)
    data = json.loads((copy / "library.json").read_text())
    data["timing"]["protocols"] = None
    (copy / "library.json").write_text(json.dumps(data))
    assert main(["resynth", str(copy), "--down", "gpu0-gpu1", "--effort", "2", "-q"]) == 2
    assert "'protocols' must be list, not null" in capsys.readouterr().err


def test_ranks_that_are_gone_leave_the_collective(library: str, tmp_path: Path) -> None:
    folder = tmp_path / "smaller"
    words = ("--down-rank", "2", "-o", str(folder))
    assert main(["resynth", library, *words, *QUICK]) == 0
    assert {one.collective.ranks for one in read(folder).tuned} == {2}


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
