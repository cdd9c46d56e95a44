"""The best allreduce on a star of few ranks, over all schedules, by trying every state of a byte.

A state is what each rank holds: a set of ranks whose parts are summed, as bits. A move, a transfer
or a cast, leads from state to state and loads ports. A unit of flow from the first state to the
last is a mixture of schedules, and the least time of the busiest port over all flows is the
optimum: of every way to go about it, not only of trees to a root and from it. Nothing of weft is
used.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

Members = tuple[int, ...]
State = tuple[int, ...]


@dataclass(frozen=True)
class Star:
    """GB/s of the links to a switch and from it, by rank, and what the switch can do."""

    up: tuple[float, ...]
    down: tuple[float, ...]
    able: frozenset[str]

    @property
    def ranks(self) -> int:
        return len(self.up)

    def allows(self, sources: Members, destinations: Members, issuer: int) -> bool:
        """Return whether one cast may bring the sum of sources to destinations."""
        many = len(sources) > 1, len(destinations) > 1
        needs = {w for w, some in zip(("reduces", "multicast"), many, strict=True) if some}
        if not (needs | {"turns"} if all(many) else needs) <= self.able:
            return False
        if issuer >= 0 and issuer not in sources + destinations:
            return False
        if "issuer_in_group" not in self.able or not any(many):
            return True
        if issuer < 0:
            return many[0] and {"turns", "multicast"} <= self.able  # members push to a root
        return issuer in sources and issuer in destinations

    def moves(self) -> Iterator[tuple[Members, Members]]:
        """Yield the ends of all transfers and casts."""
        some = [c for k in range(self.ranks) for c in combinations(range(self.ranks), k + 1)]
        for sources, destinations in product(some, some):
            if any(self.allows(sources, destinations, i) for i in range(-1, self.ranks)):
                yield sources, destinations

    def time(self) -> float:
        """Return ps per byte of the best mixture of schedules."""
        moves, n = list(self.moves()), self.ranks
        first, last = tuple(1 << r for r in range(n)), ((1 << n) - 1,) * n
        number, queue, arcs = {first: 0}, [first], list[tuple[int, int, int]]()
        while queue:
            state = queue.pop()
            for k, move in enumerate(moves):
                for after in _after(state, *move):
                    if after not in number:
                        number[after] = len(number)
                        queue.append(after)
                    arcs.append((number[state], number[after], k))
        begin, end, which = np.array(arcs).T
        loads = np.array(
            [[r in a for r in range(n)] + [r in b for r in range(n)] for a, b in moves]
        )
        busy = np.column_stack(
            [loads[which].T / np.array([*self.up, *self.down])[:, None], -np.ones(2 * n)]
        )
        column = np.arange(len(arcs))
        signs = np.repeat([-1, 1], len(arcs))
        cells = (signs, (np.concatenate([begin, end]), np.concatenate([column, column])))
        flow = coo_array(cells, shape=(len(number), len(arcs) + 1))
        gain = np.zeros(len(number))
        gain[[number[first], number[last]]] = -1, 1
        cost = np.append(np.zeros(len(arcs)), 1)
        found = linprog(cost, A_ub=busy, b_ub=np.zeros(2 * n), A_eq=flow.tocsr(), b_eq=gain)
        assert found.status == 0
        return float(found.fun) * 1000


def _after(state: State, sources: Members, destinations: Members) -> Iterator[State]:
    """Yield what ranks hold after a move that adds to what is there, or replaces it."""
    parts = [state[r] for r in sources]
    total = sum(parts)
    if total.bit_count() != sum(p.bit_count() for p in parts):
        return  # a part would be in the sum twice
    if all(not state[r] & ~total for r in destinations):
        yield tuple(total if r in destinations else x for r, x in enumerate(state))
    if all(not state[r] & total for r in destinations):
        yield tuple(total | x if r in destinations else x for r, x in enumerate(state))
