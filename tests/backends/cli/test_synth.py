"""``weft synth`` and what is done with its files, on machines small enough for tests."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from command import Weft
from until import HANGS

from weft.backends.cli.output.console import Exit
from weft.backends.cli.verbs.synth import ranges
from weft.dsl.base.environment import SOLVER_MEMORY
from weft.dsl.base.errors import UserError
from weft.dsl.base.registry import ENGINES
from weft.dsl.nouns.problem import Problem
from weft.synth.api import CUT_OFF
from weft.synth.base.engine import Budget, Observer, Outcome, Status

RING = ("synth", "-t", "ring:3", "-c", "allgather")


def test_a_frontier_is_a_folder_of_checked_schedules(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = weft("synth", "-t", "ring:4", "-c", "allgather", "-o", out, "--json").ended(0).json
    keys = {
        "schema",
        "status",
        "topology",
        "collective",
        "ranks",
        "engine",
        "seconds",
        "points",
        "bound",
        "gap",
        "value",
    }
    assert keys <= set(data)
    assert (data["status"], data["topology"], data["ranks"]) == ("optimal", "ring:4", 4)
    # Two ways into every GPU, three shares to get: 3/2 rounds; the far one takes two steps.
    (point,) = data["points"]
    stable = {"chunks", "steps", "rounds", "algbw_GBps", "latency_us", "optimal", "file"}
    assert stable <= set(point)
    assert (point["steps"], point["rounds_per_chunk"]) == (2, "3/2")
    assert point["optimal"] == {"latency": True, "bandwidth": True}
    assert point["algbw_GBps"] == pytest.approx(4 * 25 / 1.5)
    assert point["latency_us"] == pytest.approx(1.4)
    assert data["gap"] == 0
    name = f"allgather-2steps-{point['rounds']}rounds-{point['chunks']}chunks.json"
    assert [p.name for p in out.iterdir()] == [name]
    assert point["file"] == str(out / name)
    assert weft("check", point["file"]).code == 0
    provenance = json.loads((out / name).read_text())["provenance"]
    found = tuple(provenance[key] for key in ("engine", "found_by", "seed"))
    assert found == ("portfolio", "exact", 0)
    assert "PPoPP 2021" in provenance["cites"]
    assert point["found_by"] == "exact"


def test_the_table_is_the_result_and_the_rest_is_talk(weft: Weft, tmp_path: Path) -> None:
    ran = weft(*RING, "-o", tmp_path / "out").ended(0)
    assert (
        ran.out.splitlines()[0].split()
        == "steps rounds chunks rounds/chunk bound optimal algbw GB/s α µs".split()
    )
    assert [line.split()[0] for line in ran.err.splitlines()] == [
        "Read",
        "Solved",
        "Verified",
        "Wrote",
    ]
    assert weft(*RING, "-q").err == ""
    assert "found 1 step," in weft(*RING, "-v").err


def test_the_same_seed_writes_the_same_bytes(weft: Weft, tmp_path: Path) -> None:
    texts = []
    for folder in ("a", "b"):
        assert weft(*RING, "--seed", "7", "-o", tmp_path / folder).code == 0
        (file,) = (tmp_path / folder).iterdir()
        texts.append(file.read_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("objective", "extra", "value"),
    [
        ("latency", (), 0.7),
        ("bandwidth", (), 75),  # 2/3 of M over two links of 25 GB/s
        ("time", ("--size", "3MB"), 0.7 + 40),  # 1 MB over 25 GB/s
    ],
)
def test_one_objective_is_one_file(
    weft: Weft, tmp_path: Path, objective: str, extra: tuple[str, ...], value: float
) -> None:
    file = tmp_path / "one.json"
    ran = weft(*RING, "--objective", objective, *extra, "-o", file, "--json").ended(0)
    assert ran.json["value"] == pytest.approx(value)
    assert len(ran.json["points"]) == 1
    assert ran.json["points"][0]["file"] == str(file)
    assert weft("check", file).code == 0


def test_the_least_latency_is_told_beside_its_bound(weft: Weft) -> None:
    ran = weft("synth", "-t", "ring:4", "-c", "allgather", "--objective", "latency")
    assert "latency alone: 1.400 µs, the proved bound" in ran.out
    words = ("synth", "-t", "ring:5", "-c", "alltoall", "-e", "packing", "--effort", "1")
    assert "steps" in weft(*words, "--objective", "latency").out.splitlines()[1]


def test_a_frontier_in_time_is_a_row_and_a_file_per_size(weft: Weft, tmp_path: Path) -> None:
    ring, out = ("synth", "-t", "ring:4", "-c", "allgather"), tmp_path / "out"
    data = weft(*ring, "--sizes", "512KiB:1MiB", "-o", out, "--json").ended(0).json
    assert data["status"] == "optimal"
    half, whole = data["sizes"]
    assert (half["bytes"], whole["pieces"], whole["proved"]) == (1 << 19, 2, True)
    assert whole["us"] == min(cut["us"] for cut in whole["cuts"])
    assert whole["bound_us"] <= whole["least_us"] <= whole["us"]
    weft("check", whole["file"]).ended(0)
    assert "within" not in weft(*ring, "--sizes", "1MiB", "--require-optimal").ended(0).out
    for more, told in (
        (("--sizes", "1MiB", "--size", "1MiB"), "without --size"),
        (("--sizes", "1MiB", "--objective", "latency"), "--objective frontier"),
        (("--sizes", "1MiB", "-e", "packing"), "expected the engine intervals, got packing"),
    ):
        assert told in weft(*ring, *more).ended(2).err


def test_points_of_a_frontier_say_what_they_are_for(weft: Weft) -> None:
    head, *rows = weft("synth", "-t", "ring:8", "-c", "allreduce", "-e", "packing").out.splitlines()
    assert head.split()[-3:] == ["segments", "best", "at"]
    assert any(row.endswith("1GiB") for row in rows)
    assert ranges((1, 2, 8), [1, 2, 4, 8]) == "1B..2B, 8B"
    assert ranges((), [1]) == "-"


def test_a_schedule_on_stdout_is_nothing_but_that(weft: Weft) -> None:
    ran = weft(*RING, "--objective", "latency", "-o", "-").ended(0)
    assert json.loads(ran.out)["weft"] == "schedule"
    assert "rounds/chunk" in ran.err
    weft("check", "-", stdin=ran.out).ended(0)


def test_from_nothing_to_a_program_that_runs(weft: Weft, tmp_path: Path) -> None:
    schedule, xml = tmp_path / "s.json", tmp_path / "s.xml"
    for collective in ("allreduce", "reduce_scatter", "broadcast"):
        flags = ("--objective", "latency", "-o", schedule, "-f")
        assert weft("synth", "-t", "ring:3", "-c", collective, *flags).code == 0
        assert weft("compile", schedule, "-o", xml, "-f").code == 0
        assert weft("run", xml, "--interleavings", "20").code == 0
        ran = weft("simulate", schedule, "--size", "1KiB:4KiB", "--json").ended(0)
        assert [s["bytes"] for s in ran.json["sizes"]] == [1024, 2048, 4096]
        assert all(0 < s["of_bound"] <= 1 + 1e-12 for s in ran.json["sizes"])


def test_simulated_numbers_by_hand(weft: Weft, triangle: Path) -> None:
    """3 MB: every GPU sends 1 MB at 25 GB/s, 40 µs, and α 0.7 µs."""
    (size,) = weft("simulate", triangle, "--size", "3MB", "--json").json["sizes"]
    assert size["us"] == pytest.approx(40.7)
    assert size["algbw_GBps"] == pytest.approx(3000 / 40.7)
    assert size["busbw_GBps"] == pytest.approx(3000 / 40.7 * 2 / 3)
    assert size["of_bound"] == pytest.approx(1)  # 2 of 3 MB into a GPU, after α
    half = weft("simulate", triangle, "-t", "ring:3,bw=50GB/s", "--size", "3MB", "--json").json
    assert half["sizes"][0]["us"] == pytest.approx(20.7)
    slow = weft("simulate", triangle, "--size", "3MB", "--overhead", "2us", "--json").json
    assert slow["sizes"][0]["us"] == pytest.approx(42.7)


def test_what_is_in_the_way_is_told_before_the_search(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    assert "Solved" not in weft(*RING, "-o", tmp_path / "out").ended(2, "not empty").err
    weft(*RING, "-o", tmp_path / "out", "-f").ended(2, "which weft did not write")
    assert (tmp_path / "out/notes.txt").read_text() == "mine"
    ran = weft(*RING, "-o", tmp_path / "out/notes.txt")
    assert "expected a folder for the frontier, got a file" in ran.err
    ran = weft(*RING, "--objective", "latency", "-o", tmp_path / "out/notes.txt")
    assert "the file exists" in ran.err


# --- endings, with engines made for them ----------------------------------------------------------


@dataclass(frozen=True)
class Acting:
    """Plays a part: answers of ``exact`` with another ending."""

    name: ClassVar[str] = "acting"
    cites: ClassVar[str] = "Stanislavski 1936"
    part: str = "optimal"

    @classmethod
    def availability(cls) -> str | None:
        return None

    def refuses(self, problem: Problem) -> str | None:
        return "it is on strike" if self.part == "refuse" else None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        if self.part == "infeasible":
            return Outcome(Status.INFEASIBLE, conflict=("rule a", "rule b"))
        if self.part == "nothing":
            return Outcome(Status.NOTHING, statements=("no cue came",))
        if self.part == "late":
            return Outcome(Status.NOTHING, statements=(f"{CUT_OFF} after 1.0 s of CPU",))
        if self.part == "early":
            raise KeyboardInterrupt
        if self.part == "crash":
            raise ZeroDivisionError("on stage")
        outcome: Outcome = ENGINES.make("exact").solve(problem, budget, observer)
        if self.part == "interrupt":
            raise KeyboardInterrupt
        if self.part == "feasible":
            return replace(outcome, status=Status.FEASIBLE)
        (point,) = outcome.points
        if self.part == "twice":
            other = replace(point, sizes=(1024,))
            return replace(outcome, points=(point, other))
        if self.part == "reordered":
            plan = np.arange(len(point.schedule), dtype=np.int32)
            other = replace(point, schedule=replace(point.schedule, priority=plan))
            return replace(outcome, points=(point, other))
        if self.part == "boast":
            point = replace(point, bound=point.rounds_per_chunk + Fraction(1, 2))
        if self.part == "lie":
            schedule = point.schedule
            cut = replace(schedule, chunk=(schedule.chunk + 1) % schedule.collective.chunks)
            point = replace(point, schedule=cut)
        return replace(outcome, points=(point,))


@dataclass(frozen=True)
class Absent(Acting):
    """Cannot run here."""

    name: ClassVar[str] = "absent"
    option: tuple[int, ...] = field(default=())

    @classmethod
    def availability(cls) -> str | None:
        return "pip install talent"


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("weft_test_engines")
    module.Acting, module.Absent = Acting, Absent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "weft_test_engines", module)
    monkeypatch.setitem(ENGINES.builtin, "acting", "weft_test_engines:Acting")  # type: ignore[arg-type]
    monkeypatch.setitem(ENGINES.builtin, "absent", "weft_test_engines:Absent")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "flags", "code", "status", "message"),
    [
        ("acting", (), 0, "optimal", ""),
        ("acting{part=feasible}", (), 0, "feasible", ""),
        ("acting{part=feasible}", ("--require-optimal",), 3, "feasible", "not proved best"),
        ("acting{part=optimal}", ("--require-optimal",), 0, "optimal", ""),
        ("acting{part=interrupt}", (), 0, "feasible", ""),
        ("acting{part=early}", (), 130, "interrupted", "nothing was found"),
        ("acting{part=infeasible}", (), 1, "infeasible", "rule a"),
        ("acting{part=refuse}", (), 2, "error", "on strike"),
        ("acting{part=nothing}", (), 3, "nothing", "no schedule with an effort of 20; no cue came"),
        ("acting{part=nothing}", (), 3, "nothing", "hint: more --effort"),
        ("acting{part=late}", (), 3, "nothing", "hint: a longer --time"),
        ("absent", (), 4, "error", "pip install talent"),
        ("acting{part=crash}", (), 70, "error", "ZeroDivisionError"),
        ("acting{part=lie}", (), 70, "error", "its schedule is wrong"),
        ("acting{part=boast}", (), 70, "error", "below its bound"),
    ],
)
@pytest.mark.usefixtures("engines")
def test_how_a_search_can_end(
    weft: Weft,
    tmp_path: Path,
    engine: str,
    flags: tuple[str, ...],
    code: int,
    status: str,
    message: str,
) -> None:
    out = tmp_path / "out"
    ran = weft(*RING, "-e", engine, *flags, "-o", out, "--json")
    assert (ran.code, ran.json["status"]) == (code, status), ran.err
    assert message in ran.err
    assert out.exists() == (status in ("optimal", "feasible"))
    if status == "infeasible":
        assert ran.json["conflict"] == ["rule a", "rule b"]


@pytest.mark.parametrize(("part", "schedules"), [("twice", 1), ("reordered", 2)])
@pytest.mark.usefixtures("engines")
def test_no_schedule_takes_the_file_of_another(
    weft: Weft, tmp_path: Path, part: str, schedules: int
) -> None:
    out = tmp_path / "out"
    ran = weft(*RING, "-e", f"acting{{part={part}}}", "-o", out, "--json")
    files = [point["file"] for point in ran.json["points"]]
    assert len(files) == schedules
    assert sorted(files) == sorted(str(file) for file in out.iterdir())
    assert f"{schedules} file" in ran.err


@pytest.mark.usefixtures("engines")
def test_ctrl_c_after_the_file_is_written_still_tells_the_answer(
    weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.backends.cli.verbs import synth as verb_synth

    def standing(*given: object) -> dict[str, object]:
        signal.raise_signal(signal.SIGINT)
        return plain(*given)  # type: ignore[arg-type]

    plain = verb_synth._standing
    monkeypatch.setattr(verb_synth, "_standing", standing)
    out = tmp_path / "out"
    ran = weft(*RING, "-e", "acting", "-o", out, "--json")
    assert (ran.code, ran.json["status"]) == (0, "optimal"), ran.err
    assert out.exists()
    assert "once more to abort" in ran.err


@pytest.mark.usefixtures("engines")
def test_engines_are_listed_with_their_reasons(weft: Weft) -> None:
    found = {e["name"]: e for e in weft("list", "engines", "--json").json["engines"]}
    assert found["exact"]["available"]
    assert "PPoPP 2021" in found["exact"]["cites"]
    assert found["absent"]["reason"] == "pip install talent"
    assert found["acting"]["options"] == ["part=optimal"]


@pytest.mark.usefixtures("engines")
def test_the_doctor_is_not_content_without_an_engine(weft: Weft) -> None:
    ran = weft("doctor", "--json").ended(4)
    bad = [c["name"] for c in ran.json["checks"] if c["needed"] and not c["ok"]]
    assert bad == ["engine absent"]


def test_the_doctor_says_what_a_missing_runtime_would_allow(weft: Weft, monkeypatch) -> None:
    from weft.backends.cli.verbs import doctor as verb_doctor

    real = verb_doctor.find_spec
    gone = ("mpi4py", "torch", "cupy")
    monkeypatch.setattr(verb_doctor, "find_spec", lambda name: None if name in gone else real(name))
    monkeypatch.setattr(verb_doctor, "mpiexec", lambda: None)
    told = {check["name"]: check for check in weft("doctor", "--json").json["checks"]}
    for name, words in [
        ("mpi4py", "weft run --on mpi"),
        ("torch", "weft run --on torch"),
        ("cupy-cuda12x", "NCCL"),
        ("mpiexec", "brings MPICH"),
    ]:
        assert not told[name]["ok"]
        assert words in told[name]["detail"]
        assert not told[name]["needed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_kill_keep_what_was_found(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    command = [
        sys.executable,
        *"-m weft.backends.cli synth -t dgx1 -c broadcast -v --effort 60 -o".split(),
        str(out),
    ]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "found" in line:
                break
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(timeout=HANGS) == 0
    assert "stopping" in rest
    assert "feasible" in rest
    assert list(out.iterdir())


def test_the_acting_engine_is_no_bug_of_the_test() -> None:
    with pytest.raises(UserError):
        ENGINES.make("acting")


@pytest.mark.parametrize(
    ("machine", "status", "code"), [("ring:4", "feasible", 3), ("full:2", "optimal", 0)]
)
def test_optimal_in_time_is_what_meets_the_bound(
    weft: Weft, tmp_path: Path, machine: str, status: str, code: int
) -> None:
    """The best in steps and rounds is 1.4 % slower on a ring than trees of many slices."""
    ran = weft(
        "synth",
        "-t",
        machine,
        *"-c allgather --objective time --size 4KiB -e exact --require-optimal -o".split(),
        tmp_path / "s.json",
        "--json",
    )
    assert (ran.json["status"], ran.code) == (status, code)
    assert (ran.json["gap"] > 1e-9) == (status == "feasible")


DGX1_ALLGATHER = "-t dgx1 -c allgather --objective time --size 1MiB --effort 2".split()


@pytest.mark.parametrize(
    ("flags", "code", "optimal"),
    [
        ("", 0, False),
        ("--require-optimal", 0, True),
        ("--message-cost 0us", 0, True),
        ("--message-cost 10ns --require-optimal", 3, False),
    ],
)
def test_a_required_optimum_is_searched_without_the_cost_of_messages(
    weft: Weft, flags: str, code: int, optimal: bool
) -> None:
    """4 segments of 84 transfers attain the bound, and 1 segment takes 3.9 % more."""
    ran = weft("synth", *DGX1_ALLGATHER, *flags.split(), "--json")
    assert (ran.json["status"] == "optimal", ran.code) == (optimal, code)
    assert ran.json["value"] == pytest.approx(6.8169 if optimal else 7.0800, abs=1e-3)


def test_what_steers_the_engines_is_listed(weft: Weft) -> None:
    found = weft("list", "engines", "--options", "--json").json["options"]
    by_name = {(e["engine"], e["option"]): e for e in found}
    assert by_name["portfolio", "effort.exact-ranks"]["default"] == "16"
    assert "ranks up to which" in by_name["portfolio", "effort.exact-ranks"]["doc"]
    assert by_name["classic", "algorithm"]["default"] == "auto"
    assert "effort.exact-ranks" in weft("list", "engines", "--options").out
    assert "effort" not in weft("list", "engines").out


def test_solver_memory_is_a_limit_for_one_command(
    weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So little that no solver starts: its question is given up, which the answer says."""
    monkeypatch.delenv(SOLVER_MEMORY, raising=False)
    question = ("synth", "-t", "dgx1", "-c", "allgather", "-e", "exact", "--effort", 0.1)
    weft(*question, "--solver-memory", "20MB").ended(
        Exit.WRONG_QUESTION, "a solver takes 24MiB to start, and 20MB is less"
    )
    weft(*question, "--solver-memory", "24MiB").ended(
        Exit.NOTHING_FOUND, "its memory is limited to 24MiB", "given up"
    )
    assert SOLVER_MEMORY not in os.environ
    weft(*question, "--solver-memory", "much").ended(Exit.WRONG_QUESTION, "--solver-memory much")
    # More than the system counts is no limit; and a race leaves no engine out for a wrong one.
    enough = ("synth", "-t", "ring:4", *question[3:], "--solver-memory", "8388608TiB")
    assert weft(*enough).code == Exit.DONE
    monkeypatch.setenv(SOLVER_MEMORY, "much")
    weft("synth", "-t", "ring:3", "-c", "allgather", "--effort", 1).ended(
        Exit.WRONG_QUESTION, f"${SOLVER_MEMORY}"
    )
