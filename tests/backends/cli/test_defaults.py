"""Defaults of options: weft.toml and [tool.weft]; what is typed counts more, mistakes are named."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import Weft


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    return tmp_path


def shown(weft: Weft, *words: str) -> str:
    """The name of the machine of a bound."""
    return str(json.loads(weft("bound", *words, "--json").ended(0).out)["topology"])


def test_the_nearest_file_counts_and_typed_options_count_more(weft: Weft, folder: Path) -> None:
    (folder / "weft.toml").write_text('topology = "ring:4"\ncollective = "allgather"\n')
    assert shown(weft) == "ring:4"
    assert shown(weft, "-tring:5") == shown(weft, "--topology=ring:5") == "ring:5"
    assert "Defaults topology=ring:4, collective=allgather" in weft("bound").err
    assert "Defaults" not in weft("bound", "-q").err
    (folder / "inner" / "pyproject.toml").write_text(
        '[tool.weft]\ncollective = "broadcast"\n[tool.weft.bound]\ntopology = "ring:6"\n'
    )
    assert shown(weft) == "ring:6"
    (folder / "inner" / "pyproject.toml").write_text("[tool.other]\n")
    assert shown(weft) == "ring:4"


def test_tables_of_verbs_lists_and_switches(weft: Weft, folder: Path) -> None:
    (folder / "weft.toml").write_text(
        '[bound]\njson = true\nquiet = false\ndown = ["gpu0-gpu1"]\n[topo.list]\njson = true\n'
    )
    whole = ("bound", "-c", "allgather", "-t", "full:4")
    cut = json.loads(weft(*whole).out)["bound"]
    (folder / "weft.toml").rename(folder / "kept.toml")
    assert cut == json.loads(weft(*whole, "--json", "--down", "gpu0-gpu1").out)["bound"]
    assert cut != json.loads(weft(*whole, "--json").out)["bound"]
    (folder / "kept.toml").rename(folder / "weft.toml")
    assert json.loads(weft("topo", "list").out)["topologies"]
    assert not weft("list", "passes").out.startswith("{")
    assert weft("bound", "--help").out.startswith("usage")


def test_a_file_states_its_own_problem(weft: Weft, folder: Path) -> None:
    synth = ("synth", "-t", "ring:4", "-c", "allgather", "--objective", "bandwidth", "-e")
    assert weft(*synth, "classic", "-o", "ring.json").code == 0
    (folder / "weft.toml").write_text('topology = "full:4"\ncollective = "broadcast"\n')
    assert shown(weft) == "full:4"
    assert shown(weft, "ring.json") == shown(weft, "--size", "1MiB", "ring.json") == "ring:4"
    for verb in ("simulate", "check", "run", "explain"):
        assert "Defaults" not in weft(verb, "ring.json").ended(0).err
    (folder / "weft.toml").write_text('[simulate]\ntopology = "full:4"\nsize = "1MiB"\n')
    assert "Defaults topology=full:4, size=1MiB" in weft("simulate", "ring.json").err


def test_a_variable_names_the_file_or_none(
    weft: Weft, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "weft.toml").write_text("nonsense")
    (folder / "other.toml").write_text('topology = "ring:3"\ncollective = "allgather"\n')
    monkeypatch.setenv("WEFT_CONFIG", str(folder / "other.toml"))
    assert shown(weft) == "ring:3"
    monkeypatch.setenv("WEFT_CONFIG", "")
    assert shown(weft, "-t", "ring:5", "-c", "broadcast") == "ring:5"


def test_a_project_of_another_shape(weft: Weft, folder: Path) -> None:
    """A pyproject.toml without weft may be anything; with it, it must be right."""
    project = folder / "inner" / "pyproject.toml"
    project.write_bytes(b"\xff not TOML")
    assert shown(weft, "-t", "ring:5", "-c", "broadcast") == "ring:5"
    for text in ("[tool.weft", "tool.weft = 5"):
        project.write_text(text)
        weft("bound", "-t", "ring:5", "-c", "broadcast").ended(2, str(project))


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("effort = 5\ntopologi = 'x'\n", 2, "no verb has an option --topologi"),
        ("[bound]\neffort = 5\n", 2, "weft bound has no option --effort"),
        ("[bund]\nsize = 5\n", 1, "expected a verb, got [bund]"),
        ("bound = 5\n", 1, "'bound' is a verb"),
        ("\n[bound]\njson = 'yes'\n", 3, "--json takes no value"),
        ("collective = ['a', 'b']\n", 1, "--collective takes one value"),
        ("collective = true\n", 1, "--collective takes a text or a number"),
        ("placement = 'exact'\n[simulate]\nsize = 'big'\n", 0, ""),
        ("root = 'x,'\n", 1, "--root"),
        ("nonsense\n", 0, "not TOML"),
    ],
)
def test_mistakes_are_named_with_their_line(
    weft: Weft, folder: Path, text: str, line: int, told: str
) -> None:
    path = folder / "weft.toml"
    path.write_text(text)
    ran = weft("bound", "-t", "ring:4", "-c", "broadcast")
    if not told:  # options of other verbs are theirs
        assert ran.code == 0, ran.err
        return
    assert ran.code == 2
    assert told in ran.err
    assert f"{path}:{line}" in ran.err if line else str(path) in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("verb", "text", "told"),
    [
        ("bound", 'collective = "elsewhere/evil.py"', "got the Python code"),
        ("bound", 'topology = "evil.py:ring{ranks=4}"', "got the Python code"),
        ("synth", 'sketch = "a.json+evil.py"', "got the Python code"),
        ("synth", 'output = "out.json"', "--output is not read from a file"),
        ("synth", "force = true", "--force is not read from a file"),
        ("synth", '[synth]\nlog = "log.jsonl"', "--log is not read from a file"),
        ("sweep", 'cluster = "tcp://elsewhere:8786"', "--cluster is not read from a file"),
        ("sweep", 'cache = "forged"', "--cache is not read from a file"),
        ("run", '[run]\ntrace = "trace.json"', "--trace is not read from a file"),
    ],
)
def test_a_file_names_neither_code_nor_outputs(
    weft: Weft, folder: Path, verb: str, text: str, told: str
) -> None:
    (folder / "inner" / "evil.py").write_text("open('executed', 'w')")
    (folder / "weft.toml").write_text(text)
    weft(verb, *([] if verb == "bound" else ["-t", "ring:4"])).ended(
        2, told, str(folder / "weft.toml")
    )
    assert [file.name for file in (folder / "inner").iterdir()] == ["evil.py"]


@pytest.mark.parametrize("end", ["repository", "home", "none"])
def test_files_above_the_repository_or_the_home_folder_are_not_sought(
    weft: Weft, folder: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "weft.toml").write_text('topology = "ring:4"\n')
    if end == "repository":
        (folder / "inner" / ".git").write_text("gitdir: elsewhere\n")
    elif end == "home":
        monkeypatch.setenv("HOME", str(folder / "inner"))
    weft("bound", "-c", "allgather").ended(0 if end == "none" else 2)


@pytest.mark.parametrize("strange", ["weft.toml", "."])
def test_a_file_of_another_user_is_not_read(
    weft: Weft, folder: Path, strange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "weft.toml").write_text('topology = "ring:4"\n')
    stat = Path.stat

    def of_another(path: Path, **options: bool) -> object:
        stat(path, **options)
        return SimpleNamespace(st_uid=os.geteuid() + (path == folder / strange))

    monkeypatch.setattr(Path, "stat", of_another)
    weft("bound", "-c", "allgather").ended(2, f"warning: {folder / 'weft.toml'} is not read")
    assert "is not read" in weft("doctor").out
    monkeypatch.setenv("WEFT_CONFIG", str(folder / "weft.toml"))
    assert shown(weft, "-c", "allgather") == "ring:4"


@pytest.mark.parametrize("number", ["9" * 4301, "0x" + "f" * 5000, "[" * 5000 + "]" * 5000])
def test_numbers_and_nesting_beyond_limits_are_refused(
    weft: Weft, folder: Path, number: str
) -> None:
    (folder / "weft.toml").write_text(f"seed = {number}\n")
    weft("synth", "-t", "ring:4").ended(2, str(folder / "weft.toml"))


def test_a_working_folder_that_was_removed_has_no_defaults(weft: Weft, folder: Path) -> None:
    (folder / "inner").rmdir()
    assert shown(weft, "-t", "ring:4", "-c", "allgather") == "ring:4"
