"""A format of an outsider, ten lines and an entry point, is treated as our own by every verb.

The package is installed as far as Python knows: a module and a ``dist-info`` folder on the path.
"""

from pathlib import Path

import pytest
from toy_packages import install

from weft.backends.cli import main

WHOLE = """
import json
from weft.backends.formats.format import ProgramFormat
from weft.dsl.nouns.program import dump, load

class Lisp(ProgramFormat):
    name = "lisp"
    def recognizes(self, text, data):
        return text.startswith("(program ")
    def read(self, text, where):
        return load(json.loads(text[len("(program "):-2]), where)
    def emit(self, program, target, sizes):
        return f"(program {json.dumps(dump(program))})\\n"
"""

BARE = """
from weft.backends.formats.format import Format

class Haiku(Format):
    name = "haiku"
    def recognizes(self, text, data):
        return text.startswith("An old silent pond")

class Alien:
    pass

class Silent(Haiku):
    name = "silent"
    noun = "silent file"
    def recognizes(self, text, data):
        return text.startswith("Silence")
    def findings(self, text, where, target):
        return ()
    def execute(self, text, where, request, tell):
        return None
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with two formats on the path; the folder for files."""
    install(
        tmp_path / "site",
        monkeypatch,
        {"weft_outsiders_lisp": WHOLE, "weft_outsiders_haiku": BARE},
        {
            "weft.backends": {
                "lisp": "weft_outsiders_lisp:Lisp",
                "haiku": "weft_outsiders_haiku:Haiku",
                "gone": "weft_outsiders_gone:Gone",
                "alien": "weft_outsiders_haiku:Alien",
                "silent": "weft_outsiders_haiku:Silent",
            }
        },
    )
    work = tmp_path / "work"
    work.mkdir()
    return work


@pytest.fixture
def lisp(plugins: Path, triangle: Path) -> Path:
    """An artefact of the outsider's format, compiled from a schedule."""
    file = plugins / "ag.lisp"
    assert main(["compile", str(triangle), "--to", "lisp", "-o", str(file), "-q"]) == 0
    assert file.read_text().startswith("(program ")
    return file


@pytest.mark.parametrize(
    "words",
    [
        ["check", "FILE"],
        ["check", "FILE", "--target", "rccl"],
        ["run", "FILE", "--interleavings", "3"],
        ["show", "FILE"],
        ["show", "FILE", "-t", "ring:3"],
        ["show", "FILE", "--format", "html", "-o", "OUT", "-t", "ring:3"],
        ["show", "FILE", "--format", "svg", "-o", "OUT", "-t", "ring:3"],
        ["show", "FILE", "--format", "perfetto", "-o", "OUT", "-t", "ring:3"],
        ["simulate", "FILE", "-t", "ring:3", "--size", "64KiB"],
        ["diff", "FILE", "FILE", "-t", "ring:3"],
        ["compile", "FILE", "--to", "msccl-xml", "-o", "OUT"],
        ["compile", "FILE", "--to", "mpi", "-o", "OUT"],
        ["compile", "FILE", "--to", "lisp", "--instances", "2", "-o", "OUT"],
    ],
    ids=lambda words: " ".join(words),
)
def test_every_verb_takes_it(lisp: Path, words: list[str]) -> None:
    out = lisp.with_name("out")
    assert main([w.replace("FILE", str(lisp)).replace("OUT", str(out)) for w in words]) == 0
    assert out.exists() == ("OUT" in words)


def test_it_is_shown_and_diffed_as_our_own_program_file(
    lisp: Path, triangle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = lisp.with_name("ag.json")
    assert main(["compile", str(triangle), "--to", "program", "-o", str(ours), "-q"]) == 0
    capsys.readouterr()
    for verb in ("show", "check", "run"):
        assert main([verb, str(ours)]) == 0
        expected = capsys.readouterr().out
        assert main([verb, str(lisp)]) == 0
        assert capsys.readouterr().out == expected
    assert main(["diff", str(lisp), str(ours)]) == 2
    assert "a lisp and a program cannot be compared" in capsys.readouterr().err


def test_a_wrong_one_is_found_out(lisp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = lisp.with_name("broken.lisp")
    broken.write_text(lisp.read_text().replace('"r"', '"s"', 1).replace('"rcs"', '"s"', 1))
    assert broken.read_text() != lisp.read_text()
    assert main(["check", str(broken)]) == 1
    assert main(["simulate", str(broken), "-t", "ring:3"]) == 1


def test_it_is_listed(plugins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "backends"]) == 0
    assert "lisp" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["check", "FILE"], "a haiku file can be shown, not checked"),
        (["run", "FILE"], "a haiku file can be shown, not run"),
        (["simulate", "FILE", "-t", "ring:3"], "a haiku file can be shown, not simulated"),
        (["show", "FILE", "-t", "ring:3"], "a haiku file can be shown, not simulated"),
        (["show", "FILE", "--format", "svg"], "a haiku file can be shown, not drawn"),
        (
            ["show", "FILE", "--format", "perfetto"],
            "a haiku file can be shown, not drawn as a trace",
        ),
        (["compile", "FILE"], "a haiku file can be shown, not compiled"),
        (["compile", "ring.py", "--to", "haiku"], "a haiku file can be shown, not written"),
    ],
)
def test_what_it_lacks_is_refused_in_words(
    plugins: Path, words: list[str], refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = plugins / "pond.haiku"
    file.write_text("An old silent pond...\nA frog jumps into the pond,\nsplash! Silence again.\n")
    assert main(["show", str(file)]) == 0
    assert capsys.readouterr().out.startswith("An old silent pond")
    assert main(["diff", str(file), str(file)]) == 0
    ring = "classic:ring{collective=allreduce,ranks=3}"
    capsys.readouterr()
    assert main([w.replace("FILE", str(file)).replace("ring.py", ring) for w in words]) == 2
    assert refusal in capsys.readouterr().err


@pytest.mark.usefixtures("plugins")
def test_a_class_that_is_not_a_format(capsys: pytest.CaptureFixture[str]) -> None:
    ring = "classic:ring{collective=allreduce,ranks=3}"
    assert main(["compile", ring, "--to", "alien"]) == 4
    told = capsys.readouterr().err
    assert "the backend 'alien' of weft-toy 1.0 is not a format: Alien does not derive from" in told


def test_one_without_a_collective_is_not_run_and_not_called_runnable(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = plugins / "file"
    file.write_text("Silence\n")
    assert main(["check", str(file)]) == 0
    assert main(["run", str(file)]) == 2
    told = capsys.readouterr().err
    assert "a silent file does not state its collective, so that no result can be compared" in told


def test_one_that_cannot_be_loaded_is_no_obstacle(plugins: Path) -> None:
    file = plugins / "unknown"
    file.write_text("nothing that anything knows\n")
    assert main(["check", str(file)]) == 2


def test_a_library_holds_files_of_it(plugins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = plugins / "library"
    asked = ["tune", "-t", "ring:3", "-c", "allgather", "--sizes", "64KiB", "-e", "classic"]
    few = ["--protocols", "Simple", "--placement", "both", "--jobs", "1"]
    assert main([*asked, *few, "--to", "lisp", "-o", str(library)]) == 0
    files = sorted(library.glob("lisp/*"))
    assert files
    assert {file.suffix for file in files} == {".txt"}
    assert main(["check", str(library)]) == 0
    capsys.readouterr()
    files[0].write_text(files[0].read_text().replace('"allgather"', '"alltoall"'))
    assert main(["check", str(library)]) == 1
    assert f"lisp/{files[0].name}" in capsys.readouterr().out


@pytest.mark.parametrize("to", ["haiku", "torch-calls", "goal"])
def test_one_that_no_plan_can_be_in_is_refused_before_the_search(
    plugins: Path, to: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "-t", "ring:3", "-c", "allreduce", "--sizes", "64KiB", "--to", to]) == 2
    told = capsys.readouterr().err
    assert "Found" not in told
    assert f"expected a format of programs for a range of sizes, got {to}" in told
