"""Plans of workloads: which operation goes first, when each runs, and how good that could be.

A plan is plain data: priorities, pieces of time, a lower bound with its certificate, and the times
under other ways of sharing. ``synth/ordering`` makes and judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any

from ..base.errors import BadFile, placed
from ..base.files import SCHEMA, Fields, only, require_kind
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.record import Key, Record, plain
from ..base.units import exact
from .workload import Workload
from .workload_file import load as load_workload

KIND = "plan"

SIDES = ("head", "tail", "all")


@dataclass(frozen=True, slots=True)
class PlanPiece:
    """Part of an operation (its index): from start to end in µs, at a share of its full rate."""

    operation: int
    start: float
    end: float
    rate: float


class OperationCost(Frozen):
    """µs of an operation alone on the machine, and µs for which it occupies resources."""

    us: Fraction
    loads: tuple[tuple[str, Fraction], ...]


class PlanProofStep(Frozen):
    """A step of the bound's certificate; times in µs, operations and resources by name.

    At least ``us`` pass until ``task`` may start (``side`` head), after its end (tail), or until
    the end of all: because operations of ``path`` follow each other, or because ``resource`` is
    busy with ``tasks``, none of which starts before ``head`` and after which ``tail`` passes.
    """

    side: str
    us: Fraction
    task: str = ""
    path: tuple[str, ...] = ()
    resource: str = ""
    head: Fraction = Fraction(0)
    tail: Fraction = Fraction(0)
    tasks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object of a file; empty parts are left out."""
        data = _STEP.write(self)
        return data | ({"tasks": list(self.tasks)} if self.resource else {})


class PlanTimes(Frozen):
    """µs under other ways of sharing.

    Attributes:
        alone: if each operation had all resources for itself. ``sequence``: nothing at the same
            time. ``together``: own routes, at once, in the best order found.
        fair: communicators that are slowed alike. ``queue``: one at a time on each rank, in
            the order in which operations become ready.
    """

    alone: float
    sequence: float
    together: float
    fair: float
    queue: float


class WorkloadPlan(Frozen):
    """A plan.

    Attributes:
        machine: its name; empty if none is needed. ``costs``: by name, of the operations that
            need it.
        order: names of the operations, the one with the highest priority first.
        pieces: in order of their starts.
        bound_us: lower bound in µs. ``proof``: steps of its certificate, the last one for it.
        times: those of other orders. ``late_us``: by how much a due time is missed at most.
        remarks: findings, in words.
    """

    workload: Workload
    machine: str
    order: tuple[str, ...]
    pieces: tuple[PlanPiece, ...]
    bound_us: Fraction
    proof: tuple[PlanProofStep, ...]
    times: PlanTimes
    costs: Mapping[str, OperationCost] = field(default_factory=dict)
    late_us: float = 0.0
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<WorkloadPlan of {self.workload.name}: {self.us:,.6g} µs>"

    @property
    def us(self) -> float:
        """Return the end of the last operation in µs."""
        return max((one.end for one in self.pieces), default=0.0)

    def spans(self) -> list[tuple[float, float] | None]:
        """Return start and end of each operation; None of one that takes no time."""
        found: list[tuple[float, float] | None] = [None] * len(self.workload.operations)
        for one in self.pieces:
            start, end = found[one.operation] or (one.start, one.end)
            found[one.operation] = (min(start, one.start), max(end, one.end))
        return found

    def launches(self) -> list[tuple[str, float, float]]:
        """Return the order of launches of communications, equal on all ranks: name and part.

        An operation that is interrupted is launched in slices: from one share of it to another.
        No launch waits for one that comes after it, so it cannot deadlock.
        """
        done = [0.0] * len(self.workload.operations)
        whole = [0.0] * len(done)
        for one in self.pieces:
            whole[one.operation] += one.rate * (one.end - one.start)
        found: list[tuple[str, float, float]] = []
        last: dict[str, int] = {}
        for one in self.pieces:
            operation = self.workload.operations[one.operation]
            if not operation.communicates:
                continue
            begin = done[one.operation] / whole[one.operation]
            done[one.operation] += one.rate * (one.end - one.start)
            end = min(1.0, done[one.operation] / whole[one.operation])
            if found and last.get(operation.name) == len(found) - 1:
                found[-1] = (operation.name, found[-1][1], end)
            else:
                last[operation.name] = len(found)
                found.append((operation.name, begin, end))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the object of a file."""
        return {
            "weft": KIND,
            "schema": SCHEMA,
            "workload": self.workload.to_json(),
            "machine": self.machine,
            "costs": {name: _COST.write(cost) for name, cost in self.costs.items()},
            "order": list(self.order),
            "pieces": [[one.operation, one.start, one.end, one.rate] for one in self.pieces],
            "launches": [list(one) for one in self.launches()],
            "bound": {
                "us": plain(self.bound_us),
                "steps": [step.to_json() for step in self.proof],
            },
            "times": _TIMES.write(self.times),
            "late_us": self.late_us,
            "remarks": list(self.remarks),
        }


# --- reading --------------------------------------------------------------------------------------


def load(data: Any, where: str) -> WorkloadPlan:
    """Return the plan in an object of a file; it is well formed, but not judged.

    Raises:
        BadFile: it is not one.
    """
    require_kind(data, KIND, where)
    fields = Fields(data, where)
    workload = load_workload(fields.get("workload", dict), f"{where}: workload")
    bound = Fields(fields.get("bound", dict), f"{where}: bound")
    times = _TIMES.read(fields.get("times", dict), f"{where}: times")
    launches = fields.get("launches", list)
    remarks = fields.get("remarks", list, [])
    if not only(remarks, str):
        raise BadFile("'remarks' must hold texts", where=where)
    plan = WorkloadPlan(
        workload,
        fields.get("machine", str, ""),
        _names(fields.get("order", list), {one.name for one in workload.operations}, where),
        tuple(
            _piece(row, len(workload.operations), f"{where}: pieces[{at}]")
            for at, row in enumerate(fields.get("pieces", list))
        ),
        _exact(bound.get("us", (int, str)), "us", where),
        tuple(_STEP.read(one, f"{where}: bound") for one in bound.get("steps", list)),
        times,
        {
            name: _COST.read(one, f"{where}: costs: {name}")
            for name, one in fields.get("costs", dict, {}).items()
        },
        float(fields.get("late_us", (int, float), 0.0)),
        tuple(remarks),
    )
    for part in (fields, bound):
        part.finish()
    if launches != [list(one) for one in plan.launches()]:
        raise BadFile("'launches' is not the order in which the pieces start", where=where)
    return plan


def _names(values: list[Any], known: set[str], where: str) -> tuple[str, ...]:
    if not only(values, str) or set(values) != known or len(values) != len(known):
        raise BadFile("'order' must name each operation once", where=where)
    return tuple(values)


def _piece(row: Any, operations: int, where: str) -> PlanPiece:
    if not isinstance(row, list) or len(row) != 4 or not only(row, int, float):
        raise BadFile("a piece is [operation, start, end, rate]", where=where)
    at, start, end, rate = row
    if not isinstance(at, int) or not 0 <= at < operations or not 0 <= start <= end:
        raise BadFile("a piece of no operation, or that ends before it starts", where=where)
    return PlanPiece(at, float(start), float(end), float(rate))


def _side(side: str, key: str, where: str) -> str:
    if side not in SIDES:
        raise BadFile(f"unknown side {side!r}", where=where)
    return side


def _named(values: list[Any], key: str, where: str) -> tuple[str, ...]:
    if not only(values, str):
        raise BadFile(f"{key!r} must hold names", where=where)
    return tuple(values)


def _exact(value: Any, key: str, where: str) -> Fraction:
    number = placed(lambda: exact(value, "a time"), where)
    if number < 0:
        raise BadFile(f"a negative time, {number}", where=where)
    return number


_US, _NONE = Key((int, str), read=_exact), Fraction(0)
_STEP = Record(
    PlanProofStep,
    side=Key(str, read=_side),
    us=_US,
    task=Key(str, "", unless=""),
    path=Key(list, [], _named, unless=()),
    resource=Key(str, "", unless=""),
    tasks=Key(list, [], _named, unless=()),
    head_us=Key((int, str), 0, _exact, field="head", unless=_NONE),
    tail_us=Key((int, str), 0, _exact, field="tail", unless=_NONE),
)
_COST = Record(
    OperationCost,
    us=_US,
    loads=Key(
        dict,
        read=lambda some, key, where: tuple((n, _exact(x, key, where)) for n, x in some.items()),
        write=lambda loads: plain(dict(loads)),
    ),
)
_TIMES = Record(
    PlanTimes,
    **{
        f"{name}_us": Key((int, float), read=lambda us, *_: float(us), field=name)
        for name in ("alone", "sequence", "together", "fair", "queue")
    },
)
