"""Realize a point by CP-SAT: SCCL's k-synchronous problem, time-expanded, in Booleans only.

``send[item, piece, hop, step]`` and ``have[item, piece, rank, step]``:

    have[v, t] = have[v, t-1] + Σ sends into v in step t          (so a chunk arrives once)
    send[(u, v), t] <= have[u, t-1]                               (a step reads what held before)
    Σ sends over a resource in step t <= capacity[resource] · rounds[t],    Σ rounds = R

(Cai et al., "Synthesizing Optimal Collective Algorithms", PPoPP'21, solved there with integer
times in z3; see :mod:`.paper`.) Pairs that a symmetry makes equal share one variable, and only
one item of each orbit has constraints. Where switches copy, casts bring chunks
too (:class:`CastVariables`): ``issued[item, piece, offer, step]``: the offer's issuer copies in
this step; ``reached[item, piece, branch, step]``: a rank gets the copy. In every step

    reached <= issued,    Σ reached >= least · issued,    both load the links of their own

An offer that is used whole lacks ``reached``. A rank whose own copy crosses the switch does
nothing else with a piece in the step of its cast: turned round it stores a sum, beside which
nothing can be added to what it holds.

CP-SAT races subsolvers. Feasibility jump finds most satisfiable points within milliseconds (a
lone worker does not run it: 50 times slower), clause learning refutes the others. The race is
interleaved in deterministic slices, so that a seed means one schedule; the subsolvers of
:data:`SUBSOLVERS` are about as fast so as all of them are in a free race.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.schedule import Transfer

from ...base.meter import STEPS, Meter
from ...solvers import cp_sat
from ...solvers.cp_sat import CpModel, Term
from ...solvers.pool import Listener
from .casts import CastOffer
from .instance import ExactQuestion, ExactRun, PathLimit, Space, possible

SUBSOLVERS = ("fj*", "no_lp", "fs_random*")


class SolverVerdict(StrEnum):
    """Verdict of a solver on one instance."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Realization:
    """Transfers and casts of plain items turned into chunk numbers of the split collective, and
    rounds."""

    verdict: SolverVerdict
    transfers: tuple[Transfer, ...] = ()
    rounds: tuple[int, ...] = ()
    casts: tuple[Cast, ...] = ()


Key = tuple[int, int, int]
"""(class of the (item, hop), (item, offer) or (item, branch) pair, piece, step)."""


class _CpSatModel:
    def __init__(self, space: Space, question: ExactQuestion) -> None:
        self.space, self.question = space, question
        self.model = CpModel()
        self.sends: dict[Key, int] = {}
        self.src, self.dst = space.ends()
        self.classes = space.pair_class.reshape(space.items, len(space.hops.hops))
        self.rounds = round_variables(self.model, question)
        self.casts = CastVariables(self.model, space, question)
        for item in space.representatives():
            self._create(item)
            self.casts.create(item)
        for item in space.representatives():
            for piece in range(question.factor):
                self._travel(item, piece)
        self._capacity()
        self._pin_sends()
        self.peers_used = self._peers()

    def _create(self, item: int) -> None:
        for step in range(1, self.question.steps + 1):
            for hop in possible(self.space, item, step, self.question.steps).tolist():
                for piece in range(self.question.factor):
                    key = (int(self.classes[item, hop]), piece, step)
                    if key not in self.sends:
                        self.sends[key] = self.model.boolean()

    def _travel(self, item: int, piece: int) -> None:
        """One chunk: where it is after each step, and that it can only leave from there."""
        space, steps = self.space, self.question.steps
        have: dict[int, int] = {}
        targets = set(space.targets[item])
        arrivals: dict[int, list[int]] = {}
        for step in range(1, steps + 1):
            into: dict[int, list[int]] = {}
            leaving: dict[int, list[int]] = {}
            for hop in possible(space, item, step, steps).tolist():
                send = self.sends[int(self.classes[item, hop]), piece, step]
                u, v = int(self.src[hop]), int(self.dst[hop])
                self._leaves(send, u, item, have)
                leaving.setdefault(u, []).append(send)
                into.setdefault(v, []).append(send)
            for one in self.casts.of(item, piece, step, leaving):
                self._leaves(one.issued, one.issuer, item, have)
                for v, arrival in one.reached:
                    into.setdefault(v, []).append(arrival)
            for v, sends in into.items():
                arrivals.setdefault(v, []).extend(sends)
                if step == steps:
                    continue
                before = have.get(v)
                have[v] = now = self.model.boolean()
                held = [] if before is None else [before]
                self.model.linear([*sum_of([*sends, *held]), (now, -1)], least=0, most=0)
        for v, sends in arrivals.items():
            if v in targets:
                self.model.one_of(sends)
            else:
                self.model.at_most_one(sends)
        if targets - arrivals.keys():
            self.model.any_of([])
        for limit in space.limits:
            if steps * limit.lengths.max(initial=0) > limit.longest[item].min():
                self._depth(item, piece, limit)

    def _leaves(self, send: int, u: int, item: int, have: dict[int, int]) -> None:
        """Require that data is on a rank before it leaves."""
        if u in self.space.sources[item]:
            return
        if u in have:
            self.model.implies(send, have[u])
        else:
            self.model.all_of([~send])

    def _depth(self, item: int, piece: int, limit: PathLimit) -> None:
        """Constrain the path length of one chunk along its tree to the limit."""
        space, steps = self.space, self.question.steps
        far = steps * int(limit.lengths.max(initial=0))
        depth = [self.model.integer(0, min(far, most)) for most in limit.longest[item].tolist()]
        for v in space.sources[item]:
            self.model.linear([(depth[v], 1)], least=0, most=0)
        for step in range(1, steps + 1):
            for hop in possible(space, item, step, steps).tolist():
                send = self.sends[int(self.classes[item, hop]), piece, step]
                u, v = int(self.src[hop]), int(self.dst[hop])
                further = [(depth[v], 1), (depth[u], -1)]
                self.model.linear(further, least=int(limit.lengths[hop]), only_if=send)

    def _capacity(self) -> None:
        if self.rounds is None:
            return
        space = self.space
        # Resources of one orbit carry the same load: the first stands for all. Identical ones too.
        seen: set[bytes] = set()
        for resource in range(len(space.capacity)):
            counts = _by_class(self.classes, space.loads[resource])
            of_casts = self.casts.loads_of(resource)
            signature = counts.tobytes() + int(space.capacity[resource]).to_bytes(8, "little")
            signature += b"".join(load.tobytes() for load in of_casts)
            if signature in seen:
                continue
            seen.add(signature)
            terms = [(int(c), int(counts[c])) for c in np.flatnonzero(counts)]
            for step in range(1, self.question.steps + 1):
                load = [
                    (self.sends[c, piece, step], count)
                    for c, count in terms
                    for piece in range(self.question.factor)
                    if (c, piece, step) in self.sends
                ]
                load += self.casts.loads_in(of_casts, step)
                if load:
                    room = (self.rounds[step - 1], -int(space.capacity[resource]))
                    total = [(v, k * space.per_chunk) for v, k in load]
                    self.model.linear([*total, room], most=0)

    def _pin_sends(self) -> None:
        """Sends that must, or must not, happen."""
        for rule in self.space.pinned:
            meant = [
                (item, piece)
                for item, chunk in enumerate(self.space.chunk_of)
                if chunk in rule.chunks
                for piece in self._pieces(item, rule.piece)
            ]
            if rule.must and not meant:
                self.model.any_of([])  # missing chunk
            steps = range(1, self.question.steps + 1) if rule.step is None else [rule.step]
            for item, piece in meant:
                found = [
                    self.sends[key]
                    for hop in rule.hops
                    for step in steps
                    if (key := (int(self.classes[item, hop]), piece, step)) in self.sends
                ]
                if rule.must:
                    self.model.any_of(found)
                else:
                    self.model.all_of([~x for x in found])

    def _pieces(self, item: int, piece: int | None) -> list[int]:
        """The pieces of an item that a rule means: all, or the one with a number in its unit."""
        factor = self.question.factor
        if piece is None:
            return list(range(factor))
        # The unit is cut in given * factor pieces, this item's come after those before it.
        own = piece - self.space.chunk_of[item] % self.space.given * factor
        return [own] if 0 <= own < factor else []

    def _peers(self) -> list[int]:
        """Which pairs a policy covers are used at all; limits on them; those to minimise."""
        to_minimise: list[int] = []
        for policy in self.space.peers:
            used: dict[tuple[int, int], int] = {}
            members: dict[tuple[int, int], set[int]] = {}
            for hop in policy.hops:
                pair = (int(self.src[hop]), int(self.dst[hop]))
                members.setdefault(pair, set()).update(self.classes[:, hop].tolist())
            by_class: dict[int, list[tuple[int, int]]] = {}
            for pair, classes in members.items():
                used[pair] = self.model.boolean()
                for c in classes:
                    by_class.setdefault(c, []).append(pair)
            for (c, _, _), send in self.sends.items():
                for pair in by_class.get(c, ()):
                    self.model.implies(send, used[pair])
            if policy.limit is None:
                to_minimise += used.values()
                continue
            for rank in range(self.space.topology.ranks):
                for side in (0, 1):
                    mine = [x for pair, x in used.items() if pair[side] == rank]
                    self.model.linear(sum_of(mine), most=policy.limit)
        return to_minimise


def solve(space: Space, question: ExactQuestion, meter: Meter, run: ExactRun) -> Realization:
    """Answer one question with CP-SAT; YES carries transfers that the caller still verifies."""
    ways = len(space.hops.hops) + len(space.casts.offers) + len(space.casts.branches)
    sends = space.items * ways * question.steps * question.factor
    # A model has a term or more per send: to write one takes effort that smaller ones would need.
    if sends > run.effort.most_sends or sends * cp_sat.STEPS_PER_TERM > meter.left:
        return Realization(SolverVerdict.UNKNOWN)
    built = _CpSatModel(space, question)
    steps = meter.left
    if built.peers_used and not question.fewest:
        built.model.minimize(sum_of(built.peers_used))
        steps = min(steps, round(run.effort.peers_effort * STEPS))
    return answered(built.model, partial(_read, built), SUBSOLVERS, steps, meter, run)


def answered(
    model: CpModel,
    read: Callable[[Sequence[int]], Realization],
    race: Sequence[str],
    steps: int,
    meter: Meter,
    run: ExactRun,
) -> Realization:
    """Return CP-SAT's findings for a model in ``steps``; ``read``: the meaning of values;
    ``race``: its subsolvers."""
    answer = cp_sat.solve(
        model,
        steps=steps,
        seed=run.seed,
        race=race,
        listener=Listener(run.observer.cancelled, run.observer.stage),
    )
    meter.spend(answer.steps)
    if answer.verdict is cp_sat.CpVerdict.INFEASIBLE:
        return Realization(SolverVerdict.NO)
    if not answer.found:
        return Realization(SolverVerdict.UNKNOWN)
    return read(answer.values)


def round_variables(model: CpModel, question: ExactQuestion) -> list[int] | None:
    """Return the rounds of each step, which add up to those of the question; None: no matter."""
    if question.rounds is None:
        return None
    slack = question.rounds - question.steps
    rounds = [model.integer(1, 1 + slack) for _ in range(question.steps)]
    if question.fewest:
        model.linear(sum_of(rounds), most=question.rounds)
        model.minimize(sum_of(rounds))
    else:
        model.linear(sum_of(rounds), least=question.rounds, most=question.rounds)
    return rounds


def sum_of(variables: Sequence[int]) -> list[cp_sat.Term]:
    """Return the terms of a plain sum."""
    return [(x, 1) for x in variables]


def _read(built: _CpSatModel, values: Sequence[int]) -> Realization:
    space, factor = built.space, built.question.factor
    chosen: dict[int, list[tuple[int, int]]] = {}
    for (c, piece, step), variable in built.sends.items():
        if values[variable]:
            chosen.setdefault(c, []).append((piece, step))
    transfers = []
    for item, hop in np.argwhere(np.isin(built.classes, list(chosen))).tolist():
        for piece, step in chosen[int(built.classes[item, hop])]:
            h = space.hops.hops[hop]
            chunk = space.chunk_of[item] * factor + piece
            transfers.append(Transfer(chunk, h.src, h.dst, h.route, step - 1))
    rounds = tuple(values[r] for r in built.rounds or ())
    return Realization(SolverVerdict.YES, tuple(transfers), rounds, built.casts.read(values))


# --- cast_model ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PossibleCast:
    """A cast of one piece in one step: its receivers, with the variable of each arrival."""

    offer: CastOffer
    issued: int
    reached: tuple[tuple[int, int], ...]

    @property
    def issuer(self) -> int:
        """Return the rank that sends."""
        return self.offer.issuer


class CastVariables:
    """The variables of all casts of a model."""

    def __init__(self, model: CpModel, space: Space, question: ExactQuestion) -> None:
        self.model, self.space, self.question = model, space, question
        self.issued: dict[Key, int] = {}
        self.reached: dict[Key, int] = {}
        offers = space.casts.offers
        self.branches = [space.casts.branches_of(i) for i in range(len(offers))]

    def create(self, item: int) -> None:
        """Make the variables of an item."""
        casts = self.space.casts
        for step in range(1, self.question.steps + 1):
            for offer, branches in self._useful(item, step):
                for piece in range(self.question.factor):
                    self._variable(self.issued, (int(casts.issued[item, offer]), piece, step))
                    for j in branches:
                        self._variable(self.reached, (int(casts.reached[item, j]), piece, step))

    def _variable(self, of: dict[Key, int], key: Key) -> None:
        if key not in of:
            of[key] = self.model.boolean()

    def _useful(self, item: int, step: int) -> list[tuple[int, list[int]]]:
        """Offers that an item may use in a step, with the branches that bring it something."""
        space, casts, left = self.space, self.space.casts, self.question.steps - step
        sources = space.sources[item]
        found: list[tuple[int, list[int]]] = []
        for i, one in enumerate(casts.offers):
            if space.tail[item][one.issuer] > step - 1:
                continue
            if one.whole:
                if all(v not in sources for v, _ in one.branches):
                    found.append((i, []))
                continue
            ranks = [(j, casts.branches[j][1]) for j in self.branches[i]]
            good = [j for j, v in ranks if v not in sources and space.head[item][v] <= left]
            if len(good) >= one.least:
                found.append((i, good))
        return found

    def of(
        self, item: int, piece: int, step: int, leaving: dict[int, list[int]]
    ) -> list[PossibleCast]:
        """Return the casts that a piece of an item may use in a step, and require what makes them
        casts; ``leaving``: other sends of the piece by each rank in this step."""
        found = self._possible(item, piece, step)
        for one in found:
            leaving.setdefault(one.issuer, []).append(one.issued)
        for one in found:
            self._require(one, [x for x in leaving[one.issuer] if x != one.issued])
        return found

    def _possible(self, item: int, piece: int, step: int) -> list[PossibleCast]:
        casts, found = self.space.casts, []
        for i, branches in self._useful(item, step):
            one = casts.offers[i]
            issued = self.issued[int(casts.issued[item, i]), piece, step]
            reached = [
                (casts.branches[j][1], self.reached[int(casts.reached[item, j]), piece, step])
                for j in branches
            ]
            if one.whole:
                reached = [(v, issued) for v, _ in one.branches]
            found.append(PossibleCast(one, issued, tuple(reached)))
        return found

    def _require(self, one: PossibleCast, others: Sequence[int]) -> None:
        if not one.offer.whole:
            for _, arrival in one.reached:
                self.model.implies(arrival, one.issued)
            copies = [(arrival, 1) for _, arrival in one.reached]
            self.model.linear([*copies, (one.issued, -one.offer.least)], least=0)
        if one.offer.back:
            for send in others:
                self.model.implies(one.issued, ~send)

    # --- loads ------------------------------------------------------------------------------------

    def loads_of(self, resource: int) -> tuple[Ints, Ints]:
        """Return the copies on a resource by each class of ``issued`` and of ``reached``."""
        casts = self.space.casts
        return (
            _by_class(casts.issued, casts.always[resource]),
            _by_class(casts.reached, casts.own[resource]),
        )

    def loads_in(self, loads: tuple[Ints, Ints], step: int) -> list[Term]:
        """Return the terms of one step."""
        return [
            (of[key], int(load[c]))
            for load, of in zip(loads, (self.issued, self.reached), strict=True)
            for c in np.flatnonzero(load).tolist()
            for piece in range(self.question.factor)
            if (key := (c, piece, step)) in of
        ]

    # --- the answer -------------------------------------------------------------------------------

    def read(self, values: Sequence[int]) -> tuple[Cast, ...]:
        """Return the casts of a solution."""
        space, factor, found = self.space, self.question.factor, []
        for (c, piece, step), variable in self.issued.items():
            if not values[variable]:
                continue
            for item, i in np.argwhere(space.casts.issued == c).tolist():
                one = space.casts.offers[i]
                chunk = space.chunk_of[item] * factor + piece
                found.append(one.cast(chunk, self._got(values, item, i, piece, step), step - 1))
        return tuple(found)

    def _got(
        self, values: Sequence[int], item: int, offer: int, piece: int, step: int
    ) -> list[int]:
        casts, one = self.space.casts, self.space.casts.offers[offer]
        if one.whole:
            return [v for v, _ in one.branches]
        got = []
        for j in self.branches[offer]:
            variable = self.reached.get((int(casts.reached[item, j]), piece, step))
            if variable is not None and values[variable]:
                got.append(casts.branches[j][1])
        return got


def _by_class(classes: Ints, loads: Ints) -> Ints:
    """Return the sum of loads over the members of each class; ``loads`` are those of a column."""
    weights = np.broadcast_to(loads, classes.shape)
    size = int(classes.max(initial=-1)) + 1
    found = np.bincount(classes.ravel(), weights=weights.ravel(), minlength=size)
    return found.astype(np.int64)
