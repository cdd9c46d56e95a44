"""Least rounds per chunk of all S-step schedules with any number of chunks: a flow LP.

The machine is expanded over S steps: a node per GPU and step boundary, storage from each to the
next, a copy of every link per step. Each target of a demand draws one unit of flow from its
sources; where data is copied, the flows of one demand share a *send* variable per link and step
(x >= f for each target). The capacity of a link in step t is its chunks per round times the
rounds ρ_t of the step; minimise Σ ρ_t. Every schedule with C chunks and R rounds is a point of
this LP with Σ ρ = R/C, so the optimum is a lower bound for all of them, and its rational value
names the number of chunks to try. The duals are prices per link and step: the certificate.

Symmetric machines need one demand per orbit and one capacity row per orbit of links: the average
of a solution over the group is a solution of the same value.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.nouns.topology import Topology

from ...base.meter import Meter
from ...lp.certified import Certified, LinearProgram, certified_minimum
from .demands import CopyDemand, DemandOrbits, HopDistances, usable_links

FINEST = 10**6
"""Largest denominator for which a bound is tried as rounds per chunk."""


@dataclass(frozen=True, slots=True)
class FlowBound:
    """``rounds_per_chunk`` is proved; ``value`` is the float solver's optimum.

    ``prices[i, t]`` (over ``denominator``) is the dual price of orbit i's capacity in step t+1.
    """

    steps: int
    rounds_per_chunk: Fraction
    exact: bool
    value: float
    prices: Ints
    denominator: int
    columns: int


def flow_bound(
    topology: Topology,
    wanted: tuple[CopyDemand, ...],
    near: HopDistances,
    steps: int,
    orbits: DemandOrbits,
    meter: Meter | None = None,
) -> FlowBound:
    """Solve the S-step flow LP and certify it.

    Raises:
        Infeasible: S steps are too few. NothingFound: no answer before the end of ``meter``.

    Columns: about steps · Σ over demands (one per orbit) of targets · usable links.
    """
    builder = _FlowLpBuilder(topology, near, steps, orbits)
    for index in orbits.representatives(len(wanted)):
        builder.add_demand(wanted[index], orbits.demand_weight(index))
    program = builder.program()
    answer = certified_minimum(program, meter=meter)
    prices = builder.prices(answer)
    return FlowBound(
        steps,
        readable(answer.lower),
        answer.exact,
        answer.value,
        prices,
        answer.denominator,
        program.columns,
    )


def readable(bound: Fraction) -> Fraction:
    """A bound that duals on a fine grid prove, rounded down to thousandths; others as they are."""
    if bound.denominator <= FINEST:
        return bound
    return Fraction(math.floor(bound * 1000), 1000)


class _Triplets:
    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.cols: list[Ints] = []
        self.vals: list[Ints] = []

    def add(self, rows: npt.ArrayLike, cols: npt.ArrayLike, values: npt.ArrayLike) -> None:
        rows, cols = np.broadcast_arrays(np.asarray(rows, np.int64), np.asarray(cols, np.int64))
        self.rows.append(rows.ravel())
        self.cols.append(cols.ravel())
        self.vals.append(np.broadcast_to(np.asarray(values, np.int64), rows.shape).ravel())

    def matrix(self, height: int, width: int) -> SparseMatrix | None:
        if not self.rows:
            return None
        parts = (np.concatenate(x) for x in (self.rows, self.cols, self.vals))
        return SparseMatrix.of((height, width), *parts)


class _FlowLpBuilder:
    """Collects columns and rows demand by demand; column t-1 is the rounds ρ_t of step t."""

    def __init__(
        self, topology: Topology, near: HopDistances, steps: int, orbits: DemandOrbits
    ) -> None:
        self.topology, self.near, self.steps, self.orbits = topology, near, steps, orbits
        self.is_gpu = np.array([n.stores for n in topology.nodes])
        self.multicast = np.array([n.multicast for n in topology.nodes])
        self.ends = topology.link_ends()
        self.columns = steps
        self.upper: list[Ints] = []
        self.most_rounds = 0
        self.widest = max([1, *(len(r.links) for r in topology.resources)])
        self.equal, self.below = _Triplets(), _Triplets()
        self.equal_rhs: list[Ints] = []
        self.equal_count, self.below_count = 0, 0
        self.capacity = _Triplets()

    # --- columns -----------------------------------------------------------------------------

    def _new_columns(self, count: int, most: int) -> Ints:
        """Columns that some optimal solution keeps below ``most``; saying so lets rounded duals
        prove a bound (see :mod:`weft.synth.lp.certified`)."""
        start = self.columns
        self.columns += count
        self.upper.append(np.full(count, most, np.int64))
        return np.arange(start, self.columns, dtype=np.int64)

    def add_demand(self, demand: CopyDemand, weight: int) -> None:
        """All targets of one demand, sharing all that they can."""
        tail = self.near.tail_depth(demand.sources)
        heads = [self.near.head_depth(t, self.is_gpu) for t in demand.targets]
        size = len(demand.chunks)
        # Into a switch that does not copy goes one copy per target. No step needs more rounds
        # than all sends at once over the resource with most links.
        copies = size * len(demand.targets)
        self.most_rounds += weight * copies * self.orbits.per_chunk * self.widest
        shared: list[tuple[Ints, Ints]] = []
        nearest = np.min(heads, axis=0)
        for step in range(1, self.steps + 1):
            links = usable_links(self.topology, tail, nearest, step, self.steps)
            columns = self._new_columns(len(links), copies)
            shared.append((links, columns))
            self._load(links, columns, step, weight)
        if len(demand.targets) == 1:
            self._flow(demand, tail, heads[0], demand.targets[0], size, shared)
            return
        self._copies_through_switches(shared)
        for target, head in zip(demand.targets, heads, strict=True):
            flows = []
            for step, (links, columns) in enumerate(shared, 1):
                mine = usable_links(self.topology, tail, head, step, self.steps)
                flow = self._new_columns(len(mine), size)
                flows.append((mine, flow))
                rows = self._new_below(len(mine))
                self.below.add(rows, flow, 1)
                self.below.add(rows, columns[np.searchsorted(links, mine)], -1)
            self._flow(demand, tail, head, target, size, flows)

    def _new_below(self, count: int) -> Ints:
        start = self.below_count
        self.below_count += count
        return np.arange(start, self.below_count, dtype=np.int64)

    # --- rows --------------------------------------------------------------------------------

    def _load(self, links: Ints, columns: Ints, step: int, weight: int) -> None:
        """Each send loads its link and every shared resource it belongs to, in this step."""
        for orbits in self.orbits.orbits_of_links:
            hit = orbits[links]
            on = hit >= 0
            self.capacity.add(
                hit[on] * self.steps + (step - 1), columns[on], weight * self.orbits.per_chunk
            )

    def _flow(
        self,
        demand: CopyDemand,
        tail: Ints,
        head: Ints,
        target: int,
        size: int,
        arcs: list[tuple[Ints, Ints]],
    ) -> None:
        """Conservation of one commodity: ``size`` units from the sources to the target.

        Row (node, layer): a GPU at the boundary after step ``layer``, a switch inside it. Storage
        needs no columns: it is one number per GPU and boundary, and is added here.
        """
        steps = self.steps
        rows, cols, vals = [], [], []

        def put(node: Ints, layer: Ints | int, columns: Ints, value: int) -> None:
            rows.append(node * (steps + 1) + layer)
            cols.append(columns)
            vals.append(np.full(len(columns), value, np.int64))

        for step, (links, columns) in enumerate(arcs, 1):
            source, sink = self.ends[links, 0], self.ends[links, 1]
            put(source, np.where(self.is_gpu[source], step - 1, step), columns, -1)
            put(sink, step, columns, 1)
            kept = np.flatnonzero(self.is_gpu & (tail <= step - 1) & (head <= steps - step))
            storage = self._new_columns(len(kept), size)
            put(kept, step - 1, storage, -1)
            put(kept, step, storage, 1)
        # Sources inject through one free column each; they share the demand.
        inject = self._new_columns(len(demand.sources), size)
        put(np.array(demand.sources, np.int64), 0, inject, 1)
        keys, local = np.unique(np.concatenate(rows), return_inverse=True)
        rhs = np.zeros(len(keys), np.int64)
        rhs[np.searchsorted(keys, target * (steps + 1) + steps)] = size
        self.equal.add(self.equal_count + local, np.concatenate(cols), np.concatenate(vals))
        self.equal_rhs.append(rhs)
        self.equal_count += len(keys)

    def _copies_through_switches(self, shared: list[tuple[Ints, Ints]]) -> None:
        """A switch sends out no more than came in; one that multicasts, per outgoing link."""
        for links, columns in shared:
            source, sink = self.ends[links, 0], self.ends[links, 1]
            for node in np.flatnonzero(~self.is_gpu):
                into, out = columns[sink == node], columns[source == node]
                if not len(out):
                    continue
                groups = [[c] for c in out] if self.multicast[node] else [list(out)]
                for group in groups:
                    row = self._new_below(1)
                    self.below.add(row, np.array(group), 1)
                    if len(into):
                        self.below.add(row, into, -1)

    def program(self) -> LinearProgram:
        """The whole LP; capacity rows come last among the inequalities."""
        steps, caps = self.steps, self.orbits.capacities
        count = len(caps) * steps
        rows = np.arange(count, dtype=np.int64)
        self.capacity.add(rows, rows % steps, -np.repeat(caps, steps))
        loads = self.capacity
        for r, c, v in zip(loads.rows, loads.cols, loads.vals, strict=True):
            self.below.add(r + self.below_count, c, v)
        height = self.below_count + count
        cost = np.zeros(self.columns, np.int64)
        cost[:steps] = 1
        return LinearProgram(
            cost,
            self.below.matrix(height, self.columns),
            np.zeros(height, np.int64),
            self.equal.matrix(self.equal_count, self.columns),
            np.concatenate([*self.equal_rhs, np.zeros(0, np.int64)]),
            np.concatenate([np.full(steps, self.most_rounds, np.int64), *self.upper]),
        )

    def prices(self, answer: Certified) -> Ints:
        """Dual prices of the capacity rows, shape (rows, steps)."""
        return -np.asarray(answer.dual_ub)[self.below_count :].reshape(-1, self.steps)
