"""``weft topo search``: shapes of a network, ranked by the time of a workload on them."""

from __future__ import annotations

from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import number
from weft.dsl.base.units import parse_bandwidth
from weft.dsl.nouns.collective import ROOTED
from weft.dsl.nouns.workload import COLLECTIVES, Workload, WorkloadOperation, kind_named
from weft.synth.joint.shapes import ShapeRanking, ranked_shapes

from ...report.report import shown
from ..flags.nested import TopoSearchFlags
from ..inputs.workloads import workload_at
from ..output.console import Console, Exit


def search(args: TopoSearchFlags, console: Console) -> int:
    """Rank all shapes, and print the best."""
    parse_bandwidth(args.bw)  # one message for a wrong one, not one for each shape
    workload, ranks = _asked(args)
    console.say("Read", f"{workload.name}; {ranks} GPUs with {args.degree} cables each")
    notes = list(workload.notes)
    if workload.ordered:
        notes.append("all collectives start together: computations and order are left out")
    for note in notes:
        console.say("Assumed", note)
    options = f"bw={args.bw}"
    found = ranked_shapes(
        workload, ranks, args.degree, kinds=args.kinds, options=options, top=args.top
    )
    facts: dict[str, Any] = {
        "status": "ok",
        "ranks": ranks,
        "degree": args.degree,
        "workload": workload.name,
        **shapes_facts(found),
        "notes": notes,
    }
    lines = [shown(facts["shapes"], "shape:topology", "µs:us:,.1f", "over best:over_best:.3f")]
    if found.least_us is not None:
        left = found.looked_at - len(found.shapes)
        lines.append(f"{left} more take {float(found.least_us):,.1f} µs or more")
    console.result("\n".join(lines), facts)
    return Exit.DONE


def _asked(args: TopoSearchFlags) -> tuple[Workload, int]:
    if args.workload is not None:
        workload = workload_at(args.workload, args, None)
        ranks = args.ranks or workload.ranks
        if workload.ranks > ranks:
            raise UserError(f"{workload.name} has {workload.ranks} ranks, --ranks says {ranks}")
    else:
        if args.ranks is None:
            raise UserError("how many GPUs?", hint="--ranks 64, or -w with a workload")
        ranks, kind = args.ranks, kind_named(args.collective)
        if kind not in COLLECTIVES or kind in ROOTED:
            raise UserError(
                f"-c {args.collective}: a collective of all ranks without a root is needed",
                hint="others go into a workload: -w FILE",
            )
        one = WorkloadOperation(kind, kind, group=tuple(range(ranks)), bytes=args.size)
        workload = Workload(kind, (one,), size=ranks)
    if ranks < 2:
        raise UserError("a shape needs at least 2 GPUs")
    return workload, ranks


def shapes_facts(found: ShapeRanking) -> dict[str, Any]:
    """Return the keys of ``weft topo search --json``."""
    best = found.shapes[0].us
    rows = [
        {
            "topology": one.name,
            "us": number(one.us),
            "exact": str(one.us),
            "over_best": round(float(one.us / best), 6),
            "attained": one.exact,
        }
        for one in found.shapes
    ]
    rest = found.least_us
    return {
        "shapes": rows,
        "looked_at": found.looked_at,
        "others_us": None if rest is None else number(rest),
    }
