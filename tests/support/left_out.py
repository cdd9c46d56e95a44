"""Fit what is fitted in the runtime model without one machine, and predict that machine.

The fitted numbers are those that ``calibrated.toml`` marks so. Logarithms of times are taken as
linear in logarithms of numbers about the shipped values, at some sizes of every table; with the
numbers so found from all other machines, the tables of the one left out are simulated. A number
that no other machine tells is what the model takes where nothing was fitted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache

import numpy as np
from measured_machines import machine_of
from measured_runs import baselines_of, runtime_of
from measured_tables import MeasuredRow, MeasuredTable
from scipy.optimize import least_squares

from weft.backends.tune.baselines import best_of
from weft.dsl.base.arrays import Floats
from weft.dsl.nouns.timing import TimingNumber
from weft.dsl.nouns.topology import Topology
from weft.synth.time import calibrated
from weft.synth.time.calibrated import (
    NCCL,
    NCCL_TREE,
    Certainty,
    ModelNumber,
    SourcedNumbers,
    family_line,
)

PROBE = 1.1
"""Factor on a number by which the times' dependence on it is found."""

LEAST_EFFECT = 0.1
"""A table tells a number if some time changes by this share of its change."""

LEAST_SEEN = 0.02
"""A table depends on a number if some time changes by this share of its change."""

RANGE = 3.0
"""A number is within this factor of the shipped one: slopes there say little of others."""

PRIOR = 0.01
"""Weight of what the model takes where nothing was fitted, beside one measured time."""

SIZES = 6
"""Sizes of a table that take part in a fit."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedUnknown:
    """Numbers of one source that are fitted together: one key, or all protocols of one."""

    group: SourcedNumbers
    stem: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys; a NIC's costs of messages by protocol are in proportion."""
        return tuple(
            k for k in self.group.values if k == self.stem or k.startswith(f"{self.stem}.")
        )

    @property
    def shipped(self) -> float:
        """The value of the first key."""
        return float(self.group.values[self.keys[0]])

    def times(self, factor: float) -> tuple[TimingNumber, ...]:
        """The numbers times a factor; a share ends at 1."""
        found = []
        for key in self.keys:
            value = self.group.values[key] * Fraction(factor).limit_denominator(10**6)
            share = key.startswith(("reach.", "efficiency."))
            found.append(TimingNumber(key, min(value, Fraction(1)) if share else value, "left out"))
        return tuple(found)


def fitted_defaults() -> tuple[SourcedNumbers, ...]:
    """The defaults that were fitted to published times of whole collectives."""
    return tuple(one for one in calibrated._table().groups if one.certainty is Certainty.FITTED)


def default_number(
    topology: Topology, key: str, runtime: str, without: SourcedNumbers | None = None
) -> ModelNumber | None:
    """The default of a key on a machine, as if some numbers were not known; None: there is none."""
    table = calibrated._table()
    groups = tuple(one for one in table.groups if one is not without)
    return replace(table, groups=groups).find(key, family_line(topology), runtime)


@cache
def unknowns() -> tuple[FittedUnknown, ...]:
    """All fitted numbers of the model."""
    found = []
    for group in fitted_defaults():
        stems = dict.fromkeys("message" if k.startswith("message.") else k for k in group.values)
        found += [FittedUnknown(group, stem) for stem in stems]
    return tuple(found)


@dataclass(slots=True)
class TableEffects:
    """Some sizes of a table: log of predicted over measured, and its slope by each unknown."""

    table: MeasuredTable
    off: Floats
    slopes: dict[FittedUnknown, Floats] = field(default_factory=dict)


def effects_of(table: MeasuredTable) -> TableEffects | None:
    """The effects of the numbers that count for a table; None where nothing can be compared."""
    rows, base = _points(table)
    if not rows:
        return None
    measured = np.log([row.us for row in rows])
    found = TableEffects(table, base - measured)
    for unknown in unknowns():
        if _counts(unknown, table):
            moved = _logs(table, rows, unknown.times(PROBE))
            found.slopes[unknown] = (moved - base) / math.log(PROBE)
    return found


def _points(table: MeasuredTable) -> tuple[list[MeasuredRow], Floats]:
    """Some rows that programs of ours can be held against, and the logs of their predictions."""
    options = baselines_of(table)
    good = []
    for row in table.rows if options else ():
        if not row.wrong and (best := best_of(options, row.bytes)) and not best.apart:
            good.append((row, math.log(best.us)))
    picks = np.linspace(0, len(good) - 1, min(len(good), SIZES)).round().astype(int).tolist()
    some = [good[i] for i in dict.fromkeys(picks)]
    return [row for row, _ in some], np.array([us for _, us in some])


def _logs(
    table: MeasuredTable, rows: Sequence[MeasuredRow], given: tuple[TimingNumber, ...]
) -> Floats:
    options = baselines_of(table, given)
    best = [best_of(options, row.bytes) for row in rows]
    return np.log([one.us for one in best if one is not None])


def _counts(unknown: FittedUnknown, table: MeasuredTable) -> bool:
    """Whether the model of the table's machine takes its number from there."""
    machine = machine_of(table)
    runtime = runtime_of(table, machine)
    found = [
        default_number(machine, unknown.keys[0], name)
        for name in ((NCCL, NCCL_TREE) if runtime == NCCL else (runtime,))
    ]
    return any(one is not None and one.source.endswith(unknown.group.source) for one in found)


@dataclass(frozen=True, slots=True)
class LeftOutNumber:
    """A fitted number as shipped and without a machine; ``told``: the tables that tell it."""

    key: str
    shipped: float
    value: float
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftOutMachine:
    """A machine, the fitted numbers without its tables, and what to predict it with."""

    name: str
    tables: tuple[MeasuredTable, ...]
    numbers: tuple[LeftOutNumber, ...]
    given: tuple[TimingNumber, ...]


def leave_out(tables: Sequence[MeasuredTable]) -> list[LeftOutMachine]:
    """Leave out each machine of some tables in turn."""
    known = [one for one in map(effects_of, tables) if one is not None]
    found = []
    for machine in dict.fromkeys(one.table.machine for one in known):
        mine = [one for one in known if one.table.machine == machine]
        others = [one for one in known if one.table.machine != machine]
        found.append(_left_out(mine, others))
    return found


def _left_out(mine: Sequence[TableEffects], others: Sequence[TableEffects]) -> LeftOutMachine:
    asked = [u for u in unknowns() if any(_effect(one, u) >= LEAST_SEEN for one in mine)]
    told = {u: tuple(o.table.name for o in others if _tells(o, u)) for u in asked}
    plain = {u: math.log(_plain(u, mine[0].table) / u.shipped) for u in asked}
    fitted = _fit([u for u in asked if told[u]], others, plain)
    changes = {u: math.exp(fitted.get(u, plain[u])) for u in asked}
    return LeftOutMachine(
        mine[0].table.machine,
        tuple(one.table for one in mine),
        tuple(LeftOutNumber(u.stem, u.shipped, u.shipped * x, told[u]) for u, x in changes.items()),
        tuple(number for u, x in changes.items() for number in u.times(x)),
    )


def _tells(one: TableEffects, unknown: FittedUnknown) -> bool:
    return _effect(one, unknown) >= LEAST_EFFECT


def _effect(one: TableEffects, unknown: FittedUnknown) -> float:
    return float(np.abs(one.slopes[unknown]).max()) if unknown in one.slopes else 0.0


def _plain(unknown: FittedUnknown, table: MeasuredTable) -> float:
    """What the model takes where nothing was fitted; next to nothing where it has no default."""
    machine = machine_of(table)
    runtime = runtime_of(table, machine)
    found = default_number(machine, unknown.keys[0], runtime, unknown.group)
    return unknown.shipped / RANGE if found is None else max(float(found.value), 1e-3)


def _fit(
    told: Sequence[FittedUnknown], tables: Sequence[TableEffects], plain: dict[FittedUnknown, float]
) -> dict[FittedUnknown, float]:
    """The logs of factors on numbers with least errors of the tables; outliers count less."""
    if not told:
        return {}
    used = [one for one in tables if any(u in one.slopes for u in told)]
    off = np.concatenate([one.off for one in used])
    slopes = np.concatenate(
        [np.array([one.slopes.get(u, np.zeros(len(one.off))) for u in told]).T for one in used]
    )
    before = np.array([plain[u] for u in told])

    def errors(x: Floats) -> Floats:
        return np.concatenate([off + slopes @ x, PRIOR * (x - before)])

    width = math.log(RANGE)
    start = np.clip(before, -0.99 * width, 0.99 * width)
    found = least_squares(errors, start, bounds=(-width, width), loss="soft_l1", f_scale=0.2)
    return dict(zip(told, found.x.tolist(), strict=True))
