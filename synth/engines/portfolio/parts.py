"""Members of the race that join schedules of parts, each part the best of a race of its own.

Phases go through the islands of a machine: inside the hosts, then between them over the rails (the
ranks of one place in every host), as BlueConnect does. Halves are the reduce_scatter and the
allgather of an allreduce, each by whichever engine is best at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from weft.dsl.base.errors import WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Phase, Phases, Sketch
from weft.dsl.nouns.topology import Topology

from ...base.effort import Effort, setting
from ...base.engine import Budget, Observer, Outcome
from ...reductions.phases import Phased, phases_of
from ...reductions.reduction import Subproblem, run
from ..classic.hierarchy import host_grid
from ..packing.trees.quantize import with_common_grains


@dataclass(frozen=True, slots=True)
class PartsEffort(Effort):
    """Limits on the grains of parts that are joined."""

    most_grains: int = setting(
        1 << 12, "grains of a chunk up to which the shares of a part stay as they are"
    )
    most_transfers: int = setting(
        4_000,
        "transfers of a part up to which that is done; slices of more take longer than they gain",
    )
    finest: int = setting(1 << 20, "grains of a chunk, at most, to which more are rounded")
    lost: float = setting(1e-3, "part by which that may load the busiest resource more")
    transfer_steps: int = setting(10, "steps of work of that, for each transfer of a part")


PARTS_EFFORT = PartsEffort()
"""Default limits."""

PartRace = Callable[[Problem, Budget, Observer, tuple[str, ...]], Outcome]
"""A race for a part; and the names of the joiners that it is a part for, which take no part."""


@dataclass(frozen=True, slots=True)
class InPhases:
    """Races the engines for each phase, of a sketch or of the machine, and joins the winners.

    Phases of a part are not put together from phases again, nor halves from halves: on a fat tree
    that made 93 races of a single one, and none of them won anything.
    """

    name: ClassVar[str] = "phases"
    cites: ClassVar[str] = "Cho et al., BlueConnect, MLSys 2019; each phase names who found it"

    race: PartRace
    joined: tuple[str, ...] = ()

    @classmethod
    def availability(cls) -> str | None:
        """As the portfolio."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Return why phases are missing: the sketch has none, or the machine lacks equal hosts."""
        return None if self._phased(problem) else "the problem lacks such phases"

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """As :class:`~weft.synth.reductions.phases.Phased`."""
        phased = self._phased(problem)
        assert phased is not None, "else it was refused"
        return run(Phased().apply(phased, budget, observer, "portfolio"), self._part)

    def _phased(self, problem: Problem) -> Problem | None:
        """The problem under a sketch with phases."""
        if problem.sketch is not None:
            return problem if phases_of(problem) else None
        order = _BETWEEN_HOSTS.get(problem.collective.kind)
        axes = None if order is None else _hosts_and_rails(problem.topology)
        if axes is None or order is None:
            return None
        return _with(problem, tuple(Phase(kind, axes[axis]) for axis, kind in order))

    def _part(self, of: Subproblem) -> Outcome:
        found = self.race(of.problem, of.budget, of.observer, (*self.joined, self.name))
        points = tuple(replace(p, schedule=_joinable(p.schedule, of.budget)) for p in found.points)
        return replace(found, points=points)


@dataclass(frozen=True, slots=True)
class InHalves(InPhases):
    """Races the engines for the two halves of an allreduce, and joins the winners."""

    name: ClassVar[str] = "halves"
    cites: ClassVar[str] = "Rabenseifner, ICCS 2004; each half names who found it"

    def _phased(self, problem: Problem) -> Problem | None:
        """An allreduce as two phases of all ranks."""
        if problem.sketch is not None or problem.collective.kind is not Kind.ALLREDUCE:
            return None
        everybody = (tuple(range(problem.collective.ranks)),)
        halves = (Kind.REDUCE_SCATTER, Kind.ALLGATHER)
        return _with(problem, tuple(Phase(kind, everybody) for kind in halves))


def _joinable(schedule: Schedule, budget: Budget) -> Schedule:
    """The schedule in grains that parts have in common, if it has few enough transfers."""
    effort = PARTS_EFFORT
    if schedule.collective.factor <= effort.most_grains or len(schedule) > effort.most_transfers:
        return schedule
    budget.meter().spend(effort.transfer_steps * len(schedule))
    return with_common_grains(schedule, effort.finest, Fraction(effort.lost))


_BETWEEN_HOSTS = {
    Kind.ALLGATHER: ((1, Kind.ALLGATHER), (0, Kind.ALLGATHER)),
    Kind.REDUCE_SCATTER: ((0, Kind.REDUCE_SCATTER), (1, Kind.REDUCE_SCATTER)),
    Kind.ALLREDUCE: ((0, Kind.REDUCE_SCATTER), (1, Kind.ALLREDUCE), (0, Kind.ALLGATHER)),
}
"""Phases that make a collective: (axis, collective); 0: the hosts, 1: the rails between them."""


def _with(problem: Problem, phases: tuple[Phase, ...]) -> Problem | None:
    """The problem under a sketch of these phases, None if they do not make its collective."""
    rule = Phases(phases, problem.collective.kind, label="phases of the machine")
    phased = replace(problem, sketch=Sketch("", (rule,)))
    return phased if phases_of(phased) else None


def _hosts_and_rails(topology: Topology) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
    try:
        grid = host_grid(topology, 1)
    except WeftError:
        return None
    if min(grid.shape) < 2:
        return None
    hosts = np.array(grid.ranks).reshape(-1, grid.shape[0])
    return tuple(tuple(map(tuple, axis.tolist())) for axis in (hosts, hosts.T))
