"""Predicted times over message sizes: of the subject, of the bound, of the best classics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import BadAlgorithm, UserError
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds, lower_bound_us
from weft.synth.engines.classic.in_network import InNetwork
from weft.synth.engines.classic.place import ClassicAlgorithm, Site
from weft.synth.engines.classic.schedule import to_schedule
from weft.synth.judge.verify import verify
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import RuntimeModel
from weft.synth.time.schedule_time import simulate

from .chart import Series, against_bound, over_size

SIZES = tuple(1 << k for k in range(10, 31, 2))
"""Message sizes of the charts, in bytes: 1 KiB to 1 GiB."""

MOST_SERVED = 40_000
"""Largest transfers times segments that are simulated at every size."""

MOST_OPERATIONS = 60_000
MOST_MOVES = 3_000
MOST_BASELINES = 3


def bound_curve(bound: Bounds) -> Series:
    """Return the curve of the lower bound."""
    return Series("lower bound", [(n, float(lower_bound_us(bound, n))) for n in SIZES], "bound")


def schedule_curve(schedule: Schedule, name: str, style: str = "") -> Series | None:
    """Return the curve of a schedule by simulation; None where that takes too long."""
    if len(schedule) * schedule.segments > MOST_SERVED:
        return None
    return Series(name, [(n, simulate(schedule, n).time_us) for n in SIZES], style)


def program_curve(
    program: Program,
    topology: Topology,
    name: str,
    model: RuntimeModel,
    style: str = "",
) -> Series | None:
    """Return the curve of a program by simulation; None where it is too large, or does not run."""
    if program.instructions > MOST_OPERATIONS // 4:
        return None
    try:
        return Series(
            name,
            [
                (
                    n,
                    simulate_program(
                        program, topology, n, model, most_operations=MOST_OPERATIONS
                    ).time_us,
                )
                for n in SIZES
            ],
            style,
        )
    except UserError:
        return None


def baselines(topology: Topology, collective: Collective) -> list[Series]:
    """Return the curves of the best classics among those that are quickest at some size."""
    found = []
    site = Site(topology)
    # Each wanted copy is at least one move: most algorithms of 512 ranks need not be written to
    # know that they are too large.
    wanted = _missing(collective) // collective.factor
    root = collective.roots[0] if collective.roots else 0
    try:
        small = [
            one for one in site.defined(collective.kind) if wanted * site.parts(one) <= MOST_MOVES
        ]
    except UserError:
        return []
    for one in small:
        try:
            schedule = _baseline(site, one, root, SIZES[-1])
        except (UserError, BadAlgorithm):
            continue
        if schedule is None or not verify(schedule).ok:
            continue
        curve = schedule_curve(schedule, one.name)
        found += [curve] if curve else []
    return _quickest(found)


def _baseline(site: Site, one: ClassicAlgorithm, root: int, size: int) -> Schedule | None:
    """Return the schedule of an algorithm; None where it is too large."""
    if isinstance(one, InNetwork):
        made = one.schedule(site.switches, root=root)
        return made if made.moves <= MOST_MOVES else None
    algorithm = site.algorithm(one.name, one.kind, root=root)
    if len(algorithm.moves) > MOST_MOVES:
        return None
    return to_schedule(algorithm, site.topology, size, site.routes)


def _missing(collective: Collective) -> int:
    """Return the number of (rank, chunk) pairs that do not hold at the start what they must."""

    def keys(p: Placement) -> Ints:
        at = p.ranks.astype(np.int64) * collective.chunks + p.chunks
        found: Ints = at * len(collective.contributions) + p.sets
        return found

    return int(np.setdiff1d(keys(collective.post), keys(collective.pre)).size)


def _quickest(curves: Sequence[Series]) -> list[Series]:
    """Return the curves that win at most sizes, and always ring, the well-known reference."""
    wins: dict[str, int] = {one.name: 0 for one in curves}
    for at in zip(*(one.points for one in curves), strict=True):
        best = min(range(len(at)), key=lambda i: at[i][1])
        wins[curves[best].name] += 1
    order = sorted(curves, key=lambda one: (one.name != "ring", -wins[one.name]))
    return [one for one in order if wins[one.name] or one.name == "ring"][:MOST_BASELINES]


def size_charts(curves: Sequence[Series], bound: Series | None) -> list[dict[str, Any]]:
    """Return the charts of time over size, absolute and as a multiple of the bound."""
    lines = [*curves, *([bound] if bound else [])]
    charts = [over_size("Time over message size", lines)]
    if bound:
        ratio = against_bound(curves, bound)
        one = Series("lower bound", [(a, 1.0) for a, b in bound.points if b], "bound")
        # Ratios to the bound are compared, so this axis is logarithmic, too.
        charts.append(over_size("Time ÷ lower bound", [*ratio, one], unit="times the bound"))
    return charts
