"""``weft compile`` on schedules with slices and with chunks of unequal sizes."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import patterns
import pytest
from command import Weft
from shares import in_pieces

from weft.backends.compile import source
from weft.dsl.nouns.schedule import Schedule, write


@pytest.fixture
def sliced(tmp_path: Path) -> Path:
    path = tmp_path / "sliced.json"
    write(path, replace(patterns.ring_allgather(4, 1), segments=64, bytes=1 << 28))
    return path


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    path = tmp_path / "uneven.json"
    write(path, in_pieces(patterns.ring_allgather(3, 1), [[1, 499], [250, 250], [499, 1]]))
    return path


def test_the_runtime_slices(weft: Weft, sliced: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.xml"
    ran = weft("compile", sliced, "--form", "fixed", "-o", out, "--json").ended(0)
    text = (
        "the runtime slices chunks itself: the schedule's 64 segments are its loop, at 256MiB 32 "
        "turns with 2MiB of every chunk each, coarser than those segments"
    )
    assert text in ran.err
    facts = ran.json
    assert (facts["segments"], facts["pieces"], facts["sliced"]) == (64, 1, text)
    assert facts["chunks"] == 4
    assert weft("check", out, "--target", "msccl").code == 0


def test_a_small_message_goes_whole(weft: Weft, sliced: Path, tmp_path: Path) -> None:
    write(sliced, replace(patterns.ring_allgather(4, 1), segments=64, bytes=8192), force=True)
    ran = weft("compile", sliced, "--form", "fixed", "-o", tmp_path / "out.xml")
    assert "at 8KiB one turn with every chunk of 2KiB whole\n" in ran.err


@pytest.mark.parametrize(("pieces", "told"), [(3, True), (4, False)])
def test_sizes_that_a_runtime_passes_over_are_told(
    weft: Weft, tmp_path: Path, pieces: int, told: bool
) -> None:
    write(tmp_path / "s.json", patterns.ring_allgather(4, pieces))
    ran = weft("compile", tmp_path / "s.json", "-o", tmp_path / "out.xml").ended(0)
    assert ("Sizes    messages of a multiple of 12 elements" in ran.err) is told
    ran = weft("compile", tmp_path / "s.json", "--to", "program", "-o", tmp_path / "out.json")
    assert "Sizes" not in ran.err


def test_slices_written_out(weft: Weft, sliced: Path, tmp_path: Path) -> None:
    ran = weft("compile", sliced, "-o", tmp_path / "out.xml", "--segments", 8, "--json").ended(0)
    assert (ran.json["chunks"], ran.json["pieces"]) == (32, 8)
    assert "8 pieces that follow each other" in ran.err
    assert weft("run", sliced, "--segments", 2, "--interleavings", 3).code == 0
    weft("compile", tmp_path / "out.xml", "--segments", 2).ended(2, "--segments is for schedules")


@pytest.mark.parametrize(
    ("to", "words"),
    [("mscclpp-json", "mscclpp-json cannot loop"), ("program", "done to each of the schedule's")],
)
def test_other_formats_say_what_they_do(
    weft: Weft, sliced: Path, tmp_path: Path, to: str, words: str
) -> None:
    ran = weft("compile", sliced, "--to", to, "-o", tmp_path / "out", "--json").ended(0)
    assert words in ran.json["sliced"]


def test_unequal_chunks_are_exact_up_to_the_limit(
    weft: Weft, uneven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 500 grains: too many for MSCCL XML, not for a program, which has byte offsets."""
    ran = weft("compile", uneven, "--to", "program", "-o", tmp_path / "p.json", "--json").ended(0)
    assert ran.json["chunks"] == 1500
    assert "quantized" not in ran.json

    def halves(schedule: Schedule, grains: int) -> tuple[Schedule, Fraction]:
        assert grains == 1024
        return in_pieces(patterns.ring_allgather(3, 1), [[1, 2]] * 3), Fraction(1, 8)

    monkeypatch.setattr(source, "quantize", halves)
    ran = weft("compile", uneven, "-o", tmp_path / "out.xml", "--json").ended(0)
    assert ran.json["quantized"] == {"chunks": 9, "exact": 1500, "loss": 0.125}
    assert ran.json["chunks"] == 9
    text = "9 chunks of the message (exact: 1500); the busiest link is busy for 12.5 % longer"
    assert text in ran.err
    assert text in ran.json["rounded"]
    assert weft("check", tmp_path / "out.xml").code == 0


def test_few_grains_need_no_rounding(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "few.json"
    write(path, in_pieces(patterns.ring_allgather(3, 1), [[100, 200], [300], [200, 100]]))
    ran = weft("compile", path, "-o", tmp_path / "out.xml", "--json").ended(0)
    assert ran.json["chunks"] == 9
    assert "quantized" not in ran.json
