"""Run the list of commands with one checkout of weft, and record what each printed and wrote."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from commands import COMMANDS, Command, needs
from normalising import normalised, skipped

HERE = Path(__file__).resolve().parent
LIMIT = 1800  # seconds after which a command counts as one that hangs
REST = "(rest)"  # stands for all files that no command calls its own

Record = dict[str, Any]
Manifest = dict[str, Any]


@cache
def list_digest() -> str:
    """A digest of all that a record depends on beside weft: the list, its inputs, the packages."""
    digest = hashlib.sha256(sys.version.encode())
    for name in ("commands.py", "normalising.py", "recording.py"):
        digest.update((HERE / name).read_bytes())
    for file in _files(HERE / "inputs"):
        digest.update(str(file.relative_to(HERE)).encode() + file.read_bytes())
    versions = {(d.name.lower(), d.version) for d in distributions() if d.name.lower() != "weft"}
    digest.update(repr(sorted(versions)).encode())
    return digest.hexdigest()


def chosen(pattern: str) -> tuple[Command, ...]:
    """The commands whose names hold one of the words of a pattern, with all that they need."""
    words = pattern.replace(",", " ").split()
    if not words:
        return COMMANDS
    before = needs(COMMANDS)
    wanted = [c.name for c in COMMANDS if any(word in c.name for word in words)]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted.extend(before[name])
    return tuple(c for c in COMMANDS if c.name in found)


def record(
    checkout: Path,
    results: Path,
    commands: tuple[Command, ...],
    jobs: int,
    stretch: int = 1,
    served: bool = False,
) -> Manifest:
    """Run commands with the weft of a checkout; what is compared lies in `results` afterwards.

    With `served`, one process of `weft serve` answers them all.
    """
    _assert_that_it_is_used(checkout)
    final, results = results, results.with_name(f"{results.name}.{os.getpid()}")
    results.mkdir(parents=True)
    digest, used = list_digest(), _cpu()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-replay-") as folder:
        run = _Run(checkout, Path(folder).resolve(), results, stretch)
        with run.server(jobs) if served else nullcontext():
            records = run.all(commands, jobs)
        records[REST] = run.rest()
    told = {"cpu_s": round(_cpu() - used, 1), "wall_s": round(time.monotonic() - began, 1)}
    manifest = {"list": digest, "commands": dict(sorted(records.items())), **told}
    (results / "times.json").write_text(json.dumps(run.seconds, indent=1) + "\n")
    (results / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    results.rename(final)  # whole or not at all: several worktrees may keep records in one folder
    return manifest


def read_manifest(results: Path) -> Manifest | None:
    """What was recorded there, if that run ended and its list is the one of today."""
    try:
        manifest = json.loads((results / "manifest.json").read_text())
    except FileNotFoundError:
        return None
    return manifest if manifest["list"] == list_digest() else None


@dataclass
class _Run:
    """One run of the list: its folders, and what it has cost."""

    checkout: Path
    folder: Path
    results: Path
    stretch: int
    seconds: dict[str, float] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)  # files that are a command's
    ask: tuple[str, ...] = ()  # words before the verb that name a server

    def __post_init__(self) -> None:
        for name in ("work", "tmp", "home"):
            (self.folder / name).mkdir()
        self.work = self.folder / "work"
        shutil.copytree(HERE / "inputs", self.work / "in")

    def all(self, commands: tuple[Command, ...], jobs: int) -> dict[str, Record]:
        """Every record, of commands that run side by side where none needs another."""
        left = {c.name: c for c in commands}
        before = needs(commands)
        records: dict[str, Record] = {}
        running: dict[Future[Record], str] = {}
        with ThreadPoolExecutor(jobs) as pool:
            while left or running:
                for name in [n for n in left if before[n] <= records.keys()]:
                    if len(running) < jobs:
                        running[pool.submit(self.one, left.pop(name))] = name
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    records[running.pop(future)] = future.result()
        return records

    @contextmanager
    def server(self, jobs: int) -> Iterator[None]:
        """Have all commands answered by one server."""
        socket = str(self.folder / "serve" / "socket")
        words = [sys.executable, "-m", "weft.backends.cli", "serve", "--socket", socket]
        words += ["--children", str(2 * jobs)]
        env, cwd = self._environment(), self.folder
        with subprocess.Popen(words, env=env, cwd=cwd, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert socket in process.stdout.readline().decode()
            self.ask = ("--server", socket)
            yield
            process.terminate()

    def one(self, command: Command) -> Record:
        """Run one command; its exit code and the digests of what it printed and wrote."""
        began = time.monotonic()
        words = [sys.executable, "-m", "weft.backends.cli", *self.ask]
        words += self._words(command)
        given = (self.work / command.stdin).read_bytes() if command.stdin else b""
        code: int | str
        try:
            ended = subprocess.run(
                words,
                cwd=self.work,
                env=self._environment(),
                input=given,
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
            code, out, err = ended.returncode, ended.stdout, ended.stderr
        except subprocess.TimeoutExpired:
            code, out, err = f"none in {LIMIT} seconds", b"", b""
        self.seconds[command.name] = round(time.monotonic() - began, 2)
        if command.compared == "exit":
            return {"exit": code, "parts": {}}
        if command.stdout:
            (self.work / command.stdout).write_bytes(out)
        parts = {
            "stdout": self._keep(command, "stdout", out),
            "stderr": self._keep(command, "stderr", err),
        }
        for made in command.paths:
            for file in _files(self.work / made):
                path = str(file.relative_to(self.work))
                self.known.add(path)
                if not skipped(path):
                    name = normalised(path.encode(), {}).decode()
                    while name in parts:
                        name += "+"
                    parts[name] = self._keep(command, name, file.read_bytes())
        return {"exit": code, "parts": parts}

    def rest(self) -> Record:
        """What lies in the folder and is no command's: nothing but the inputs, unchanged."""
        ignored = {p for c in COMMANDS if c.compared == "exit" for p in c.paths}
        rest = Command(REST, "")
        names = {str(file.relative_to(self.work)): file for file in _files(self.work)}
        return {
            "exit": 0,
            "parts": {
                name: self._keep(rest, name, file.read_bytes())
                for name, file in names.items()
                if name not in self.known and name not in ignored and not skipped(name)
            },
        }

    def _words(self, command: Command) -> list[str]:
        """Its words; with `stretch` its budgets are so many times longer."""
        words = list(command.argv)
        for at, word in enumerate(words[:-1]):
            if word == "--time" and self.stretch != 1:
                words[at + 1] = f"{int(words[at + 1].removesuffix('s')) * self.stretch}s"
        return words

    def _keep(self, command: Command, part: str, data: bytes) -> str:
        """The digest of what is compared, which is kept as well, to be looked at."""
        folders = {"run": self.folder, "checkout": self.checkout}
        text = normalised(data, folders, command.compared == "words")
        place = self.results / "parts" / command.name / part
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
        return hashlib.sha256(text).hexdigest()

    def _environment(self) -> dict[str, str]:
        """That of a user, without what would tell one machine or terminal from another."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "PYTHON", "LC_"))}
        return kept | {
            "PYTHONPATH": str(self.checkout / "build" / "link"),
            "XDG_CACHE_HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "TZ": "UTC",
        }


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    yield from sorted(p for p in place.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _assert_that_it_is_used(checkout: Path) -> None:
    """Raise unless `import weft` finds the checkout's own package."""
    link = checkout / "build" / "link"
    found = subprocess.run(
        [sys.executable, "-c", "import weft; print(weft.__file__)"],
        env={**os.environ, "PYTHONPATH": str(link)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(found).is_relative_to(link):
        raise SystemExit(f"weft is imported from {found}, not from {link}")
