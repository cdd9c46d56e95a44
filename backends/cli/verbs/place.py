"""``weft place``: which GPU should have which coordinates of the axes of parallelism."""

from __future__ import annotations

from collections.abc import Sequence

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.workload import Workload
from weft.synth.joint.axis_placement import ranked_placements

from ...report.placement_text import placement_facts, placement_text
from ..console import Console
from ..exit_codes import Exit
from ..flags.search import PlaceFlags
from ..machines import machine_line
from ..workloads import machine_of_workload, workload_at


def run(args: PlaceFlags, console: Console) -> int:
    """Rank all placements."""
    machine = machine_of_workload(args.topology, console)
    workload = workload_at(args.workload, args, machine)
    axes = _axes(args.axes or (), workload)
    console.say("Read", f"{workload.name}; {machine_line(machine)}")
    notes = list(workload.notes)
    if workload.ordered:
        notes.append("all collectives start together: computations and order are left out")
    found = ranked_placements(machine, workload, axes)
    notes += found.notes
    for note in notes:
        console.say("Assumed", note)
    facts = {"status": "ok", "topology": machine.name, **placement_facts(found), "notes": notes}
    console.result(placement_text(found), facts)
    return Exit.DONE


def _axes(given: Sequence[tuple[str, int]], workload: Workload) -> Sequence[tuple[str, int]]:
    """Return the axes by which the ranks are numbered: those of the workload, where it has any.

    Raises:
        UserError: there are none, or the workload has others.
    """
    if not workload.axes:
        if not given:
            raise UserError(
                "the workload has no axes",
                hint="--axes tp=8,dp=4 names them; the first one is the fastest",
            )
        return given
    own = [(name, size) for name, size in workload.axes if size > 1 or name in dict(given)]
    if given and sorted(own) != sorted(given):
        told = ",".join(f"{name}={size}" for name, size in own)
        raise UserError(
            "--axes are not those of the workload",
            hint=f"it has {told}: leave --axes out" if own else "its axes have size 1",
        )
    return own or workload.axes
