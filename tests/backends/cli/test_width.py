"""Every verb's text fits a terminal of 80 columns; colour, and folders that are no library."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_logs import log_text

from weft.backends.cli.frame.parser import VERBS
from weft.backends.cli.output import console
from weft.backends.cli.output.console import coloured, fitted_text
from weft.dsl.base.tables import table

WIDTH = 80

CLASSIC = "classic:ring{collective=allreduce,ranks=4}"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Files that the verbs read."""
    from weft.backends.cli import main

    folder = tmp_path_factory.mktemp("made")
    asked = ["synth", "-t", "dgx1", "-c", "allgather", "-e", "classic", "-q"]
    assert main([*asked, "--objective", "bandwidth", "-o", f"{folder}/ag.json"]) == 0
    assert main(["compile", f"{folder}/ag.json", "-q", "-o", f"{folder}/ag.xml"]) == 0
    loads = [{"name": f"an operation {i}", "kind": "load", "us": {"nic": 4}} for i in range(9)]
    step = {"weft": "workload", "schema": 1, "operations": loads}
    (folder / "step.json").write_text(json.dumps(step))
    (folder / "run.txt").write_text(log_text("all_reduce", {8: (5.0, 5.0), 1024: (6, 6)}, gpus=4))
    tuned = ["tune", "-t", "line:2", "-c", "allreduce", "--sizes", "64KiB", "-e", "classic"]
    tuned += ["--protocols", "Simple", "-q", "--jobs", "1", "-o", f"{folder}/library"]
    assert main(tuned) == 0
    return folder


COMMANDS = {
    "synth": "synth -t ring:4 -c allgather -e classic",
    "bound": "bound -t dgx1 -c allreduce --size 1KiB:1GiB",
    "failures": "failures -t ring:4 -c allgather --size 1MiB",
    "explain": "explain {made}/ag.json --size 1MiB",
    "plan": "plan {made}/step.json",
    "check": "check {made}/ag.xml",
    "compile": "compile {made}/ag.json --to program -o {out}/p.json",
    "simulate": "simulate {made}/ag.xml -t dgx1 --size 1KiB:1MiB",
    "run": "run {made}/ag.xml",
    "tune": "show {made}/library",
    "resynth": "check {made}/library",
    "deploy": "deploy {made}/library --for kubernetes",
    "verify-run": "verify-run {made}/run.txt",
    "tuner": "tuner {made}/run.txt:algorithm=ring,protocol=ll {made}/run.txt:algorithm=tree,"
    "protocol=simple -o {out}/t.conf",
    "show": "show {made}/ag.json -t dgx1 --size 1MiB",
    "diff": "diff {made}/ag.json {made}/ag.json",
    "topo": "topo list",
    "sketch": "sketch list",
    "cache": "cache list --cache {out}",
    "list": "list engines",
    "doctor": "doctor",
}
"""A command of each verb with text as its result; those that need long runs are shown by what they
make: tune and resynth by ``show`` and ``check`` of a library."""

ELSEWHERE = {"sweep", "profile", "bench", "completion", "serve"}
"""Long runs on ranks or of searches, whose tables are the same; and a script."""


def test_every_verb_has_a_command_here() -> None:
    missing = set(VERBS) - set(COMMANDS) - ELSEWHERE
    assert not {verb for verb in missing if verb not in ("workload", "place")}, missing


@pytest.mark.parametrize("verb", [*COMMANDS, "list --options", "topo show", "list passes"])
def test_no_line_is_wider(weft, made: Path, tmp_path: Path, monkeypatch, verb: str) -> None:
    more = {
        "list --options": "list engines --options",
        "topo show": "topo show dgx-a100:nodes=2",
        "list passes": "list passes",
    }
    monkeypatch.setattr(console, "columns", lambda: WIDTH)
    line = (more.get(verb) or COMMANDS[verb]).format(made=made, out=tmp_path)
    out = weft(*line.split())
    assert out.out or out.code == 0, out.err
    free = [
        part
        for part in out.out.splitlines()
        if len(part) > WIDTH and max(map(len, part.split()), default=0) < WIDTH // 2
    ]
    assert free == []


def test_on_a_terminal_it_is_so_too(made: Path) -> None:
    """A real one: 80 columns by its own size."""
    main, side = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    done = subprocess.Popen(
        [sys.executable, "-m", "weft.backends.cli", "check", str(made / "ag.xml")],
        stdout=side,
        stderr=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm"},
    )
    os.close(side)
    text = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    assert done.wait() == 0
    os.close(main)
    assert b"\x1b[1;32mok\x1b[0m" in text
    plain = re.sub("\x1b\\[[\\d;]*m", "", text.decode())
    assert max(map(len, plain.splitlines())) <= WIDTH


WORDS = st.text("abcdefgh", min_size=1, max_size=9)
CELL = st.lists(WORDS, min_size=1, max_size=12).map(" ".join) | st.integers(0, 10**6).map(str)


@given(
    st.integers(2, 7).flatmap(
        lambda n: st.tuples(
            st.lists(WORDS, min_size=n, max_size=n),
            st.lists(st.lists(CELL, min_size=n, max_size=n), min_size=1, max_size=5),
        )
    )
)
def test_tables_of_any_kind_fit_and_lose_no_word(given_table) -> None:
    head, rows = given_table
    text = fitted_text(table(head, rows), WIDTH)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    words = sorted(word for row in [head, *rows] for cell in row for word in cell.split())
    kept = sorted(text.split())
    assert all(kept.count(word) >= words.count(word) for word in words)


def test_text_that_fits_and_pipes_stay_as_they_are() -> None:
    assert fitted_text("a  b\nc  d", 80) == "a  b\nc  d"
    long = "x  " + "word " * 40
    assert fitted_text(long, 0) == long


@pytest.mark.parametrize(("flag", "painted"), [("always", True), ("never", False), ("auto", False)])
def test_colour_is_asked_for(weft, made: Path, flag: str, painted: bool) -> None:
    assert ("\x1b[1;32mok\x1b[0m" in weft("check", made / "ag.xml", "--color", flag).out) == painted
    out = weft("check", made / "ag.xml", f"--color={flag}", "--json")
    assert json.loads(out.out)["status"] == "ok"


def test_only_first_words_of_lines_are_verdicts() -> None:
    assert coloured("it is ok\nokay") == "it is ok\nokay"
    assert coloured("FAILED  x") == "\x1b[1;31mFAILED\x1b[0m  x"


def test_a_folder_is_shown_by_its_files(weft, made: Path) -> None:
    lines = {line.split()[0]: line for line in weft("show", made).ended(0).out.splitlines()[3:]}
    assert "schedule" in lines["ag.json"]
    assert "msccl-xml" in lines["ag.xml"]
    assert "library" in lines["library/"]
    told = json.loads(weft("show", made, "--json").out)
    assert {one["kind"] for one in told["files"]} == {
        *("schedule", "msccl-xml", "library", "workload"),
        "topology",  # of which a run of nccl-tests tells something
    }
    assert weft("show", made, "--size", "1MiB").code == 2
    assert "weft show" in weft("check", made).err


def test_defaults_are_in_json_and_in_doctor(weft, made: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "weft.toml").write_text('[show]\nsize = "1MiB"\n')
    monkeypatch.setenv("WEFT_CONFIG", str(tmp_path / "weft.toml"))
    told = json.loads(weft("show", made / "ag.json", "--json").out)
    assert told["defaults"] == {"file": str(tmp_path / "weft.toml"), "options": {"size": "1MiB"}}
    assert "defaults" not in json.loads(weft("check", made / "ag.xml", "--json").out)
    row = next(
        x for x in json.loads(weft("doctor", "--json").out)["checks"] if x["name"] == "defaults"
    )
    assert "[show]" in row["detail"]
    monkeypatch.setenv("WEFT_CONFIG", "")
    assert "none" in weft("doctor").out
