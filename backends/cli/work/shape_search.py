"""``weft topo search``: shapes of a network, ranked by what a workload takes on them."""

from __future__ import annotations

from weft.dsl.base.errors import UserError
from weft.dsl.base.units import parse_bandwidth
from weft.dsl.nouns.collective import ROOTED
from weft.dsl.nouns.workload import COLLECTIVES, Workload, WorkloadOperation, kind_named
from weft.synth.joint.shapes import ranked_shapes

from ...report.shapes_text import shapes_facts, shapes_text
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
    facts = {
        "status": "ok",
        "ranks": ranks,
        "degree": args.degree,
        "workload": workload.name,
        **shapes_facts(found),
        "notes": notes,
    }
    console.result(shapes_text(found), facts)
    return Exit.DONE


def _asked(args: TopoSearchFlags) -> tuple[Workload, int]:
    """Return the workload, and the number of GPUs.

    Raises:
        UserError: nobody says how many, the workload has more, or the collective needs a root.
    """
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
