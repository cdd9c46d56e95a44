"""Traces of single ranks as one workload: collectives are matched, messages are paired.

The k-th collective of a group on one rank is the k-th of that group on all of its ranks; the k-th
message from one rank to another with one tag is the k-th that is received so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction

from ...base.errors import BadFile
from ...base.lazy_dataclass import dataclass
from ...nouns.workload import WorkKind, Workload, WorkloadOperation
from ...nouns.workload_file import placed

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RankNode:
    """One node of a rank's trace.

    Attributes:
        kind: a kind of operation, ``send``, ``recv``, or empty for what only orders others.
        group: of a collective; ``row``: bytes to each of its ranks, of an ``alltoallv``.
        peer, tag: of a message; ``label``: what its group is called.
    """

    id: int
    name: str
    needs: tuple[int, ...]
    kind: str = ""
    us: Fraction = Fraction(0)
    bytes: int = 0
    group: tuple[int, ...] = ()
    row: tuple[int, ...] = ()
    root: int | None = None
    peer: int = -1
    tag: int = 0
    label: str = ""


@dataclass(slots=True)
class _Matched:
    """An operation as ranks show it: the nodes by rank."""

    nodes: dict[int, RankNode] = field(default_factory=dict)


def workload_of_traces(
    name: str, ranks: Mapping[int, Sequence[RankNode]], where: str, notes: Sequence[str]
) -> Workload:
    """Return the workload of the traces of all ranks.

    Raises:
        BadFile: ranks are missing, or do not agree.
    """
    _require_all(ranks, where)
    alike = _alike(ranks)
    found: dict[Key, _Matched] = {}
    keys: dict[tuple[int, int], Key] = {}
    for rank, nodes in ranks.items():
        count: dict[Key, int] = {}
        for node in nodes:
            key = _key(rank, node, count, alike)
            if key is not None:
                keys[rank, node.id] = key
                found.setdefault(key, _Matched()).nodes[
                    rank if node.kind != "recv" else -1 - rank
                ] = node
    names = _names(found)
    before = _Before(ranks, keys)
    operations = [
        _operation(names[key], key, one, before.of(key, one, names), where)
        for key, one in found.items()
    ]
    said = list(notes)
    if alike:
        said.append("computations that are equal on all ranks are taken together")
    return placed(
        lambda: Workload(name, tuple(operations), notes=tuple(said), size=len(ranks)), where
    )


def _require_all(ranks: Mapping[int, Sequence[RankNode]], where: str) -> None:
    """Raise BadFile if traces of ranks are missing."""
    named = {v for nodes in ranks.values() for node in nodes for v in (*node.group, node.peer)}
    most = max([*named, *ranks], default=-1)
    lost = [rank for rank in range(most + 1) if rank not in ranks]
    if lost:
        shown = ", ".join(map(str, lost[:8])) + (", …" if len(lost) > 8 else "")
        raise BadFile(
            f"the traces of ranks {shown} are missing: {len(ranks)} of {most + 1} are there",
            where=where,
            hint="all ranks belong into one folder, called NAME.RANK.et or NAME.RANK.json",
        )


def _alike(ranks: Mapping[int, Sequence[RankNode]]) -> set[int]:
    """Return the ids of computations that are equal on all ranks; all traces have one form then."""
    first, *others = ranks.values()
    form = [(one.id, one.kind, one.needs) for one in first]
    if not others or any([(one.id, one.kind, one.needs) for one in x] != form for x in others):
        return set()
    return {
        one.id
        for at, one in enumerate(first)
        if one.kind == WorkKind.COMPUTE
        and all(x[at].us == one.us and x[at].name == one.name for x in others)
    }


def _key(rank: int, node: RankNode, count: dict[Key, int], alike: set[int]) -> Key | None:
    """Return what identifies the operation of a node on all ranks; None if it only orders."""
    if not node.kind:
        return None
    if node.kind == WorkKind.COMPUTE:
        return ("compute", node.id) if node.id in alike else ("compute", node.id, rank)
    if node.kind == "send":
        key: Key = ("message", rank, node.peer, node.tag)
    elif node.kind == "recv":
        key = ("message", node.peer, rank, node.tag)
    else:
        key = ("collective", node.group)
    count[key] = count.get(key, 0) + 1
    return (*key, count[key])


def _names(found: Mapping[Key, _Matched]) -> dict[Key, str]:
    """Return a name for each operation: that of its node, with what tells it from others."""
    names: dict[Key, str] = {}
    taken: set[str] = set()
    for key, one in found.items():
        node = next(iter(one.nodes.values()))
        plain = node.name or str(node.kind)
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain} ({number})"
        taken.add(name)
        names[key] = name
    return names


@dataclass(slots=True)
class _Before:
    """Predecessors by key; what only orders is looked through."""

    ranks: Mapping[int, Sequence[RankNode]]
    keys: Mapping[tuple[int, int], Key]
    by_id: dict[int, dict[int, RankNode]] = field(default_factory=dict)

    def of(self, key: Key, one: _Matched, names: Mapping[Key, str]) -> tuple[str, ...]:
        """Return the names of the operations that an operation waits for."""
        found: dict[str, None] = {}
        for at, node in one.nodes.items():
            rank = at if at >= 0 else -1 - at
            for other in self._through(rank, node):
                if other != key:
                    found[names[other]] = None
        return tuple(found)

    def _through(self, rank: int, node: RankNode) -> Iterable[Key]:
        if rank not in self.by_id:
            self.by_id[rank] = {one.id: one for one in self.ranks[rank]}
        todo, seen = list(node.needs), set(node.needs)
        for other in todo:
            if (rank, other) in self.keys:
                yield self.keys[rank, other]
                continue
            more = [x for x in self.by_id[rank][other].needs if x not in seen]
            seen.update(more)
            todo += more


def _operation(
    name: str, key: Key, one: _Matched, after: tuple[str, ...], where: str
) -> WorkloadOperation:
    """Return an operation, after its ranks were found to agree."""
    node = next(iter(one.nodes.values()))
    at = f"{where}: {name}"
    if key[0] == "compute":
        ranks = tuple(sorted(one.nodes))
        return placed(
            lambda: WorkloadOperation(name, "compute", ranks=ranks, us=node.us, after=after), at
        )
    if key[0] == "message":
        return _transfer(name, key, one, after, at)
    lost = [rank for rank in node.group if rank not in one.nodes]
    if lost:
        raise BadFile(f"rank {lost[0]} takes no part in it, though it is in the group", where=at)
    for rank, other in one.nodes.items():
        if (other.kind, other.bytes, other.root) != (node.kind, node.bytes, node.root):
            raise BadFile(
                f"rank {rank} has {other.kind} of {other.bytes} bytes, others {node.kind} of "
                f"{node.bytes}",
                where=at,
                hint="the k-th collective of a group must be the same on all its ranks",
            )
    matrix = tuple(one.nodes[rank].row for rank in node.group) if node.row else ()
    label = node.label or f"{node.kind} of {len(node.group)}"
    return placed(
        lambda: WorkloadOperation(
            name,
            node.kind,
            group=node.group,
            bytes=0 if matrix else node.bytes,
            matrix=matrix,
            root=node.root,
            of_class=label,
            after=after,
        ),
        at,
    )


def _transfer(
    name: str, key: Key, one: _Matched, after: tuple[str, ...], where: str
) -> WorkloadOperation:
    src, dst = key[1], key[2]
    assert isinstance(src, int)
    assert isinstance(dst, int)
    if len(one.nodes) != 2:
        missing = "received" if src in one.nodes else "sent"
        raise BadFile(f"a message from rank {src} to rank {dst} is never {missing}", where=where)
    node = one.nodes[src]
    return placed(
        lambda: WorkloadOperation(
            name, "transfer", group=(src, dst), bytes=node.bytes, of_class="messages", after=after
        ),
        where,
    )
