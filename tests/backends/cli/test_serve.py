"""``weft serve``: answers are those of the command alone, and other users get none."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import Ran, Weft
from until import HANGS, until

import weft

WEFT = [sys.executable, "-m", "weft.backends.cli"]
PLAIN = {
    **{k: v for k, v in os.environ.items() if not k.startswith("WEFT_")},
    "PYTHONPATH": str(Path(weft.__file__).parents[1]),
    "COLUMNS": "100",
}
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@dataclass(frozen=True)
class Server:
    """A process of ``weft serve``, and its socket."""

    path: Path
    process: subprocess.Popen[bytes]

    def __str__(self) -> str:
        return str(self.path)

    def children(self) -> list[int]:
        pid = self.process.pid
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


@contextmanager
def serving(path: Path, *options: str, **more: str) -> Iterator[Server]:
    """A server that listens at a path, where one that died has left its socket."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    words = [*WEFT, "serve", "--socket", str(path), *options]
    with subprocess.Popen(words, env=PLAIN | more, cwd=path.parent, **PIPES) as process:
        assert process.stdout is not None
        assert str(path) in process.stdout.readline().decode()
        yield Server(path, process)
        if process.poll() is None:
            process.terminate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("serve") / "s"
    with serving(path, "--children", "3") as found:
        assert path.stat().st_mode & 0o777 == 0o600
        yield found
    assert found.process.returncode == 0
    assert not path.exists()


def ask(address: object, *words: object, folder: Path, stdin: str = "", **more: str) -> Ran:
    """A command line that a server is to answer."""
    return _ran(["--server", str(address), *map(str, words)], folder, stdin, more)


def _ran(words: list[str], folder: Path, stdin: str, more: dict[str, str]) -> Ran:
    ran = subprocess.run(
        [*WEFT, *words],
        input=stdin.encode(),
        capture_output=True,
        cwd=folder,
        env=PLAIN | more,
        timeout=HANGS,
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


SAME = {
    "bound": (0, "bound -t dgx1 -c allgather --size 1MiB"),
    "check": (0, "check triangle.json --json"),
    "no": (1, "diff line:3 line:3,bw=50GB/s"),
    "slip": (2, "bound -t dxg1 -c allgather"),
    "nothing": (
        3,
        "synth -t torus:4x4 -c alltoall -e exact --objective latency --effort 0.000001 -o -",
    ),
    "missing": (4, "profile --on nccl -o machine.json"),
}


@pytest.mark.parametrize("name", SAME)
def test_the_answer_is_that_of_the_command(
    server: Server, tmp_path: Path, triangle: Path, name: str
) -> None:
    """Files are named relative to the client's folder."""
    code, line = SAME[name]
    if code == 4 and find_spec("cupy") is not None:
        pytest.skip("CuPy is here")
    cold = _ran(line.split(), tmp_path, "", {})
    assert cold.code == code, cold.err
    assert ask(server, *line.split(), folder=tmp_path) == cold


def test_files_appear_in_the_clients_folder_with_its_mask(
    server: Server, tmp_path: Path, triangle: Path
) -> None:
    before = os.umask(0o27)
    try:
        for way in ("cold", "served"):
            words = ["compile", "triangle.json", "-o", f"{way}.xml", "--no-run"]
            ran = _ran(words, tmp_path, "", {} if way == "cold" else {"WEFT_SERVER": str(server)})
            assert ran.code == 0, ran.err
            assert "warning" not in ran.err
    finally:
        os.umask(before)
    cold, served = tmp_path / "cold.xml", tmp_path / "served.xml"
    assert served.read_bytes() == cold.read_bytes()
    assert served.stat().st_mode & 0o777 == 0o640


def test_input_environment_and_limits_are_the_clients(
    server: Server, tmp_path: Path, triangle: Path
) -> None:
    ask(server, "check", "-", folder=tmp_path, stdin=triangle.read_text()).ended(0)
    told = ask(server, "check", "triangle.json", folder=tmp_path, WEFT_READ_LIMIT="10B")
    told.ended(2, "WEFT_READ_LIMIT")
    least = (200, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    ended = subprocess.run(
        [*WEFT, "compile", "triangle.json", "--no-run", "-o", "long.xml"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, least),
        env=PLAIN | {"WEFT_SERVER": str(server)},
        cwd=tmp_path,
        capture_output=True,
    )
    assert ended.returncode == 2, ended.stderr
    assert b"not answered" not in ended.stderr
    assert not (tmp_path / "long.xml").exists()


def test_a_terminal_is_the_clients(server: Server, tmp_path: Path) -> None:
    """Colour and width as on any terminal."""
    told = []
    for words in (["--server", str(server)], []):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*WEFT, *words, "bound", "-t", "dxg1", "-c", "allgather"],
            env=PLAIN | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            assert process.wait(HANGS) == 2
        os.close(theirs)
        told.append(os.read(ours, 1 << 16))
        os.close(ours)
    assert told[0] == told[1]
    assert b"\033[1;31m" in told[0]


def test_output_into_a_closed_pipe_ends_quietly(server: Server, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    words = [*WEFT, "--server", str(server), "topo", "list"]
    ended = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, env=PLAIN)
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (0, b"")


SEARCH = "-e exact --effort 1000 --objective latency -o best.json"
LONG = f"synth -t torus:5x5 -c alltoall {SEARCH}".split()


@contextmanager
def long(server: Server, folder: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A client whose search has begun."""
    words = [*WEFT, "--server", str(server), *LONG]
    with subprocess.Popen(words, env=PLAIN | more, cwd=folder, **PIPES) as process:
        assert process.stderr is not None
        assert b"Read" in process.stderr.readline()
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(server: Server, tmp_path: Path, number: signal.Signals) -> None:
    """While two clients are answered at once."""
    with long(server, tmp_path) as first, long(server, tmp_path) as other:
        first.send_signal(number)
        _, said = first.communicate(timeout=HANGS)
        assert first.returncode == 130, said
        assert b"interrupted" in said
        assert other.poll() is None
        other.send_signal(number)
        other.communicate(timeout=HANGS)
    until(lambda: server.children() == [])


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_child_stops_and_ends_with_its_client(server: Server, tmp_path: Path) -> None:
    with long(server, tmp_path) as process:
        (child,) = server.children()
        process.send_signal(signal.SIGTSTP)  # Ctrl-Z
        until(lambda: (state(process.pid), state(child)) == ("T", "T"))
        process.send_signal(signal.SIGCONT)
        until(lambda: "T" not in (state(process.pid), state(child)))
        process.kill()
    until(lambda: server.children() == [])


def test_a_child_that_is_killed_ends_the_client_by_the_same_signal(
    server: Server, tmp_path: Path
) -> None:
    with long(server, tmp_path) as process:
        (child,) = server.children()
        os.kill(child, signal.SIGKILL)
        assert process.wait(HANGS) == -signal.SIGKILL


def test_a_server_ends_with_its_installation_and_a_client_with_its_server(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    more = {"PYTHONPATH": f"{PLAIN['PYTHONPATH']}:{packages}"}
    with serving(tmp_path / "s", **more) as server:
        assert ask(server, "--version", folder=tmp_path, **more).err == ""
        with long(server, tmp_path, **more) as running:
            (packages / "another.dist-info").mkdir()
            told = ask(server, "--version", folder=tmp_path, **more)
            told.ended(0, "not answered", "the installation has changed")
            assert not server.path.exists()
            assert server.process.poll() is None  # what has begun goes on
            (child,) = server.children()
            server.process.kill()
            _, said = running.communicate(timeout=HANGS)
            assert (running.returncode, b"the server ended" in said) == (137, True)
            until(lambda: not Path(f"/proc/{child}").exists() or state(child) == "Z")


def test_more_children_than_allowed_run_without_the_server(server: Server, tmp_path: Path) -> None:
    with long(server, tmp_path) as a, long(server, tmp_path) as b, long(server, tmp_path) as c:
        told = ask(server, "--version", folder=tmp_path)
        told.ended(0, "warning: not answered by the server", "runs 3 commands")
        for one in (a, b, c):
            one.send_signal(signal.SIGINT)


def test_another_installation_or_interpreter_is_not_answered(
    server: Server, tmp_path: Path
) -> None:
    told = ask(server, "--version", folder=tmp_path, PYTHONOPTIMIZE="1")
    told.ended(0, "not answered by the server", "flags of Python")
    assert told.out == ask(server, "--version", folder=tmp_path).ended(0).out
    quiet = ask(server, "--version", "-q", folder=tmp_path, PYTHONOPTIMIZE="1")
    assert quiet.err == ""


SMALL = b"version of weft=0\0\0umask=0\0ignored=\0streams=a b 1,a b 1,a b 1\0\0A=\0\0.bound"


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"no it takes weft serve 1"),
        (b"weft serve 1 9999999999\n", b"no it takes weft serve 1"),
        (b"weft serve 1 0000000004\n\0\0\0\0", b"no it does not understand"),
        (b"weft serve 1 %010d\n" % len(SMALL) + SMALL, b"no it is not like this process"),
    ],
)
def test_messages_of_others_are_refused(server: Server, message: bytes, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(HANGS)
        sock.connect(str(server))
        sock.sendall(message)
        assert sock.recv(1 << 12).startswith(answer)


def test_a_long_environment_is_sent(server: Server, tmp_path: Path) -> None:
    assert ask(server, "--version", folder=tmp_path, BIG="x" * 120_000).ended(0).err == ""


def test_no_server(tmp_path: Path) -> None:
    """Nothing listens, or it has died and left its socket."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    for name, why in (("nothing", "No such file"), ("dead", "Connection refused")):
        told = ask(tmp_path / name, "--version", folder=tmp_path)
        told.ended(0, "warning: not answered by the server", why)
        assert told.out.startswith("weft ")


STRANGER = """
import os, sys
os.geteuid = lambda: 12345
sys.argv = ["weft", "--server", "SERVER", "--version"]
from weft.backends.cli import main
sys.exit(main())
"""


def test_another_users_server_is_not_asked(server: Server, tmp_path: Path) -> None:
    words = [sys.executable, "-c", STRANGER.replace("SERVER", str(server))]
    ended = subprocess.run(words, env=PLAIN, cwd=tmp_path, capture_output=True, check=True)
    assert b"not of user 12345" in ended.stderr
    assert ended.stdout.startswith(b"weft ")


def test_a_place_has_one_server_and_is_safe(
    weft: Weft, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weft("serve", "--socket", server).ended(2, "a server has this place already")
    file = tmp_path / "file"
    file.write_text("mine")
    weft("serve", "--socket", file).ended(2, "got a file")
    assert file.read_text() == "mine"
    assert list(tmp_path.glob("*.lock")) == []  # nothing is left behind
    weft("serve", "--socket", tmp_path / ("x" * 100)).ended(2, "at most 107 bytes")
    weft("serve", "--socket", tmp_path / "s", "--children", "0").ended(2)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    weft("serve", "--socket", open_to_all / "s").ended(2, "mode 777")
    (tmp_path / "weft").mkdir(mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    weft("serve").ended(2, "mode 755")
    monkeypatch.delattr("socket.SO_PEERCRED")
    weft("serve").ended(4, "Linux has them")


def test_it_ends_when_idle(tmp_path: Path) -> None:
    with serving(tmp_path / "s", "--idle", "100ms") as server:
        _, said = server.process.communicate(timeout=HANGS)
        assert (server.process.returncode, b"no command line came" in said) == (0, True)


def test_options(weft: Weft) -> None:
    weft("--server").ended(2, "--server: expected one argument")
    assert "--socket" in weft("serve", "--help").out
    assert json.loads(weft("serve", "--idle", "0s", "--json").out)["status"] == "error"
