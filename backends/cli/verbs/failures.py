"""``weft failures``: bandwidth lost when one link or NIC of a machine fails."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import NothingFound, UserError
from weft.dsl.base.tables import count, microseconds, number, rational, rounded, table
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import lacking, synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import lower_bound_us
from weft.synth.repair.failures import what_if
from weft.synth.time.schedule_time import simulate

from ...report.model_numbers import program_starts, schedule_remark
from ...report.points import algbw
from ...report.report import problem_json
from ...report.sizes import TEXT
from ..flags.search import FailuresFlags
from ..flags.values import DEFAULTS
from ..inputs.inputs import read_problem
from ..output.console import Console, Exit
from ..output.progress import watching

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.synth.bounds import Bounds
    from weft.synth.repair.failures import FailureLoss


def run(args: FailuresFlags, console: Console) -> int:
    if args.size is not None and args.size.low != args.size.high:
        raise UserError("failures are ranked at one size", where="--size", hint="--size 1MiB")
    if args.worst is not None and not args.synth:
        raise UserError(
            "--worst says for how many failures schedules are found", hint="add --synth"
        )
    size = None if args.size is None else args.size.low
    topology, collective = read_problem(args)
    with watching(console, None) as progress:

        def tell(done: int, of: int) -> None:
            if progress.cancelled():
                raise KeyboardInterrupt
            progress.stage(f"failure {done} of {of}")

        found = what_if(
            topology, collective, message_bytes=size, directions=args.directions, tell=tell
        )
    searched = _searched(args, collective, found.losses, size, console) if args.synth else {}
    name = collective.name or str(collective.kind)
    remark = "" if size is None else schedule_remark(topology)
    text = _text(f"{name} on {topology.name}", found.before, found.losses, size, searched)
    console.result(
        "\n\n".join(filter(None, (text, remark))),
        {
            "status": "ok",
            **problem_json(topology, collective),
            "bytes": size,
            "bound": found.before.to_json(),
            "failures": [_json(x, size, searched.get(i)) for i, x in enumerate(found.losses)],
            "program_start_us": program_starts(topology),
        },
    )
    return Exit.DONE


def _searched(
    args: FailuresFlags,
    collective: Collective,
    losses: tuple[FailureLoss, ...],
    size: int | None,
    console: Console,
) -> dict[int, float]:
    """Return the results of schedules after the worst failures: µs at a size, else GB/s."""
    objective = Objective.BANDWIDTH if size is None else Objective.TIME
    attained: dict[int, float] = {}
    most = args.worst or DEFAULTS.worst
    for i in [i for i, loss in enumerate(losses) if loss.bound is not None][:most]:
        problem = Problem(losses[i].left.topology, collective, None, objective, size)
        budget = Budget(args.effort, seed=args.seed, seconds=args.time)
        with watching(console, budget) as progress:
            outcome = synthesize(problem, args.engine, progress.budget, progress)
        if not outcome.points:
            none = f"no schedule without {losses[i].down.name} was found"
            raise NothingFound("; ".join((none, *outcome.statements)), hint=lacking(outcome))
        if size is None:
            attained[i] = float(max(map(algbw, outcome.points)))
        else:
            attained[i] = min(simulate(p.schedule, size).time_us for p in outcome.points)
        console.say("Solved", f"without {losses[i].down.name} in {progress.seconds:.1f}s")
    return attained


def _least(bound: Bounds, size: int | None) -> Fraction | None:
    """Return the bound as it is shown: µs at a size, or GB/s for large messages."""
    return bound.algbw_GBps if size is None else lower_bound_us(bound, size)


def _text(
    title: str,
    before: Bounds,
    losses: tuple[FailureLoss, ...],
    size: int | None,
    searched: dict[int, float],
) -> str:
    least = _least(before, size)
    what = "at most GB/s" if size is None else f"at least µs at {format_bytes(size)}"
    unit = "GB/s algbw, at most" if size is None else f"µs at {format_bytes(size)}, at least"
    head = f"{title}: {'nothing must move' if least is None else f'{rounded(least)} {unit}'}"
    if not losses:
        return f"{head}; the machine lacks cables"
    look = "{:.6g}".format if size is None else microseconds
    found = [look(searched[i]) if i in searched else "" for i in range(len(losses))]
    rows = [
        (x.down.name, x.count, *_cells(x, size), *([word] if searched else []))
        for x, word in zip(losses, found, strict=True)
    ]
    names = ["down", "alike", what, "cost", *(["tight"] if size is None else [])]
    if searched:
        names.append("found GB/s" if size is None else "found µs")
    notes = []
    for x in losses:
        if x.lost:
            lost = [x.left.whole.nodes[r].name for r in x.lost]
            told = ", ".join(lost[: TEXT.named_ranks]) + (
                ", …" if len(lost) > TEXT.named_ranks else ""
            )
            are = "is" if len(lost) == 1 else "are"
            notes.append(f"without {x.down.name} {told} {are} cut off")
    return "\n".join([head, "", table(names, rows), *([""] if notes else []), *notes])


def _cells(loss: FailureLoss, size: int | None) -> tuple[str, ...]:
    """Return the new bound and its loss; for large messages also whether it is attained."""
    if loss.bound is None:
        cells = ("-", f"{count(len(loss.lost), 'rank')} cut off", "")
        return cells if size is None else cells[:2]
    least = _least(loss.bound, size)
    ratio = loss.ratio or Fraction(1)
    cost = f"+{float(ratio - 1):.2%} time" if ratio > 1 else "nothing"
    if size is not None:
        return microseconds(float(least or 0)), cost
    shown = "-" if least is None else f"{float(least):.6g}"
    return shown, cost, "yes" if loss.bound.tight else "not known"


def _json(loss: FailureLoss, size: int | None, attained: float | None) -> dict[str, Any]:
    least = None if loss.bound is None else _least(loss.bound, size)
    return {
        "down": loss.down.name,
        "alike": [loss.down.name, *(down.name for down in loss.others)],
        "cut_off": list(loss.lost),
        "cost": rational(loss.ratio),
        "tight": None if loss.bound is None else loss.bound.tight,
        "algbw_GBps" if size is None else "us": number(least),
        "found": attained,
        "bound": None if loss.bound is None else loss.bound.to_json(),
    }
