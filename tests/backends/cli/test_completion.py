"""``weft completion``: candidates are those of the flags, and real shells get them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import Weft
from until import HANGS

from weft.backends.cli.frame.parser import FLAGS, VERBS
from weft.backends.cli.verbs.completion import SCRIPTS
from weft.dsl.base.registry import BACKENDS, ENGINES, PASSES


def words(weft: Weft, line: str) -> set[str]:
    """The candidates for the last word of a line; a blank at its end: for a new word."""
    ran = weft("completion", "bash", f"--line={line}")
    assert (ran.code, ran.err) == (0, "")
    return set(ran.out.split())


def test_verbs(weft: Weft) -> None:
    assert words(weft, "weft ") == {*VERBS, "help"}
    assert words(weft, "weft he") == {"help"}
    assert words(weft, "weft s") == {verb for verb in VERBS if verb.startswith("s")}
    assert words(weft, "weft help sy") == {"synth"}
    assert words(weft, "weft topo ") == {"list", "show", "diff", "import", "calibrate", "search"}
    assert words(weft, "weft help topo sh") == {"show"}
    assert words(weft, "weft nothing -") == set()


@pytest.mark.parametrize("verb", [verb for verb in VERBS if not FLAGS[verb].startswith("nested:")])
def test_every_option_of_a_verb_is_offered(weft: Weft, verb: str) -> None:
    shown = weft(verb, "--help").out
    offered = {word for word in words(weft, f"weft {verb} --") if word != "--help"}
    assert {"--json", "--quiet", "--verbose"} <= offered
    assert all(word in shown for word in offered)


def test_values(weft: Weft) -> None:
    assert words(weft, "weft synth -e ") == set(ENGINES.names())
    assert words(weft, "weft synth --engine=pack") == {"--engine=packing"}
    assert words(weft, "weft synth --objective lat") == {"latency"}
    assert words(weft, "weft compile x.json --to msc") == {
        name for name in BACKENDS.names() if name.startswith("msc")
    }
    assert words(weft, "weft compile x.json -p ") == set(PASSES.names())
    assert words(weft, "weft compile x.json -p fuse,chan") == {"fuse,channels"}
    assert words(weft, "weft synth -c allg") == {"allgather"}
    assert "custom" not in words(weft, "weft synth -c ")
    assert words(weft, "weft synth -s dgx1_") <= words(weft, "weft sketch show dgx1_")
    assert words(weft, "weft synth -t tor") == {"torus:"}
    assert "dgx1" in words(weft, "weft topo show dgx")


def test_lines_with_options_before_the_word(weft: Weft) -> None:
    """A flag without value leaves the next word alone; --json of the line is not ours."""
    assert words(weft, "weft synth --json -q -t ring:4 --objective b") == {"bandwidth"}
    assert words(weft, "weft synth --down gpu0-gpu1 --objec") == {"--objective"}
    assert words(weft, "weft compile ") == set()  # a file
    assert words(weft, "weft list en") == {"engines"}
    assert words(weft, "weft list engines --opt") == {"--options"}


def test_scripts(weft: Weft) -> None:
    for shell, script in SCRIPTS.items():
        assert json.loads(weft("completion", shell, "--json").out)["script"] == script
        assert weft("completion", shell).out == script
    weft("completion", "tcsh").ended(2, "tcsh")


@pytest.fixture
def path(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH begins with a command ``weft``."""
    command = tmp_path / "weft"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m weft.backends.cli "$@"\n')
    command.chmod(0o755)
    (tmp_path / "inputs.json").touch()
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def shell(argv: list[str], env: dict[str, str]) -> list[str]:
    ran = subprocess.run(
        argv, env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=HANGS
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("weft syn", ["synth"]),
        ("weft synth --objective ", ["bandwidth", "frontier", "latency", "time"]),
        ("weft synth --engine=pack", ["packing"]),  # bash replaces what stands after "="
        ("weft topo show tor", ["torus:"]),
        ("weft check inp", []),  # bash completes files
    ],
)
def test_bash(path: dict[str, str], line: str, replies: list[str]) -> None:
    script = SCRIPTS["bash"] + f"COMP_LINE='{line}' COMP_POINT={len(line)}; _weft; "
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    assert shell(["bash", "-c", script], path) == replies


OTHERS = [found for found in map(shutil.which, ("zsh", "fish")) if found]


@pytest.mark.parametrize("program", OTHERS or ["bash"])
def test_other_shells_read_their_script(path: dict[str, str], program: str) -> None:
    script = Path(path["HOME"]) / "script"
    script.write_text(SCRIPTS[Path(program).name])
    assert shell([program, "-n", str(script)], path) == []
    if program.endswith("fish"):
        assert shell([program, "-c", f"source {script}; complete -C 'weft syn'"], path) == ["synth"]
        files = shell([program, "-c", f"source {script}; complete -C 'weft check inp'"], path)
        assert files == ["inputs.json"]
