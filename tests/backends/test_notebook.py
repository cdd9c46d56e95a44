"""Tuning and libraries in Python."""

from __future__ import annotations

import pytest

import weft


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> weft.Library:
    folder = tmp_path_factory.mktemp("tuned") / "library"
    asked = {"sizes": "64KiB:128KiB", "engines": ["classic"], "effort": 0.1, "jobs": 1}
    made = weft.tune("ring:4", "allgather", output=folder, **asked)
    assert (folder / "library.json").is_file()
    made_folder = weft.Library.load(folder)
    assert made_folder == made
    assert dict(made_folder.files) == dict(made.files)
    return made


def test_a_tuned_library_has_its_files(library, tmp_path):
    assert repr(library).startswith("<Library on ring:4: allgather (")
    schedule = library.schedule("allgather", "100KiB")
    assert weft.verify(schedule)
    plan = library.of("allgather").pick(100 << 10)
    assert library.text(plan.artefacts[0].file).startswith("<algo ")
    library.write(tmp_path / "again")
    assert weft.Library.load(tmp_path / "again" / "library.json") == library


def test_what_is_not_in_a_library_is_told(library, tmp_path):
    with pytest.raises(weft.WeftError, match="it has allgather"):
        library.schedule("alltoall", "100KiB")
    with pytest.raises(weft.WeftError, match="tuned for"):
        library.schedule("allgather", "1GiB")
    with pytest.raises(weft.WeftError, match="no such file"):
        weft.Library.load(tmp_path / "none")


def test_wrong_arguments_of_tuning_are_told():
    with pytest.raises(weft.WeftError, match="each once"):
        weft.tune("ring:4", ["allgather", "allgather"])
    with pytest.raises(weft.WeftError, match=r"(?s)unknown engine.*hint: "):
        weft.tune("ring:4", "allgather", engines=["clasic"])
    with pytest.raises(weft.WeftError, match=r"(?s)effort.*hint: "):
        weft.tune("ring:4", "allgather", effort="3")  # type: ignore[arg-type]
