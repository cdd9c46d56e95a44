"""Symmetries of a machine that map a workload to itself, and the orbits of its parts.

Only elements of the group that :mod:`weft.dsl.symmetry.orbits` finds are considered: each moves
every rank, and all are listed. Those that keep the workload are a subgroup, so that loads may be
averaged over them and prices taken equal on orbits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import WorkKind
from weft.dsl.symmetry.orbits import Orbits, orbits_of

from .demands import CollectiveDemand, FlowPart, Part, TreePart

_DIRECTED = (WorkKind.ALLTOALLV, WorkKind.MULTICAST, WorkKind.TRANSFER, Kind.ALLTONEXT)


@dataclass(frozen=True, eq=False)
class WorkloadSymmetry:
    """The symmetries and the orbits.

    Attributes:
        images, rows: images of nodes (order, nodes) and of resources (order, resources).
        row_orbit: the orbit of every resource.
        parts: (demand, part) of each part.
        part_images: shape (order, parts).
        part_orbit: the lowest part of each one's orbit.
    """

    images: Ints32
    rows: Ints32
    row_orbit: Ints
    parts: tuple[tuple[int, int], ...]
    part_images: Ints
    part_orbit: Ints

    @property
    def order(self) -> int:
        """Number of symmetries."""
        return len(self.images)


def symmetry_of(topology: Topology, demands: Sequence[CollectiveDemand]) -> WorkloadSymmetry:
    """Return the symmetries that keep a workload; the identity is one."""
    machine = orbits_of(topology)
    parts = tuple((k, p) for k, one in enumerate(demands) for p in range(len(one.parts)))
    moves = _PartMoves(demands, parts)
    images = np.asarray(machine.images)
    keeps = np.ones(len(images), bool)
    for members in moves.groups:
        keeps &= moves.kept(images, members)
    chosen = np.flatnonzero(keeps)
    found = [moves.image(images[at]) for at in chosen.tolist()]
    fits = [at for at, image in zip(chosen.tolist(), found, strict=True) if image is not None]
    table = np.array([image for image in found if image is not None], np.int64)
    part_images = table.reshape(len(fits), len(parts))
    return WorkloadSymmetry(
        machine.images[fits],
        machine.row_images[fits],
        _orbits(machine, fits),
        parts,
        part_images,
        part_images.min(axis=0) if parts else np.zeros(0, np.int64),
    )


def _orbits(machine: Orbits, fits: list[int]) -> Ints:
    lowest = machine.row_images[fits].min(axis=0)
    found: Ints = np.unique(lowest, return_inverse=True)[1]
    return found


class _PartMoves:
    """Where the parts of a workload go under an image of the nodes."""

    def __init__(self, demands: Sequence[CollectiveDemand], parts: Sequence[tuple[int, int]]):
        self.demands = demands
        self.number = {part: i for i, part in enumerate(parts)}
        self.flows = _flow_tables(demands)
        self.at: dict[object, list[int]] = {}
        for k in range(len(demands)):
            self.at.setdefault(self._key(k, None), []).append(k)
        by_kind: dict[object, list[int]] = {}
        for k, one in enumerate(demands):
            by_kind.setdefault(one.key, []).append(k)
        # Columns of the groups of all alike collectives: they are tested at once.
        self.groups = [
            np.array([sorted(demands[k].operation.members) for k in some], np.int64)
            for some in by_kind.values()
        ]
        self.roots = [
            {_identity(one, part): p for p, part in enumerate(one.parts)} for one in demands
        ]

    def kept(self, images: Ints32, groups: Ints) -> Bools:
        """Return for each image whether it maps the groups of one kind to each other."""
        there = {row.tobytes() for row in groups.astype(np.int32)}
        moved = np.sort(images[:, groups], axis=2).astype(np.int32)
        flat = moved.reshape(-1, groups.shape[1])
        inside = np.fromiter((row.tobytes() in there for row in flat), bool, len(flat))
        table = inside.reshape(moved.shape[:2])
        return np.array([bool(row.all()) for row in table], bool)

    def image(self, image: Ints32) -> list[int] | None:
        """Return the image of every part, or None if some demand has none."""
        where = image.tolist()
        taken: dict[object, int] = {}
        found = [0] * len(self.number)
        for k, one in enumerate(self.demands):
            key = self._key(k, where)
            turn = taken[key] = taken.get(key, -1) + 1
            same = self.at.get(key, ())
            if turn >= len(same):
                return None
            there = same[turn]
            for p, part in enumerate(one.parts):
                at = self.roots[there].get(_identity(one, part, where))
                if at is None:
                    return None
                found[self.number[k, p]] = self.number[there, at]
        return found

    def _key(self, k: int, where: Sequence[int] | None) -> object:
        """Return all that the traffic of a demand depends on, moved."""
        one = self.demands[k]
        go = (lambda v: v) if where is None else where.__getitem__
        members = tuple(sorted(map(go, one.operation.members)))
        forwarders = tuple(sorted(map(go, one.forwarders))) if one.relayed else ()
        root = one.operation.root
        detail: object = None if root is None else go(root)
        if k in self.flows:
            detail = _moved_flows(self.flows[k], where)
        elif one.operation.kind in _DIRECTED:
            detail = tuple(
                sorted((_identity(one, part, where), _amounts(part, where)) for part in one.parts)
            )
        return (one.key, members, forwarders, detail)


def _flow_tables(demands: Sequence[CollectiveDemand]) -> dict[int, Ints]:
    """Return source, target and number of the amount of all flows, of each demand of flows alone.

    Matrices have many entries, and are compared once for each symmetry of the machine.
    """
    number: dict[Fraction, int] = {}
    found = {}
    for k, one in enumerate(demands):
        flows = [part for part in one.parts if isinstance(part, FlowPart)]
        if one.operation.kind in _DIRECTED and len(flows) == len(one.parts):
            rows = [
                (part.source, target, number.setdefault(amount, len(number)))
                for part in flows
                for target, amount in part.pairs()
            ]
            found[k] = np.array(rows, np.int64).reshape(-1, 3).T
    return found


def _moved_flows(table: Ints, where: Sequence[int] | None) -> bytes:
    """Return the flows with their ends moved, in the order of the new ends."""
    source, target, amount = table
    if where is not None:
        images = np.asarray(where)
        source, target = images[source], images[target]
    order = np.lexsort((amount, target, source))
    return np.stack([source, target, amount])[:, order].astype(np.int64).tobytes()


def _identity(
    one: CollectiveDemand, part: Part, where: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return what tells a part from the others of its demand, moved."""
    go = (lambda v: v) if where is None else where.__getitem__
    if isinstance(part, FlowPart):
        return (go(part.source),)
    if not isinstance(part, TreePart):
        return ()
    if one.operation.kind != WorkKind.MULTICAST:
        return (go(part.holders[0]),)
    return (*sorted(map(go, part.holders)), -1, *sorted(map(go, part.receivers)))


def _amounts(part: Part, where: Sequence[int] | None) -> object:
    go = (lambda v: v) if where is None else where.__getitem__
    if isinstance(part, TreePart):
        return (part.amount, tuple(sorted(map(go, part.receivers))))
    assert not isinstance(part, FlowPart), "flows are compared as tables"
    return part.amount
