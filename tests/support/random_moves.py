"""Random algorithms: moves that make sense one after another, and a collective that they achieve.

What the moves leave in the outputs is the postcondition; the contributions are followed here, by
definition, and nothing is shared with the compiler.
"""

import random

from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.collective import custom
from weft.dsl.nouns.slots import INPUT, NONE, OUTPUT, SCRATCH


def moves(*rows: tuple[int, ...]) -> Moves:
    """Rows (chunk, src, source, dst, target[, operand]) without hints."""
    return Moves.of([[*row, *[NONE] * (9 - len(row))] for row in rows])


Value = tuple[int, frozenset[int]]
"""A chunk, and whose contributions are in it."""


class Author:
    """Writes moves on ranks with ``chunks`` chunks in each buffer."""

    def __init__(self, rng: random.Random, ranks: int, chunks: int, in_place: bool) -> None:
        self.rng, self.ranks, self.chunks, self.in_place = rng, ranks, chunks, in_place
        first = OUTPUT if in_place else INPUT
        self.held: list[dict[int, Value]] = [
            {first + k: (k, frozenset([r])) for k in range(chunks)} for r in range(ranks)
        ]
        self.rows: list[list[int]] = []

    def write(self) -> None:
        """One move of one or more neighbouring chunks, if it makes sense."""
        rng = self.rng
        src, dst = rng.randrange(self.ranks), rng.randrange(self.ranks)
        source = rng.choice(sorted(self.held[src]))
        target = rng.choice((OUTPUT, SCRATCH)) + rng.randrange(self.chunks)
        operands = [t for t in sorted(self.held[dst]) if self.fits(src, source, dst, t)]
        operand = rng.choice(operands) if operands and rng.random() < 0.7 else NONE
        if operand >= OUTPUT and rng.random() < 0.7:
            target = operand
        for k in range(rng.choice((1, 1, 2, 3))):
            adds = operand + k if operand != NONE else NONE
            if not self.one(src, source + k, dst, target + k, adds):
                break

    def fits(self, src: int, source: int, dst: int, operand: int) -> bool:
        """Whether the two may be added."""
        a, b = self.held[src][source], self.held[dst][operand]
        return a[0] == b[0] and not a[1] & b[1]

    def one(self, src: int, source: int, dst: int, target: int, operand: int) -> bool:
        """Write down a move of one chunk and what it does, if it is possible."""
        outside = (target & 0xFFFF) >= self.chunks or source not in self.held[src]
        missing = operand != NONE and operand not in self.held[dst]
        if outside or missing or (operand != NONE and not self.fits(src, source, dst, operand)):
            return False
        value = self.held[src][source]
        if operand != NONE:
            value = (value[0], value[1] | self.held[dst][operand][1])
        self.rows.append(
            [
                value[0],
                src,
                self.named(source),
                dst,
                self.named(target),
                self.named(operand),
                NONE,
                NONE,
                NONE,
            ]
        )
        self.held[dst][target] = value
        return True

    def named(self, slot: int) -> int:
        """In place, a slot of the output has two names."""
        inside = OUTPUT <= slot < SCRATCH and self.in_place
        return slot - OUTPUT + INPUT if inside and self.rng.random() < 0.3 else slot

    def algorithm(self) -> Algorithm:
        """What was written."""
        pre = [(r, k, [r], k) for r in range(self.ranks) for k in range(self.chunks)]
        post = []
        for r, held in enumerate(self.held):
            kept = {v[0]: (s, v[1]) for s, v in sorted(held.items()) if OUTPUT <= s < SCRATCH}
            post += [(r, k, sorted(who), s - OUTPUT) for k, (s, who) in kept.items()]
        c = custom("random", self.ranks, pre, post or [(0, 0, [0], 0)])
        if not post:  # nothing came anywhere: a copy at least
            self.rows.append([0, 0, INPUT, 0, OUTPUT, NONE, NONE, NONE, NONE])
        scratch = [self.chunks] * self.ranks
        return Algorithm("random", c, Moves.of(self.rows), scratch, self.in_place)


def random_algorithm(
    seed: int, *, ranks: int, chunks: int, moves: int, in_place: bool
) -> Algorithm:
    """An algorithm that does something, exactly what its collective says."""
    author = Author(random.Random(seed), ranks, chunks, in_place)
    for _ in range(moves):
        author.write()
    return author.algorithm()
