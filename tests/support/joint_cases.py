"""Workloads and machines for tests of the joint bound, and its linear program written out."""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from weft.dsl.nouns.topology import Link, Resource, Topology, gpu, link, switch
from weft.dsl.nouns.workload import Forwarders, Shard, Workload, WorkloadOperation
from weft.synth.fabric.fabric import fabric_of
from weft.synth.joint.demands import CollectiveDemand, FlowPart, SumPart, TreePart

MB = 10**6


def collective(name: str, kind: str, group: Any, mb: float, **more: Any) -> WorkloadOperation:
    """Return a collective of so many MB."""
    if "relays" in more:
        more["relays"] = Forwarders(more["relays"])
    return WorkloadOperation(name, kind, group=tuple(group), bytes=round(mb * MB), **more)


def boxes(hosts: int, size: int, mb: float) -> list[WorkloadOperation]:
    """Return an allreduce in each host."""
    return [
        collective(f"tp{i}", "allreduce", range(i * size, (i + 1) * size), mb, of_class="tp")
        for i in range(hosts)
    ]


def rails(hosts: int, size: int, mb: float) -> list[WorkloadOperation]:
    """Return an allreduce of each local rank over the hosts."""
    return [
        collective(f"dp{i}", "allreduce", range(i, hosts * size, size), mb, of_class="dp")
        for i in range(size)
    ]


@st.composite
def machines(draw: st.DrawFn, most: int = 16, least: int = 2) -> Topology:
    """Draw a strongly connected machine: a ring with chords, perhaps a switch and a shared NIC."""
    n = draw(st.integers(least, most))
    width = st.sampled_from([Fraction(x) for x in (10, 12, 25, 50)])
    links: list[Link] = [link(i, (i + 1) % n, draw(width)) for i in range(n)]
    links += [link((i + 1) % n, i, draw(width)) for i in range(n) if draw(st.booleans())]
    nodes = [gpu(i) for i in range(n)]
    if draw(st.booleans()):
        nodes.append(switch("s"))
        for i in draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=n, unique=True)):
            wide = draw(width)
            links += [link(i, n, wide), link(n, i, wide)]
    shared = ()
    if draw(st.booleans()):
        some = draw(st.lists(st.integers(0, len(links) - 1), min_size=1, max_size=4, unique=True))
        shared = (Resource("nic", tuple(some), draw(width)),)
    return Topology("drawn", tuple(nodes), tuple(links), shared)


KINDS = (
    "allreduce allgather reduce_scatter alltoall broadcast scatter gather alltoallv "
    "multicast transfer"
).split()


@st.composite
def workloads(draw: st.DrawFn, ranks: int, most_classes: int = 5) -> Workload:
    """Draw collectives and demands on random groups; those that may not be connected get relays."""
    found = []
    for i in range(draw(st.integers(min(2, most_classes), most_classes))):
        size = draw(st.integers(2, min(ranks, 6)))
        group = draw(st.permutations(range(ranks)))[:size]
        everyone = size == ranks
        kind = draw(st.sampled_from(KINDS))
        relays = "none" if everyone and draw(st.booleans()) else "all"
        mb = draw(st.sampled_from([1, 3, 10, 24]))
        more = _demand(draw, kind, group, mb * MB)
        found.append(WorkloadOperation(f"c{i}", kind, **more, relays=Forwarders(relays)))
    return Workload("drawn", tuple(found))


def _demand(draw: st.DrawFn, kind: str, group: list[int], size: int) -> dict[str, Any]:
    """Return what goes where in an operation of a kind."""
    if kind == "alltoallv":
        amounts = st.sampled_from([0, size // 4, size // 2, size])
        rows = [[draw(amounts) for _ in group] for _ in group]
        rows[0][1] = size
        return {"group": tuple(group), "matrix": tuple(map(tuple, rows))}
    if kind == "multicast":
        cut = draw(st.integers(1, len(group) - 1))
        some, others = tuple(group[:cut]), tuple(group[cut:])
        return {"shards": (Shard(some, others, size), Shard(others[:1], some, size // 2))}
    if kind == "transfer":
        return {"group": tuple(group[:2]), "bytes": size}
    return {"group": tuple(group), "bytes": size}


# --- the program written out ----------------------------------------------------------------------


def is_relaxed(one: CollectiveDemand) -> bool:
    """Return True if trees may pass ranks that need nothing: the program below is then no optimum,
    but at most the optimum."""
    trees = [part for part in one.parts if isinstance(part, TreePart)]
    return one.relayed or any(
        not {root, *part.receivers} >= set(one.forwarders)
        for part in trees
        for root in part.holders
    )


def brute_force_us(topology: Topology, demands: tuple[CollectiveDemand, ...]) -> float:
    """Return the joint optimum in µs by one linear program of flows, without any column.

    A tree of one unit is what carries a unit of flow to each receiver (Edmonds: exact where all
    that may forward are receivers, else a relaxation, so the value is then a lower bound).
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    program = _Program(topology)
    for one in demands:
        for part in one.parts:
            program.add(one, part)
    matrices = []
    for entries, right in ((program.below, program.below_right), (program.equal, program.right)):
        rows, columns, values = zip(*entries, strict=True)
        shape = (len(right), program.size)
        matrices.append(coo_array((values, (rows, columns)), shape=shape))
    cost = np.zeros(program.size)
    cost[0] = 1
    found = linprog(
        cost, A_ub=matrices[0], b_ub=program.below_right, A_eq=matrices[1], b_eq=program.right
    )
    assert found.status == 0, found.message
    return float(found.fun)


class _Program:
    """Columns: T in µs, then MB on links. Rows below: capacities, then receivers' flows."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.fabric = topology, fabric_of(topology)
        self.size = 1
        width = self.fabric.GBps * 1000.0 / MB
        self.below = [(r, 0, -float(w)) for r, w in enumerate(width)]
        self.below_right = [0.0] * self.fabric.resources
        self.equal: list[tuple[int, int, float]] = []
        self.right: list[float] = []

    def add(self, one: CollectiveDemand, part: object) -> None:
        """Add the columns and rows of a part."""
        if isinstance(part, FlowPart):
            wanted = {v: float(x) / MB for v, x in part.pairs() if v != part.source}
            out = {part.source: sum(wanted.values())}
            self._flow(one, out, wanted, self._links())
        elif isinstance(part, TreePart):
            amount = float(part.amount) / MB
            self._tree(one, part.holders, part.receivers, amount, part.backwards)
        else:
            assert isinstance(part, SumPart)
            roots = [(v, self._new(1)) for v in one.forwarders]
            self._row([(c, 1.0) for _, c in roots], float(part.amount) / MB)
            for v, column in roots:
                rest = tuple(w for w in part.members if w != v)
                for backwards in (False, True):
                    self._tree(one, (v,), rest, column, backwards)

    def _new(self, count: int) -> int:
        self.size += count
        return self.size - count

    def _row(self, entries: list[tuple[int, float]], right: float) -> None:
        self.equal += [(len(self.right), column, value) for column, value in entries]
        self.right.append(right)

    def _links(self) -> int:
        """Return the first of new columns, one for each link, that load the machine."""
        first = self._new(self.fabric.links)
        for link_number in range(self.fabric.links):
            for resource in self.fabric.loaded[link_number]:
                self.below.append((resource, first + link_number, 1.0))
        return first

    def _tree(
        self,
        one: CollectiveDemand,
        roots: tuple[int, ...],
        receivers: tuple[int, ...],
        amount: Any,
        back: bool,
    ) -> None:
        """``amount``: MB as a float, or the column that says how many; of all roots together."""
        width = self._links()
        for receiver in receivers:
            flow = self._new(self.fabric.links)
            out = {roots[0]: amount}
            if len(roots) > 1:
                out = {v: self._new(1) for v in roots}
                self._row([(c, 1.0) for c in out.values()], amount)
            self._flow(one, out, {receiver: amount}, flow, back=back)
            for link_number in range(self.fabric.links):
                row = len(self.below_right)
                self.below += [(row, flow + link_number, 1.0), (row, width + link_number, -1.0)]
                self.below_right.append(0.0)

    def _flow(
        self,
        one: CollectiveDemand,
        out: dict[int, Any],
        wanted: dict[int, Any],
        first: int,
        *,
        back: bool = False,
    ) -> None:
        """Conserve flow at every node; a GPU that may not forward only starts or ends it."""
        may = set(one.forwarders)
        for node in range(len(self.topology.nodes)):
            stores = self.topology.nodes[node].stores
            entries: list[tuple[int, float]] = []
            right = 0.0
            for i, x in enumerate(self.topology.links):
                tail, head = (x.dst, x.src) if back else (x.src, x.dst)
                if stores and node not in may and node in (tail, head):
                    entries = [(first + i, 1.0)]
                    self._row(entries, 0.0)
                    entries = []
                elif tail == node:
                    entries.append((first + i, 1.0))
                elif head == node:
                    entries.append((first + i, -1.0))
            if stores and node not in may:
                continue
            for sign, side in ((1.0, out), (-1.0, wanted)):
                amount = side.get(node, 0.0)
                if isinstance(amount, int):
                    entries.append((amount, -sign))
                else:
                    right += sign * amount
            self._row(entries, right)


# --- launch orders --------------------------------------------------------------------------------


def hangs(groups: list[tuple[int, ...]], launch: list[tuple[int, ...]]) -> bool:
    """Return True if ranks that start their collectives in order, each blocking, never finish.

    A collective is done once it is the next one of all its ranks: played, not proved.
    """
    left = [list(order) for order in launch]
    going = True
    while going:
        going = False
        for part, group in enumerate(groups):
            if all(left[rank] and left[rank][0] == part for rank in group):
                for rank in group:
                    left[rank].pop(0)
                going = True
    return any(left)
