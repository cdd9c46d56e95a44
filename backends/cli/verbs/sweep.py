"""``weft sweep``: many searches as one list of jobs, here or on a cluster."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.tables import count, table
from weft.dsl.base.units import format_bytes

from ...jobs.cluster import cluster
from ...jobs.fingerprint import fingerprint
from ...jobs.local import local
from ...sweep.cache import Cache, default_folder
from ...sweep.folder import opened
from ...sweep.run import run as sweep
from ..flags.search import SweepFlags
from ..output.console import Console, Exit, columns
from ..output.progress import LiveLine, interruptible, live_line
from ..work.sweep_axes import plan_of, questions_of

if TYPE_CHECKING:
    from ...jobs.executor import Executor
    from ...sweep.question import SweepQuestion
    from ...sweep.run import SweepResult


WALL_PER_EFFORT = 10.0
"""Wall seconds for a unit of effort after which a job is killed: ten times what it takes alone."""

ANSWERS = ("optimal", "feasible", "infeasible", "nothing", "refused")


def run(args: SweepFlags, console: Console) -> int:
    if args.cluster and args.jobs:
        raise UserError(
            "--jobs is for this machine",
            hint="the workers of a cluster say how many jobs they take: dask worker --nworkers N",
        )
    plan = plan_of(args)
    questions = questions_of(plan, console)
    console.say("Read", f"{count(len(questions), 'job')}, effort {plan.effort:g} each")
    # Loaded after the arguments are checked: they take a moment.
    code = fingerprint()
    keys = frozenset(question.key(code) for question in questions)
    progress = SweepProgress(console)
    limit = args.deadline or WALL_PER_EFFORT * plan.effort + 60

    def executor() -> Executor:
        if args.cluster:
            return cluster(args.cluster, threads=plan.threads, code=code)
        return local(args.jobs, threads=plan.threads, code=code)

    opening = opened(Path(args.output), keys, force=args.force) if args.output else nullcontext()
    with interruptible(progress, console), opening as folder, live_line(progress, console):
        result = sweep(
            questions,
            code,
            executor,
            progress,
            deadline=limit,
            cache=_cache(args, code),
            folder=folder,
        )
    with interruptible(progress, console, finishing=True):
        return _tell(args, result, progress, console)


def _cache(args: SweepFlags, code: str) -> Cache | None:
    if args.no_cache:
        if args.cache:
            raise UserError("--cache and --no-cache exclude each other")
        return None
    folder = Path(args.cache) if args.cache else default_folder()
    if folder.exists() and not folder.is_dir():
        raise UserError("expected a folder for the cache, got a file", where=str(folder))
    return Cache(folder, code)


# --- words ----------------------------------------------------------------------------------------


def _tell(args: SweepFlags, result: SweepResult, progress: SweepProgress, console: Console) -> int:
    answered = [row for row in result.rows if row["status"] in ANSWERS]
    if result.pending and not answered:
        if not args.output:
            raise KeyboardInterrupt
        told = WeftError(
            "interrupted before any job had an answer",
            where=args.output,
            hint="the same command goes on",
        )
        console.fail(told.render(), {"status": "interrupted", "error": told.to_json()})
        return Exit.INTERRUPTED
    known = [
        f"{result.cached} from the cache" if result.cached else "",
        f"{result.kept} kept" if result.kept else "",
    ]
    words = ", ".join(
        filter(None, [f"{count(result.ran, 'job')} in {progress.seconds:.1f}s", *known])
    )
    console.say("Ran", words)
    if args.output:
        console.say("Wrote", args.output)
    whole = len(answered) == len(result.rows)
    seconds = [result.seconds.get(row["key"]) for row in result.rows]
    console.result(
        _text(result),
        {
            "status": "interrupted" if result.pending else "ok" if whole else "incomplete",
            "jobs": [
                {**row, "seconds": s and round(s, 3)}
                for row, s in zip(result.rows, seconds, strict=True)
            ],
            "ran": result.ran,
            "cached": result.cached,
            "kept": result.kept,
            "pending": result.pending,
            "output": args.output,
        },
    )
    return _ending(args, result, len(answered), console)


def _ending(args: SweepFlags, result: SweepResult, answered: int, console: Console) -> int:
    if result.pending:
        lost = args.no_cache and not args.output
        then = "nothing is kept" if lost else "the same command goes on"
        jobs = count(len(result.rows), "job")
        console.warn(f"stopped: {result.pending} of {jobs} not run; {then}")
    for status in ("late", "lost", "broken", "unavailable"):
        rows = [row for row in result.rows if row["status"] == status]
        if rows:
            console.warn(f"{count(len(rows), 'job')} {status}: {rows[0]['why']}")
    if any(row["status"] == "broken" for row in result.rows):
        return Exit.BUG
    return Exit.DONE if answered + result.pending == len(result.rows) else Exit.NOTHING_FOUND


def _text(result: SweepResult) -> str:
    rows = result.rows
    unit = "GB/s" if rows[0]["objective"] == "bandwidth" else "µs"
    shown: dict[str, list[object]] = {
        "topology": [r["topology"] for r in rows],
        "collective": [" ".join(filter(None, (r["collective"], r.get("more")))) for r in rows],
        "sketch": [r["sketch"] or "-" for r in rows],
        "engine": [r["engine"] for r in rows],
        "size": [format_bytes(r["bytes"]) if r["bytes"] else "-" for r in rows],
        "seed": [r["seed"] for r in rows],
        "status": [r["status"] for r in rows],
        unit: [r["value"] for r in rows],
        f"bound {unit}": [r["bound"] for r in rows],
        "gap": [None if r["gap"] is None else f"{r['gap']:.2%}" for r in rows],
        "points": [len(r["points"]) for r in rows],
        "best": [_best(r, rows) for r in rows],
        "why": [r["why"] for r in rows],
    }
    idle = [
        name
        for name in ("sketch", "size", "seed", "best", unit, f"bound {unit}", "why")
        if len({str(x) for x in shown[name]}) == 1
        and (name == "seed" or str(shown[name][0]) in ("-", "None", ""))
    ]
    kept = {name: values for name, values in shown.items() if name not in idle}
    return table(tuple(kept), zip(*kept.values(), strict=True), width=columns())


def _best(row: dict[str, Any], rows: tuple[dict[str, Any], ...]) -> str:
    """Return ``best`` for the best row of several with the same problem; else nothing."""
    if row["value"] is None:
        return ""
    same = [r["value"] for r in rows if r["value"] is not None and _asked(r) == _asked(row)]
    most = max if row["objective"] == "bandwidth" else min
    return "best" if len(same) > 1 and row["value"] == most(same) else ""


def _asked(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(row.get(key) for key in ("topology", "collective", "bytes", "more"))


class SweepProgress(LiveLine):
    """Display of progress, a :class:`~weft.backends.sweep.run.Watcher`; Ctrl-C stops the sweep."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._jobs = self._known = self._ended = self._begun = 0
        self._states: Counter[str] = Counter()

    def begins(self, jobs: int, known: int) -> None:
        """Record the number of jobs and of known answers, as :class:`Watcher` defines."""
        self._jobs, self._known, self._started = jobs, known, time.monotonic()

    def started(self, question: SweepQuestion, where: str) -> None:
        """Record the start of a job, as :class:`Watcher` defines."""
        self._begun += 1
        self._console.detail(f"  {self.seconds:6.1f}s  starts {question.label.stem()} on {where}")

    def ended(self, question: SweepQuestion, row: dict[str, Any], seconds: float) -> None:
        """Record the end of a job, as :class:`Watcher` defines."""
        self._ended += 1
        self._states[row["status"]] += 1
        what = f"{row['status']:<10} {question.label.stem()} in {seconds:.1f}s"
        self._console.detail(f"  {self.seconds:6.1f}s  {what}")

    def warn(self, text: str) -> None:
        """Print a warning, as :class:`Watcher` defines."""
        self._console.warn(text)

    def line(self) -> str:
        """Return the line ``Sweeping  37 of 200 jobs (12 known)  25 optimal  about 40s left``."""
        done = self._known + self._ended
        states = "  ".join(f"{n} {state}" for state, n in self._states.most_common())
        left = self._jobs - done
        about = f"  about {self.seconds / self._ended * left:.0f}s left" if self._ended else ""
        ending = "  (stopping)" if self.stopped else about
        return (
            f"Sweeping  {done} of {count(self._jobs, 'job')} ({self._known} known)  "
            f"{states}{ending}"
        )
