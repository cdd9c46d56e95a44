"""``weft explain``: conflicts and costs of a sketch's rules, bottleneck of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.problem import check_connected
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds
from weft.synth.explain.conflicts import find_conflict, prove_conflict
from weft.synth.explain.costs import costs
from weft.synth.explain.critical import what_binds
from weft.synth.judge.verify import require_valid

from ...report.explain import (
    binding_json,
    binding_text,
    conflict_json,
    conflict_text,
    cost_json,
    cost_text,
)
from ..flags.search import ExplainFlags
from ..inputs.inputs import read_problem, require_stated
from ..inputs.sketches import read_sketch
from ..nouns.subjects import schedule_at
from ..output.console import Console, Exit

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.sketch import Sketch
    from weft.dsl.nouns.topology import Topology

DEFAULT_SIZE = SizeRange(1 << 20, 1 << 20)


def run(args: ExplainFlags, console: Console) -> int:
    given = (args.topology, args.group, args.collective, args.root, args.roots, args.sketch)
    if args.file is not None:
        if any(one is not None for one in given):
            raise UserError(
                "a schedule has its own machine and collective",
                where=args.file,
                hint="leave out -t, -c, -s, --group and --root",
            )
        return _schedule(args.file, args, console)
    wanted = {"-t/--topology": args.topology, "-c/--collective": args.collective}
    require_stated({**wanted, "-s/--sketch": args.sketch})
    assert args.sketch is not None
    topology, collective = read_problem(args, args.sketch)
    sketch = read_sketch(args.sketch, topology, collective, console)
    if not sketch.rules:
        raise UserError(f"the sketch {sketch.name} has no rules", where=args.sketch)
    return _sketch(args, console, topology, collective, sketch)


# --- sketches -------------------------------------------------------------------------------------


def _sketch(
    args: ExplainFlags,
    console: Console,
    topology: Topology,
    collective: Collective,
    sketch: Sketch,
) -> int:
    """Print the conflict, or the costs at every size."""
    check_connected(topology, collective)
    sizes = args.size.powers() if args.size else _sizes_of(sketch)
    data: dict[str, Any] = {
        "topology": topology.name,
        "collective": collective.name or str(collective.kind),
        "ranks": collective.ranks,
        "sketch": sketch.name,
    }
    plain = sketch.at(sizes[0])
    conflict = find_conflict(topology, collective, plain)
    if conflict is None:
        limits = Budget(args.effort, seconds=args.time)
        conflict = prove_conflict(topology, collective, plain, limits)
    if conflict is not None:
        console.result(
            conflict_text(sketch.name, conflict),
            {"status": "infeasible", **data, **conflict_json(conflict)},
        )
        return Exit.NO
    found = [costs(topology, collective, sketch, size) for size in sizes]
    text = "\n\n".join(map(cost_text, found))
    console.result(text, {"status": "ok", **data, "sizes": list(map(cost_json, found))})
    return Exit.DONE


def _sizes_of(sketch: Sketch) -> tuple[int, ...]:
    if sketch.size is None:
        return (DEFAULT_SIZE.low,)
    return tuple(dict.fromkeys(sketch.size))


# --- schedules ------------------------------------------------------------------------------------


def _schedule(file: str, args: ExplainFlags, console: Console) -> int:
    schedule = schedule_at(file, "-t TOPO -c COLL -s SKETCH explain a sketch")
    require_valid(schedule)
    bound = bounds(schedule.topology, schedule.collective)
    made_for = SizeRange(schedule.bytes, schedule.bytes) if schedule.bytes else DEFAULT_SIZE
    size: SizeRange = args.size or made_for
    found = [what_binds(schedule, n, bound) for n in size.powers()]
    text = "\n\n".join(map(binding_text, found))
    console.result(
        text,
        {
            "status": "ok",
            "topology": schedule.topology.name,
            "collective": schedule.collective.name or str(schedule.collective.kind),
            "ranks": schedule.collective.ranks,
            "sizes": list(map(binding_json, found)),
        },
    )
    return Exit.DONE
