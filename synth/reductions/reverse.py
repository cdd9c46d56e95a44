"""The reverse reduction: a collective into one root per chunk is its dual turned round in time.

On the reversed topology a sum into rank d becomes a copy out of rank d: reduce ↔ broadcast,
reduce_scatter ↔ allgather (SCCL §3.4; Pješivac-Grbović et al. for the classic pairs). A chunk with
one source and one destination turns round without any sum: gather ↔ scatter.

Why it is right. A pruned schedule of the copying dual brings every rank that takes part in a chunk
its copy exactly once, so the transfers of a chunk form a tree out of d, with steps that grow
away from d, whose leaves all want the chunk: in the original they are ranks that contribute.
Turned round, every rank but d sends exactly once, after all it receives: what arrives at d
is every contribution, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints32, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import Casts
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import (
    FixedSend,
    Forbid,
    Only,
    OwnFirst,
    Pair,
    Phase,
    Phases,
    Relay,
    Rule,
)

from ..base.engine import Budget, Observer, Point, Status
from ..base.meets import meets
from ..fabric.hop_table import hop_table_of
from ..judge.allowed_pairs import off_relays
from ..judge.prune import prune
from ..time.order import LARGE, arranged, mirrored
from ..time.schedule_time import simulate
from .reduction import Steps, Subproblem, Translated

_DUAL = {
    Kind.REDUCE: Kind.BROADCAST,
    Kind.REDUCE_SCATTER: Kind.ALLGATHER,
    Kind.GATHER: Kind.SCATTER,
    Kind.SCATTER: Kind.GATHER,
    Kind.MULTIROOT_GATHER: Kind.MULTIROOT_SCATTER,
    Kind.MULTIROOT_SCATTER: Kind.MULTIROOT_GATHER,
}


@dataclass(frozen=True, slots=True)
class Reversed:
    """Reduction of a combining collective to its copying dual on the reversed machine."""

    name: ClassVar[str] = "reverse"

    def fits(self, problem: Problem) -> bool:
        """Collectives that add; :func:`reverse` says which of them have a dual."""
        return problem.collective.combining

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Solve the dual; every schedule is turned round in the order that suits the message."""
        dual, undo = reverse(problem)
        size = problem.bytes or LARGE

        def back(point: Point) -> Point:
            forth = arranged(point.schedule, size, budget.seed)
            turned, finer = mirrored(forth, undo(forth), size), point.finer_us
            if finer is not None:  # as much slower as it is in its own slices
                us, before = (simulate(one, size).time_us for one in (turned, forth))
                finer *= max(1.0, us / before) if before else 1.0
            return replace(point, schedule=turned, finer_us=finer)

        outcome = yield Subproblem(dual, budget, Translated(observer, back))
        points = tuple(map(back, outcome.points))
        timed = problem.objective is Objective.TIME and outcome.status is Status.OPTIMAL
        if timed and not _as_quick(outcome.points, points, size):
            outcome = replace(outcome, status=Status.FEASIBLE)
        return replace(outcome, points=points)


def _as_quick(dual: tuple[Point, ...], turned: tuple[Point, ...], size: int) -> bool:
    """Return True if what is proved of the time of the dual holds for what was turned round."""
    return all(
        keeps_times(other.schedule, size)
        and meets(simulate(other.schedule, size).time_us, simulate(one.schedule, size).time_us)
        for one, other in zip(dual, turned, strict=True)
    )


def keeps_times(schedule: Schedule, size: int) -> bool:
    """Return True if every schedule in these chunks takes as long as it takes turned round.

    A transfer turned round holds a resource later, by its arrival less its hold. Where that is the
    same for all transfers over the resource, none of them meets another that it did not meet.
    """
    m = hop_table_of(schedule.topology, Fraction(size, schedule.collective.message_chunks))
    later = np.repeat(m.arrives, np.diff(m.first)) - m.hold
    kinds = np.unique(np.stack([m.resource, later]), axis=1)
    return len(kinds[0]) == len(distinct_values(m.resource))


def _undone(problem: Problem, dual: Problem, schedule: Schedule) -> Schedule:
    """Steps, hops, routes and rounds reversed; arrivals of combining chunks are added up.

    The dual schedule is pruned first: a copy that is not needed would become a missing
    contribution's detour. Times do not survive. A multicast becomes a sum; casts are of
    collectives in which every rank has something to add.

    Raises:
        UserError: a schedule for another collective than the dual's, cut or not.
    """
    pieces = schedule.collective.factor // max(1, dual.collective.factor)
    if pieces < 1 or schedule.collective != dual.collective.split(pieces):
        raise UserError(f"expected a dual of {problem.collective}, got {schedule.collective}")
    steps = len(schedule.rounds) or schedule.steps
    tree = prune(schedule)
    columns, lengths = tree.columns(), np.diff(tree.route_start)
    collective = problem.collective.split(pieces)
    chunk, target = columns["chunk"][::-1], columns["src"][::-1]
    step = steps - 1 - columns["step"][::-1]
    # Last transfer first, and every route from its end: the links simply come backwards.
    turned = Schedule.from_columns(
        problem.topology,
        collective,
        chunk,
        columns["dst"][::-1],
        target,
        step,
        _adds(collective, chunk, target, step),
        lengths[::-1],
        columns["route_links"][::-1],
        provenance={**schedule.provenance, "reduction": "reverse"},
        casts=Casts.of(one.turned(steps - 1 - one.step) for one in tree.casts),
    )
    # An idle first step of the dual would be an idle last one: it falls off.
    rounds = schedule.rounds[::-1][: turned.steps]
    return replace(turned, rounds=rounds, bytes=schedule.bytes, segments=schedule.segments)


def reverse(problem: Problem) -> tuple[Problem, Callable[[Schedule], Schedule]]:
    """The dual problem on the reversed topology, and the way back of its schedules.

    Raises:
        UserError: the collective lacks a dual (a chunk with several destinations, contributions
            that overlap or are not all wanted, groups summed at home), or a rule of the sketch has
            none; it says which.
    """
    ends = _ends(problem.collective)
    collective = _dual_collective(problem.collective, ends)
    sketch = problem.sketch
    if sketch is not None:
        rules = tuple(x for rule in sketch.rules for x in _dual_rule(rule, problem, ends))
        named = str(collective.kind) if sketch.collective else ""
        sketch = replace(sketch, rules=rules, collective=named)
    dual = replace(
        problem, topology=problem.topology.reversed(), collective=collective, sketch=sketch
    )
    return dual, partial(_undone, problem, dual)


def _adds(c: Collective, chunk: Ints32, rank: Ints32, step: Ints32) -> Bools:
    """Which arrivals (sorted by step) are added to the rank's data.

    All, but the first at a place that starts empty; if several come first in one step, all.
    """
    holds = np.zeros(c.chunks * c.ranks, bool)
    holds[c.pre.chunks.astype(np.int64) * c.ranks + c.pre.ranks] = True
    place = chunk.astype(np.int64) * c.ranks + rank
    order = np.argsort(place, kind="stable")
    place, step = place[order], step[order]
    follows = np.append(False, np.diff(place) == 0)
    shares = np.append((np.diff(place) == 0) & (np.diff(step) == 0), False)[: len(place)]
    adds = np.empty(len(place), bool)
    adds[order] = holds[place] | follows[: len(place)] | shares
    return adds


# --- the collective -------------------------------------------------------------------------------


def _ends(c: Collective) -> Ints32:
    """Return the destination of each chunk (-1: none), after checking that there is a dual."""
    if c.local_reduce:
        raise UserError(f"{c}: groups that are summed at home cannot be turned round")
    wanted = np.bincount(c.post.chunks, minlength=c.chunks)
    if (wanted > 1).any():
        chunk = int(np.argmax(wanted > 1))
        held = {c.contributions[s] for s in c.pre.sets[c.pre.chunks == chunk].tolist()}
        asked = {c.contributions[s] for s in c.post.sets[c.post.chunks == chunk].tolist()}
        if asked <= held:
            raise UserError(
                f"{c}: chunk {chunk} is copied to {wanted[chunk]} ranks while others are summed",
                hint="make two collectives of it: one that copies, one that sums",
            )
        raise UserError(
            f"{c}: chunk {chunk} is summed for {wanted[chunk]} ranks; besides allreduce, this "
            "engine sums for one rank per chunk",
            hint="-e packing sums for all ranks that contribute, on up to 64 ranks; or sum it on "
            "one rank first, then broadcast it in a second collective",
        )
    ends = np.full(c.chunks, -1, np.int32)
    ends[c.post.chunks] = c.post.ranks
    sizes = np.array([len(s) for s in c.contributions], np.int64)
    target = np.zeros(c.chunks, np.int64)
    target[c.post.chunks] = sizes[c.post.sets]
    start = np.zeros(c.chunks, np.int64)
    np.add.at(start, c.pre.chunks, sizes[c.pre.sets])
    # Reachability was checked with the collective: the parts cover the target. So they are
    # disjoint, and nothing is left over, exactly if their sizes add up to its size.
    wrong = (target > 0) & (start != target)
    if wrong.any():
        chunk = int(np.argmax(wrong))
        raise UserError(
            f"{c}: chunk {chunk} starts with {start[chunk]} contributions and must end with "
            f"{target[chunk]}; a dual needs each of them exactly once"
        )
    return ends


def _dual_collective(c: Collective, ends: Ints32) -> Collective:
    """Every chunk from its destination to where its parts start."""
    sets = list(c.contributions)
    index = {s: i for i, s in reversed(list(enumerate(sets)))}
    single = np.zeros(c.ranks, np.int32)
    for rank in range(c.ranks):  # the set of each rank by itself
        single[rank] = index.setdefault(frozenset([rank]), len(sets))
        if single[rank] == len(sets):
            sets.append(frozenset([rank]))
    wanted = ends[c.pre.chunks] >= 0
    before, after = c.pre.rows()[wanted], c.post
    source = ends[before[:, 1]]
    return replace(
        c,
        kind=_DUAL.get(c.kind, Kind.CUSTOM),
        contributions=tuple(sets),
        pre=Placement(after.ranks, after.chunks, single[after.ranks], after.offsets),
        post=Placement(
            *(
                np.ascontiguousarray(x)
                for x in (before[:, 0], before[:, 1], single[source], before[:, 3])
            )
        ),
        name=f"{c.name} reversed" if c.name else "",
    )


# --- the sketch -----------------------------------------------------------------------------------


def _dual_rule(rule: Rule, problem: Problem, ends: Ints32) -> Iterator[Rule]:
    """Yield the rules of the dual for a rule. Peers, symmetry, chunks and limits are unchanged."""
    match rule:
        case Only() | Forbid():
            yield replace(rule, pairs=frozenset(map(_swap, rule.pairs)))
        case Relay():
            yield from _dual_relay(rule, problem, ends)
        case Phases():
            turned = (Phase(_TURNED.get(p.kind, p.kind), p.groups) for p in reversed(rule.phases))
            yield replace(rule, phases=tuple(turned), kind=_TURNED.get(rule.kind, rule.kind))
        case OwnFirst():
            raise UserError(
                f"the rule {rule.label!r} has no meaning for {problem.collective} turned round",
                where=rule.span,
                hint="an order of sends is for data that is copied",
            )
        case FixedSend():
            yield from _dual_send(rule, problem.collective, ends)
        case _:
            yield rule


_TURNED = {Kind.REDUCE_SCATTER: Kind.ALLGATHER, Kind.ALLGATHER: Kind.REDUCE_SCATTER}


def _swap(pair: Pair) -> Pair:
    return pair[1], pair[0]


def _dual_relay(rule: Relay, problem: Problem, ends: Ints32) -> Iterator[Rule]:
    """Yield the dual of a relay: chunks that leave a host by some pairs enter it by them.

    Where every chunk starts on every source, that is a rule on pairs alone. Where a chunk starts
    on one rank, it is one on single sends.
    """
    c, sources = problem.collective, sorted(rule.sources)
    started = {r: set(c.pre.chunks[c.pre.ranks == r].tolist()) for r in sources}
    wanted = set(np.flatnonzero(ends >= 0).tolist())
    host, every = problem.topology.host_of, range(problem.topology.ranks)
    around = {  # pairs from the host of a rank to other hosts
        r: {(u, v) for u in every for v in every if host[u] == host[r] != host[v]}
        - set(rule.through)
        for r in sources
    }
    starts = {tuple(sorted(c.pre.ranks[c.pre.chunks == k].tolist())) for k in wanted}
    if len(starts) == 1:
        # Every chunk starts on all these ranks, so the order of own and other data does not matter.
        (ranks,) = starts
        mine = set().union(*(around[r] for r in sources if r in ranks))
        assert problem.sketch is not None
        begin = np.isin(np.arange(c.ranks), ranks)
        bad = off_relays(problem.topology, problem.sketch, begin)
        barred = {(int(u), int(v)) for u, v in np.argwhere(bad)}
        pairs = frozenset(map(_swap, mine & barred))
        yield Forbid(label=rule.label, span=rule.span, pairs=pairs)
        return
    if c.combining or rule.own_first:
        raise UserError(
            f"the rule {rule.label!r} has no meaning for {c} turned round",
            where=rule.span,
            hint="relays for data that is summed can be written as forbidden links",
        )
    for rank in sources:
        for owner in sorted({int(ends[k]) for k in started[rank] & wanted}):
            for pair in sorted(around[rank]):
                yield FixedSend(
                    label=rule.label,
                    span=rule.span,
                    owner=owner,
                    pair=_swap(pair),
                    must=False,
                    target=rank,
                )


def _dual_send(rule: FixedSend, c: Collective, ends: Ints32) -> Iterator[Rule]:
    if rule.step is not None:
        raise UserError(
            f"the rule {rule.label!r} names a step; {c} is solved backwards, where steps "
            "cannot be counted from the beginning",
            where=rule.span,
            hint="leave the step out",
        )
    mine = c.pre.chunks[c.pre.ranks == rule.owner]
    targets = {int(d) for d in ends[mine] if d >= 0 and rule.target in (None, d)}
    for owner in sorted(targets):
        yield replace(rule, owner=owner, target=rule.owner, pair=_swap(rule.pair))
