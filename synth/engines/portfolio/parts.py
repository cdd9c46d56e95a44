"""Members of the race that join schedules of parts, each part the best of a race of its own.

Phases go through the islands of a machine: inside the hosts, then between them over the rails (the
ranks of one place in every host), as BlueConnect does. Halves are the reduce_scatter and the
allgather of an allreduce, each by whichever engine is best at it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from weft.dsl.base.errors import WeftError
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.sketch import Phase, Phases, Sketch
from weft.dsl.nouns.topology import Topology

from ...base.engine import Budget, Engine, Observer, Outcome
from ...reductions.allreduce import Composed
from ...reductions.phases import Phased, phases_of
from ...reductions.reduction import Subproblem, run
from ..classic.hierarchy import host_grid


@dataclass(frozen=True, slots=True)
class InPhases:
    """Races the engines for each phase, of a sketch or of the machine, and joins the winners."""

    name: ClassVar[str] = "phases"
    cites: ClassVar[str] = "Cho et al., BlueConnect, MLSys 2019; each phase names who found it"

    race: Engine

    @classmethod
    def availability(cls) -> str | None:
        """As the portfolio."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Return why there are no phases: the sketch has none, or the machine no equal hosts."""
        if problem.sketch is not None:
            none = "the sketch has no phases that make the collective"
            return None if phases_of(problem) else none
        if _with_phases(problem) is None:
            return "the machine has no hosts of equal size, or the collective no phases"
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """As :class:`~weft.synth.reductions.phases.Phased`."""
        if problem.sketch is None:
            phased = _with_phases(problem)
            assert phased is not None, "else it was refused"
            problem = phased
        return run(Phased().apply(problem, budget, observer, self.race.name), self._part)

    def _part(self, of: Subproblem) -> Outcome:
        return self.race.solve(of.problem, of.budget, of.observer)


@dataclass(frozen=True, slots=True)
class InHalves:
    """Races the engines for the two halves of an allreduce, and composes the winners."""

    name: ClassVar[str] = "halves"
    cites: ClassVar[str] = "Cai et al., SCCL, PPoPP 2021, §3.5; each half names who found it"

    race: Engine

    @classmethod
    def availability(cls) -> str | None:
        """As the portfolio."""
        return None

    def refuses(self, problem: Problem) -> str | None:
        """Return why there are no halves: it is no allreduce, or a sketch says how to make it."""
        if problem.sketch is not None:
            return "a sketch is followed as a whole"
        return None if Composed().fits(problem) else "only an allreduce has halves"

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        """As :class:`~weft.synth.reductions.allreduce.Composed`."""
        steps = Composed().apply(problem, budget, observer, self.race.name)
        return run(steps, lambda of: self.race.solve(of.problem, of.budget, of.observer))


_ORDER = {
    Kind.ALLGATHER: ((1, Kind.ALLGATHER), (0, Kind.ALLGATHER)),
    Kind.REDUCE_SCATTER: ((0, Kind.REDUCE_SCATTER), (1, Kind.REDUCE_SCATTER)),
    Kind.ALLREDUCE: ((0, Kind.REDUCE_SCATTER), (1, Kind.ALLREDUCE), (0, Kind.ALLGATHER)),
}
"""Phases that make a collective: (axis, collective); 0: the hosts, 1: the rails between them."""


def _with_phases(problem: Problem) -> Problem | None:
    """The problem under a sketch of the machine's own phases, None if it has none."""
    kind = problem.collective.kind
    if kind not in _ORDER:
        return None
    axes = _hosts_and_rails(problem.topology)
    if axes is None:
        return None
    phases = tuple(Phase(inner, axes[axis]) for axis, inner in _ORDER[kind])
    rule = Phases(phases, kind, label="phases of the machine")
    phased = replace(problem, sketch=Sketch("", (rule,)))
    return phased if phases_of(phased) else None


def _hosts_and_rails(topology: Topology) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
    """The ranks of each host, and those of equal place in all hosts."""
    try:
        grid = host_grid(topology, 1)
    except WeftError:
        return None
    if min(grid.shape) < 2:
        return None
    hosts = np.array(grid.ranks).reshape(-1, grid.shape[0])
    return tuple(tuple(map(tuple, axis.tolist())) for axis in (hosts, hosts.T))
