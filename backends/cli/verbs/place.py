"""``weft place``: which GPU should have which coordinates of the axes of parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count, facts, number, table
from weft.dsl.nouns.workload import Workload, axis_groups
from weft.synth.joint.axis_placement import PlacementRanking, ranked_placements

from ...report.sizes import TEXT
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


def placement_facts(found: PlacementRanking) -> dict[str, Any]:
    """Return the keys of ``weft place --json``."""
    rows = [
        {
            "matrix": [list(row) for row in one.matrix],
            "us": number(one.us),
            "exact": None if one.us is None else str(one.us),
            "rank_order": list(one.order),
            **({"reason": one.reason} if one.reason else {}),
        }
        for one in found.placements
    ]
    usual = found.default_us
    return {
        "axes": dict(found.axes),
        "levels": dict(zip(found.levels.names, found.levels.sizes, strict=True)),
        "placements": rows,
        "default": {"us": number(usual), "exact": None if usual is None else str(usual)},
    }


def placement_text(found: PlacementRanking) -> str:
    """Return the answer of ``weft place`` for people."""
    inside = " × ".join(found.levels.names)
    usual = tuple(range(len(found.levels.gpus)))
    best = found.best_us
    lost = sum(one.us is None for one in found.placements)
    head = [
        ("best", f"{float(best):,.3f} µs"),
        ("default", f"{_against(found.default_us, best)}: rank i on GPU i"),
        *([] if found.worst_us is None else [("worst", _against(found.worst_us, best))]),
    ]
    if lost:
        head.append(
            ("no time", f"{count(lost, 'placement')}: a group is not connected by its own ranks")
        )
    orders = len({one.matrix for one in found.placements}) < len(found.placements)
    rows = [
        (
            *((str(list(one.order)),) if orders else (" × ".join(map(str, x)) for x in one.matrix)),
            "-" if one.us is None else f"{float(one.us):,.1f}",
            "-" if one.us is None else f"{float(one.us / best):.2f}",
            "default" if one.order == usual else one.reason,
        )
        for at, one in enumerate(found.placements)
        if at < TEXT.host_orders or one.order == usual or not orders
    ]
    columns = ("order of GPUs",) if orders else tuple(f"{name}: {inside}" for name, _ in found.axes)
    # Arrays have the slowest axis first, so the axes come backwards.
    axes = tuple(name for name, _ in reversed(found.axes))
    shape = ", ".join(str(size) for _, size in reversed(found.axes))
    pasted = "\n".join(
        [
            "# Megatron: start rank i on GPU order[i]. JAX, then torch:",
            f"order = {list(found.placements[0].order)}",
            f"jax.sharding.Mesh(np.array(jax.devices())[order].reshape({shape}), {axes})",
            f'DeviceMesh("cuda", torch.tensor(order).reshape({shape}), mesh_dim_names={axes})',
        ]
    )
    return "\n".join([facts(head), "", table((*columns, "µs", "over best", ""), rows), "", pasted])


def _against(us: Fraction | None, best: Fraction) -> str:
    if us is None:
        return "impossible, ranks of a group do not reach each other"
    return f"{float(us):,.3f} µs (×{float(us / best):.2f})"
