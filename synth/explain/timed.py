"""Plans that end by a given time under a sketch's rules: the interval model, asked for any plan.

The model of :mod:`..engines.intervals.model`, one optional interval for each chunk and hop, on the
machine itself: a symmetry equates which hops are taken and leaves starts free, peers over a switch
are decided with all else, and own data starts first. So an impossible model proves that no plan
obeys the rules in time, in these chunks and over these routes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import FixedSend, OwnFirst, Phases, Relay, Rule, SwitchPolicy, Symmetry

from ..base.meets import meets
from ..base.meter import Meter
from ..engines.intervals.effort import INTERVALS_EFFORT
from ..engines.intervals.model import IntervalModel, Key, StartWindows
from ..engines.sketched.field import SearchInstance
from ..fabric.allowed import chunk_images, held_and_wanted, passing
from ..fabric.fabric import fabric_of
from ..solvers import cp_sat
from ..solvers.cp_sat import CpVerdict
from ..solvers.pool import listener_of


def refusal(rules: Sequence[Rule]) -> str:
    """Return why the model cannot express these rules exactly; empty if it can."""
    for rule in rules:
        if isinstance(rule, Phases):
            return f"phases are not in the model of times, as in {rule.label!r}"
        if isinstance(rule, FixedSend) and rule.step is not None:
            first = rule.must and rule.step == 1 and rule.pair[0] == rule.owner
            if not first:
                return f"steps are not in the model of times, as in {rule.label!r}"
    return ""


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """Answer to a question about plans in time.

    ``us``: µs of the plan found, NaN without one; ``schedule``: its transfers. ``verdict``
    INFEASIBLE is a proof that no plan ends in time, OPTIMAL that none is shorter.
    """

    verdict: CpVerdict
    us: float = float("nan")
    schedule: Schedule | None = None


class TimedPlans:
    """Plans of a copying collective in whole chunks under the rules of a problem, by a time."""

    def __init__(self, problem: Problem, pieces: int, within_us: Fraction) -> None:
        collective = problem.collective.split(pieces) if pieces > 1 else problem.collective
        assert problem.bytes is not None
        self.within, self.rules = within_us, problem.sketch.rules if problem.sketch else ()
        self.grain = Fraction(problem.bytes, collective.message_chunks)
        left = tuple(r for r in self.rules if not isinstance(r, SwitchPolicy | Symmetry))
        sketch = problem.sketch and replace(problem.sketch, rules=left)
        self.field = SearchInstance.of(replace(problem, sketch=sketch), collective, self.grain)

    @property
    def reversible(self) -> bool:
        """True if the plans run backwards are plans: hops that share a resource leave it free for
        equally long before they arrive."""
        m = self.field.machine
        rest = np.repeat(m.arrives, np.diff(m.first)) - m.hold
        most = np.full(m.resources, -1)
        np.maximum.at(most, m.resource, rest)
        least = most.copy()
        np.minimum.at(least, m.resource, rest)
        return bool((least == most).all())

    @cached_property
    def windows(self) -> StartWindows:
        """The sends that can be of use, with their earliest and latest starts."""
        unit, fabric = self.field.machine.unit, fabric_of(self.field.topology)
        times = {*(self.grain * slow for slow in fabric.us_per_byte), *fabric.latency}
        exact = all((x * unit).denominator == 1 for x in times)
        end = int(self.within * unit * (1 if exact else 1 + INTERVALS_EFFORT.rounded))
        return StartWindows.of(self.field, end + 1, INTERVALS_EFFORT)

    def solve(self, meter: Meter, seed: int, *, best: bool = False) -> TimedAnswer:
        """Look for a plan in time; ``best``: for the shortest one."""
        model = _RuledModel(self, best)
        if cp_sat.STEPS_PER_TERM * model.model.terms > meter.left:
            meter.cut_short()
            return TimedAnswer(CpVerdict.UNKNOWN)
        found = cp_sat.solve(model.model, steps=meter.left, seed=seed, listener=listener_of(meter))
        meter.spend(found.steps)
        if not found.found:
            return TimedAnswer(found.verdict)
        placed = model.placements(found.values)
        us = self.field.machine.us(int(placed.end.max()))
        if us > float(self.within) * (1 + 1e-12):  # in rounded ticks it was not late
            return TimedAnswer(CpVerdict.UNKNOWN)
        bound = self.field.machine.us((found.bound or 0) * self.windows.tick)
        least = best and found.verdict is CpVerdict.OPTIMAL and meets(us, bound)  # ticks round down
        verdict = CpVerdict.OPTIMAL if least else CpVerdict.FEASIBLE
        return TimedAnswer(verdict, us, self.field.schedule(placed))


class _RuledModel(IntervalModel):
    """The model with the rules that the arrays of the field do not carry."""

    def __init__(self, plans: TimedPlans, best: bool) -> None:
        super().__init__(plans.windows, 0 if best else plans.windows.limit)
        self.plans = plans
        self.ends = plans.field.machine.src.tolist(), plans.field.machine.dst.tolist()
        for rule in plans.rules:
            self._rule(rule)

    def _rule(self, rule: Rule) -> None:
        match rule:
            case Symmetry():
                self._symmetric(np.array(rule.image))
            case SwitchPolicy(limit=int(limit)):
                self._peers(rule.switch, limit)
            case OwnFirst():
                self._own_first(rule.pairs)
            case Relay(own_first=True):
                self._own_first(rule.through)
            case _:
                pass

    def _over(self, pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Key]]:
        """Yield the pair and the send of all sends over these pairs."""
        wanted = frozenset(pairs)
        for c, h in self.go:
            pair = self.ends[0][h], self.ends[1][h]
            if pair in wanted:
                yield pair, (c, h)

    def _symmetric(self, image: Ints) -> None:
        """A chunk crosses a pair of ranks if its image crosses the pair's image."""
        chunks = chunk_images(*held_and_wanted(self.plans.field.collective), image)
        assert chunks is not None, "asked before"
        crossing: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for (c, h), taken in self.go.items():
            crossing[c, self.ends[0][h], self.ends[1][h]].append(taken)
        moved = {(int(chunks[c]), int(image[u]), int(image[v])): (c, u, v) for c, u, v in crossing}
        for there in {*crossing, *moved}:
            here = crossing.get(moved[there], ()) if there in moved else ()
            terms = [(x, 1) for x in crossing.get(there, ())] + [(x, -1) for x in here]
            self.model.linear(terms, least=0, most=0)

    def _peers(self, switch: int, limit: int) -> None:
        """A GPU has at most ``limit`` peers over a switch, each way."""
        routes = [hop.route for hop in self.plans.field.machine.each_hop()]
        through = passing(self.plans.field.topology, routes, switch)
        used: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for (_, h), taken in self.go.items():
            if through[h]:
                used[self.ends[0][h], self.ends[1][h]].append(taken)
        peer = {pair: self.model.boolean() for pair in used}
        for pair, sends in used.items():
            for taken in sends:
                self.model.implies(taken, peer[pair])
        for rank in range(self.plans.field.machine.ranks):
            for side in (0, 1):
                mine = [(x, 1) for pair, x in peer.items() if pair[side] == rank]
                self.model.linear(mine, most=limit)

    def _own_first(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Over each pair the sender's own chunks start before others."""
        by_pair: defaultdict[tuple[int, int], list[Key]] = defaultdict(list)
        for pair, send in self._over(pairs):
            by_pair[pair].append(send)
        for (u, _), sends in by_pair.items():
            own = [x for x in sends if self.plans.field.jobs.holds[x[0], u]]
            for mine in own:
                for other in (x for x in sends if x not in own):
                    both = self.model.boolean()
                    self.model.any_of([~self.go[mine], ~self.go[other], both])
                    order = [(self.start[other], 1), (self.start[mine], -1)]
                    self.model.linear(order, least=0, only_if=both)
