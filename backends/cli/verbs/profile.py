"""``weft profile``: measure a machine, and write its topology."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import write_text
from weft.dsl.base.tables import count, table
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import family_medium

from ...ranks.joined import is_joined
from ...ranks.launcher import run_program
from ...ranks.nccl import unusable
from ...ranks.profile.model import ProbeLimits
from ...report.report import shown
from ..flags.machines import ProfileFlags
from ..flags.values import DEFAULTS
from ..inputs.machines import facts_of, machine_line
from ..output.console import Console, Exit
from ..output.outputs import check_file_output
from ..output.stages import telling


def run(args: ProfileFlags, console: Console) -> int:
    started = time.monotonic()
    family_medium(args.family)  # an unknown one is refused before anything is measured
    effort = ProbeLimits(seconds=args.time)
    if args.on == "nccl" and (missing := unusable(0)):
        raise missing
    if is_joined(args.on):
        return _as_rank(args, console, effort, started)
    check_file_output(args, console)
    ranks = args.ranks or DEFAULTS.profile_ranks
    with telling(console, "Profiling") as tell:
        if args.on == "numpy":
            from ...ranks.profile import ranks as measuring  # SciPy's statistics take 500 ms

            measured = measuring.measure_threads(ranks, effort, args.seed, tell)
            found = measuring.written(_name(args, ranks), measured, args.family)
        else:
            plan = {
                "effort": asdict(effort),
                "seed": args.seed,
                "name": _name(args, ranks),
                "family": args.family,
                "ranks": ranks,
            }
            program = "weft.backends.ranks.profile.ranks"
            found = run_program(program, args.on, ranks, plan, 3 * effort.seconds, tell)
    return _told(found, args, console, started)


def _name(args: ProfileFlags, ranks: int) -> str:
    what = {"mpi": "MPI ranks", "torch": "torch ranks", "nccl": "GPUs", "numpy": "threads"}[args.on]
    return args.name or f"{ranks} {what}, measured"


def _as_rank(args: ProfileFlags, console: Console, effort: Any, started: float) -> int:
    """Run as one of the ranks that a launcher has started; the first one writes and reports."""
    from ...ranks.profile import ranks as measuring

    if args.ranks:
        raise UserError("the ranks are started already", where="--ranks", hint="leave --ranks out")
    if not args.force:
        check_file_output(args, console)
    measures = {
        "mpi": measuring.measure_mpi,
        "torch": measuring.measure_torch,
        "nccl": measuring.measure_nccl,
    }
    for found in measures[args.on](effort, args.seed, lambda _: None):
        if found is not None:
            written = measuring.written(_name(args, found.ranks), found, args.family)
            _told(written, args, console, started)
    return Exit.DONE


def _told(found: dict[str, Any], args: ProfileFlags, console: Console, started: float) -> int:
    topology = Topology.from_json(found.pop("topology"))
    write_text(args.output, json.dumps(topology.to_json(), indent=1) + "\n", force=args.force)
    spent = time.monotonic() - started
    console.say("Measured", f"{machine_line(topology)}, in {spent:.0f}s")
    for note in topology.notes:
        console.say("Note", note)
    if args.output == "-":
        return Exit.DONE
    console.say("Wrote", args.output)
    console.result(
        _text(found),
        {
            "status": "ok",
            **facts_of(topology),
            **found,
            "seconds": round(spent, 3),
            "file": args.output,
        },
    )
    return Exit.DONE


def _text(found: dict[str, Any]) -> str:
    rows = [
        (
            _some(one["directions"]),
            f"{one['alpha']:.3g}",
            f"{one['alpha_error']:.1%}",
            f"{1e-3 / one['beta']:.3g}",
            f"{one['beta_error']:.1%}",
            f"{one['residual']:.0%}",
        )
        for one in found["classes"]
    ]
    rows += [
        (one["name"], "", "", f"{one['GBps']:.3g}", f"{one['error']:.1%}", "")
        for one in found["shared"]
    ]
    links = table(("links", "α µs", "±", "GB/s", "±", "off the line"), rows)
    if not found["timing"]:
        return links
    kept = [
        one | {"worst": "" if one["worst"] is None else one["worst"]} for one in found["timing"]
    ]
    columns = ("number:key", "given:value:.3g", "from:of", "off the line:worst:.0%")
    return f"{links}\n\n{shown(kept, *columns)}"


def _some(directions: list[list[int]]) -> str:
    a, b = directions[0]
    if len(directions) == 1:
        return f"{a} to {b}"
    return f"{count(len(directions), 'direction')} like {a} to {b}"
