"""The search for allreduces with casts: steps against rounds per chunk, with proofs.

What is proved here holds for schedules of the space (:mod:`.sums`) and for no others: an allreduce
may also sum one chunk at several places. So a point's own bound is the one for all schedules, of
any number of steps, and the least of the space is reported in words.

In CP-SAT, what every rank holds of a piece leaves once and arrives once. For each piece, rank v and
step t (t = 0: before the first):

    waits[v, t-1] = waits[v, t] + Σ sends and sums that take what v holds in step t
                    + start[v, t-1] + Σ turns of step t with v      (waits[v, 0] = 1, at the end 0)
    what is added to u in step t needs waits[u, t]
    have[v, t] = have[v, t-1] + Σ sends and copies that bring the result in step t
                 + start[v, t] + Σ turns of step t with v           (have[v, 0] = 0, at the end 1)
    what brings the result from u in step t needs have[u, t-1]
    Σ start + Σ turns = 1

``start[v, t]``: the piece is summed at v, whose last part came in step t or before. So the
transfers of a piece are a tree to one place and a tree from it. Both load the same rounds. A sum
that its issuer stores meets nothing else in its step there. Pieces are alike: their places are in
order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import Infeasible, NothingFound
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, Transfer

from ...base.engine import Outcome, Point, Status
from ...base.meter import Meter
from ...bounds.bounds import Bounds, bounds
from ...solvers import cp_sat
from ...solvers.cp_sat import CpModel, Term
from ...time.order import LARGE
from ...time.schedule_time import simulate
from ..packing.casts.schedule import planned
from ..packing.casts.search import CAST_EFFORT, in_slices
from .casts import CastSpace
from .frontier import candidates, without_empty_steps
from .instance import ExactQuestion, ExactRun, Space
from .realize import Realization, SolverVerdict, answered, round_variables, sum_of
from .sums import SumSpace, columns_of, moved, sum_bound, sum_spaces, summed

CLASS = (
    "where every chunk is summed at one rank or in one switch and spread from there, each cast "
    "over one switch or over a tree to all ranks"
)


@dataclass(frozen=True)
class SumSearch:
    """The search of one allreduce; ``spaces`` are tried in turn, the last without symmetry."""

    problem: Problem
    spaces: tuple[SumSpace, ...]
    static: Bounds
    factor: int | None
    max_chunks: int
    run: ExactRun

    def least(self, steps: int, meter: Meter) -> Fraction | None:
        """Lower bound on rounds per chunk of S steps; None if they are too few for any schedule.

        Raises:
            NothingFound: that is not known with half of what is left.
        """
        space = self.spaces[0]
        if columns_of(space, steps) > self.run.effort.most_columns:
            raise NothingFound("the linear program of the sums is too large")
        try:
            flow = sum_bound(space, steps, meter.part(0.5))
        except Infeasible:
            return None
        return max(flow.rounds_per_chunk, self.static.rounds_per_chunk)

    def questions(self, space: SumSpace, steps: int, lower: Fraction) -> Iterator[tuple[int, int]]:
        """Yield (chunks, rounds), best ratio first; chunks are whole orbits of the symmetries."""
        part = space.order
        if self.factor is not None and self.factor % part:
            return
        factor = None if self.factor is None else self.factor // part
        limits = factor, self.max_chunks // part, self.run.effort
        for pieces, rounds in candidates(*limits, steps, lower * part):
            yield pieces * part, rounds

    def realized(
        self, steps: int, lower: Fraction, worst: Fraction | None, meter: Meter
    ) -> tuple[Realization, int] | None:
        """Return the first answer that is better than ``worst``, and its chunks."""
        for space in self.spaces:
            for chunks, rounds in self.questions(space, steps, lower):
                if meter.over() or (worst is not None and Fraction(rounds, chunks) >= worst):
                    break
                self.run.observer.stage(
                    f"{steps} steps: {rounds} rounds for {chunks} chunks, with casts"
                )
                question = ExactQuestion(chunks, steps, rounds)
                share = meter.part(self.run.effort.question_share)
                answer = _solve(space, question, share, self.run)
                if answer.verdict is SolverVerdict.YES:
                    return answer, chunks
        return None

    def point(self, answer: Realization, chunks: int, meter: Meter) -> Point:
        """Return the point of an answer, with the bound for all schedules.

        First come first served lets sums of all steps go before what is copied; so the order of
        steps is tried, too, and for a time at one size slices.
        """
        answer = without_empty_steps(answer)
        schedule = Schedule.of(
            self.problem.topology,
            self.problem.collective.split(chunks),
            answer.transfers,
            rounds=answer.rounds,
            casts=answer.casts,
        )
        size = self.problem.bytes or LARGE
        if self.problem.objective is Objective.TIME:
            _, schedule = in_slices(schedule, size, meter, CAST_EFFORT.of(self.problem))
        else:
            orders = schedule, planned(schedule, 1)
            schedule = min(orders, key=lambda one: simulate(one, size).time_us)
        value, static = Fraction(sum(answer.rounds), chunks), self.static
        return Point(
            schedule,
            schedule.steps,
            sum(answer.rounds),
            chunks,
            static.rounds_per_chunk,
            static.certificate,
            bandwidth_optimal=value == static.rounds_per_chunk,
        )


def search_sums(
    problem: Problem,
    max_chunks: int,
    max_steps: int,
    factor: int | None,
    meter: Meter,
    run: ExactRun,
) -> Outcome:
    """Return the best schedules of ever more steps, each with fewer rounds per chunk."""
    topology = problem.topology
    spaces = sum_spaces(topology)
    most = max_chunks * max(space.order for space in spaces)
    static = bounds(topology, problem.collective)
    search = SumSearch(problem, spaces, static, factor, most, run)
    points: list[Point] = []
    words: list[str] = []
    first: int | None = None
    steps, worst = 0, None
    while not meter.over() and worst != static.rounds_per_chunk:
        steps += 1
        if steps > (max_steps or (first or topology.ranks) + 4):
            break
        try:
            lower = search.least(steps, meter)
        except NothingFound as error:
            words.append(f"{count(steps, 'step')} unknown ({error})")
            break
        if lower is None:
            continue
        first = first or steps
        if worst is None or lower < worst:
            found = search.realized(steps, lower, worst, meter)
            if found is not None:
                point = search.point(*found, meter)
                points.append(replace(point, step_optimal=point.steps == static.steps))
                worst = point.rounds_per_chunk
                run.observer.incumbent(points[-1])
        words.append(_proved(steps, lower, worst))
        if problem.objective is Objective.LATENCY and points:
            break
    least = f"the least rounds per chunk {CLASS}: {', '.join(words)}"
    return _outcome(problem, points, (least,) if words else ())


def _proved(steps: int, lower: Fraction, worst: Fraction | None) -> str:
    found = "" if worst == lower else f" (found {worst or 'none'})"
    return f"{count(steps, 'step')} {lower}{found}"


def _outcome(problem: Problem, points: list[Point], words: tuple[str, ...]) -> Outcome:
    if not points:
        return Outcome(Status.NOTHING, statements=words)
    if problem.objective is Objective.BANDWIDTH:
        points = points[-1:]
    status = Status.OPTIMAL if points[-1].bandwidth_optimal else Status.FEASIBLE
    return Outcome(status, tuple(points), words)


# --- sums_model ----------------------------------------------------------------------------------


SUBSOLVERS = ("max_lp",)
"""Loads bind everywhere at once here, and the linear relaxation finds a fit: four ranks with
NVLS, 12 chunks in 16 rounds and four steps take an effort of 0.05 so, and are not found with 2 by
the race of :mod:`.realize`."""

Moves = dict[tuple[int, int], int]
"""Variables by the number of a hop, an offer, a branch, a turn or a rank, and the step."""


@dataclass(slots=True)
class _PieceMoves:
    up: Moves = field(default_factory=dict)
    down: Moves = field(default_factory=dict)
    sums: Moves = field(default_factory=dict)
    parts: Moves = field(default_factory=dict)
    casts: Moves = field(default_factory=dict)
    copies: Moves = field(default_factory=dict)
    start: Moves = field(default_factory=dict)
    turns: Moves = field(default_factory=dict)


class _SumModel:
    def __init__(self, space: SumSpace, question: ExactQuestion) -> None:
        self.space, self.question, self.steps = space, question, question.steps
        self.model = CpModel()
        self.rounds = round_variables(self.model, question)
        self.src, self.dst = (column.tolist() for column in space.ends())
        self.pieces = [self._piece() for _ in range(question.factor // space.order)]
        for one, other in pairwise(self.pieces):
            self.model.linear(
                [*self._place(other), *((x, -k) for x, k in self._place(one))], least=0
            )
        self._capacity()

    def _new(self, count: int, first: int, last: int) -> Moves:
        steps = range(first, last + 1)
        return {(i, t): self.model.boolean() for i in range(count) for t in steps}

    def _piece(self) -> _PieceMoves:
        """Return the variables of a piece, with all constraints but loads."""
        space, last = self.space, self.steps
        hops = len(space.hops.hops)
        # Before a place there is a step at least, and behind one; a turn is a step of its own.
        one = _PieceMoves(self._new(hops, 1, last - 1), self._new(hops, 2, last))
        one.sums, one.parts = self._offered(space.up, 1, last - 1)
        one.casts, one.copies = self._offered(space.casts, 2, last)
        steps = range(1, last)
        one.start = {(v, t): self.model.boolean() for v in space.roots for t in steps}
        one.turns = self._new(len(space.turns), 1, last)
        self.model.one_of([*one.start.values(), *one.turns.values()])
        self._gather(one)
        self._spread(one)
        return one

    def _offered(self, casts: CastSpace, first: int, last: int) -> tuple[Moves, Moves]:
        """Return variables of casts and of their branches; of whole ones the cast's own."""
        issued = self._new(len(casts.offers), first, last)
        reached = self._new(len(casts.branches), first, last)
        for i, offer in enumerate(casts.offers):
            branches = casts.branches_of(i)
            for t in range(first, last + 1) if branches else ():
                for j in branches:
                    self.model.implies(reached[j, t], issued[i, t])
                copies = sum_of([reached[j, t] for j in branches])
                self.model.linear([*copies, (issued[i, t], -offer.least)], least=0)
        return issued, reached

    def _members(
        self, casts: CastSpace, issued: Moves, reached: Moves, t: int
    ) -> Iterator[tuple[int, int, int]]:
        """Yield issuer, member and variable of all that casts of a step bring or take."""
        for i, offer in enumerate(casts.offers):
            if offer.whole and (i, t) in issued:
                yield from ((offer.issuer, v, issued[i, t]) for v, _ in offer.branches)
        for j, (i, v) in enumerate(casts.branches):
            if (j, t) in reached:
                yield casts.offers[i].issuer, v, reached[j, t]

    def _turned(self, one: _PieceMoves, t: int) -> Iterator[tuple[int, int]]:
        for k, turn in enumerate(self.space.turns):
            yield from ((v, one.turns[k, t]) for v in turn.members)

    def _gather(self, one: _PieceMoves) -> None:
        ranks, last, space = range(self.space.topology.ranks), self.steps, self.space
        waits = {(v, t): self.model.boolean() for v in ranks for t in range(1, last)}
        for t in range(1, last + 1):
            leaves: dict[int, list[int]] = defaultdict(list)
            added: dict[int, list[int]] = defaultdict(list)
            hops = [(self.dst[h], self.src[h], x) for (h, s), x in one.up.items() if s == t]
            for u, v, send in (*hops, *self._members(space.up, one.sums, one.parts, t)):
                leaves[v].append(send)
                added[u].append(send)
                self.model.implies(send, waits[u, t])
            for v, turn in self._turned(one, t):
                leaves[v].append(turn)
            for v in ranks:
                start = [one.start[v, t - 1]] if (v, t - 1) in one.start else []
                now = [waits[v, t]] if t < last else []
                terms = sum_of([*now, *leaves[v], *start])
                if t == 1:
                    self.model.linear(terms, least=1, most=1)
                else:
                    self.model.linear([*terms, (waits[v, t - 1], -1)], least=0, most=0)
            self._stored_alone(one, t, hops)

    def _stored_alone(self, one: _PieceMoves, t: int, hops: Sequence[tuple[int, int, int]]) -> None:
        """A sum that its issuer stores meets no other in the same step there."""
        offers = self.space.up.offers
        here = [(i, x) for (i, s), x in one.sums.items() if s == t]
        for i, x in here:
            if not offers[i].back:
                continue
            u = offers[i].issuer
            others = [y for k, y in here if k != i and offers[k].issuer == u]
            for y in (*others, *(send for to, _, send in hops if to == u)):
                self.model.implies(x, ~y)

    def _spread(self, one: _PieceMoves) -> None:
        ranks, last, space = range(self.space.topology.ranks), self.steps, self.space
        have = {(v, t): self.model.boolean() for v in ranks for t in range(1, last)}
        for t in range(1, last + 1):
            arrives: dict[int, list[int]] = defaultdict(list)
            hops = [(self.src[h], self.dst[h], x) for (h, s), x in one.down.items() if s == t]
            for u, v, send in (*hops, *self._members(space.casts, one.casts, one.copies, t)):
                arrives[v].append(send)
                self.model.implies(send, have[u, t - 1])
            for v, turn in self._turned(one, t):
                arrives[v].append(turn)
            for v in ranks:
                start = [one.start[v, t]] if (v, t) in one.start else []
                before = [have[v, t - 1]] if t > 1 else []
                terms = sum_of([*before, *arrives[v], *start])
                if t == last:
                    self.model.linear(terms, least=1, most=1)
                else:
                    self.model.linear([*terms, (have[v, t], -1)], least=0, most=0)

    def _place(self, one: _PieceMoves) -> list[Term]:
        ranks = self.space.topology.ranks
        places = [(x, v) for (v, _), x in one.start.items() if v]
        return places + [(x, ranks + k) for (k, _), x in one.turns.items()]

    # --- loads ------------------------------------------------------------------------------------

    def _capacity(self) -> None:
        if self.rounds is None:
            return
        space, seen = self.space, set[bytes]()
        for resource, room in enumerate(space.capacity.tolist()):
            rows = [loads[resource] for loads in self._loads()]
            signature = b"".join(x.tobytes() for x in rows) + str(room).encode()
            if signature in seen or not any(x.any() for x in rows):
                continue
            seen.add(signature)
            load: dict[int, list[Term]] = defaultdict(list)
            for piece in self.pieces:
                for row, moves in zip(rows, self._moves(piece), strict=True):
                    for (i, t), x in moves.items():
                        if row[i]:
                            load[t].append((x, int(row[i]) * space.per_chunk))
            for t, terms in load.items():
                self.model.linear([*terms, (self.rounds[t - 1], -room)], most=0)

    def _loads(self) -> tuple[Ints, ...]:
        space = self.space
        ways = (space.up.always, space.up.own, space.casts.always, space.casts.own)
        return (space.loads, space.loads, *ways, space.turning)

    @staticmethod
    def _moves(one: _PieceMoves) -> tuple[Moves, ...]:
        return one.up, one.down, one.sums, one.parts, one.casts, one.copies, one.turns


def _solve(space: Space, question: ExactQuestion, meter: Meter, run: ExactRun) -> Realization:
    """Answer one question with CP-SAT, as :func:`.realize.solve` does for copies."""
    assert isinstance(space, SumSpace)
    if question.factor % space.order:
        return Realization(SolverVerdict.UNKNOWN)
    ways = 2 * len(space.hops.hops) + sum(
        len(x.offers) + len(x.branches) for x in (space.up, space.casts)
    )
    sends = ways * question.steps * (question.factor // space.order)
    if sends > run.effort.most_sends or sends * cp_sat.STEPS_PER_TERM > meter.left:
        return Realization(SolverVerdict.UNKNOWN)
    built = _SumModel(space, question)
    read = partial(_read, built)
    return answered(built.model, read, SUBSOLVERS, meter.left, meter, run)


def _read(built: _SumModel, values: Sequence[int]) -> Realization:
    space = built.space
    transfers: list[Transfer] = []
    casts: list[Cast] = []
    for number, piece in enumerate(built.pieces):
        mine = list(_transfers(space, piece, values)), list(_casts(space, piece, values))
        images = zip(space.orbits.images, space.orbits.link_images, strict=True)
        for g, (nodes, links) in enumerate(images):
            chunk = number * space.order + g
            for one in mine[0]:
                route = tuple(links[list(one.route)].tolist())
                src, dst = int(nodes[one.src]), int(nodes[one.dst])
                transfers.append(Transfer(chunk, src, dst, route, one.step, one.reduce))
            for cast in mine[1]:
                casts.append(replace(moved(cast, nodes, links), chunk=chunk))
    rounds = tuple(values[r] for r in built.rounds or ())
    return Realization(SolverVerdict.YES, tuple(transfers), rounds, tuple(casts))


def _transfers(space: SumSpace, one: _PieceMoves, values: Sequence[int]) -> Iterator[Transfer]:
    for moves, adds in ((one.up, True), (one.down, False)):
        for (h, t), x in moves.items():
            if values[x]:
                hop = space.hops.hops[h]
                yield Transfer(0, hop.src, hop.dst, hop.route, t - 1, adds)


def _casts(space: SumSpace, one: _PieceMoves, values: Sequence[int]) -> Iterator[Cast]:
    for (i, t), x in one.sums.items():
        if values[x]:
            offer = space.up.offers[i]
            yield summed(offer, 0, _got(space.up, i, one.parts, t, values), t - 1)
    for (i, t), x in one.casts.items():
        if values[x]:
            offer = space.casts.offers[i]
            yield offer.cast(0, _got(space.casts, i, one.copies, t, values), t - 1)
    for (k, t), x in one.turns.items():
        if values[x]:
            yield space.turns[k].cast(0, t - 1)


def _got(casts: CastSpace, offer: int, reached: Moves, t: int, values: Sequence[int]) -> list[int]:
    """Return the ranks that take part in a cast beside its issuer."""
    if casts.offers[offer].whole:
        return [v for v, _ in casts.offers[offer].branches]
    return [casts.branches[j][1] for j in casts.branches_of(offer) if values[reached[j, t]]]
