"""Start ranks as processes, watch them, and end every one in every case.

A :func:`command` starts them; :func:`run_job` does the calls of a job on them, and
:func:`require_whole` and :func:`results` judge it; :func:`run_program` runs a module that measures.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.dsl.base.deadline import Deadline, Stopwatch
from weft.dsl.base.errors import CheckFailed, Missing
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.processes import (
    POLL,
    STARTING,
    STDERR,
    STDOUT,
    Command,
    cores,
    end_with_owner,
    owning,
    python,
    running,
    signal_name,
    wait,
)

from .job import LIMITS, Case, RankJob, RankReport
from .starters import mpiexec

_PACKAGE = __package__


def command(on: str, folder: Path, ranks: int, seconds: float, program: str = "") -> Command:
    """Return the command that starts the ranks of the job in a folder, or those that run a module,
    with the runtime's name and the folder.

    Raises:
        Missing: the runtime is not installed.
    """
    words = ("-m", program or f"{_PACKAGE}.{on}", on, str(folder))
    if on == "jax":  # one process that has all ranks as its devices
        return on_devices(words, ranks)
    if on == "torch":  # one process that loads torch once and forks the ranks
        if find_spec("torch") is None:
            hint = "install it: pip install 'weft[torch]'"
            raise Missing("torch programs need the Python package torch", hint=hint)
        return python("-m", f"{_PACKAGE}.torch", str(folder), str(ranks), *filter(None, [program]))
    # As a module of mpi4py: an exception in one rank ends all; those of a job are supervised.
    return under_mpiexec(("-m", "mpi4py", *words) if program else words, ranks, seconds)


def under_mpiexec(arguments: Sequence[str], ranks: int, seconds: float) -> Command:
    """Return the command that runs Python with these arguments on every rank.

    ``mpiexec`` ends them after that many seconds, if they still run.

    Raises:
        Missing: mpi4py or an MPI is not installed.
    """
    hint = "install both: pip install 'weft[mpi]' (mpi4py and MPICH)"
    if find_spec("mpi4py") is None:
        raise Missing("MPI programs need the Python package mpi4py", hint=hint)
    program = mpiexec()
    if program is None:
        raise Missing("no mpiexec beside this Python or in PATH", hint=hint)
    more = {
        "MPIEXEC_TIMEOUT": str(int(seconds) + 1),
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI's; others ignore them
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    if ranks > cores():  # a rank that waits inside MPI (MPICH, Open MPI) sleeps, and polls less
        more |= {"MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    if os.geteuid() == 0:
        more |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Command((program, "-n", str(ranks), *python(*arguments).words), more)


def on_devices(arguments: Sequence[str], ranks: int) -> Command:
    """Return the command that runs Python with that many devices of JAX on the host.

    JAX_PLATFORMS of the environment stays, for hosts with ``ranks`` GPUs or TPUs.

    Raises:
        Missing: JAX is not installed.
    """
    if find_spec("jax") is None:
        hint = "install it: pip install 'weft[jax]'"
        raise Missing("JAX programs need the Python package jax", hint=hint)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={ranks}"
    return python(
        *arguments,
        XLA_FLAGS=flags.strip(),
        JAX_PLATFORMS=os.environ.get("JAX_PLATFORMS", "cpu"),
        JAX_ENABLE_X64="1",
    )


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """Result of a job.

    Attributes:
        reports: of the ranks that wrote one.
        states: the last state of each rank.
        lost: how ranks ended that could not report: ``signal 9 (SIGKILL)``.
        silent: no rank made progress for too long.
        stderr: of what started them, and theirs.
    """

    reports: dict[int, RankReport]
    states: dict[int, str]
    lost: dict[int, str]
    silent: bool
    stderr: str


def run_job(job: RankJob, on: str) -> LaunchResult:
    """Run a job on processes of its own.

    Raises:
        Missing: the runtime is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="weft-run-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job.write(folder)
        calls = sum(1 + case.repeat + 2 * case.watch for case in job.cases)
        seconds = STARTING + job.timeout * (calls + 2)
        started = command(on, folder, job.ranks, seconds)
        watch = _ProgressMonitor(job, folder)
        with owning(folder):
            try:
                with running([started], folder, grace=LIMITS.terminate_seconds) as (process,):
                    wait([process], math.inf, watch.over)
            finally:
                _end_ranks(folder)
        stderr = (folder / STDERR).read_text("utf-8", "replace")
        reports, lost = _reports(folder), _exits(folder)
        gone = {rank: how for rank, how in lost.items() if rank not in reports}
        return LaunchResult(reports, _states(folder), gone, watch.silent, stderr)


class _ProgressMonitor:
    """Finds from the files of the ranks when waiting for them is over."""

    def __init__(self, job: RankJob, folder: Path) -> None:
        self.silent = False
        self._job, self._folder = job, folder
        self._watch = Stopwatch()
        self._moved, self._newest = 0.0, 0
        self._give_up: float | None = None

    def over(self) -> bool:
        """Return True if a rank gave up and the others had time to report, or none has moved.

        In the second case ``silent`` is set.
        """
        now, job = self._watch.seconds(), self._job
        reports = _reports(self._folder)
        failed = [r.failure for r in reports.values() if r.failure]
        if (failed or _exits(self._folder)) and self._give_up is None:
            self._give_up = now + LIMITS.report_seconds
        if self._give_up is not None and (now > self._give_up or len(reports) == job.ranks):
            return True
        states = list(self._folder.glob("state-*"))
        newest = max((path.stat().st_mtime_ns for path in states), default=0) + len(reports)
        if newest != self._newest:
            self._moved, self._newest = now, newest
        doing = [text for rank, text in _states(self._folder).items() if rank not in reports]
        waits = ("is in call", "is at the barrier")  # else it makes data, compares …
        working = len(states) < job.ranks or any(not text.startswith(waits) for text in doing)
        most = max(STARTING, job.timeout) if working else job.timeout + LIMITS.report_seconds
        self.silent = now - self._moved > most
        return self.silent


def _end_ranks(folder: Path) -> None:
    """End every rank: an MPI puts each in a session of its own."""

    def is_rank(pid: int) -> bool:  # and not a later process with the same number
        with contextlib.suppress(OSError):
            return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    end = Deadline(LIMITS.kill_seconds)
    pids = [int(path.read_text() or 0) for path in folder.glob("pid-*")]
    while (alive := [pid for pid in pids if pid and is_rank(pid)]) and not end.over():
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def _states(folder: Path) -> dict[int, str]:
    return {
        int(path.name.removeprefix("state-")): path.read_text("utf-8", "replace").strip()
        for path in folder.glob("state-*")
    }


def _reports(folder: Path) -> dict[int, RankReport]:
    found = [RankReport.from_json(path.read_text("utf-8")) for path in folder.glob("report-*")]
    return {report.rank: report for report in found}


def _exits(folder: Path) -> dict[int, str]:
    """Return how ranks failed, by their exit files: ``signal 9 (SIGKILL)`` or ``exit code 3``;
    ranks that ended well are left out."""
    found = {}
    for path in folder.glob("exit-*"):
        status = int(path.read_text() or 0)  # negative for signals
        if status:
            name = signal_name(-status)
            signalled = f"signal {-status} ({name})" if name else f"signal {-status}"
            how = signalled if status < 0 else f"exit code {status}"
            found[int(path.name.removeprefix("exit-"))] = how
    return found


# --- verdicts: results, or the ranks that failed and those that wait for them ---------------------


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one case: errors, if any, and µs of its calls, each that of the slowest
    rank."""

    case: Case
    wrong: tuple[str, ...]
    us: tuple[float, ...]

    @property
    def median_us(self) -> float | None:
        """The median of its calls, in µs."""
        return statistics.median(self.us) if self.us else None

    @property
    def least_us(self) -> float | None:
        """The least of its calls, in µs."""
        return min(self.us) if self.us else None


def results(job: RankJob, reports: Mapping[int, RankReport]) -> tuple[CaseResult, ...]:
    """Return the results of all cases, if every rank did all of them.

    Raises:
        CheckFailed: some did not.
    """
    failed = {rank: one.failure for rank, one in sorted(reports.items()) if one.failure}
    if failed or len(reports) < job.ranks:
        require_whole(job, LaunchResult(dict(reports), {}, {}, False, ""))
    found = []
    for number, case in enumerate(job.cases):
        done = [one for r in sorted(reports) if (one := reports[r].done[number]) is not None]
        slowest = tuple(1e6 * max(turn) for turn in zip(*(x.seconds for x in done), strict=True))
        found.append(CaseResult(case, tuple(x.wrong for x in done if x.wrong), slowest))
    return tuple(found)


def require_whole(job: RankJob, ending: LaunchResult) -> None:
    """Raise, with all that is known, unless every rank did all its cases.

    Raises:
        CheckFailed: ranks are lost, failed, or wait for each other.
        Missing: a rank lacks what it needs.
    """
    failures = {rank: one.failure for rank, one in ending.reports.items() if one.failure}
    lacking = next((one for one in failures.values() if one.kind == Missing.__name__), None)
    if lacking is not None:
        raise Missing(lacking.text, hint=lacking.hint)
    waiting = {rank: one.text for rank, one in failures.items() if one.waiting}
    raised = {rank: one.text for rank, one in failures.items() if not one.waiting}
    missing = [r for r in range(job.ranks) if r not in ending.reports and r not in ending.lost]
    if not (failures or ending.lost or missing or ending.silent):
        return
    lines = [
        f"rank {rank} was ended by {how}{_while(ending, rank)}"
        for rank, how in sorted(ending.lost.items())
    ]
    if not ending.lost:  # else they only say that it is gone
        lines += _alike(ending, raised)
    causes = bool(lines)
    if not causes:
        lines += _several(_idle(job, ending, missing, waiting))
        first = sorted(waiting.items(), key=lambda item: (_round(item[1]), item[0]))
        lines += _several([named(rank, text) for rank, text in first])
    raise CheckFailed("; ".join(lines) or "the ranks did not start", hint=_hint(ending, causes))


def _round(text: str) -> float:
    """The round in which a rank waits; at a barrier, a later one. The first is near the cause."""
    found = re.search(r"round (\d+)", text)
    return float(found[1]) if found else math.inf


def named(rank: int, text: str) -> str:
    """Return a text that names the rank, unless it does."""
    return text if f"rank {rank}" in text[:12] else f"rank {rank}: {text}"


def _alike(ending: LaunchResult, raised: Mapping[int, str]) -> list[str]:
    """Return the errors of ranks, each text once, with the first rank that raised it."""
    lines = []
    for text in dict.fromkeys(raised.values()):
        first, *others = (rank for rank, own in sorted(raised.items()) if own == text)
        also = f", and {_ranks(others)} too" if others else ""
        lines.append(named(first, text) + _while(ending, first) + also)
    return _several(lines, "errors")


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(
        [*map(str, ranks[: LIMITS.named_ranks]), *["…"] * (len(ranks) > LIMITS.named_ranks)]
    )
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _while(ending: LaunchResult, rank: int) -> str:
    state = ending.states.get(rank)
    return f" (it {state})" if state else ""


def _idle(
    job: RankJob, ending: LaunchResult, missing: Sequence[int], waiting: Mapping[int, str]
) -> list[str]:
    """Return the last states of ranks without a report, while others waited or none progressed."""
    lines = []
    for rank in missing:
        state = ending.states.get(rank)
        lines.append(f"rank {rank} {state}" if state else f"rank {rank} never started")
    if waiting:
        done = [r for r, one in sorted(ending.reports.items()) if not one.failure]
        lines += [f"rank {r} is through with all its calls" for r in done]
    return [f"after {job.timeout:g} s: {lines[0]}", *lines[1:]] if lines and not waiting else lines


def _several(lines: list[str], noun: str = "ranks") -> list[str]:
    more = len(lines) - LIMITS.named_ranks
    return [*lines[: LIMITS.named_ranks], f"and {more} {noun} more"] if more > 0 else lines


def _hint(ending: LaunchResult, causes: bool) -> str:
    """Return the usual cause of such an ending, or the end of stderr where none is known."""
    if any("SIGABRT" in how for how in ending.lost.values()):
        return (
            "gloo ends a process that gets more than it expects: do all ranks call with the "
            "same sizes?"
        )
    if causes or any(one.failure for one in ending.reports.values()):
        return ""
    words = [line.strip() for line in ending.stderr.splitlines() if line.strip()]
    return f"the ranks' standard error ends: {words[-1][:200]}" if words else ""


# --- programs -------------------------------------------------------------------------------------

PLAN, FOUND = "plan.json", "found.json"
"""Files in the folder of the ranks."""

RANK = "WEFT_RANK"
"""Environment variable with the number of a rank of torch.distributed."""

LACKING = "lacking-{}.json"
"""File in which a process, by its number, names a missing package, if any."""


def run_program(
    program: str,
    on: str,
    ranks: int,
    plan: dict[str, Any],
    seconds: float,
    tell: Callable[[str], None],
) -> Any:
    """Run a module on ranks, with the runtime's name and a folder; return the result of rank 0.

    ``plan`` is what it finds there; ``seconds`` how long it may take, starting not counted.

    Raises:
        Missing: the runtime is not installed, or a rank lacks what it needs. CheckFailed: a rank
            failed, or it takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="weft-ranks-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / PLAN).write_text(json.dumps(plan), "utf-8")
        limit = seconds + 2 * STARTING
        started = command(on, folder, ranks, limit, program)
        closing: list[Deadline] = []
        with (
            owning(folder),
            running([started], folder, grace=LIMITS.terminate_seconds) as processes,
            (folder / STDOUT).open(encoding="utf-8", errors="replace") as lines,
        ):

            def heard() -> bool:
                for line in lines.readlines():
                    tell(line.strip())
                if not closing and (folder / FOUND).exists():
                    closing.append(Deadline(LIMITS.kill_seconds))
                return bool(closing) and closing[0].over()

            wait(processes, limit, heard)
        for lacking in sorted(folder.glob(LACKING.format("*"))):
            raise Missing(**json.loads(lacking.read_text("utf-8")))
        if not (folder / FOUND).exists():
            words = (folder / STDERR).read_text("utf-8", "replace").splitlines()
            errors = [line for line in words if re.match(r"\w+(\.\w+)*(Error|Exception)\b", line)]
            last = [*(line.strip() for line in words if line.strip()), *errors[:1]]
            told = last[-1][:300] if last else "nothing was heard of them in time"
            raise CheckFailed(
                f"the ranks did not end well: {told}",
                hint="does weft run work with the same --on?",
            )
        return json.loads((folder / FOUND).read_text("utf-8"))


def take_part(work: Callable[[str, Any, Path, Callable[[str], None]], Iterator[Any]]) -> None:
    """In a module that :func:`run_program` runs: do ``work``, and leave the result that it yields
    on rank 0. What it does after that, such as closing connections, cannot lose the result.

    It gets the runtime's name, the plan, the folder, and what reports a state.

    Raises:
        Missing: this rank lacks something; that is left, too.
    """
    on, folder = sys.argv[1], Path(sys.argv[2])
    end_with_owner(folder)

    def tell(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    try:
        for found in work(on, json.loads((folder / PLAN).read_text("utf-8")), folder, tell):
            if found is not None:
                _leave(folder / FOUND, found)
    except Missing as error:
        lacking = {"message": error.message, "hint": error.hint}
        _leave(folder / LACKING.format(os.getpid()), lacking)
        raise


def _leave(place: Path, found: Any) -> None:
    """Write a result; it appears whole or not at all."""
    part = place.with_suffix(".part")
    part.write_text(json.dumps(found), "utf-8")
    part.rename(place)
