"""The frame: exit codes, streams, errors, help."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import Weft
from until import HANGS

from weft.backends.cli.frame import entry
from weft.backends.cli.frame.parser import FLAGS, VERBS
from weft.backends.cli.output.console import Exit
from weft.dsl.base.errors import Infeasible, Missing, NothingFound, UserError

HEAVY = ("numpy", "ortools", "z3", "scipy", "rich", "lark", "networkx")


def subprocess_weft(*arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    code = "import sys; from weft.backends.cli import command; sys.exit(command())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], text=True, timeout=HANGS, **kwargs
    )


def test_the_contract_of_exit_codes() -> None:
    assert {c.name: int(c) for c in Exit} == {
        "DONE": 0,
        "NO": 1,
        "WRONG_QUESTION": 2,
        "NOTHING_FOUND": 3,
        "MISSING": 4,
        "BUG": 70,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(weft: Weft, verb: str) -> None:
    ran = weft(verb, "--help").ended(0)
    assert ran.out.startswith(f"usage: weft {verb}")
    assert ran.err == ""


@pytest.mark.parametrize("words", [(), ("synth",), ("topo", "show")])
def test_help_is_a_verb_too(weft: Weft, words: tuple[str, ...]) -> None:
    asked, flag = weft("help", *words), weft(*words, "--help")
    assert (
        (asked.code, asked.out, asked.err) == (flag.code, flag.out, flag.err) == (0, flag.out, "")
    )
    assert asked.out.startswith(" ".join(("usage: weft", *words)))


def test_without_a_verb_the_help_is_an_error(weft: Weft) -> None:
    ran = weft()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == weft("--help").out


def test_a_short_flag_prints_the_version(weft: Weft) -> None:
    assert weft("-V").out == weft("--version").out != ""


@pytest.mark.parametrize(
    ("words", "loaded"),
    [(["--help"], []), (["bound", "--help"], []), (["list", "engines"], ["list"])],
)
def test_only_the_verb_that_was_asked_for_is_imported(words: list[str], loaded: list[str]) -> None:
    code = (
        f"import sys; from weft.backends.cli import main; main({words!r})\n"
        "print([m for m in sys.modules if '.cli.verbs.' in m], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS
    )
    assert done.stderr.strip() == str([f"weft.backends.cli.verbs.{verb}" for verb in loaded])


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys; from weft.backends.cli import main\n"
        f"for verb in {list(FLAGS)!r}: assert main([verb, '--help']) == 0\n"
        "for a in (['--help'], ['--version']): assert main(a) == 0\n"
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("help", "snyth"), "unknown verb 'snyth'", "'synth'"),
        (("-f", "compile", "x.xml"), "-f stands before the verb", "weft compile … -f"),
        (("topo", "-q", "list"), "-q stands before the verb", "weft topo list … -q"),
        (("snyth",), "unknown verb 'snyth'", "'synth'"),
        (("topo", "sow", "ring:3"), "unknown verb 'sow'", "'show'"),
        (("topo", "show", "ring:3", "--jsn"), "unknown option '--jsn'", "'--json'"),
        (("topo", "show", "ring:3", "more"), "unknown argument 'more'", "--help"),
        (("topo", "show"), "required: TOPO", "--help"),
        (("list", "engine"), "unknown value of kind: 'engine'", "'engines'"),
        (("synth", "-t", "ring:3"), "-c/--collective", "--help"),
        (("synth", "-t", "ring:3", "-c", "allgather", "--objective", "fast"), "'fast'", "latency"),
        (("synth", "-t"), "expected one argument", "--help"),
    ],
)
def test_wrong_usage_is_2_with_a_hint(
    weft: Weft, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    ran = weft(*arguments).ended(2)
    assert ran.out == ""
    assert message in ran.err.splitlines()[0]
    assert hint in ran.err.partition("\n\nhint: ")[2]


def test_json_errors_are_one_object_on_stdout(weft: Weft) -> None:
    ran = weft("topo", "show", "rong:3", "--json").ended(2)
    assert ran.json["schema"] == 1
    assert ran.json["status"] == "error"
    assert set(ran.json["error"]) == {"message", "where", "hint"}
    assert "'ring'" in ran.json["error"]["hint"]
    assert ran.err.startswith("error: ")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the verb ``doctor`` end like that."""

    def run(*_: object) -> int:
        raise error

    real = entry.verb_of
    monkeypatch.setattr(
        entry, "verb_of", lambda name: SimpleNamespace(run=run) if name == "doctor" else real(name)
    )


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (Infeasible("no", conflict=("a", "b")), 1, "infeasible"),
        (UserError("what"), 2, "error"),
        (NothingFound("time"), 3, "nothing"),
        (Missing("solver", hint="pip install it"), 4, "error"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 3, "nothing"),
    ],
)
def test_every_ending_has_its_code_and_status(
    weft: Weft, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, status: str
) -> None:
    raising(monkeypatch, error)
    ran = weft("doctor", "--json")
    assert (ran.code, ran.json["status"]) == (code, status)
    assert "Traceback" not in ran.err
    if isinstance(error, Infeasible):
        assert ran.json["conflict"] == ["a", "b"]


def test_a_bug_is_70_with_a_saved_report(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ZeroDivisionError("by zero"))
    ran = weft("doctor").ended(70, "a bug in weft: ZeroDivisionError: by zero")
    assert "Traceback" not in ran.err
    found = re.search(r"report it with (\S+)", ran.err)
    assert found
    report = Path(found[1])
    assert "Traceback" in report.read_text()
    assert "weft doctor" in report.read_text()
    report.unlink()


def test_an_import_that_is_interrupted_is_no_bug(
    weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's C code makes ImportError of the KeyboardInterrupt."""

    def run(*_: object) -> int:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("Importing the numpy C-extensions failed")

    monkeypatch.setattr(entry, "verb_of", lambda _: SimpleNamespace(run=run))
    assert "bug" not in weft("doctor").ended(130).err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_only_v_shows_the_traceback(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ZeroDivisionError("by zero"))
    ran = weft("doctor", "-v").ended(70, "Traceback")
    Path(re.search(r"report it with (\S+)", ran.err)[1]).unlink()  # type: ignore[index]


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess_weft("show", "dgx1", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


LEAVES = """
import atexit, sys, tempfile, threading
from weft.backends.cli import command
folder = tempfile.TemporaryDirectory()
atexit.register(lambda: print("hook ran"))
if sys.argv.pop() == "thread":
    threading.Timer(0.2, lambda: print("thread ran")).start()
print(folder.name)
sys.exit(command())
"""


@pytest.mark.parametrize(("words", "code"), [(("list", "engines"), 0), (("show", "nowhere"), 2)])
@pytest.mark.parametrize("thread", ["", "thread"])
def test_a_command_ends_after_its_hooks_and_threads(
    words: tuple[str, ...], code: int, thread: str
) -> None:
    """With its exit code, and without its temporary files."""
    command = [sys.executable, "-c", LEAVES, *words, thread]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == code
    assert done.stdout.splitlines()[-1] == "hook ran"
    assert ("thread ran" in done.stdout) == bool(thread)
    assert not Path(done.stdout.splitlines()[0]).exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_told() -> None:
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    for words in (("show", "dgx1", "--json"), ("show", "dgx1")):
        with open("/dev/full", "w") as full:
            done = subprocess_weft(*words, stdout=full, stderr=subprocess.PIPE, env=buffered)
        assert done.returncode == 2
        assert "standard output cannot be written: No space left" in done.stderr
        assert "Traceback" not in done.stderr


def test_results_and_words_do_not_mix(weft: Weft, tmp_path: Path) -> None:
    ran = weft(
        "topo", "import", "-", "-o", tmp_path / "t.json", "--json", stdin=json.dumps(EDGES)
    ).ended(0)
    assert ran.json["ranks"] == 2
    assert "Wrote" in ran.err
    quiet = weft("topo", "import", "-", "-o", tmp_path / "u.json", "-q", stdin=json.dumps(EDGES))
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


EDGES = {
    "weft": "topology",
    "schema": 1,
    "name": "pair",
    "nodes": [{"name": "gpu0", "kind": "gpu"}, {"name": "gpu1", "kind": "gpu"}],
    "links": [[0, 1, 25, "7/10", 1], [1, 0, 25, "7/10", 1]],
}
