"""Plans that end by a given time, as a model of CP-SAT: one optional interval per chunk and hop.

A chunk comes to each rank that wants it over one hop, to any other over one at most. A hop starts
when its source has the chunk, holds each of its resources for bytes ÷ bandwidth, and the chunk
arrives when the slowest is over plus α. Intervals of one resource do not overlap. Each start has a
window: from the soonest that the source can have the chunk, to the latest from which it still comes
to a rank that wants it in time; a hop whose window is empty is left out.

Ticks may be coarser than those of the machine. Durations are rounded down then, so that every plan
stays one: where there is none in coarse ticks there is none at all. What is found is timed again in
exact ticks, each resource in the order that was found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import FixedSend, OwnFirst, Phases, Relay, Rule, SwitchPolicy, Symmetry

from ..base.meter import Meter
from ..engines.greedy.plan import TransferPlan, schedule_of
from ..engines.sketched.field import SearchInstance
from ..engines.sketched.place_kernel import NEVER
from ..fabric.allowed import chunk_images, held_and_wanted, passing
from ..fabric.fabric import fabric_of
from ..solvers import cp_sat
from ..solvers.cp_sat import CpModel, CpVerdict
from ..solvers.pool import listener_of

Send = tuple[int, int]
"""Chunk and hop."""


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
        self.topology, self.within = problem.topology, within_us
        self.rules = problem.sketch.rules if problem.sketch else ()
        self.grain = Fraction(problem.bytes, collective.message_chunks)
        # Peers are decided here, not beforehand; a symmetry equates sends, but not their starts.
        left = tuple(r for r in self.rules if not isinstance(r, SwitchPolicy | Symmetry))
        sketch = problem.sketch and replace(problem.sketch, rules=left)
        field = SearchInstance.of(replace(problem, sketch=sketch), collective, self.grain)
        self.collective, self.machine, jobs = field.collective, field.machine, field.jobs
        self.holds, self.wants = jobs.holds, jobs.wants & ~jobs.holds
        self.allowed: Bools = jobs.allowed[jobs.kind]
        self.length, self.most = jobs.length, jobs.most
        self.horizon = int(within_us * self.machine.unit)

    @cached_property
    def exact(self) -> bool:
        """True if the ticks of the machine are exact."""
        fabric = fabric_of(self.topology)
        times = {*(self.grain * slow for slow in fabric.us_per_byte), *fabric.latency}
        return all((x * self.machine.unit).denominator == 1 for x in times)

    @property
    def reversible(self) -> bool:
        """True if the plans run backwards are plans: hops that share a resource leave it free for
        equally long before they arrive."""
        m = self.machine
        held = np.diff(m.first)
        rest = np.repeat(m.arrives, held) - m.hold
        most = np.full(m.resources, -1)
        np.maximum.at(most, m.resource, rest)
        least = most.copy()
        np.minimum.at(least, m.resource, rest)
        return bool((least == most).all())

    @cached_property
    def windows(self) -> dict[Send, tuple[int, int]]:
        """Earliest and latest start of each send that can be of use, in ticks of the machine."""
        m, found = self.machine, {}
        for c in range(len(self.holds)):
            open_hops = np.flatnonzero(self.allowed[c])
            src, dst, takes = m.src[open_hops], m.dst[open_hops], m.arrives[open_hops]
            early = _distances(self.holds[c], src, dst, takes)
            rest = _distances(self.wants[c], dst, src, takes)
            for h, u, v, t in zip(*(x.tolist() for x in (open_hops, src, dst, takes)), strict=True):
                latest = self.horizon - t - int(rest[v])
                if not self.holds[c, v] and early[u] <= latest:
                    found[c, h] = int(early[u]), latest
        return found

    def solve(self, meter: Meter, seed: int, *, best: bool = False) -> TimedAnswer:
        """Look for a plan in time; ``best``: for the shortest one. First in coarse ticks; if the
        plan found there is late in exact ones, in those."""
        coarse = max(1, self.horizon >> 20)
        answer = TimedAnswer(CpVerdict.UNKNOWN)
        for tick in dict.fromkeys((coarse, 1)):
            model = _TimedModel(self, tick, best)
            if cp_sat.STEPS_PER_TERM * model.cp.terms > meter.left:
                meter.cut_short()
                break
            found = cp_sat.solve(model.cp, steps=meter.left, seed=seed, listener=listener_of(meter))
            meter.spend(found.steps)
            proved = tick > 1 or self.exact
            if found.verdict is CpVerdict.INFEASIBLE and proved:
                return TimedAnswer(CpVerdict.INFEASIBLE)
            if not found.found:
                break
            plan = self._timed(model.sends(found.values))
            if plan.time_us <= float(self.within) * (1 + 1e-12):
                return TimedAnswer(
                    found.verdict if best and proved else CpVerdict.FEASIBLE,
                    plan.time_us,
                    schedule_of(plan, self.topology, self.collective),
                )
        return answer

    def _timed(self, sends: Iterable[tuple[int, Send]]) -> TransferPlan:
        """The plan that serves each resource in the order of these sends, in exact ticks."""
        m = self.machine
        there = np.where(self.holds, 0, NEVER)
        free = np.zeros(m.resources, np.int64)
        rows = []
        for _, (c, h) in sorted(sends):
            held = m.resource[m.first[h] : m.first[h + 1]]
            first = max(int(there[c, m.src[h]]), int(free[held].max(initial=0)))
            free[held] = first + m.hold[m.first[h] : m.first[h + 1]]
            there[c, m.dst[h]] = min(there[c, m.dst[h]], first + m.arrives[h])
            rows.append((first, h, c))
        rows.sort(key=lambda row: row[0])
        start, hop, chunk = np.array(rows, np.int64).reshape(-1, 3).T
        return TransferPlan(m, hop, chunk, start)


def _distances(starts: Bools, src: Ints, dst: Ints, takes: Ints) -> Ints:
    """Least ticks from any of ``starts`` to each rank (Bellman-Ford)."""
    found = np.where(starts, 0, NEVER)
    while True:
        before = found.copy()
        np.minimum.at(found, dst, np.minimum(before[src], NEVER - takes) + takes)
        if (found == before).all():
            return found


class _TimedModel:
    """The model in ticks of ``tick`` ticks of the machine."""

    def __init__(self, plans: TimedPlans, tick: int, best: bool) -> None:
        self.plans, self.cp, self.tick = plans, CpModel(), tick
        self.machine, self.end = plans.machine, plans.horizon // tick
        self.arrives = self._ticks(self.machine.arrives)
        self.hold = self._ticks(self.machine.hold)
        self.taken: dict[Send, int] = {}
        self.start: dict[Send, int] = {}
        self.into: defaultdict[Send, list[int]] = defaultdict(list)  # by chunk and rank
        for (c, h), (early, late) in plans.windows.items():
            self.taken[c, h] = self.cp.boolean()
            self.start[c, h] = self.cp.integer(early // tick, late // tick)
            self.into[c, int(self.machine.dst[h])].append(self.taken[c, h])
        self.makespan = self.cp.integer(0, self.end) if best else None
        self._delivered()
        self._timed()
        self._resources()
        self._lengths()
        for rule in plans.rules:
            self._rule(rule)
        if self.makespan is not None:
            self.cp.minimize([(self.makespan, 1)])

    def _ticks(self, of_machine: Ints) -> list[int]:
        down: Ints = of_machine if self.tick == 1 else np.maximum(0, of_machine - 1) // self.tick
        return [int(x) for x in down]

    def sends(self, values: Sequence[int]) -> Iterator[tuple[int, Send]]:
        """Yield start and send of all that is taken."""
        for send, taken in self.taken.items():
            if values[taken]:
                yield values[self.start[send]], send

    def _delivered(self) -> None:
        """Each chunk comes to each rank once at most, and to those that want it."""
        for c, v in np.argwhere(~self.plans.holds).tolist():
            if self.plans.wants[c, v]:
                self.cp.one_of(self.into[c, v])
            elif self.into[c, v]:
                self.cp.at_most_one(self.into[c, v])

    def _timed(self) -> None:
        """A send starts when its source has the chunk."""
        arrival = {key: self.cp.integer(0, self.end) for key, ins in self.into.items() if ins}
        for (c, h), taken in self.taken.items():
            u, v = int(self.machine.src[h]), int(self.machine.dst[h])
            start, come = self.start[c, h], arrival[c, v]
            self.cp.linear([(come, 1), (start, -1)], least=self.arrives[h], only_if=taken)
            if not self.plans.holds[c, u]:
                self.cp.any_of([~taken, *self.into[c, u]])
                self.cp.linear([(start, 1), (arrival[c, u], -1)], least=0, only_if=taken)
            if self.makespan is not None:
                end = [(self.makespan, 1), (start, -1)]
                self.cp.linear(end, least=self.arrives[h], only_if=taken)

    def _resources(self) -> None:
        """Nothing is held twice at a time; what all sends hold fits between first and last."""
        m = self.machine
        users: defaultdict[int, list[tuple[Send, int]]] = defaultdict(list)
        for send in self.taken:
            for k in range(m.first[send[1]], m.first[send[1] + 1]):
                users[int(m.resource[k])].append((send, self.hold[k]))
        for mine in users.values():
            parts = [self.cp.optional(self.start[x], n, self.taken[x]) for x, n in mine]
            self.cp.no_overlap(parts)
            ahead = min(self.plans.windows[x][0] for x, _ in mine) // self.tick
            behind = min(self.arrives[x[1]] - n for x, n in mine)
            load = [(self.taken[x], n) for x, n in mine]
            if self.makespan is None:
                self.cp.linear(load, most=self.end - ahead - behind)
            else:
                self.cp.linear([*load, (self.makespan, -1)], most=-ahead - behind)

    def _lengths(self) -> None:
        """Paths are no longer than rules let them be."""
        for lengths, most in zip(self.plans.length, self.plans.most, strict=True):
            far = {(c, v): self.cp.integer(0, int(most[c, v])) for c, v in np.ndindex(most.shape)}
            for (c, h), taken in self.taken.items():
                ends = (far[c, int(self.machine.dst[h])], 1), (far[c, int(self.machine.src[h])], -1)
                self.cp.linear(ends, least=int(lengths[h]), only_if=taken)

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

    def _over(self, pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Send]]:
        """Yield the pair and the send of all sends over these pairs."""
        wanted = frozenset(pairs)
        for c, h in self.taken:
            pair = int(self.machine.src[h]), int(self.machine.dst[h])
            if pair in wanted:
                yield pair, (c, h)

    def _symmetric(self, image: Ints) -> None:
        """A chunk crosses a pair of ranks if its image crosses the pair's image."""
        chunks = chunk_images(*held_and_wanted(self.plans.collective), image)
        assert chunks is not None, "asked before"
        crossing: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for (c, h), taken in self.taken.items():
            crossing[c, int(self.machine.src[h]), int(self.machine.dst[h])].append(taken)
        moved = {(int(chunks[c]), int(image[u]), int(image[v])): (c, u, v) for c, u, v in crossing}
        for there in {*crossing, *moved}:
            here = crossing.get(moved[there], ()) if there in moved else ()
            terms = [(x, 1) for x in crossing.get(there, ())] + [(x, -1) for x in here]
            self.cp.linear(terms, least=0, most=0)

    def _peers(self, switch: int, limit: int) -> None:
        """A GPU has at most ``limit`` peers over a switch, each way."""
        routes = [hop.route for hop in self.machine.each_hop()]
        through = passing(self.plans.topology, routes, switch)
        used: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for (_, h), taken in self.taken.items():
            if through[h]:
                used[int(self.machine.src[h]), int(self.machine.dst[h])].append(taken)
        peer = {pair: self.cp.boolean() for pair in used}
        for pair, sends in used.items():
            for taken in sends:
                self.cp.implies(taken, peer[pair])
        for rank in range(self.machine.ranks):
            for side in (0, 1):
                mine = [(x, 1) for pair, x in peer.items() if pair[side] == rank]
                self.cp.linear(mine, most=limit)

    def _own_first(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Over each pair the sender's own chunks start before others."""
        by_pair: defaultdict[tuple[int, int], list[Send]] = defaultdict(list)
        for pair, send in self._over(pairs):
            by_pair[pair].append(send)
        for (u, _), sends in by_pair.items():
            own = [x for x in sends if self.plans.holds[x[0], u]]
            for mine in own:
                for other in (x for x in sends if x not in own):
                    both = self.cp.boolean()
                    self.cp.any_of([~self.taken[mine], ~self.taken[other], both])
                    order = [(self.start[other], 1), (self.start[mine], -1)]
                    self.cp.linear(order, least=0, only_if=both)
