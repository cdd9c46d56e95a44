"""Files appear whole or not at all."""

import io
import os
import stat
from pathlib import Path

import pytest

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import read_text, write_folder, write_text

OURS = '{"weft":"schedule"}\n'


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_text(file, "one")
    with pytest.raises(UserError, match="the file exists"):
        write_text(file, "two")
    assert file.read_text() == "one"
    write_text(file, "two", force=True)
    assert file.read_text() == "two"
    assert names(tmp_path) == ["a.json"]


def test_the_mode_is_what_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "x")
        write_folder(tmp_path / "d", {"b.json": OURS})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o750


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to_not_replaced() -> None:
    write_text("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(UserError, match="No space left"):
        write_text("/dev/full", "x", force=True)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.parametrize("path", ["no/such/a.json", "a\0b", "x" * 300])
def test_a_path_that_cannot_be(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"does not exist|cannot be written"):
        write_text(path, "x")
    with pytest.raises(UserError, match=r"does not exist|cannot be written"):
        write_folder(path, {"a": "x"})
    with pytest.raises(BadFile):
        read_text(path)
    assert names(tmp_path) == []


def test_bad_bytes_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe{"), encoding="utf-8"))
    with pytest.raises(BadFile, match="UTF-8") as caught:
        read_text("-")
    assert caught.value.where == "<stdin>"


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    write_folder(tmp_path / "d", {"a.json": OURS, "b.json": OURS})
    assert names(tmp_path) == ["d"]
    assert names(tmp_path / "d") == ["a.json", "b.json"]


def test_a_folder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        write_folder(tmp_path / "d", {"a.json": OURS, "x" * 300: OURS})
    assert names(tmp_path) == []


def test_an_empty_folder_is_used_and_a_full_one_needs_force(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    write_folder(folder, {"a.json": OURS})
    with pytest.raises(UserError, match="not empty"):
        write_folder(folder, {"b.json": OURS})
    write_folder(folder, {"b.json": OURS}, force=True)
    assert names(folder) == ["b.json"]
    assert names(tmp_path) == ["d"]


def test_force_does_not_delete_what_others_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    with pytest.raises(UserError, match=r"package\.json"):
        write_folder(folder, {"b.json": OURS}, force=True)
    assert names(folder) == ["package.json"]


def test_a_failed_replacement_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "d"
    write_folder(folder, {"a.json": OURS})
    rename = Path.rename

    def fails_second(self: Path, target: Path) -> Path:
        if self.name.startswith(".d.") and not self.parent.name.startswith(".d"):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_second)
    with pytest.raises(UserError, match="No space left"):
        write_folder(folder, {"b.json": OURS}, force=True)
    assert names(folder) == ["a.json"]
    assert names(tmp_path) == ["d"]


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("x")
    with pytest.raises(UserError, match="expected a folder for the output, got a file"):
        write_folder(tmp_path / "d", {"a.json": OURS}, force=True)
    with pytest.raises(UserError, match="directory"):
        write_text(tmp_path, "x", force=True)


@pytest.mark.parametrize("name", ["../beside.json", "/tmp/absolute.json", "a/../../beside.json"])
def test_no_file_of_a_folder_lands_outside_of_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="outside the folder"):
        write_folder(tmp_path / "new", {name: "{}"})
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_without_a_reader_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="expected a pipe with a reader"):
        write_text(pipe, "text", force=True)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text", force=True)
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
