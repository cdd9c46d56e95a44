"""``weft place``: which GPU should have which coordinates of the axes of parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.workload import Workload, axis_groups
from weft.synth.joint.axis_placement import ranked_placements

from ...report.placement_text import placement_facts, placement_text
from ..flags.search import PlaceFlags
from ..inputs.machines import machine_line
from ..inputs.workloads import machine_of_workload, workload_at
from ..output.console import Console, Exit


def run(args: PlaceFlags, console: Console) -> int:
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
    for note in _missing_groups(workload, axes):
        console.warn(note)
        notes.append(note)
    facts = {"status": "ok", "topology": machine.name, **placement_facts(found), "notes": notes}
    console.result(placement_text(found), facts)
    return Exit.DONE


def _axes(given: Sequence[tuple[str, int]], workload: Workload) -> Sequence[tuple[str, int]]:
    """Return the axes by which the ranks are numbered: those of the workload, where it has any."""
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


def _missing_groups(workload: Workload, axes: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield a note for each set of axes of whose groups the workload has some, as the trace of one
    rank does: the others run beside them and share the links."""
    names, sizes = zip(*axes, strict=True)
    places = np.unravel_index(np.arange(prod(sizes)), sizes, order="F")  # the first is the fastest
    found: dict[tuple[str, ...], set[tuple[int, ...]]] = defaultdict(set)
    for one in workload.operations:
        group = sorted(one.group)
        if one.communicates and group and group[-1] < workload.ranks:
            over = tuple(name for name, at in zip(names, places, strict=True) if np.ptp(at[group]))
            found[over].add(tuple(group))
    for over, groups in found.items():
        every = {tuple(sorted(group)) for group in axis_groups(axes, over)}
        if groups < every:
            yield (
                f"the workload has {len(groups)} of the {len(every)} groups of {' × '.join(over)}: "
                "the others are not placed, and what they send over the same links is left out"
            )
