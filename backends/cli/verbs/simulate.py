"""``weft simulate``: time of a schedule or program in the cost model, against the bound."""

from __future__ import annotations

from weft.dsl.base.tables import number
from weft.dsl.base.units import SizeRange, format_bytes
from weft.synth.bounds import bounds, lower_bound_us

from ...report.report import TIMED, shown
from ..flags.files import SimulateFlags
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit


def run(args: SimulateFlags, console: Console) -> int:
    subject = read_subject(args.file)
    timed = subject.noun.timed(subject, args)
    size: SizeRange | None = args.size or timed.sizes
    bound = bounds(timed.topology, timed.collective) if timed.collective else None
    found = [
        timed.evaluate(n, float(lower_bound_us(bound, n)) if bound else None)
        for n in (size.powers() if size else (0,))
    ]
    if timed.told:
        console.detail(timed.told)
    for told in filter(None, map(timed.explain, found)):
        console.detail(told)
    rough = [format_bytes(x.message_bytes) for x in found if not x.exact]
    if rough:
        console.warn(f"extrapolated from shorter runs, as nothing repeats: {', '.join(rough)}")
    sizes = []
    for one in found:
        moves = one.time_us > 0 and one.message_bytes > 0
        least = timed.least(one.message_bytes) if timed.least and moves else None
        sizes.append(
            {
                "bytes": one.message_bytes or None,
                "us": number(one.time_us),
                "algbw_GBps": number(one.algbw_GBps) if moves else None,
                "busbw_GBps": number(one.busbw_GBps) if moves else None,
                "of_bound": number(one.of_bound),
                **(least.beside(one.time_us) if least else {}),
            }
        )
    if best := [format_bytes(x["bytes"]) for x in sizes if x.get("optimal_in_runtime")]:
        console.say("Optimal", f"in this runtime: no program is quicker at {', '.join(best)}")
    if timed.remark:
        console.say("Start", timed.remark)
    console.result(
        shown(sizes, *TIMED),
        {
            "status": "ok",
            "topology": timed.topology.name,
            "collective": timed.collective
            and (timed.collective.name or str(timed.collective.kind)),
            "ranks": timed.topology.ranks,
            **timed.facts,
            "bound": bound and bound.to_json(),
            "sizes": sizes,
        },
    )
    return Exit.DONE
