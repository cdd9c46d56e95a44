"""Search for the fastest plan of a message: the packing, the number of slices, the order.

All simulated runs are of the quotient (:mod:`.plan`), so that a thousand equivalent ranks
cost as much as one. Where images of a hop share resources, the time found is only an estimate; the
final time is the simulator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import chain, cycle, islice

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule

from ....base.effort import Effort, setting
from ....base.engine import Point
from ....base.meter import Meter
from ....time.margin import MARGIN_EFFORT, worst_us
from ....time.slices import SLICE_EFFORT, SliceEffort
from ..trees.demands import moves_pairs
from ..trees.model import Packing, halves, trees_per_root
from .order import (
    FIRST,
    OTHERS,
    Mirrored,
    Rule,
    TransferOrder,
    Urgency,
    as_listed,
    shaken,
    sums_first,
)
from .plan import PlanQuotient


@dataclass(frozen=True, slots=True)
class OrderEffort(Effort):
    """Limits of the search for slices and orders; a job is one hop of one slice."""

    run_jobs: int = setting(2_000_000, "slices · hops of one run of the quotient")
    jobs: int = setting(
        1_500_000,
        "slices · transfers of the schedule that comes out; of paths slices · hops of one part, "
        "where that has the time of the whole (weft.synth.time.folded)",
    )
    segments: tuple[int, ...] = setting(
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        "numbers of slices that are tried, ascending",
    )
    many: int = setting(128, "more slices than this only where that makes few jobs")
    few_jobs: int = setting(300_000, "slices · transfers that are few")
    least_slices: int = setting(
        4,
        "slices up to which all numbers are tried where no run of all transfers is needed to know "
        "their time",
    )
    slices: SliceEffort = SLICE_EFFORT
    slice_price: float = setting(
        1e-3,
        "twice as many slices must be worth this part of the time",
    )
    near: float = setting(1.001, "this near to the floor (1: at it) nothing more is tried")
    helps: float = setting(
        0.997,
        "four times as many slices help if they bring the time below this share of it",
    )
    hopeless: float = setting(
        1.25,
        "beyond this many times another packing's best after two rules, no others are tried",
    )
    alike: float = setting(
        0.003, "packings whose promised times differ by this part at most are tried by their loads"
    )
    shaken: int = setting(
        2_000, "slices · transfers up to which orders are compared with longer latencies, too"
    )
    steady_tries: int = setting(
        4, "plans, and numbers of slices, that are run with longer latencies while they are fragile"
    )
    few_hops: int = setting(
        500, "slices · hops up to which all rules are tried for each number of slices"
    )
    restarts: int = setting(24, "orders of the winner with noise, at most")
    restart_jobs: int = setting(2_000_000, "slices · hops of all restarts together")

    def of(self, problem: Problem) -> OrderEffort:
        """Return these limits with the cost of a message that the problem states, if any."""
        return replace(self, slices=self.slices.of(problem))


ORDER_EFFORT = OrderEffort()
"""Default limits."""


@dataclass(frozen=True, slots=True)
class OrderLimits:
    """Limits of one search for orders."""

    # Counts the runs, and ends the search; one without a limit runs all
    meter: Meter = field(default_factory=lambda: Meter(1 << 62))
    segments: int = 0  # number of slices; 0 tries several
    seed: int = 0  # seed of the restarts
    effort: OrderEffort = ORDER_EFFORT  # limits of its work

    def over(self) -> bool:
        """Return True if the work is done, or the search was cancelled."""
        return self.meter.over()


@dataclass(frozen=True, eq=False)
class Planned:
    """A quotient with its slices, its order, and the simulated time of both.

    ``finer_us``: the least time of any number of slices, where messages cost nothing.
    """

    quotient: PlanQuotient
    segments: int
    order: TransferOrder
    rule: Rule
    time_us: float
    slice_price: float
    finer_us: float = float("inf")

    @property
    def price(self) -> float:
        """The time, plus a small penalty per doubling of the slices."""
        return self.time_us * (1 + self.slice_price * float(np.log2(self.segments)))

    def us_at(self, size: int) -> float:
        """The µs of the same plan at another size in bytes."""
        order = self.order
        return self.quotient.time_us(size, self.segments, order.priority, order.stride)

    def schedule(self) -> Schedule:
        """Return the schedule, annotated with the data of the planner."""
        plan = self.quotient.plan
        return plan.schedule(
            self.order.priority,
            self.order.stride,
            self.segments,
            {"order": self.order.rule, "trees": len(plan.packing.trees)},
        )


def quickest(quotients: Sequence[PlanQuotient], message_bytes: int, trial: OrderLimits) -> Planned:
    """Return the best plan of all packings for a message. At least one run is made.

    All packings get two rules before one gets the others: trees of the same rate order differently
    well, which only a run shows. Then slices are chosen again, where messages have a cost.
    """
    searches = _first_runs(quotients, message_bytes, trial)
    if not searches:
        raise ValueError("no packing to choose from")
    _rise(searches, trial)
    for search in sorted(searches, key=lambda one: one.least.price):
        best = _best(searches)
        hopeless = search.least.time_us > trial.effort.hopeless * best.time_us
        if not (trial.over() or hopeless or search.floor >= best.time_us):
            search.close()
    best = _best(searches)
    if not trial.effort.slices.message_us:
        best = _restart(_OrderSearch(best.quotient, message_bytes, trial, best))
        return replace(best, finer_us=best.time_us)
    chosen = _in_few_slices([one.quotient for one in searches], best, message_bytes, trial)
    us = chosen.us_at(message_bytes)
    return replace(chosen, time_us=us, finer_us=min(us, best.time_us))


def _best(searches: Sequence[_OrderSearch]) -> Planned:
    return min((one.least for one in searches), key=lambda one: one.price)


def _rise(searches: Sequence[_OrderSearch], trial: OrderLimits) -> None:
    """Try more slices while that helps, on all packings before still more on one: high trees want
    slices, and only then show their worth."""
    while rising := [one for one in searches if one.rises]:
        for search in sorted(rising, key=lambda one: one.least.price):
            if trial.over():
                return
            search.rises = search.floor < _best(searches).time_us and search.rise()


def _first_runs(
    quotients: Sequence[PlanQuotient], message_bytes: int, trial: OrderLimits
) -> list[_OrderSearch]:
    """Try two rules with the fewest slices on the packings that may win, the most promising next.

    Its promise are its load and its longest chain of α, times what the best one of its kind so far
    took over its own. Unequal trees hold each other up where all ports are full, and equal ones
    hardly.
    """
    over: dict[bool, float] = {}

    def promise(quotient: PlanQuotient) -> float:
        return _load(quotient, message_bytes) + quotient.chain_us

    left = sorted(quotients, key=lambda q: _load(q, message_bytes))
    searches: list[_OrderSearch] = []
    while left:
        hoped = [over.get(q.unequal, 1.0) * promise(q) for q in left]
        most = (1 + trial.effort.alike) * min(hoped)
        quotient = left.pop(next(i for i, us in enumerate(hoped) if us <= most))
        search = _OrderSearch(quotient, message_bytes, trial)
        least = min((one.least.time_us for one in searches), default=float("inf"))
        if searches and (search.floor >= least or trial.over()):
            continue
        search.rises = search.rise()
        searches.append(search)
        took = search.least.time_us / max(promise(quotient), _TINIEST)
        over[quotient.unequal] = min(took, over.get(quotient.unequal, took))
    return searches


_TINIEST = 1e-12
"""µs: nothing takes less, so that ratios of times are numbers."""


def _floor(quotient: PlanQuotient, message_bytes: int) -> float:
    """Lower bound in µs: the load of the busiest resource, or the longest chain of α."""
    return max(_load(quotient, message_bytes), quotient.chain_us)


def _load(quotient: PlanQuotient, message_bytes: int) -> float:
    """µs that the busiest resource is held."""
    return float(quotient.plan.packing.us_per_byte * message_bytes)


def _slice_counts(quotient: PlanQuotient, trial: OrderLimits) -> tuple[int, ...]:
    if trial.segments:
        return (trial.segments,)
    effort = trial.effort
    hops, transfers = max(1, len(quotient.plan.hops)), max(1, quotient.plan.transfers)
    # Where images never meet, the run of the quotient is the run of the schedule.
    few = effort.least_slices
    least = few if quotient.exact and hops * few <= effort.run_jobs else 1
    # Trees may be put together with others, phase by phase, and the result be run whole.
    alone = quotient.exact and moves_pairs(quotient.plan.packing.collective)
    most = max(least, min(effort.run_jobs // hops, effort.jobs // (hops if alone else transfers)))
    many = min(most, max(effort.many, effort.few_jobs // transfers))
    return tuple(n for n in effort.segments if n <= many)


def _restart(search: _OrderSearch) -> Planned:
    """Retry the best rule with slightly perturbed tails, while that improves it."""
    best, trial = search.least, search.trial
    if isinstance(best.rule, Mirrored):  # it looks at tails of its own
        return best
    rng = np.random.default_rng(trial.seed)
    urgency = Urgency.of(best.quotient, search.message_bytes, best.segments)
    jobs = len(best.quotient.plan.hops) * best.segments
    turns = min(trial.effort.restarts, trial.effort.restart_jobs // max(1, jobs))
    for noise in islice(cycle((0.01, 0.03, 0.1, 0.3)), turns):
        if search.done or trial.over():
            break
        search.run(shaken(best.rule, urgency, rng, noise), best.rule, best.segments)
    return search.least


def _in_few_slices(
    quotients: Sequence[PlanQuotient], best: Planned, message_bytes: int, trial: OrderLimits
) -> Planned:
    """Return the plan of the fewest slices whose time, with the cost of messages, is little more
    than the least; of equal numbers the quickest. Without that cost it is not far from ``best``.

    ``best``: the quickest plan where messages cost nothing; none of more slices is better.
    """
    slices = trial.effort.slices
    message_us = float(slices.message_us)
    # The best plan stays, whatever ends the ladder below: work, or a rung that is slower than the
    # one before it.
    known = _OrderSearch(best.quotient, message_bytes, trial, charged=True)
    known.look(best.rule, best.segments)
    known.basic(best.segments)
    tried, least, before = [known], known.least.time_us, float("inf")
    for segments in sorted({n for q in quotients for n in _slice_counts(q, trial)}):
        if segments > best.segments:
            break
        now = float("inf")
        for quotient in sorted(quotients, key=lambda q: q is not best.quotient):
            own, over = quotient is best.quotient, trial.over()
            if segments not in _slice_counts(quotient, trial) or (over and not own):
                continue
            if own and segments == best.segments:
                search = known
            elif quotient.floor_us(message_bytes, segments, message_us) <= slices.near(least):
                search = _OrderSearch(quotient, message_bytes, trial, charged=True)
                search.look(best.rule, segments)  # without work left this one at least
                search.basic(segments)
                tried.append(search)
            else:
                continue
            close = search.least.time_us <= trial.effort.hopeless * least
            if close and len(quotient.plan.hops) * segments <= trial.effort.few_hops:
                search.others(segments)
            now = min(now, search.least.time_us)
            least = min(least, now)
        if now > slices.near(before):
            break
        before = min(before, now)
    lost = slices.kept(best.time_us)
    tried = [one for one in tried if one.least.us_at(message_bytes) <= lost] or [known]
    quickest = min(tried, key=lambda one: one.least.time_us)
    quickest.others(quickest.least.segments)
    most = slices.near(quickest.least.time_us)
    able = [one for one in tried if one.least.time_us <= most]
    able.sort(key=lambda one: (one.least.segments, one.least.time_us))
    beyond = (n for n in _slice_counts(best.quotient, trial) if n > best.segments)
    others = (_basic(best.quotient, n, message_bytes, trial) for n in beyond)
    found = [_steadiest(able[0])]
    for search in islice(chain(able[1:], others), trial.effort.steady_tries):
        if trial.over() or min(over for over, _ in found) <= MARGIN_EFFORT.fragile:
            break
        if search.least.time_us <= most:
            found.append(_steadiest(search))
    return min(found, key=lambda one: one[0])[1]


def _basic(
    quotient: PlanQuotient, segments: int, message_bytes: int, trial: OrderLimits
) -> _OrderSearch:
    """Return the search in a number of slices, where messages have a cost, after two rules."""
    search = _OrderSearch(quotient, message_bytes, trial, charged=True)
    search.basic(segments)
    return search


def _steadiest(search: _OrderSearch) -> tuple[float, Planned]:
    """Return the plan that longer latencies make the least slower, and how much, of the quickest
    in a number of slices after all rules and restarts."""
    search.others(search.least.segments)
    best, found = _restart(search), list[tuple[float, Planned]]()
    tries = search.trial.effort.steady_tries
    if best.quotient.plan.transfers * best.segments > search.trial.effort.shaken:
        return 1.0, best
    for plan in [best, *sorted(search.near, key=lambda one: one.time_us)][:tries]:
        shaken = worst_us(plan.schedule(), search.message_bytes, search.trial.meter)
        found.append((shaken / plan.us_at(search.message_bytes), plan))
        if found[-1][0] <= MARGIN_EFFORT.steady:
            break
    return min(found, key=lambda one: one[0])


STEPS_PER_RUN = 200
"""Steps of any run of a quotient; a slice of a hop takes one more, half of them if it loses."""

LOOKS_PER_STEP = 10
"""Slices of hops that are looked at in a step; through switches they wait for two ports, one after
the other, and where queues are long some thirty times (16 ranks of a damaged DGX-2)."""


@dataclass(slots=True)
class _OrderSearch:
    quotient: PlanQuotient
    message_bytes: int
    trial: OrderLimits
    best: Planned | None = None
    charged: bool = False
    near: list[Planned] = field(default_factory=list)
    _known: dict[int, Urgency] = field(default_factory=dict)
    _risen: list[float] = field(default_factory=list)
    rises: bool = True

    @property
    def least(self) -> Planned:
        """The best plan of this packing, once there is one."""
        assert self.best is not None
        return self.best

    @property
    def floor(self) -> float:
        """Lower bound in µs on all orders."""
        return _floor(self.quotient, self.message_bytes)

    def floor_in(self, segments: int) -> float:
        """Return a lower bound in µs on all orders in a number of slices."""
        if not self.charged:
            return self.floor
        return self.quotient.floor_us(self.message_bytes, segments, self.message_us)

    @property
    def message_us(self) -> float:
        """The µs that each message takes beside its bytes."""
        return float(self.trial.effort.slices.message_us) if self.charged else 0.0

    @property
    def done(self) -> bool:
        return self.least.time_us <= self.trial.effort.near * self.floor_in(self.least.segments)

    def rise(self) -> bool:
        """Try two rules with four times as many slices; False once still more are of no use."""
        allowed = _slice_counts(self.quotient, self.trial)[::2]
        before = self._risen[-1] if self._risen else float("inf")
        segments = allowed[len(self._risen)]
        found = self.basic(segments)
        self._risen.append(found)
        more = len(self._risen) < len(allowed)
        return more and not self.done and found <= self.trial.effort.helps * before

    def basic(self, segments: int) -> float:
        """Try two rules; return the least µs."""
        # If no hop depends on another, the order of the trees may be deliberate: try it, too.
        rules = FIRST if self.quotient.plan.hops.level.any() else (as_listed, *FIRST)
        return min(self.look(rule, segments) for rule in rules)

    def close(self) -> None:
        """Try the other rules near the best slice count."""
        allowed, first = _slice_counts(self.quotient, self.trial), self.least.segments
        at = allowed.index(first)
        self.others(first)
        for segments in (*allowed[at + 1 : at + 2], *allowed[max(0, at - 1) : at]):
            self.others(segments, FIRST)

    def others(self, segments: int, more: Sequence[Rule] = ()) -> None:
        """Try the other rules, and ``more``, until the best is at the floor."""
        allowed = _slice_counts(self.quotient, self.trial)
        # In many slices list scheduling is as good, and both phases of an allreduce overlap.
        mirrors = allowed[-1] < self.trial.effort.many and self.quotient.plan.hops.reduce.any()
        mirrored = (Mirrored(self.quotient, self.message_bytes),) if mirrors else ()
        phased = (sums_first,) if self.charged and self.quotient.plan.hops.reduce.any() else ()
        for rule in (*OTHERS, *phased, *mirrored, *more):
            if self.done:
                return
            self.look(rule, segments)

    def look(self, rule: Rule, segments: int) -> float:
        """Try a rule, unless time is up and there is something already; µs, or infinite if it
        cannot win."""
        if self.best is not None and self.trial.over():
            return float("inf")
        if segments not in self._known:
            self._known[segments] = Urgency.of(self.quotient, self.message_bytes, segments)
        if isinstance(rule, Mirrored):
            self.trial.meter.spend(rule.runs * len(self.quotient.plan.hops) * segments)
        return self.run(rule(self._known[segments]), rule, segments)

    def run(self, order: TransferOrder, rule: Rule, segments: int) -> float:
        """Run an order; stop early once it cannot be the best."""
        limit = float("inf") if self.best is None else self.best.price
        took, looks = self.quotient.run(
            self.message_bytes, segments, order.priority, order.stride, limit, self.message_us
        )
        jobs = len(self.quotient.plan.hops) * segments
        steps = max(jobs if np.isfinite(took) else jobs // 2, looks // LOOKS_PER_STEP)
        self.trial.meter.spend(STEPS_PER_RUN + steps)
        price = self.trial.effort.slice_price
        found = Planned(self.quotient, segments, order, rule, took, price)
        if self.best is None or found.price < self.best.price:
            self.best = found
        if self.charged:
            most = MARGIN_EFFORT.near * self.best.time_us
            self.near = [one for one in [*self.near, found] if one.time_us <= most]
        return took


# --- the schedule in words ------------------------------------------------------------------------

_VISIBLE = 1e-4
"""Least loss that a percentage with two decimals shows."""


def summary(found: Planned, point: Point) -> str:
    """Rate and bound, trees, height, slices and order of a schedule, in words."""
    packing = found.quotient.plan.packing
    return (
        f"{_rate(found, point)}: {_trees(packing)}, {_height(packing)}, "
        f"{count(found.segments, 'segment')}, order {found.order.rule}{_finer(found)}"
    )


def _finer(found: Planned) -> str:
    """Return the time in more segments, where that is less."""
    if found.time_us <= (1 + _VISIBLE) * found.finer_us:
        return ""
    return f"; {found.finer_us:,.4g} µs in more segments, whose messages take longer than they gain"


def _rate(found: Planned, point: Point) -> str:
    plan, load = found.quotient.plan, point.rounds_per_chunk
    rounds = f"{load} round{'' if load == 1 else 's'} per chunk"
    if point.optimal:
        return f"{rounds}, which is the bound"
    over = float(load / point.bound - 1) if point.bound else 0.0
    if plan.shares.exact:
        return f"{rounds}, a load {over:.2%} above the bound {point.bound}"
    what = "paths" if moves_pairs(plan.packing.collective) else "trees"
    grid = f"in the file their shares are multiples of 1/{plan.shares.factor} of a chunk"
    if plan.packing.optimal:
        loss = f"{over:.2%}" if over > _VISIBLE else f"{over:.1e} of it"
        return f"the {what} attain the bound {point.bound} exactly; {grid}, {loss} above"
    return f"{rounds}, a load {over:.2%} above the bound {point.bound}; {grid}"


def _trees(packing: Packing) -> str:
    moving = [t for t in packing.trees if len(t)]
    pieces = len(moving) * len(packing.images)
    if moves_pairs(packing.collective):
        return count(pieces, "path")
    most, least = trees_per_root(replace(packing, trees=tuple(moving)))
    if most == 1:
        return count(pieces, "tree")
    return f"{count(pieces, 'tree')}, {'' if most == least else 'at most '}{most} per root"


def _height(packing: Packing) -> str:
    tall = max(packing.heights, default=0)
    if packing.collective.kind is not Kind.ALLREDUCE:
        return f"height {tall}"
    up, down = (max(x, default=0) for x in zip(*map(halves, packing.trees), strict=True))
    return f"height {tall} ({up} up to the root, {down} down from it)"
