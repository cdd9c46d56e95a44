"""``weft synth``: find schedules, verify them, write them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import Infeasible, NothingFound, UserError, WeftError
from weft.dsl.base.files import write_folder
from weft.dsl.base.spans import Span
from weft.dsl.base.tables import count
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.problem import Objective
from weft.dsl.nouns.schedule import dumps, move_words, write
from weft.dsl.nouns.sketch import Sketch
from weft.synth.api import lacking, synthesize
from weft.synth.base.engine import Budget, Status
from weft.synth.bounds import bounds
from weft.synth.explain.conflicts import find_conflict

from ...report.model_numbers import program_starts, schedule_remark
from ...report.points import PointMetrics, file_names, in_chunks, point_json, timer, turn_rows
from ...report.points import best as _best
from ...report.points import measure as _measure
from ...report.points import standing as _standing
from ...report.reached_rates import switches_json
from ...report.report import problem_json, shown
from ..flags.search import SynthFlags
from ..inputs.inputs import make_problem, message_note, read_problem
from ..inputs.machines import machine_line
from ..nouns.streams import require_holdable
from ..output.console import Console, Exit
from ..output.outputs import check_file_output, check_folder_output, check_log
from ..output.progress import Progress, SearchLog, interruptible, watching
from ..work.relay_hint import relay_hint

if TYPE_CHECKING:
    from weft.dsl.nouns.problem import Problem
    from weft.synth.base.engine import Outcome, Point


NEARLY = 1 + Fraction(1, 10**6)
"""A load of at most this many times its bound differs from it by rounding only."""


def run(args: SynthFlags, console: Console) -> int:
    if args.stream:
        from ..work.stream_search import synth_stream  # the engine greedy

        return synth_stream(args, console)
    if args.memory is not None:
        raise UserError("--memory is for --stream", hint="greedy{memory=8}")
    if args.sizes is not None and (args.objective != "frontier" or args.size or args.log):
        raise UserError(
            "--sizes is for --objective frontier, without --size and --log",
            hint="--objective time --size 1MiB",
        )
    if args.log is not None:
        check_log(args)
    if args.objective == "frontier":
        check_folder_output(args)
    else:
        check_file_output(args, console)
    problem, proposed = _read(args, console)
    if args.sizes is not None:
        from ..work.time_frontier import show_time_frontier

        return show_time_frontier(args, problem, console)
    args = replace(args, engine=args.engine or proposed or "portfolio")
    # Loaded after the arguments are checked: they take a second.
    budget = Budget(args.effort, args.threads, args.seed, args.time)
    with watching(console, budget, _measure(problem), timer(problem)) as progress:
        if args.log is not None:
            progress.log = SearchLog(
                problem, engine=args.engine, objective=args.objective, seed=args.seed
            )
        try:
            outcome = synthesize(problem, args.engine or "", progress.budget, progress)
        except UserError as error:
            raise _blamed(problem, error) from error
    if progress.log is not None and args.log is not None:
        progress.log.write(args.log, progress.seconds, progress.effort, outcome, force=args.force)
    # To describe a large schedule takes seconds, too.
    with interruptible(progress, console, finishing=True):
        return _tell(args, problem, outcome, progress, console)


def _tell(
    args: SynthFlags,
    problem: Problem,
    outcome: Outcome,
    progress: Progress,
    console: Console,
) -> int:
    _raise_without_schedule(args, problem, outcome, progress)
    console.say(
        "Solved",
        f"{args.engine} in {progress.seconds:.1f}s, effort {progress.effort:.1f}: {outcome.status}",
    )
    for engine, got, spent, best, why, then in turn_rows(outcome.report.get("turns", ())):
        console.detail(f"  {engine} got {got}, spent {spent} ({why}): best {best}, {then}")
    points = outcome.points
    if problem.objective is not Objective.FRONTIER:
        points = (_best(points, problem),)
    console.say(
        "Verified",
        f"{move_words([p.schedule for p in points])} in {count(len(points), 'schedule')}",
    )
    bound = bounds(problem.topology, problem.collective)
    files = _write(args, problem, points, console)
    proved = outcome.status is Status.OPTIMAL
    entries = [
        point_json(point, PointMetrics.of(point), file)
        for point, file in zip(points, files, strict=True)
    ]
    standing = _standing(points, problem, bound) | in_chunks(points[0], problem)
    said = [*_at_size(problem, standing), *outcome.statements]
    console.detail(schedule_remark(problem.topology))
    hint = relay_hint(args, problem.collective, bound)
    if hint:
        console.say("Hint", hint)
    data = {
        "status": str(outcome.status),
        **problem_json(problem.topology, problem.collective),
        "engine": args.engine,
        "seconds": round(progress.seconds, 3),
        "effort": round(progress.effort, 3),
        "points": entries,
        "bound": bound.to_json(),
        **({"relays": hint} if hint else {}),
        **({} if problem.sketch else switches_json(problem.topology, problem.collective)),
        **standing,
        "statements": list(outcome.statements),
        **outcome.report,
        "program_start_us": program_starts(problem.topology),
    }
    text = "\n".join([_table(points, entries), *said])
    if args.output == "-":
        console.say("", f"\n{text}")
    else:
        console.result(text, data)
    if args.require_optimal and not proved:
        console.warn("not proved best within the budget (--require-optimal): try more --effort")
        return Exit.NOTHING_FOUND
    return Exit.DONE


def _read(args: SynthFlags, console: Console) -> tuple[Problem, str]:
    """Return the problem, and the engine that its sketch proposes (empty: none)."""
    topology, collective = read_problem(args, args.sketch, require_holdable)
    console.say("Read", f"{machine_line(topology)}; {collective}")
    for note in topology.notes:
        console.detail(f"         {note}")
    if note := message_note(args.collective, collective):
        console.say("Size", note)
    sketch = None
    if args.sketch:
        from ..inputs.sketches import read_sketch  # Lark takes 100 ms to load

        sketch = read_sketch(args.sketch, topology, collective, console)
    return make_problem(args, topology, collective, sketch), sketch.engine if sketch else ""


def _raise_without_schedule(
    args: SynthFlags, problem: Problem, outcome: Outcome, progress: Progress
) -> None:
    if outcome.status is Status.INFEASIBLE:
        raise conflicting(problem.sketch, outcome.conflict, outcome.statements)
    if not outcome.points:
        if progress.stopped:
            raise KeyboardInterrupt
        easier = "" if problem.objective is Objective.LATENCY else ", or --objective latency"
        late = NothingFound(
            "; ".join((f"no schedule with an effort of {args.effort:g}", *outcome.statements)),
            hint=f"{lacking(outcome)}{easier}",
        )
        raise _blamed(problem, late)


def _blamed(problem: Problem, error: WeftError) -> WeftError:
    """Return an error with the conflicting rules of the sketch, if any; else the error itself."""
    if problem.sketch is None:
        return error
    found = find_conflict(problem.topology, problem.collective, problem.sketch)
    if found is None:
        return error
    labels = tuple(rule.label for rule in found.rules)
    return conflicting(problem.sketch, labels, (found.why,))


# --- text -----------------------------------------------------------------------------------------


def _at_size(problem: Problem, standing: dict[str, Any]) -> list[str]:
    took, gap = standing["value"], standing["gap"]
    if problem.objective is Objective.LATENCY:
        where = "latency alone"
    elif problem.objective is Objective.TIME and problem.bytes is not None:
        where = f"at {format_bytes(problem.bytes)}"
    else:
        return []
    above = "the proved bound" if gap < 5e-7 else f"{gap:.2%} above the proved bound"
    said = [f"{where}: {took:,.3f} µs, {above}"]
    own = standing.get("in_chunks")
    if own and problem.sketch is None and own["gap"] < gap:  # under one its engine compares
        above = "the" if own["gap"] < 5e-7 else f"{own['gap']:.2%} above the"
        said.append(f"{above} proved bound for {own['holds_for']}")
    return said


def _table(points: tuple[Point, ...], entries: list[dict[str, Any]]) -> str:
    rows = [
        {**entry, "rounds": None if p.rate is not None else p.rounds, "optimal": _proof(p)}
        for p, entry in zip(points, entries, strict=True)
    ]
    more = ["segments:segments"] if len({p.schedule.segments for p in points}) > 1 else []
    if len(points) > 1 and any(p.sizes for p in points):
        looked_at = sorted({size for p in points for size in p.sizes})
        for row, p in zip(rows, points, strict=True):
            row["best_at"] = ranges(p.sizes, looked_at)
        more.append("best at:best_at")
    return shown(
        rows,
        *("steps:steps", "rounds:rounds", "chunks:chunks", "rounds/chunk:rounds_per_chunk"),
        *("bound:bound", "optimal:optimal", "algbw GB/s:algbw_GBps:.4g", "α µs:latency_us:.4g"),
        *more,
    )


def ranges(sizes: tuple[int, ...], looked_at: list[int]) -> str:
    """Return ``1KiB..1MiB, 1GiB``: adjacent sizes among those examined are one range."""
    runs: list[list[int]] = []
    for size in sorted(sizes):
        if runs and looked_at.index(size) == looked_at.index(runs[-1][-1]) + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    ends = [dict.fromkeys((format_bytes(run[0]), format_bytes(run[-1]))) for run in runs]
    return ", ".join("..".join(x) for x in ends) or "-"


def _proof(point: Point) -> str:
    claims = [
        word
        for word, holds in (("steps", point.step_optimal), ("bandwidth", point.bandwidth_optimal))
        if holds
    ]
    if point.optimal and not claims:
        return "for its steps"
    nearly = point.rounds_per_chunk <= NEARLY * point.bound and not point.optimal
    return ", ".join([*claims, *(["within 1e-6"] if nearly else [])]) or "not proved"


# --- files ----------------------------------------------------------------------------------------


def _write(
    args: SynthFlags, problem: Problem, points: tuple[Point, ...], console: Console
) -> list[str | None]:
    from pathlib import Path

    if args.output is None:
        return [None] * len(points)
    if problem.objective is not Objective.FRONTIER:
        write(args.output, points[0].schedule, force=args.force)
        if args.output != "-":
            console.say("Wrote", args.output)
        return [args.output]
    names = file_names(points)
    texts = {name: dumps(p.schedule) for name, p in zip(names, points, strict=True)}
    write_folder(args.output, texts, force=args.force)
    console.say("Wrote", f"{count(len(texts), 'file')} in {args.output}")
    return [str(Path(args.output) / name) for name in names]


class ConflictingRules(Infeasible):
    """Infeasible because of rules that exclude each other; each is shown with its line."""

    def __init__(self, message: str, conflict: tuple[str, ...], spans: tuple[Span, ...]) -> None:
        super().__init__(
            message,
            conflict=conflict,
            where=spans[0] if spans else None,
            hint="drop or loosen one of these rules" if conflict else "",
        )
        self.spans = spans

    def render(self) -> str:
        """Return the message, then every rule with its line."""
        lines = [f"error: {self.message}", *(span.render() for span in self.spans)]
        return "\n".join(lines + (["", f"hint: {self.hint}"] if self.hint else []))


def conflicting(
    sketch: Sketch | None, conflict: tuple[str, ...], statements: tuple[str, ...]
) -> ConflictingRules:
    """Return the error for an infeasible problem; ``conflict``: labels of the sketch's rules."""
    spans: dict[tuple[int, int], Span] = {}
    for rule in sketch.rules if sketch else ():
        if rule.label in conflict and rule.span is not None:
            spans.setdefault((rule.span.start, rule.span.end), rule.span)
    why = "; ".join(statements) or "no schedule obeys the rules"
    if conflict:
        why += ": these exclude each other: " if len(conflict) > 1 else ": it cannot hold: "
        why += "; ".join(conflict)
    return ConflictingRules(why, conflict, tuple(spans[key] for key in sorted(spans)))
