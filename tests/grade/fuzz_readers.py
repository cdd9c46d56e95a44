"""Part of ``make sweep``: mutants of files for every reader; none may end in a traceback.

A mutant may be read or refused, in 20 CPU seconds and 1 GB. Seeds of topologies, workloads, logs
and tables are the texts of the tests, so that a reader has some as soon as it has a test; those of
programs and nouns are written here, each format of the registry among them. A reader without a
seed is a failure.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from hostile_files import mutant

SECONDS, MEMORY = 20.0, 1 << 30
"""CPU seconds, and bytes beyond those at the start, that one file may take."""

SEEDS = 12
"""Texts at most for each reader."""


@dataclass(frozen=True)
class Reader:
    """A command that reads a file; ``{}`` stands for its path, ``suffix`` ends its name."""

    name: str
    words: tuple[str, ...]
    suffix: str = ".txt"
    variable: str = ""
    """Environment variable that names the file instead."""
    accepts: tuple[int, ...] = (0,)
    """Exit codes of a right file."""


def text_readers() -> list[Reader]:
    """Return the readers whose seeds are the texts of the tests."""
    from weft.backends.cli.flags.shared import WORKLOAD_FORMATS

    small = ("-t", "ring:3", "-c", "allgather")
    return [
        Reader("show", ("show", "{}")),
        Reader("topo", ("topo", "show", "{}")),
        *(Reader(f"workload {x}", ("workload", "show", "{}", "--from", x)) for x in WORKLOAD_FORMATS),
        Reader("sketch", ("sketch", "show", "{}"), ".sketch"),
        Reader("sketch import", ("sketch", "import", "{}"), ".json"),
        Reader("lint", ("check", "{}"), ".sketch", accepts=(0, 1)),
        Reader("calibrate", ("topo", "calibrate", "dgx-a100", "{}", "-c", "allreduce")),
        Reader("verify-run", ("verify-run", "{}", "-t", "dgx-a100"), accepts=(0, 1)),
        Reader("tuner", ("tuner", "{}")),
        Reader("fabric", ("topo", "show", "cluster:host=dgx1,fabric={}")),
        Reader("defaults", ("bound", *small), ".toml", "WEFT_CONFIG"),
        Reader("collective", ("bound", "-t", "ring:4", "-c", "{}"), ".json"),
    ]


def texts_of_tests() -> list[str]:
    """Return the literals of all tests that could be files, and what their helpers make."""
    found: dict[str, None] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if 30 < len(text) < 60_000 and ("\n" in text or text[0] in "{[<"):
                    found[text.lstrip("\n")] = None
    for path in sorted((ROOT / "tests" / "support").glob("*.py")):
        if path.stem.endswith(("_files", "_text", "_logs", "_lists", "_steps")):
            module = __import__(path.stem)
            for name, function in sorted(vars(module).items()):
                if callable(function) and getattr(function, "__module__", "") == path.stem:
                    with contextlib.suppress(Exception):
                        made = function()
                        if isinstance(made, str) and len(made) < 60_000:
                            found[made] = None
    shared = os.environ.get("WEFT_SHARED")
    for path in sorted(Path(shared).rglob("cases/*/*")) if shared else ():
        if path.is_file() and path.suffix not in (".py", ".et"):
            found[path.read_text(encoding="utf-8")] = None
    return list(found)


@dataclass
class Ended:
    """How a command ended, and what it took."""

    code: int
    seconds: float
    text: str
    trace: str = ""


def run(words: list[str]) -> Ended:
    """Run a command line in this process; one that takes too long is interrupted."""
    from weft.backends.cli import main

    def late(*_: object) -> None:
        raise TimeoutError("CPU seconds")

    out, begun = io.StringIO(), time.process_time()
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    trace = ""
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main([*words])
    except BaseException:
        code, trace = 70, traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    text = out.getvalue()
    for report in Path(tempfile.gettempdir()).glob("weft-*.txt"):
        trace += report.read_text(errors="replace")
        report.unlink()
    return Ended(code, time.process_time() - begun, text, trace)


def command(reader: Reader, path: Path) -> list[str]:
    """Return the command line that reads a file."""
    if reader.variable:
        os.environ[reader.variable] = str(path)
    return [word.replace("{}", str(path)) for word in reader.words]


def written(reader: Reader, folder: Path, data: bytes) -> Path:
    """Write a file for a reader; in a copy of its folder, if its seed is one of several."""
    path = folder / f"mutant{reader.suffix}"
    path.write_bytes(data)
    return path


def seeds_of_texts(readers: list[Reader], folder: Path) -> dict[str, tuple[Reader, list[bytes]]]:
    """Return the texts that each reader takes, those of each importer apart."""
    from weft.dsl.importers.recognized import _importers

    importers = list(_importers())
    found: dict[str, tuple[Reader, list[bytes]]] = {}
    lists: dict[str, list[bytes]] = defaultdict(list)
    for text in texts_of_tests():
        data = text.encode(errors="surrogatepass")
        for reader in readers:
            if len(lists[reader.name]) >= SEEDS and reader.name != "topo":
                continue
            ended = run(command(reader, written(reader, folder, data)))
            if ended.code not in reader.accepts:
                continue
            name = reader.name
            if name == "topo":
                start = text.lstrip("\ufeff \t\r\n")
                kinds = (i for i, x in enumerate(importers) if x.recognizes(start))
                at = next(kinds, None)
                made = getattr(importers[at], "made", importers[at]) if at is not None else "?"
                name = f"topo {getattr(made, '__name__', made)}"
            if len(lists[name]) < SEEDS:
                lists[name].append(data)
                found[name] = (reader, lists[name])
        os.environ.pop("WEFT_CONFIG", None)
    wanted = {x.name for x in readers if x.name != "topo"}
    wanted |= {f"topo {getattr(x, 'made', x).__name__}" for x in importers}
    for name in sorted(wanted - set(found)):
        found[name] = (Reader(name, ()), [])
    return found


def seeds_of_nouns(folder: Path) -> Iterator[tuple[str, Reader, list[bytes]]]:
    """Yield what weft writes itself: each noun, each format of the registry, its own tables."""
    from weft.dsl.base.registry import BACKENDS

    place = folder / "seeds"
    place.mkdir()
    schedule = str(place / "schedule.json")
    _require(run(["synth", *"-t ring:4 -c allreduce -e classic --objective time".split(), "--size", "64KiB", "-o", schedule, "--log", str(place / "search.log")]))
    data = [Path(schedule).read_bytes()]
    for verb in ("show", "check", "simulate", "run", "explain"):
        yield f"schedule {verb}", Reader(verb, (verb, "{}"), ".json"), data
    yield "schedule html", Reader("html", ("show", "{}", "--format", "html"), ".json"), data
    yield "search log", Reader("log", ("show", schedule, "--format", "html", "--log", "{}")), [
        (place / "search.log").read_bytes()
    ]
    for name in BACKENDS.names():
        made = []
        for collective in ("allreduce", "alltoall"):
            source, output = str(place / f"{collective}.json"), place / f"{name}-{collective}"
            run(["synth", *f"-t ring:4 -c {collective} -e classic --objective bandwidth -o {source}".split()])
            output.mkdir()
            run(["compile", source, "--to", name, "--size", "64KiB", "-o", str(output / "made")])
            made += [path.read_bytes() for path in sorted(output.iterdir())][:2]
        suffix = getattr(BACKENDS.load(name), "suffix", "") or ".txt"
        for verb in ("show", "check", "simulate", "run"):
            yield f"{name} {verb}", Reader(f"{name}", (verb, "{}"), suffix), made
    _require(run(["topo", "show", "dgx1", "--json"]))
    from weft.dsl.base.files import write_text
    from weft.dsl.catalogue import topology
    from weft.dsl.nouns.collective import make

    for text in ("dgx1", "ring:3"):
        made_topology = topology(text)
        import json

        write_text(place / f"{text[:4]}.json", json.dumps(made_topology.to_json()))
    topologies = [(place / f"{x}.json").read_bytes() for x in ("dgx1", "ring")]
    yield "topology JSON", Reader("t", ("topo", "show", "{}"), ".json"), topologies
    yield "topology bound", Reader("t", ("bound", "-t", "{}", "-c", "allgather"), ".json"), topologies[1:]
    (place / "load.csv").write_text("name,kind,group,size\na,allreduce,0..3,1MB\nb,alltoall,0..3,1MB\n")
    _require(run(["plan", str(place / "load.csv"), "-t", "ring:4", "-o", str(place / "plan.json")]))
    yield "plan", Reader("plan", ("show", "{}"), ".json"), [(place / "plan.json").read_bytes()]
    yield "workload plan", Reader("w", ("plan", "{}", "-t", "ring:4"), ".csv"), [(place / "load.csv").read_bytes()]
    _require(run(["tune", "-t", "ring:4", "-c", "allgather", "--sizes", "1KiB:1KiB", "--jobs", "1", "-o", str(place / "library")]))
    yield "library", Reader("library", ("show", str(folder / "library")), "@library/library.json"), [
        (place / "library" / "library.json").read_bytes()
    ]
    shutil.copytree(place / "library", folder / "library")
    sweep = ["sweep", *"-t ring:3 -c allgather -e classic --size 1KiB --no-cache --jobs 1".split()]
    _require(run([*sweep, "-o", str(place / "sweep")]))
    shutil.copytree(place / "sweep", folder / "sweep")
    for name in ("journal.jsonl",):
        yield f"sweep {name}", Reader(
            "journal", (*sweep, "-o", str(folder / "sweep")), f"@sweep/{name}"
        ), [(place / "sweep" / name).read_bytes()]
    jobs = 'topologies = ["ring:3"]\ncollectives = ["allgather"]\nengines = ["classic"]\nsizes = ["1KiB"]\n[[exclude]]\ntopology = "ring:3"\n'
    yield "sweep jobs", Reader("jobs", ("sweep", "{}", "--no-cache"), ".toml"), [jobs.encode()]
    yield "collective JSON", Reader("c", ("bound", "-t", "ring:4", "-c", "{}"), ".json"), [
        json.dumps(make("alltoall", 4).to_json()).encode()
    ]
    for name in ("sketches", "topologies"):
        files = sorted(p for p in (ROOT / name).iterdir() if p.suffix in (".sketch", ".toml"))
        reader = Reader(name, ("show", "{}"), files[0].suffix)
        yield f"catalogue {name}", reader, [p.read_bytes() for p in files[:SEEDS]]


def _require(ended: Ended) -> None:
    assert ended.code == 0, ended.text


def faults(name: str, reader: Reader, seeds: list[bytes], args: argparse.Namespace) -> list[str]:
    """Return what went wrong with mutants of some seeds; the files are kept."""
    folder = Path(tempfile.gettempdir())
    chance = random.Random(f"{args.seed} {name}")
    bad: list[str] = []
    for number in range(args.mutants):
        data = mutant(chance, chance.choice(seeds))
        if reader.suffix.startswith("@"):
            path = folder / reader.suffix[1:]
            path.write_bytes(data)
        else:
            path = written(reader, folder, data)
        if path.suffix == ".py" and not _recognized(data):
            continue  # a user's own Python would be executed, as it is meant to be
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ended = run(command(reader, path))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        problems = []
        if ended.code not in (0, 1, 2, 3, 4):
            lines = [x for x in ended.trace.strip().splitlines() if x.strip()]
            at = [x.strip() for x in lines if "/weft/" in x and "File" in x][-1:]
            problems.append(f"exit code {ended.code}: {' '.join(lines[-1:])[:150]} {' '.join(at)}")
        if ended.seconds > args.slow:
            problems.append(f"{ended.seconds:.1f} CPU s")
        if grown > MEMORY:
            problems.append(f"{grown >> 20} MB")
        for problem in problems:
            kept = args.keep / f"{name.replace(' ', '-').replace('/', '-')}-{number}{path.suffix}"
            kept.write_bytes(data)
            bad.append(f"{name} {number}: {problem} ({kept})")
    return bad


def _recognized(data: bytes) -> bool:
    from weft.backends.cli.subjects import recognized

    try:
        return recognized(data.decode(), None) is not None
    except UnicodeDecodeError:
        return True


def in_child(work: Callable[[], list[str]], name: str) -> list[str]:
    """Return what a fork of this process finds; that it died is a fault."""
    gc.collect()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        with os.fdopen(writing, "w", errors="backslashreplace") as out:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (12 << 30, hard))
            out.write("\n".join([*work(), "end"]))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as found:
        lines = found.read().splitlines()
    status = os.waitpid(pid, 0)[1]
    if lines[-1:] != ["end"]:
        return [*lines, f"{name}: its process ended with {status}"]
    return lines[:-1]


def main() -> int:
    """Print a line for each reader; exit 1 if a mutant ended otherwise than read or refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers with this in their names")
    parser.add_argument("--slow", type=float, default=SECONDS, help="CPU seconds of one file")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.mkdtemp(prefix="weft-fuzz-")))
    args = parser.parse_args()
    args.keep.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="weft-fuzz-"))
    tempfile.tempdir = str(folder)
    os.chdir(folder)
    os.environ |= {"WEFT_CONFIG": "", "WEFT_CACHE": str(folder / "cache")}
    readers = [] if args.only.startswith("text") else list(seeds_of_nouns(folder))
    if not args.only or args.only.startswith("text"):
        texts = seeds_of_texts(text_readers(), folder)
        readers += [(name, reader, seeds) for name, (reader, seeds) in sorted(texts.items())]
    bad: list[str] = []
    for name, reader, seeds in readers:
        if not args.only.startswith("text") and args.only not in name:
            continue
        if args.only[5:] not in name and args.only.startswith("text"):
            continue
        if not seeds:
            found = [f"{name}: no seed"]
        else:
            found = in_child(lambda: faults(name, reader, seeds, args), name)
        print(f"{name:34} {len(seeds):3} seeds {args.mutants} mutants {len(found)} faults", flush=True)
        for line in found[:40]:
            print(f"    {line}", flush=True)
        bad += found
    print(f"{len(readers)} readers, {len(bad)} faults")
    shutil.rmtree(folder, ignore_errors=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
