"""Execution by ``weft run`` on real ranks: processes of MPI or torch, or threads.

The file of such a program is run as it is; whatever can be compiled becomes one first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.files import write_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, number
from weft.synth.time.schedule_time import SimulatedTime, bus_factor, simulate

from ...check.checks import Check, checks_text
from ...check.findings import require_good
from ...formats.p2p.data import type_named
from ...formats.p2p.format import GOOD
from ...formats.p2p.judge import for_threads
from ...ranks import joined, launcher
from ...ranks.job import Call, Case, EmittedFile, Recording, dumps, whole_job
from ...ranks.joined import attend_joined
from ...ranks.nccl import run_on_gpus
from ...ranks.threads import run_threads
from ...report.report import TIMED, shown
from ..flags.files import RunFlags
from ..flags.values import DEFAULTS, LIMITS
from ..inputs.machines import on_machine
from ..nouns.noun import Subject, refuse_collective
from ..nouns.scripts import format_on, require_runtime, script_text
from ..output.console import Console, Exit
from ..output.outputs import check_file
from ..output.stages import telling
from .lowering import source_of

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.schedule import Schedule

    from ...ranks.job import RankJob, RankReport

SIZES = (1 << 10, 1 << 16, 1 << 20)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Program to run, with its schedule and the machine's costs where it was compiled from one."""

    piece: EmittedFile
    collective: Collective
    schedule: Schedule | None


def run_job(subject: Subject, args: RunFlags, console: Console) -> int:
    """Prove the program, run it, compare results, measure times."""
    if args.on in ("mpi", "torch") and joined.is_joined(args.on):
        return joined.as_one_rank(
            args.on,
            args.timeout or DEFAULTS.rank_seconds,
            lambda world: _as_rank(world, subject, args, console),
        )
    _check_trace(args)
    started = time.monotonic()
    with telling(console, "Running") as tell:
        tell("compile")
        plan = _planned(subject, args)
        job = _job(plan, args)
        tell(f"run {len(job.cases)} cases on {job.ranks} ranks")
        reports = _reports(job, args.on)
    return _told(plan, job, reports, args, console, started)


def _as_rank(world: Any, subject: Subject, args: RunFlags, console: Console) -> int:
    """Run as one of the ranks that a launcher has started; the first one reports."""
    started = time.monotonic()
    plan = _planned(subject, args)
    job = _job(plan, args)
    reports = attend_joined(job, world)
    return _told(plan, job, reports, args, console, started) if reports is not None else Exit.DONE


def _reports(job: RankJob, on: str) -> dict[int, RankReport]:
    if on == "numpy":
        return run_threads(job)
    if on == "nccl":
        return run_on_gpus(job)
    ending = launcher.run_job(job, on)
    launcher.require_whole(job, ending)
    return ending.reports


# --- programs -------------------------------------------------------------------------------------


def _planned(subject: Subject, args: RunFlags) -> RunPlan:
    """Return the file to run, proved."""
    format = format_on(args.on)
    format.refuse_flags(args.lowering_given(), f"--on {args.on}")
    if not (subject.noun.asks_collective and subject.compiled_form):
        refuse_collective(args, subject)
    schedule = None
    if subject.is_script:
        require_runtime(subject, args.on)
        text = for_threads(subject.text, subject.where) if args.on == "numpy" else subject.text
    else:
        _refuse_interpreted(subject, args.on)
        either = replace(args, in_place=False)  # the function takes one buffer or two
        source = source_of(subject, either, format.name)
        schedule = source.schedule
        text = script_text(format, subject, source, either)
    require_good(format.findings(text, subject.where), subject.where)
    piece = EmittedFile.of(text, subject.where)
    if args.topology and schedule is None:
        raise UserError(
            "times are predicted for schedules only: other files do not state the links they use",
            where=subject.where,
            hint="leave -t out, or name the file of the schedule",
        )
    if args.topology and schedule is not None:
        schedule = on_machine(schedule, args.topology)
    return RunPlan(piece, piece.units, schedule)


def _refuse_interpreted(subject: Subject, on: str) -> None:
    """Refuse files that no process runs: weft executes them by an interpreter of its own."""
    format = subject.format
    if format is None or format.compiled or not format.interpreted:
        return
    there = f"; {format.elsewhere}, runs it there" if format.elsewhere else ""
    raise UserError(
        f"--on {on} runs sends and receives, and {an(format.noun)} has none: nothing was run",
        where=subject.where,
        hint=f"without --on, `weft run` executes it on the host by an interpreter{there}",
    )


def _job(plan: RunPlan, args: RunFlags) -> RankJob:
    sizes = args.size or SIZES
    if max(sizes) > LIMITS.run_bytes:
        raise UserError("messages have at most 1GiB", where="--size")
    types = tuple(dict.fromkeys(t.strip() for t in args.dtype.split(",") if t.strip()))
    if not types:
        raise UserError("--dtype: expected a type, got none", hint="int32, float32, float16 …")
    cases = [case for t in types for size in sizes for case in _cases(plan, args, t, size)]
    return whole_job([plan.piece], cases, args.timeout or DEFAULTS.rank_seconds)


def _cases(plan: RunPlan, args: RunFlags, dtype: str, size: int) -> list[Case]:
    unit = type_named(dtype).itemsize * plan.collective.message_chunks
    plain = Case(0, max(1, size // unit), dtype, args.in_place, seed=args.seed)
    cases = [replace(plain, repeat=args.repeat or DEFAULTS.repeat, watch=args.trace is not None)]
    if (
        type_named(dtype).kind not in "iu"
        and plan.collective.combining
        and size <= LIMITS.rough_bytes
    ):
        cases.append(replace(plain, rough=True))
    return cases


# --- results --------------------------------------------------------------------------------------


def _told(
    plan: RunPlan,
    job: RankJob,
    reports: dict[int, RankReport],
    args: RunFlags,
    console: Console,
    started: float,
) -> int:
    found = launcher.results(job, reports)
    checks = [Check("program", True, GOOD), _compared(found)]
    sizes = [_entry(plan, one) for one in found if one.us]
    good = all(check.ok for check in checks)
    name = plan.collective.name or str(plan.collective.kind)
    if args.trace is not None:
        calls = tuple(_calls(plan, job, reports))
        write_text(args.trace, dumps(Recording(args.on, name, calls)), force=args.force)
        told = f"{count(len(calls), 'call')} of {job.ranks} ranks"
        console.say("Recorded", f"{args.trace}: {told}")
    console.result(
        f"{checks_text(checks)}\n\n{shown(sizes, *TIMED)}",
        {
            "status": "ok" if good else "failed",
            "on": args.on,
            "topology": plan.schedule.topology.name if plan.schedule else None,
            "collective": name,
            "ranks": job.ranks,
            "in_place": bool(args.in_place),
            "seconds": round(time.monotonic() - started, 3),
            "checks": [check.to_json() for check in checks],
            "sizes": sizes,
            **({"trace": args.trace} if args.trace else {}),
        },
    )
    return Exit.DONE if good else Exit.NO


def _check_trace(args: RunFlags) -> None:
    """Check that the rounds can be recorded, and that the trace file can be written."""
    if args.trace is None:
        return
    if args.on in ("nccl", "jax"):
        raise UserError(
            f"--on {args.on} cannot record rounds: devices run them without the host",
            where="--trace",
            hint="use --on mpi, torch or numpy",
        )
    if args.trace == "-":
        raise UserError(
            "the recording cannot go to stdout, which has the results",
            where="--trace -",
            hint="name a file",
        )
    check_file(args.trace, force=args.force)


def _calls(plan: RunPlan, job: RankJob, reports: dict[int, RankReport]) -> Iterator[Call]:
    """Yield the calls that all ranks watched."""
    for i, case in enumerate(job.cases):
        done = {rank: one.done[i] for rank, one in reports.items()}
        watches = {rank: x.watch for rank, x in done.items() if x and x.watch}
        if case.watch and len(watches) == job.ranks:
            size = case.length * case.exam(plan.collective).dtype.itemsize
            size *= plan.collective.message_chunks
            yield Call(size, case.dtype, tuple(watches[rank] for rank in sorted(watches)))


def _compared(found: Sequence[launcher.CaseResult]) -> Check:
    wrong = [(one, text) for one in found for text in one.wrong]
    if wrong:
        one, text = wrong[0]
        more = f", and {len(wrong) - 1} results more" if len(wrong) > 1 else ""
        return Check("results", False, f"{text} ({one.case}){more}")
    rough = " and within the error bound of summation" if any(x.case.rough for x in found) else ""
    place = "in place" if found[0].case.in_place else "out of place"
    return Check("results", True, f"{count(len(found), 'case')} {place}: all right, exactly{rough}")


def _entry(plan: RunPlan, one: launcher.CaseResult) -> dict[str, Any]:
    collective = plan.collective
    width = one.case.exam(collective).dtype.itemsize
    size = one.case.length * width * collective.message_chunks
    assert one.median_us is not None
    timing = SimulatedTime(
        message_bytes=size, time_us=one.median_us, bus_factor=bus_factor(collective)
    )
    predicted = simulate(plan.schedule, size).time_us if plan.schedule else None
    return {
        "bytes": size,
        "dtype": one.case.dtype,
        "us": number(round(one.median_us, 3)),
        "least_us": number(round(one.least_us or 0.0, 3)),
        "algbw_GBps": number(timing.algbw_GBps),
        "busbw_GBps": number(timing.busbw_GBps),
        "predicted_us": number(predicted),
        "of_predicted": number(one.median_us / predicted) if predicted else None,
        "ok": not one.wrong,
    }
