"""The casts of the exact engine in a model of CP-SAT.

``issued[item, piece, offer, step]``: the offer's issuer copies in this step;
``reached[item, piece, branch, step]``: a rank gets the copy. In every step

    reached <= issued,    Σ reached >= least · issued,    both load the links of their own

An offer that is used whole has no ``reached``. A rank whose own copy crosses the switch does
nothing else with a piece in the step of its cast: turned round it stores a sum, beside which
nothing can be added to what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import Cast

from ...solvers.cp_sat import CpModel, Term
from .casts import CastOffer
from .instance import ExactQuestion, Space

Key = tuple[int, int, int]
"""(class of the (item, offer) or (item, branch) pair, piece, step)."""


@dataclass(frozen=True, slots=True)
class PossibleCast:
    """A cast of one piece in one step: who gets it, with the variable of each arrival."""

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
        casts; ``leaving``: what each rank sends of the piece in this step besides."""
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
