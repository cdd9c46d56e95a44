"""Workloads: operations of a training step or of other jobs, with their order.

A workload is independent of a machine: collectives on groups of ranks, computations, messages,
demands, and loads of named resources, each after its predecessors. Collectives of one **class**
belong together (all tensor-parallel groups of a layer). A **job** is a workload with a period.

>>> step = Workload(
...     "step",
...     (
...         WorkloadOperation("attn", "compute", ranks=(0, 1), us=Fraction(700)),
...         WorkloadOperation("sum", "allreduce", group=(0, 1), bytes=96000000, after=("attn",)),
...     ),
... )
>>> step.ranks, step.predecessors, step.classes
(2, ((), (0,)), {'sum': (1,)})
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np

from ..base.errors import BadTopology, UserError, suggest
from ..base.files import SCHEMA, only
from ..base.integers import LARGEST, integer
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.record import without_empty
from ..base.tables import count
from ..base.units import exact
from .collective import LARGEST_GROUP, ROOTED, Kind

LARGEST_BYTES = 1 << 60
LONGEST_US = Fraction(10**15)
MOST_OPERATIONS = 1 << 18
MOST_MEMBERS = 1 << 23
"""Ranks that all groups of a workload name together, at most: more do not fit a usual memory."""


class Forwarders(StrEnum):
    """Ranks that may forward for a collective, beside those of its group.

    ``idle``: ranks that are in no group of a collective that may run at the same time.
    """

    NONE = "none"
    IDLE = "idle"
    ALL = "all"


class WorkKind(StrEnum):
    """Kinds of operations beside the standard collectives."""

    COMPUTE = "compute"
    LOAD = "load"
    ALLTOALLV = "alltoallv"
    TRANSFER = "transfer"
    MULTICAST = "multicast"


COLLECTIVES = tuple(str(kind) for kind in Kind if kind is not Kind.CUSTOM)
"""Kinds that are a standard collective of a group."""

DEMANDS = (WorkKind.ALLTOALLV, WorkKind.TRANSFER, WorkKind.MULTICAST)
"""Kinds that state which bytes go where, and nothing else."""

KINDS = (*COLLECTIVES, *map(str, WorkKind))


def kind_named(text: str) -> str:
    """Return a kind by any usual spelling: ``all-gather``, ``AllGather``, ``all_gather``.

    Raises:
        UserError: no such kind.
    """
    plain = {kind.replace("_", ""): kind for kind in KINDS}
    found = plain.get(text.lower().replace("-", "").replace("_", ""))
    if found is None:
        raise UserError(f"unknown kind {text[:60]!r}", hint=suggest(text[:60], KINDS))
    return found


@dataclass(frozen=True, slots=True)
class Shard:
    """A piece of ``bytes`` that every holder has and every receiver needs (of a multicast)."""

    holders: tuple[int, ...]
    receivers: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class WorkloadOperation:
    """One operation of a workload.

    Attributes:
        name: unique in its workload.
        kind: one of ``KINDS``.
        group: ranks of a collective, in their order; source and destination of a ``transfer``.
        bytes: the message size M of a collective, as everywhere; the size of a ``transfer``.
        matrix: of an ``alltoallv``, bytes from the i-th to the j-th rank of the group.
        shards: of a ``multicast``.
        root: rank at which a rooted collective starts or ends.
        relays: ranks that may forward for it.
        ranks: of a ``compute``; empty: all of the workload. ``us``: its duration in µs.
        loads: of a ``load``, resource and µs for which it occupies that alone.
        of_class: its class; empty: its name.
        after: names of the operations that must end before it starts.
        priority: a smaller one goes first; None: the plan decides.
        due_us: when it should be over.

    Raises:
        UserError: a value out of range, or one that the kind has not.
    """

    name: str
    kind: str
    group: tuple[int, ...] = ()
    bytes: int = 0
    matrix: tuple[tuple[int, ...], ...] = ()
    shards: tuple[Shard, ...] = ()
    root: int | None = None
    relays: Forwarders = Forwarders.NONE
    ranks: tuple[int, ...] = ()
    us: Fraction | None = None
    loads: tuple[tuple[str, Fraction], ...] = ()
    of_class: str = ""
    after: tuple[str, ...] = ()
    priority: int | None = None
    due_us: Fraction | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise UserError("an operation without a name")
        _settle_numbers(self)
        _require_lines(self.name, self.of_class, *(name for name, _ in self.loads))
        if self.kind not in KINDS:
            raise UserError(
                f"unknown kind {self.kind!r}", where=self.name, hint=suggest(self.kind, KINDS)
            )
        _check_operation(self)

    @property
    def class_name(self) -> str:
        """Return the class, or the name of an operation without one."""
        return self.of_class or self.name

    @property
    def communicates(self) -> bool:
        """Return True if it uses the fabric: all but computations."""
        return self.kind != WorkKind.COMPUTE

    @property
    def needs_machine(self) -> bool:
        """Return True if it has a time only on a machine."""
        return self.kind not in (WorkKind.COMPUTE, WorkKind.LOAD)

    @property
    def members(self) -> tuple[int, ...]:
        """Return the ranks that it names, ascending; those of a load: none."""
        if self.kind == WorkKind.MULTICAST:
            named = {v for one in self.shards for v in (*one.holders, *one.receivers)}
            return tuple(sorted(named))
        return tuple(sorted(self.ranks if self.kind == WorkKind.COMPUTE else self.group))

    @property
    def total_bytes(self) -> int:
        """Return M; of a demand the sum of all that is to be delivered."""
        if self.kind == WorkKind.ALLTOALLV:
            rows = enumerate(self.matrix)
            return sum(sum(row) - row[i] for i, row in rows)
        if self.kind == WorkKind.MULTICAST:
            return sum(one.bytes * len(one.receivers) for one in self.shards)
        return self.bytes

    @property
    def deliveries(self) -> tuple[Shard, ...]:
        """Return the deliveries of a demand, without those of 0 bytes; empty for other kinds.

        The order is that of the buffers: a rank's input has the shards that it holds side by side,
        its output those that it receives.
        """
        if self.kind == WorkKind.ALLTOALLV:
            rows = zip(self.group, self.matrix, strict=True)
            pairs = ((v, w, x) for v, row in rows for w, x in zip(self.group, row, strict=True))
            return tuple(Shard((v,), (w,), x) for v, w, x in pairs if x)
        if self.kind == WorkKind.TRANSFER:
            return (Shard(self.group[:1], self.group[1:], self.bytes),)
        return tuple(one for one in self.shards if one.bytes)

    def rounded_up(self, multiple: int) -> WorkloadOperation:
        """Return a demand each of whose bytes are rounded up to multiples of a number."""

        def up(size: int) -> int:
            return -(-size // multiple) * multiple

        return replace(
            self,
            bytes=up(self.bytes),
            matrix=tuple(tuple(map(up, row)) for row in self.matrix),
            shards=tuple(replace(one, bytes=up(one.bytes)) for one in self.shards),
        )

    def renumbered(self, order: Sequence[int]) -> WorkloadOperation:
        """Return it with rank ``order[i]`` in the place of rank i."""

        def new(ranks: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(order[v] for v in ranks)

        return replace(
            self,
            group=new(self.group),
            ranks=new(self.ranks),
            root=None if self.root is None else order[self.root],
            shards=tuple(Shard(new(s.holders), new(s.receivers), s.bytes) for s in self.shards),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object of a workload file; fields at their defaults are left out."""
        ends: dict[str, Any] = {"group": self.group}
        if self.kind == WorkKind.TRANSFER:
            ends = {"src": self.group[0], "dst": self.group[1]}
        held = {
            "name": self.name,
            "class": self.of_class,
            "kind": self.kind,
            **ends,
            "bytes": self.bytes or None,
            "matrix": self.matrix,
            "shards": tuple(
                {"holders": s.holders, "receivers": s.receivers, "bytes": s.bytes}
                for s in self.shards
            ),
            "root": self.root,
            "relays": None if self.relays is Forwarders.NONE else self.relays,
            "ranks": self.ranks,
            "us": dict(self.loads) or self.us,
            "after": self.after,
            "priority": self.priority,
            "due_us": self.due_us,
        }
        return without_empty(held)


def _require_lines(*names: str) -> None:
    """Raise UserError for a name with characters that would break a table or turn its text."""
    for name in names:
        if not name.isprintable():
            raise UserError(
                f"the name {name!a} has control characters",
                hint="names are one line of printable text",
            )


class Workload(Frozen):
    """Operations, with their order.

    Attributes:
        operations: in the order of the file, which breaks ties.
        axes: names and sizes of the axes of which the ranks are numbered, the first one fastest:
            rank = i0 + size0 · (i1 + size1 · …); empty if it has none.
        period: µs after which a job starts anew; None for work that is done once.
        resources: bandwidth in GB/s of named resources, where a file states it.
        notes: assumptions of a reader.
        size: number of ranks; 0: those that operations name.

    Raises:
        UserError: a name twice, an unknown predecessor, a cycle (which is named), an unknown rank.
    """

    name: str
    operations: tuple[WorkloadOperation, ...]
    axes: tuple[tuple[str, int], ...] = ()
    period: Fraction | None = None
    resources: tuple[tuple[str, Fraction], ...] = ()
    notes: tuple[str, ...] = ()
    size: int = 0
    ranks: int = field(init=False)
    predecessors: tuple[tuple[int, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _require_lines(self.name, *dict(self.axes), *dict(self.resources))
        axes = tuple((name, integer(size, f"axis {name}")) for name, size in self.axes)
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "size", integer(self.size, "size"))
        if self.period is not None:
            object.__setattr__(self, "period", exact(self.period, "period"))
        if not self.operations:
            raise UserError("a workload without operations", where=self.name)
        if self.period is not None and not 0 < self.period <= LONGEST_US:
            raise UserError(f"the period {self.period} is not a positive time in µs")
        members = sum(len(one.group) + len(one.ranks) for one in self.operations)
        require_size(len(self.operations), members)
        named = 1 + max((max(one.members, default=-1) for one in self.operations), default=-1)
        product = _product(self.axes)
        limit = self.size or product
        if limit and named > limit:
            lost = next(one for one in self.operations if max(one.members, default=-1) >= limit)
            raise UserError(
                f"{lost.name}: rank {max(lost.members)} is outside 0 … {limit - 1}",
                hint="the workload says how many ranks it has: in its ranks, or its axes",
            )
        if self.size and self.axes and self.size != product:
            raise UserError(f"the axes have {product} ranks, the workload {self.size}")
        object.__setattr__(self, "ranks", limit or named)
        object.__setattr__(self, "predecessors", _predecessors(self.operations))

    def __repr__(self) -> str:
        operations = count(len(self.operations), "operation")
        return f"<Workload {self.name}: {operations} on {count(self.ranks, 'rank')}>"

    @property
    def classes(self) -> dict[str, tuple[int, ...]]:
        """Return the indices of the operations of each class, computations left out."""
        found: dict[str, list[int]] = {}
        for at, one in enumerate(self.operations):
            if one.communicates:
                found.setdefault(one.class_name, []).append(at)
        return {name: tuple(which) for name, which in found.items()}

    @property
    def needs_machine(self) -> bool:
        """Return True unless all operations are computations and loads."""
        return any(one.needs_machine for one in self.operations)

    @property
    def ordered(self) -> bool:
        """Return True if anything waits for anything, or computes."""
        return any(self.predecessors) or any(not one.communicates for one in self.operations)

    def computing(self, operation: WorkloadOperation) -> tuple[int, ...]:
        """Return the ranks on which a computation runs."""
        return operation.ranks or tuple(range(max(self.ranks, 1)))

    def renumbered(self, order: Sequence[int]) -> Workload:
        """Return it with rank ``order[i]`` in the place of rank i, and without its axes.

        Axes number the ranks, so they do not hold after it. ``order``: each rank once.
        """
        moved = tuple(one.renumbered(order) for one in self.operations)
        return replace(self, operations=moved, axes=(), size=len(order))

    def to_json(self) -> dict[str, Any]:
        """Return the object of a workload file."""
        held = {
            "ranks": self.size or None,
            "axes": dict(self.axes),
            "period": self.period,
            "resources": dict(self.resources),
            "notes": self.notes,
        }
        head = {"weft": "workload", "schema": SCHEMA, "name": self.name}
        operations = [one.to_json() for one in self.operations]
        return {**head, **without_empty(held), "operations": operations}

    def digest(self) -> str:
        """Return a hash of all that a plan depends on: neither the name nor the notes."""
        body = {k: v for k, v in self.to_json().items() if k not in ("name", "notes")}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def require_ranks(workload: Workload, ranks: int, machine: str, where: str | None = None) -> None:
    """Check that a machine has all ranks of a workload, which is in the file ``where``.

    Raises:
        BadTopology: it has fewer.
    """
    for one in workload.operations:
        if max(one.members, default=-1) >= ranks:
            raise BadTopology(
                f"{one.name}: rank {max(one.members)} is not on {machine}, "
                f"which has {count(ranks, 'rank')}",
                where=where,
                hint="-t names a machine with all ranks of the workload",
            )


def require_size(operations: int, number: int) -> None:
    """Check how many operations a workload has, and how many ranks their groups name together.

    Raises:
        UserError: more than ``MOST_OPERATIONS``, or than ``MOST_MEMBERS``.
    """
    if operations > MOST_OPERATIONS:
        raise UserError(
            f"more than {MOST_OPERATIONS} operations: one for each group of each layer",
            hint="fewer layers or ranks: a step of one layer, or of one pod, says as much",
        )
    if number > MOST_MEMBERS:
        raise UserError(
            f"the groups of all operations name more than {MOST_MEMBERS} ranks together",
            hint="fewer layers or ranks: a step of one layer, or of one pod, says as much",
        )


def axis_groups(axes: Sequence[tuple[str, int]], over: Iterable[str]) -> list[tuple[int, ...]]:
    """Return the groups of some axes: ranks that differ in the coordinates of these only.

    The first axis is the fastest; a group has the order of its ranks.

    Raises:
        UserError: no such axis, or more ranks than a group may have.

    >>> axis_groups((("tp", 2), ("dp", 3)), ["dp"])
    [(0, 2, 4), (1, 3, 5)]
    """
    names = [name for name, _ in axes]
    chosen = set(over)
    for name in sorted(chosen):
        if name not in names:
            raise UserError(f"unknown axis {name!r}", hint=suggest(name, names))
    if not axes:
        return []
    if _product(axes) > LARGEST_GROUP:
        raise UserError(f"the axes have {_product(axes)} ranks, more than {LARGEST_GROUP}")
    slow_first = tuple(reversed(axes))
    grid = np.arange(_product(axes)).reshape([size for _, size in slow_first])
    inner = [i for i, (name, _) in enumerate(slow_first) if name in chosen]
    outer = [i for i in range(len(axes)) if i not in inner]
    members = math.prod(slow_first[i][1] for i in inner)
    return [tuple(group) for group in grid.transpose(outer + inner).reshape(-1, members).tolist()]


def _product(axes: Sequence[tuple[str, int]]) -> int:
    product = 1 if axes else 0
    for _, size in axes:
        product *= size
    return product


# --- checks ---------------------------------------------------------------------------------------


def _settle_numbers(one: WorkloadOperation) -> None:
    """Make NumPy's numbers and floats exact ones of Python, and arrays and lists tuples."""
    far = 1 << 200  # the checks below report values out of range

    def whole(value: Any) -> int:
        return value if type(value) is int else integer(value, one.name, -far, far)

    def wholes(values: Any) -> tuple[int, ...]:
        fine = type(values) is tuple and only(values, int)
        return values if fine else tuple(map(whole, values))

    settled: dict[str, Any] = {
        "group": wholes(one.group),
        "ranks": wholes(one.ranks),
        "bytes": whole(one.bytes),
        "matrix": tuple(map(wholes, one.matrix)),
        "root": None if one.root is None else whole(one.root),
        "priority": None if one.priority is None else whole(one.priority),
        "us": None if one.us is None else exact(one.us, f"{one.name}: us"),
        "due_us": None if one.due_us is None else exact(one.due_us, f"{one.name}: due_us"),
        "loads": tuple((name, exact(us, f"{one.name}: us")) for name, us in one.loads),
    }
    for key, value in settled.items():
        object.__setattr__(one, key, value)


def _check_operation(one: WorkloadOperation) -> None:
    kind = one.kind
    for label, ranks in (("group", one.group), ("ranks", one.ranks)):
        _check_ranks(one.name, label, ranks)
    if kind == WorkKind.COMPUTE:
        if one.us is None:
            raise UserError(f"{one.name}: a computation without a duration", hint='"us": 700')
        _check_time(one.name, "the duration", one.us)
    elif kind == WorkKind.LOAD:
        if not one.loads:
            raise UserError(f"{one.name}: a load of no resource", hint='"us": {"nic": 960}')
        for resource, us in one.loads:
            _check_time(one.name, f"the load of {resource!r}", us)
    elif kind == WorkKind.ALLTOALLV:
        _check_matrix(one)
    elif kind == WorkKind.MULTICAST:
        _check_shards(one)
    else:
        _check_group(one)
    if one.due_us is not None:
        _check_time(one.name, "the due time", one.due_us)
    if one.root is not None and one.root not in one.group:
        raise UserError(f"{one.name}: root {one.root} is outside its group")


def _check_ranks(name: str, label: str, ranks: tuple[int, ...]) -> None:
    if ranks and not 0 <= min(ranks) <= max(ranks) < LARGEST_GROUP:
        bad = min(ranks) if min(ranks) < 0 else max(ranks)
        raise UserError(f"{name}: {label} names rank {bad}", hint="ranks are counted from 0")
    if len(set(ranks)) < len(ranks):
        twice = next(v for v in ranks if ranks.count(v) > 1)
        raise UserError(f"{name}: {label} names rank {twice} twice")


def _check_time(name: str, what: str, us: Fraction) -> None:
    if us < 0:
        raise UserError(f"{name}: {what} is negative: {us} µs", hint="times are in µs, 0 or more")
    if us > LONGEST_US:
        raise UserError(f"{name}: {what} is longer than 30 years")


def _check_bytes(name: str, what: str, value: int) -> None:
    if not 0 <= value <= LARGEST_BYTES:
        raise UserError(f"{name}: {what} of {value} bytes", hint="a size is 0 to 2^60 bytes")


def _check_group(one: WorkloadOperation) -> None:
    if one.kind == WorkKind.TRANSFER:
        if len(one.group) != 2:
            raise UserError(f"{one.name}: a transfer has one source and one destination")
    elif len(one.group) < 1:
        raise UserError(f"{one.name}: a collective without a group", hint='"group": [0, 1, 2, 3]')
    if one.bytes == 0:
        raise UserError(
            f"{one.name}: its size is missing, or 0",
            hint='"bytes": 96000000; leave out what sends nothing',
        )
    _check_bytes(one.name, "a message", one.bytes)
    if one.root is not None and one.kind not in ROOTED:
        raise UserError(f"{one.name}: {one.kind} has no root")


def _check_matrix(one: WorkloadOperation) -> None:
    side = len(one.matrix)
    for at, row in enumerate(one.matrix):
        if len(row) != side:
            raise UserError(
                f"{one.name}: the matrix is not square: row {at} has {len(row)} of {side} columns"
            )
        for value in row:
            _check_bytes(one.name, f"row {at} of the matrix has an entry", value)
    if not side or side != len(one.group):
        raise UserError(
            f"{one.name}: a matrix of {side} rows for {len(one.group)} ranks",
            hint='"matrix" has the bytes from each rank of the group to each',
        )


def _check_shards(one: WorkloadOperation) -> None:
    if not one.shards:
        raise UserError(
            f"{one.name}: a multicast without shards",
            hint='"shards": [{"holders": [0], "receivers": [4, 5], "bytes": 1000000}]',
        )
    for at, shard in enumerate(one.shards):
        what = f"shard {at}"
        _check_ranks(one.name, f"{what}: holders", shard.holders)
        _check_ranks(one.name, f"{what}: receivers", shard.receivers)
        _check_bytes(one.name, what, shard.bytes)
        if not shard.holders or not shard.receivers:
            raise UserError(f"{one.name}: expected one holder and one receiver or more of {what}")


# --- order ----------------------------------------------------------------------------------------


def _predecessors(operations: Sequence[WorkloadOperation]) -> tuple[tuple[int, ...], ...]:
    place: dict[str, int] = {}
    for at, one in enumerate(operations):
        if one.name in place:
            raise UserError(f"two operations are called {one.name!r}")
        place[one.name] = at
        if one.priority is not None and not -LARGEST <= one.priority <= LARGEST:
            raise UserError(f"{one.name}: priority {one.priority} is out of range")
    for one in operations:
        for name in one.after:
            if name not in place:
                raise UserError(
                    f"{one.name}: after {name!r}, which is not there", hint=suggest(name, place)
                )
    found = tuple(tuple(sorted({place[x] for x in one.after})) for one in operations)
    if cycle := _cycle(found):
        names = [operations[at].name for at in cycle]
        raise UserError(
            f"the operations wait for each other: {' after '.join([*names, names[0]])}",
            hint="leave out one of these",
        )
    return found


def topological(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """Return the indices, each after its predecessors; those on and behind cycles are left out.

    Of those that are ready the one that became so first goes first; O(operations + edges).
    """
    followers: list[list[int]] = [[] for _ in predecessors]
    missing = [len(before) for before in predecessors]
    for at, before in enumerate(predecessors):
        for other in before:
            followers[other].append(at)
    order = [at for at, number in enumerate(missing) if not number]
    for at in order:
        for other in followers[at]:
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    return order


def _cycle(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """Return a cycle, each after the next; empty if there is none."""
    order = topological(predecessors)
    if len(order) == len(predecessors):
        return []
    left = set(range(len(predecessors))) - set(order)
    path: list[int] = []
    places: dict[int, int] = {}
    at = min(left)
    while at not in places:  # each that is left waits for another that is left
        places[at] = len(path)
        path.append(at)
        at = next(other for other in predecessors[at] if other in left)
    return path[places[at] :]
