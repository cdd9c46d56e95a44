"""Reading text and JSON: what programs of other people write, and what nobody can mean."""

import codecs
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base import files
from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import parse_json, read_text

BOM = "\ufeff"


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (r'{"name":"\ud800"}', "f:1:10"),
        (r'{"\uDFFF":1}', "f:1:3"),
        ('{"a":[\n"ok", "\\\\\\udc00x"]}', "f:2:10"),
        (r'["\ude00\ud83d"]', "f:1:3"),
        (r'["\ud83dx\ude00"]', "f:1:3"),
        ('["\ud800"]', "f:1:3"),
    ],
)
def test_a_lone_surrogate_is_no_character(text: str, place: str) -> None:
    with pytest.raises(BadFile, match="lone surrogate") as caught:
        parse_json(text, "f")
    assert caught.value.where == place
    caught.value.render().encode()


def test_pairs_of_surrogates_and_escaped_backslashes_are_text() -> None:
    assert parse_json(r'["\ud83d\ude00", "\\ud800", "\uD83D\uDE00"]', "f") == [
        "😀",
        "\\ud800",
        "😀",
    ]


@given(st.text(alphabet=st.sampled_from('\\ud8c09af\n"x😀')))
def test_what_is_read_can_be_written(text: str) -> None:
    try:
        found = parse_json(f'["{text}"]', "f")
    except BadFile as error:
        error.render().encode()
    else:
        repr(found).encode()
        found[0].encode()


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "1" * 5000])
def test_a_number_of_thousands_of_digits(number: str) -> None:
    with pytest.raises(BadFile, match="integer of more than 4300 digits") as caught:
        parse_json(f'{{"a": {number}}}', "f")
    assert "set_int_max_str_digits" not in caught.value.render()
    assert caught.value.where == "f"


@pytest.mark.parametrize("number", ["1e999", "-1e400"])
def test_a_number_beyond_all_floats(number: str) -> None:
    with pytest.raises(BadFile, match="too large"):
        parse_json(f"[{number}]", "f")


# --- files without an end, and large ones ---------------------------------------------------------


def test_devices_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a named pipe"), ("/dev/zero", "a device or socket")):
        with pytest.raises(BadFile, match=f"expected a file, got {kind}") as caught:
            read_text(path)
        assert caught.value.hint == "`-` reads standard input"


def test_the_largest_input_is_set_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "large"
    file.write_text("x" * 4097)
    monkeypatch.setenv("WEFT_READ_LIMIT", "4KiB")
    with pytest.raises(BadFile, match="larger than 4KiB"):
        read_text(file)
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 4097))
    with pytest.raises(BadFile, match="larger than 4KiB"):
        read_text("-")
    monkeypatch.setenv("WEFT_READ_LIMIT", "5KiB")
    assert read_text(file) == "x" * 4097
    monkeypatch.setenv("WEFT_READ_LIMIT", "much")
    with pytest.raises(UserError) as wrong:
        read_text(file)
    assert wrong.value.where == "$WEFT_READ_LIMIT"


def test_every_end_of_line_is_read_as_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\r\n2\r3\n")
    assert read_text(tmp_path / "a") == "1\n2\n3\n"


# --- byte-order marks -----------------------------------------------------------------------------


def test_the_mark_of_utf_8_is_no_part_of_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    for text in ('{"a": 1}', 'name = "a"\n', "\tGPU0\nGPU0\t X\n", "sketch s {}", ""):
        file.write_text(BOM + text, encoding="utf-8")
        assert read_text(file) == text
        monkeypatch.setattr("sys.stdin", io.StringIO(BOM + text))
        assert read_text("-") == text


@pytest.mark.parametrize("text", ["<algo/>", " \n<algo/>"])
def test_the_mark_stays_before_xml_which_the_runtimes_reject(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_text(BOM + text, encoding="utf-8")
    assert read_text(tmp_path / "a") == BOM + text


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_other_marks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    raw = (BOM + '{"weft": "topology"}').encode(coding)
    (tmp_path / "a").write_bytes(raw)
    stdin = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", stdin)
    for path in (tmp_path / "a", "-"):
        with pytest.raises(BadFile, match=rf"byte-order mark of {coding[:6].upper()}") as caught:
            read_text(path)
        assert "UTF-8" in caught.value.hint


def test_bytes_that_a_terminal_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = codecs.BOM_UTF16_LE + "{}".encode("utf-16-le")
    stdin = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(BadFile, match="UTF-16"):
        read_text("-")


def test_a_file_that_waits_for_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /proc/kmsg, which counts as a regular file: here a pipe that is made to look like one."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    monkeypatch.setattr(files, "_require_regular", lambda mode, where: None)
    writer = os.open(pipe, os.O_RDWR)  # somebody may still write
    try:
        with pytest.raises(BadFile, match="got one that waits for more"):
            files.read_bytes(pipe)
    finally:
        os.close(writer)
