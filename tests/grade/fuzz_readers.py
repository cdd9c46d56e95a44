"""Part of ``make sweep``: mutants of files for every reader; none may end in a traceback.

A mutant may be read or refused, in 20 CPU seconds and 1 GB. Seeds of topologies, workloads, logs
and tables are the texts of the tests, so that a reader has some as soon as it has a test; those of
programs and nouns are written here, each format of the registry among them. A reader without a
seed is a failure.
"""

import argparse
import ast
import contextlib
import gc
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

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
    like: str = ""
    """Pattern of texts that are worth a try as seeds."""


Seeded = tuple[str, Reader, list[bytes]]
"""Name of a reader, its command, and right files for it."""


def text_readers() -> list[Reader]:
    """Return the readers whose seeds are the texts of the tests."""
    from weft.backends.cli.flags.shared import WORKLOAD_FORMATS
    from weft.dsl.importers.workloads.read import TRACES

    bench = "NCCL|busbw|bus_bw"
    small = ("-t", "ring:3", "-c", "allgather")
    return [
        Reader("show", ("show", "{}")),
        Reader("topo", ("topo", "show", "{}")),
        Reader("workload", ("workload", "show", "{}")),
        *(
            Reader(f"workload {x}", ("workload", "show", "{}", "--from", x, "--ranks", "8"))
            for x in WORKLOAD_FORMATS
            if x not in TRACES  # sets of files, which are seeds below
        ),
        Reader(
            "sketch", ("sketch", "show", "{}"), ".sketch", like="^ *(sketch|forbid|allow|chunks)"
        ),
        Reader(
            "sketch import", ("sketch", "import", "{}"), ".json", like="TopologyParams|nics_per"
        ),
        Reader(
            "lint", ("check", "{}"), ".sketch", accepts=(0, 1), like="^ *(sketch|forbid|chunks)"
        ),
        Reader("verify-run", ("verify-run", "{}", "-t", "dgx-a100"), accepts=(0, 1), like=bench),
        Reader(
            "fabric",
            ("topo", "show", "dgx-a100:nodes=3,fabric={}"),
            like="per_rack|SwitchName|vendid",
        ),
        Reader("defaults", ("bound", *small), ".toml", "WEFT_CONFIG", like=" = "),
    ]


TESTS = ("tests/dsl/importers", "tests/dsl/machines", "tests/dsl/nouns", "tests/docs")
"""Tests whose texts are seeds."""


def _record(place: Path) -> None:
    """Run the tests of readers, and keep in a folder what they read."""
    links = os.pathsep.join(os.path.abspath(x) for x in sys.path if x)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "record_texts", *TESTS],
        cwd=ROOT,
        env={**os.environ, "WEFT_TEXTS": str(place), "PYTHONPATH": links},
        stdout=subprocess.DEVNULL,
        check=False,
    )


def recorded(folder: Path, given: Path | None) -> tuple[list[str], list[Path]]:
    """Return the texts that readers are given by their tests, and folders with sets of traces.

    A reader has a seed as soon as it has a test. Literals of the tests are taken too: sketches,
    files of defaults, fabrics.
    """
    place = folder / "texts"
    if given is None:
        place.mkdir()
        _record(place)
    else:
        shutil.copytree(given, place)
    kept = (x for x in sorted(place.iterdir()) if x.is_file())
    found = dict.fromkeys(x.read_text("utf-8", "replace") for x in kept)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.lstrip("\n")
                if 30 < len(text) < 60_000 and ("\n" in text or text[0] in "{[<"):
                    found[text] = None
    shared = os.environ.get("WEFT_SHARED")
    for path in sorted(Path(shared).rglob("cases/*/*")) if shared else ():
        if path.is_file() and path.suffix not in (".py", ".et"):
            found[path.read_text(encoding="utf-8")] = None
    return list(found), sorted(x for x in place.iterdir() if x.is_dir())


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


def seeds_of_texts(
    readers: list[Reader], folder: Path, given: Path | None
) -> dict[str, tuple[Reader, list[bytes]]]:
    """Return the texts that each reader takes, those of each importer apart."""
    from weft.dsl.importers.recognized import _importers

    importers = list(_importers())
    found: dict[str, tuple[Reader, list[bytes]]] = {}
    lists: dict[str, list[bytes]] = defaultdict(list)
    texts, traces = recorded(folder, given)
    for text in texts:
        data = text.encode(errors="surrogatepass")
        known = set()
        for reader in readers:
            if len(lists[reader.name]) >= SEEDS and reader.name not in ("topo", "workload"):
                continue
            if not re.search(reader.like, text, re.MULTILINE):
                continue
            if reader.name.startswith("workload ") and reader.name != "workload astra-sim":
                if "workload" not in known:
                    continue
            ended = run(command(reader, written(reader, folder, data)))
            if ended.code not in reader.accepts:
                continue
            name = reader.name
            known.add(name)
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
    for place in traces[:: max(1, len(traces) // SEEDS)]:
        for path in sorted(place.iterdir())[:1]:
            name = f"traces {place.name[7:11]} {path.suffix}"
            reader = Reader(
                name, ("workload", "show", str(place)), f"@texts/{place.name}/{path.name}"
            )
            found[name] = (reader, [path.read_bytes()])
    wanted = {x.name for x in readers if x.name != "topo"}
    wanted |= {f"topo {getattr(x, 'made', x).__name__}" for x in importers}
    for name in sorted(wanted - set(found)):
        found[name] = (Reader(name, ()), [])
    return found


def seeds_of_nouns(folder: Path) -> Iterator[Seeded]:
    """Yield what weft writes itself: each noun, each format of the registry, its own tables."""
    from weft.dsl.base.registry import BACKENDS

    place = folder / "seeds"
    place.mkdir()
    yield from _schedules(place)
    for name in BACKENDS.names():
        yield from _artefacts(name, place)
    yield from _machines_and_plans(place)
    yield from _folders(place, folder)
    yield from _measured()
    for name in ("sketches", "topologies"):
        files = sorted(p for p in (ROOT / name).iterdir() if p.suffix in (".sketch", ".toml"))
        reader = Reader(name, ("show", "{}"), files[0].suffix)
        yield f"catalogue {name}", reader, [p.read_bytes() for p in files[:SEEDS]]


def _made(line: str, *more: object) -> None:
    """Run a command that must succeed."""
    ended = run([*line.split(), *map(str, more)])
    assert ended.code == 0, ended.text


def _schedules(place: Path) -> Iterator[Seeded]:
    schedule, log = place / "schedule.json", place / "search.log"
    line = "synth -t ring:4 -c allreduce -e classic --objective time --size 64KiB"
    _made(line, "-o", schedule, "--log", log)
    for verb in ("show", "check", "simulate", "run", "explain"):
        yield f"schedule {verb}", Reader(verb, (verb, "{}"), ".json"), [schedule.read_bytes()]
    page = ("show", "{}", "--format", "html")
    yield "schedule html", Reader("html", page, ".json"), [schedule.read_bytes()]
    page = ("show", str(schedule), "--format", "html", "--log", "{}")
    yield "search log", Reader("log", page), [log.read_bytes()]


def _artefacts(name: str, place: Path) -> Iterator[Seeded]:
    """Yield the files of one format, for two collectives where it has both."""
    from weft.dsl.base.registry import BACKENDS

    made = []
    for collective in ("allreduce", "alltoall"):
        source, output = place / f"{collective}.json", place / f"{name}-{collective}"
        if not source.exists():
            _made(f"synth -t ring:4 -c {collective} -e classic --objective bandwidth -o", source)
        output.mkdir()
        run(["compile", str(source), "--to", name, "--size", "64KiB", "-o", str(output / "made")])
        made += [path.read_bytes() for path in sorted(output.iterdir())][:2]
    suffix = getattr(BACKENDS.load(name), "suffix", "") or ".txt"
    for verb in ("show", "check", "simulate", "run"):
        yield f"{name} {verb}", Reader(name, (verb, "{}"), suffix), made


def _machines_and_plans(place: Path) -> Iterator[Seeded]:
    from weft.dsl.catalogue import topology
    from weft.dsl.nouns.collective import make

    dgx, ring = (json.dumps(topology(x).to_json()).encode() for x in ("dgx1", "ring:3"))
    yield "topology JSON", Reader("t", ("topo", "show", "{}"), ".json"), [dgx, ring]
    bound = ("bound", "-t", "{}", "-c", "allgather")
    yield "topology bound", Reader("t", bound, ".json"), [ring]
    load, plan = place / "load.csv", place / "plan.json"
    load.write_text("name,kind,group,size\na,allreduce,0..3,1MB\nb,alltoall,0..3,1MB\n")
    _made("plan -t ring:4", load, "-o", plan)
    yield "plan", Reader("plan", ("show", "{}"), ".json"), [plan.read_bytes()]
    words = ("plan", "{}", "-t", "ring:4")
    yield "workload plan", Reader("w", words, ".csv"), [load.read_bytes()]
    words = ("bound", "-t", "ring:4", "-c", "{}")
    collective = json.dumps(make("alltoall", 4).to_json()).encode()
    yield "collective JSON", Reader("c", words, ".json"), [collective]


def _folders(place: Path, folder: Path) -> Iterator[Seeded]:
    """Yield the files of a library and of a sweep, each in a folder with the others."""
    _made("tune -t ring:4 -c allgather --sizes 1KiB:1KiB --jobs 1 -o", place / "library")
    shutil.copytree(place / "library", folder / "library")
    file = "library/library.json"
    reader = Reader("library", ("show", str(folder / "library")), f"@{file}")
    yield "library", reader, [(place / file).read_bytes()]
    sweep = "sweep -t ring:3 -c allgather -e classic --size 1KiB --no-cache --jobs 1 -o"
    _made(sweep, place / "sweep")
    shutil.copytree(place / "sweep", folder / "sweep")
    file = "sweep/journal.jsonl"
    reader = Reader("journal", (*sweep.split(), str(folder / "sweep")), f"@{file}")
    yield "sweep journal", reader, [(place / file).read_bytes()]
    lists = {"topologies": "ring:3", "collectives": "allgather", "engines": "classic"}
    jobs = "".join(f'{key} = ["{text}"]\n' for key, text in lists.items())
    jobs += 'sizes = ["1KiB"]\n[[exclude]]\ntopology = "ring:3"\n'
    yield "sweep jobs", Reader("jobs", ("sweep", "{}", "--no-cache"), ".toml"), [jobs.encode()]


def _measured() -> Iterator[Seeded]:
    from nccl_tests_text import nccl_tests_text
    from run_logs import log_text

    rows = [(1 << k, 10 + (1 << k) / 1e5) for k in range(10, 28, 2)]
    texts = [nccl_tests_text("all_reduce", rows, gpus=8).encode()]
    texts.append(log_text("all_reduce", {k: (us, us) for k, us in rows}, gpus=8).encode())
    for name, words in (
        ("calibrate", ("topo", "calibrate", "dgx-a100", "{}")),
        ("tuner", ("tuner", "{}:algorithm=ring,protocol=simple,channels=16")),
        ("verify-run log", ("verify-run", "{}", "-t", "dgx-a100")),
    ):
        yield name, Reader(name, words), texts


def faults(name: str, reader: Reader, seeds: list[bytes], args: argparse.Namespace) -> list[str]:
    """Return what went wrong with mutants of some seeds; the files are kept."""
    from hostile_files import mutant

    folder = Path(tempfile.gettempdir())
    chance = random.Random(f"{args.seed} {name}")
    bad: list[str] = []
    read = 0
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
        read += ended.code < 2
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
    return [str(read), *bad]


def _recognized(data: bytes) -> bool:
    from weft.backends.cli.nouns.nouns.subjects import recognized

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
        return ["?", f"{name}: its process ended with {status}"]
    return lines[:-1]


def main() -> int:
    """Print a line for each reader; exit 1 if a mutant ended otherwise than read or refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers with this in their names")
    parser.add_argument("--slow", type=float, default=SECONDS, help="CPU seconds of one file")
    parser.add_argument("--texts", type=Path, help="folder of texts that were recorded before")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.mkdtemp(prefix="weft-fuzz-")))
    args = parser.parse_args()
    args.keep.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="weft-fuzz-"))
    tempfile.tempdir = str(folder)
    os.chdir(folder)
    os.environ |= {"WEFT_CONFIG": "", "WEFT_CACHE": str(folder / "cache")}
    readers = [] if args.only.startswith("text") else list(seeds_of_nouns(folder))
    if not args.only or args.only.startswith("text"):
        texts = seeds_of_texts(text_readers(), folder, args.texts)
        readers += [(name, reader, seeds) for name, (reader, seeds) in sorted(texts.items())]
    bad: list[str] = []
    for name, reader, seeds in readers:
        if not args.only.startswith("text") and args.only not in name:
            continue
        if args.only[5:] not in name and args.only.startswith("text"):
            continue
        read, *found = "0", f"{name}: no seed"
        if seeds:
            read, *found = in_child(partial(faults, name, reader, seeds, args), name)
        told = f"{args.mutants:6} mutants {read:>6} read {len(found):4} faults"
        print(f"{name:34} {len(seeds):3} seeds {told}", flush=True)
        for line in found[:40]:
            print(f"    {line}", flush=True)
        bad += found
    print(f"{len(readers)} readers, {len(bad)} faults")
    shutil.rmtree(folder, ignore_errors=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
