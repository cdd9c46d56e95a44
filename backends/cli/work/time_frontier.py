"""The frontier in time: ``weft synth --objective frontier --sizes 1KiB:1GiB``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import write_folder
from weft.dsl.base.tables import count
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import dumps
from weft.synth.api import choose_engine, provenance
from weft.synth.base.cancellable import CutOff
from weft.synth.base.engine import Budget
from weft.synth.bounds.whole_chunks import left_out
from weft.synth.engines.intervals.engine import Intervals
from weft.synth.engines.intervals.frontier import TimedSize, time_frontier

from ...report.report import problem_json, shown
from ..flags.search import SynthFlags
from ..output.console import Console, Exit
from ..output.progress import watching


def show_time_frontier(args: SynthFlags, problem: Problem, console: Console) -> int:
    """Print the least time for each size and number of pieces; write the best of each size.

    Raises:
        UserError: another engine than ``intervals``, or one that refuses the problem.
    """
    assert args.sizes is not None, "the verb asks for it"
    engine = choose_engine(args.engine or "intervals")
    if not isinstance(engine, Intervals):
        raise UserError(
            f"--sizes: expected the engine intervals, got {engine.name}",
            hint="-e intervals, or --objective time with one --size for other engines",
        )
    budget = Budget(args.effort, args.threads, args.seed)
    sizes = args.sizes.powers()
    with watching(console, budget) as progress:
        observer = progress if args.time is None else CutOff(progress, args.time)
        found = time_frontier(problem, sizes, engine, progress.budget, observer)
    proved = sum(one.proved for one in found)
    console.say("Solved", f"intervals in {progress.seconds:.1f}s, effort {progress.effort:.1f}")
    files = _write(args, problem, found, engine, console)
    entries = [{**_entry(one), "file": file} for one, file in zip(found, files, strict=True)]
    pieces = ", ".join(str(cut.pieces) for cut in found[0].cuts)
    told = [f"{proved} of {count(len(found), 'size')} proved among schedules of {pieces} pieces"]
    if beyond := left_out(problem.topology):
        told.append(f"proofs that know no {' or '.join(beyond)} do not count")
    if len(found) < len(sizes):
        told.append(f"{len(sizes) - len(found)} more not reached")
    rows = [
        {
            **entry,
            "sure": "yes" if one.proved else f"within {one.best.us / one.least_us - 1:.2%}",
            **{f"cut{cut.pieces}": f"{cut.us:.6g}" for cut in one.cuts},
        }
        for one, entry in zip(found, entries, strict=True)
    ]
    columns = [f"in {cut.pieces}:cut{cut.pieces}" for cut in found[0].cuts]
    text = shown(
        rows,
        *("size:bytes", "pieces:pieces", "steps:steps", "µs:us:.6g", "proved:sure"),
        *("any cut µs:bound_us:.6g", *(columns if len(columns) > 1 else ())),
    )
    all_proved = proved == len(sizes)
    data = {
        "status": "optimal" if all_proved else "feasible",
        **problem_json(problem.topology, problem.collective),
        "engine": engine.name,
        "seconds": round(progress.seconds, 3),
        "effort": round(progress.effort, 3),
        "sizes": entries,
        "statements": told,
    }
    console.result("\n".join([text, *told]), data)
    if args.require_optimal and not all_proved:
        console.warn("not proved best within the budget (--require-optimal): try more --effort")
        return Exit.NOTHING_FOUND
    return Exit.DONE


def _entry(one: TimedSize) -> dict[str, Any]:
    best = one.best
    return {
        "bytes": one.bytes,
        "pieces": best.pieces,
        "steps": best.schedule.steps,
        "us": best.us,
        "least_us": one.least_us,
        "proved": one.proved,
        "bound_us": one.bound_us,
        "cuts": [
            {"pieces": c.pieces, "us": c.us, "least_us": min(c.us, c.least_us), "proved": c.proved}
            for c in one.cuts
        ],
    }


def _write(
    args: SynthFlags,
    problem: Problem,
    found: tuple[TimedSize, ...],
    engine: Intervals,
    console: Console,
) -> list[str | None]:
    if args.output is None:
        return [None] * len(found)
    texts = {}
    stamp = provenance(problem, engine, Budget(args.effort, args.threads, args.seed))
    for one in found:
        name = f"{problem.collective.kind}-{format_bytes(one.bytes)}.json"
        texts[name] = dumps(one.best.schedule.with_provenance(**{**stamp, "bytes": one.bytes}))
    write_folder(args.output, texts, force=args.force)
    console.say("Wrote", f"{count(len(texts), 'file')} in {args.output}")
    return [str(Path(args.output) / name) for name in texts]
