"""Shifts in time of jobs that share resources, so that they use them one after another.

Job j repeats its use d_j(r, phase) of every resource with a period P_j. Shifts s_j minimize the
excess, the sum over resources of ∫ max(0, Σ_j d_j(r, t − s_j) − 1) over one common multiple of the
periods (Rajasekaran and others, *CASSINI*, NSDI 2024, there with an affinity graph). Where all
edges lie on a grid some best shifts lie on it too: the excess is linear between coincidences of
edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import gcd, lcm, prod

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError

from ..base.meter import STEPS
from ..solvers.cp_sat import CpModel, CpVerdict, solve
from .effort import ORDER_EFFORT


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a resource by a job: ``share`` of it from ``start`` to ``end`` µs of its period."""

    resource: str
    start: Fraction
    end: Fraction
    share: Fraction


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job by its name, its period in µs, and what it uses when."""

    name: str
    period: Fraction
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True)
class Shifts:
    """Shifts in µs, one per job; the first is 0.

    Attributes:
        common_us: the common period.
        before, excess: µs of a resource that are asked for beyond all of it, in a common period and
            summed over the resources: unshifted, and with the shifts.
        bound: least excess that is proved; equal to ``excess`` where ``optimal``.
        drift_us: by how much one job may come late or early without any excess; None if there is
            excess anyway.
        by_resource: excess of each resource with the shifts.
    """

    us: tuple[Fraction, ...]
    common_us: Fraction
    before: Fraction
    excess: Fraction
    bound: Fraction
    drift_us: Fraction | None
    by_resource: dict[str, Fraction]

    @property
    def optimal(self) -> bool:
        """Return True if no shifts have less excess."""
        return self.bound == self.excess

    @property
    def helps(self) -> bool:
        """Return True if the shifts are better than none."""
        return self.excess < self.before

    @property
    def score(self) -> Fraction:
        """Return the share of the shared resources' time that is asked for once only."""
        return 1 - self.excess / (self.common_us * max(1, len(self.by_resource)))


def best_shifts(jobs: Sequence[PeriodicJob], steps: int = 4 * STEPS, seed: int = 0) -> Shifts:
    """Return shifts with the least excess, of these some with the largest tolerance to drift.

    Raises:
        UserError: the periods have a common multiple that is too long.
    """
    grid = ShiftGrid.of(jobs)
    start = [0] * len(jobs)
    before = grid.excess(start, 0)
    answer = _solved(grid, 0, steps, seed)
    shifts = start if answer is None or answer.excess >= before else answer.shifts
    excess = grid.excess(shifts, 0)
    least = grid.least_excess()
    proved = excess if answer is not None and answer.optimal else least
    drift = None
    if not excess:
        drift, shifts = _widest(grid, shifts, steps, seed)
        proved = excess
    return Shifts(
        tuple(grid.tick * s for s in shifts),
        grid.tick * grid.common,
        Fraction(before * grid.tick, grid.full),
        Fraction(excess * grid.tick, grid.full),
        Fraction(min(proved, excess) * grid.tick, grid.full),
        None if drift is None else grid.tick * drift,
        {
            name: Fraction(one * grid.tick, grid.full)
            for name, one in zip(grid.resources, grid.excesses(shifts, 0), strict=True)
        },
    )


@dataclass(frozen=True, eq=False)
class ShiftGrid:
    """Uses of the jobs on a grid of time: ``use[j]`` has shape (resources, ticks of its period)."""

    tick: Fraction
    common: int
    full: int
    resources: tuple[str, ...]
    use: tuple[Ints, ...]

    @staticmethod
    def of(jobs: Sequence[PeriodicJob]) -> ShiftGrid:
        """Return the grid on which all edges lie.

        Raises:
            UserError: it has too many ticks.
        """
        times = [one.period for one in jobs]
        times += [time for one in jobs for use in one.uses for time in (use.start, use.end)]
        scale = lcm(*(time.denominator for time in times))
        tick = Fraction(gcd(*(int(time * scale) for time in times)), scale)
        periods = [int(one.period / tick) for one in jobs]
        common = lcm(*periods)
        users: dict[str, set[int]] = {}
        for at, one in enumerate(jobs):
            for use in one.uses:
                users.setdefault(use.resource, set()).add(at)
        shared = tuple(name for name, who in users.items() if len(who) > 1)
        if common * len(jobs) * max(1, len(shared)) > ORDER_EFFORT.ticks:
            raise UserError(
                f"the periods have a common multiple of {common} steps of {float(tick):g} µs",
                hint="round periods and times, so that it is shorter",
            )
        shares = [use.share.denominator for one in jobs for use in one.uses]
        full = min(ORDER_EFFORT.units, lcm(*shares)) if shares else 1
        columns = []
        for one, period in zip(jobs, periods, strict=True):
            column = np.zeros((len(shared), period), np.int64)
            for use in one.uses:
                if use.resource in shared:
                    span = slice(int(use.start / tick), int(use.end / tick))
                    column[shared.index(use.resource), span] += round(use.share * full)
            columns.append(column)
        return ShiftGrid(tick, common, full, shared, tuple(columns))

    def widened(self, pad: int) -> tuple[Ints, ...]:
        """Return the uses, each kept up for ``pad`` ticks after it ends."""
        found = []
        for one in self.use:
            wide = one.copy()
            for k in range(1, pad + 1):
                wide = np.maximum(wide, np.roll(one, k, axis=1))
            found.append(wide)
        return tuple(found)

    def excesses(self, shifts: Sequence[int], pad: int) -> list[int]:
        """Return the excess of each resource in units times ticks."""
        return self.summed(self.widened(pad), shifts)

    def summed(self, uses: Sequence[Ints], shifts: Sequence[int]) -> list[int]:
        """Return the excess of each resource, of uses of all jobs and their shifts."""
        total = np.zeros((len(self.resources), self.common), np.int64)
        for one, shift in zip(uses, shifts, strict=True):
            total += np.tile(np.roll(one, shift, axis=1), self.common // one.shape[1])
        found: list[int] = np.maximum(total - self.full, 0).sum(axis=1).tolist()
        return found

    def excess(self, shifts: Sequence[int], pad: int) -> int:
        """Return the excess of all resources."""
        return sum(self.excesses(shifts, pad))

    def least_excess(self) -> int:
        """Return what is asked for beyond the whole time of each resource: shifts cannot help."""
        total = np.zeros(len(self.resources), np.int64)
        for one in self.use:
            total += one.sum(axis=1) * (self.common // one.shape[1])
        return int(np.maximum(total - self.full * self.common, 0).sum())


@dataclass(frozen=True, slots=True)
class FoundShifts:
    """Shifts in ticks, their excess, and whether none are better."""

    shifts: list[int]
    excess: int
    optimal: bool


def _solved(grid: ShiftGrid, pad: int, steps: int, seed: int) -> FoundShifts | None:
    """Return the best of all shifts, where these are few, else those of CP-SAT, if it finds any."""
    if prod(one.shape[1] for one in grid.use[1:]) <= ORDER_EFFORT.shifts_tried:
        return tried_shifts(grid, pad)
    return solved_shifts(grid, pad, steps, seed)


def tried_shifts(grid: ShiftGrid, pad: int) -> FoundShifts:
    """Return the first best of all shifts."""
    ranges = (range(one.shape[1]) for one in grid.use[1:])
    uses = grid.widened(pad)
    best: FoundShifts | None = None
    for some in product([0], *ranges):
        excess = sum(grid.summed(uses, some))
        if best is None or excess < best.excess:
            best = FoundShifts(list(some), excess, True)
    assert best is not None
    return best


def solved_shifts(grid: ShiftGrid, pad: int, steps: int, seed: int) -> FoundShifts | None:
    """Return the shifts that CP-SAT finds; None if it finds none.

    A Boolean for each job and shift; the excess of each tick is at least the use beyond all.
    """
    model = CpModel()
    uses = grid.widened(pad)
    chosen: list[list[int]] = []
    for at, one in enumerate(uses):
        row = [model.boolean() for _ in range(one.shape[1] if at else 1)]
        model.one_of(row)
        chosen.append(row)
    costs = []
    for r in range(len(grid.resources)):
        for t in range(grid.common):
            terms = []
            for one, row in zip(uses, chosen, strict=True):
                period = one.shape[1]
                terms += [
                    (x, int(one[r, (t - s) % period]))
                    for s, x in enumerate(row)
                    if one[r, (t - s) % period]
                ]
            most = sum(int(one[r].max()) for one in uses)
            if most <= grid.full or not terms:
                continue
            over = model.integer(0, most - grid.full)
            model.linear([*terms, (over, -1)], most=grid.full)
            costs.append((over, 1))
    model.minimize(costs)
    answer = solve(model, steps=steps, seed=seed)
    if not answer.found:
        return None
    shifts = [next(s for s, x in enumerate(row) if answer.values[x]) for row in chosen]
    return FoundShifts(shifts, grid.excess(shifts, pad), answer.verdict is CpVerdict.OPTIMAL)


def _widest(grid: ShiftGrid, shifts: list[int], steps: int, seed: int) -> tuple[int, list[int]]:
    """Return the most ticks by which all uses may be kept up without excess, and such shifts."""
    low, best = 0, shifts
    high = max(one.shape[1] for one in grid.use)
    while low + 1 < high:
        middle = (low + high) // 2
        found = _solved(grid, middle, steps, seed)
        if found is not None and not found.excess:
            low, best = middle, found.shifts
        else:
            high = middle
    return low, best
