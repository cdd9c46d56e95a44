"""Plans by matching, for chunks that everybody wants: the best of some seeds and variants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ...fabric.greedy_machine import Machine
from .demand import Demand, tables
from .events import match_events
from .grid import delays, match_grid
from .plan import Plan, plan_of

Attempt = Callable[[], Plan]


def attempts(machine: Machine, demand: Demand, seed: int) -> Iterator[Attempt]:
    """Ways to match with one seed, the likeliest to be good first.

    On uniform machines both grids (α waited for in every step, or never), then any time; where
    links differ, with patience and without.
    """
    if machine.uniform:
        grids = sorted(delays(machine), key=lambda grid: -grid[0])
        for delay, step in grids:
            yield partial(_grid, machine, demand, seed, delay, step)
        if len(grids) > 1:
            yield partial(_events, machine, demand, seed, False)
        return
    for patient in (True, False):
        yield partial(_events, machine, demand, seed, patient)


def _grid(machine: Machine, demand: Demand, seed: int, delay: int, step: int) -> Plan:
    return plan_of(machine, match_grid(machine, tables(demand, seed), delay, step, seed))


def _events(machine: Machine, demand: Demand, seed: int, patient: bool) -> Plan:
    blocks = match_events(machine, tables(demand, seed), seed, patient=patient)
    return plan_of(machine, blocks)
