"""Traces of single ranks as one workload: collectives are matched, messages are paired.

The k-th collective of a group on one rank is the k-th of that group on all of its ranks; the k-th
message from one rank to another with one tag is the k-th that is received so. A message waits for
what its sender did before, and not for its receiver; what follows the receive waits for both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

from ...base.errors import BadFile, placed
from ...base.files import parse_json, read_text
from ...base.lazy_dataclass import dataclass
from ...nouns.collective import Kind
from ...nouns.workload import WorkKind, Workload, WorkloadOperation

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RankNode:
    """One node of a rank's trace.

    Attributes:
        kind: a kind of operation, ``send``, ``recv``, or empty for one that only orders others.
        group: of a collective; ``row``: bytes to each of its ranks, of an exchange with splits.
        peer, tag: of a message; ``label``: the name of its group.
        channel: of a collective, distinguishes those of one group that do not follow each other.
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
    channel: tuple[object, ...] = ()


@dataclass(slots=True)
class _Matched:
    nodes: dict[int, RankNode] = field(default_factory=dict)


def workload_of_traces(
    name: str,
    ranks: Mapping[int, Sequence[RankNode]],
    where: str,
    notes: Sequence[str],
    *,
    size: int = 0,
) -> Workload:
    """Return the workload of the traces of all ranks.

    ``size``: where some ranks lack a trace, the number of all; the others of a group are then
    taken to do the same as those with a trace. 0: all must be there.

    Raises:
        BadFile: ranks are missing, or do not agree.
    """
    if not size:
        _require_all(ranks, where)
    alike = _alike(ranks)
    found: dict[Key, _Matched] = {}
    keys: dict[tuple[int, int], Key] = {}
    for rank, nodes in ranks.items():
        count: dict[Key, int] = {}
        for at, node in enumerate(nodes):
            key = _key(rank, at, node, count, alike)
            if key is not None:
                keys[rank, node.id] = key
                found.setdefault(key, _Matched()).nodes[
                    rank if node.kind != "recv" else -1 - rank
                ] = node
    names = _names(found)
    before = _Before(ranks, keys)
    held = frozenset(ranks)
    operations = [
        _operation(names[key], key, one, before.of(key, one, names), held, where)
        for key, one in found.items()
    ]
    said = list(notes)
    if alike:
        said.append("computations that are equal on all ranks are taken together")
    return placed(
        lambda: Workload(name, tuple(operations), notes=tuple(said), size=size or len(ranks)), where
    )


def _require_all(ranks: Mapping[int, Sequence[RankNode]], where: str) -> None:
    named = {v for nodes in ranks.values() for node in nodes for v in (*node.group, node.peer)}
    most = max([*named, *ranks], default=-1)
    lost = [*islice((rank for rank in range(most + 1) if rank not in ranks), 9)]
    if lost:
        shown = ", ".join(map(str, lost[:8])) + (", …" if len(lost) > 8 else "")
        raise BadFile(
            f"the traces of ranks {shown} are missing: {len(ranks)} of {most + 1} are there",
            where=where,
            hint="all ranks belong into one folder, called NAME.RANK.et or NAME.RANK.json",
        )


def _alike(ranks: Mapping[int, Sequence[RankNode]]) -> set[int]:
    """Return the places of computations that are equal on all ranks, whose traces have one form."""

    def form(nodes: Sequence[RankNode]) -> list[tuple[str, list[int]]]:
        place = {node.id: at for at, node in enumerate(nodes)}
        return [(node.kind, [place[x] for x in node.needs]) for node in nodes]

    first, *others = ranks.values()
    known = form(first)
    if not others or any(form(x) != known for x in others):
        return set()
    return {
        at
        for at, one in enumerate(first)
        if one.kind == WorkKind.COMPUTE
        and all(x[at].us == one.us and x[at].name == one.name for x in others)
    }


def _key(rank: int, at: int, node: RankNode, count: dict[Key, int], alike: set[int]) -> Key | None:
    """Return the key of a node's operation on all ranks; None if it only orders.

    A message of a rank to itself only orders.
    """
    if not node.kind or node.peer == rank:
        return None
    if node.kind == WorkKind.COMPUTE:
        return ("compute", at) if at in alike else ("compute", at, rank)
    if node.kind == "send":
        key: Key = ("message", rank, node.peer, node.tag)
    elif node.kind == "recv":
        key = ("message", node.peer, rank, node.tag)
    else:
        key = ("collective", node.group, *node.channel)
    count[key] = count.get(key, 0) + 1
    return (*key, count[key])


def _names(found: Mapping[Key, _Matched]) -> dict[Key, str]:
    """Return a name for each operation: that of its node, with a distinction from others."""
    names: dict[Key, str] = {}
    taken: dict[str, int] = {}
    for key, one in found.items():
        node = next(iter(one.nodes.values()))
        name = plain = node.name or str(node.kind)
        while name in taken:
            taken[plain] += 1
            name = f"{plain} ({taken[plain]})"
        taken[name] = 1
        names[key] = name
    return names


@dataclass(slots=True)
class _Before:
    """Predecessors by key; nodes that only order are looked through."""

    ranks: Mapping[int, Sequence[RankNode]]
    keys: Mapping[tuple[int, int], Key]
    by_id: dict[int, dict[int, RankNode]] = field(default_factory=dict)
    found: dict[tuple[int, int], dict[Key, None]] = field(default_factory=dict)

    def of(self, key: Key, one: _Matched, names: Mapping[Key, str]) -> tuple[str, ...]:
        """Return the names of the operations that an operation waits for."""
        found: dict[str, None] = {}
        for at, node in one.nodes.items():
            if at < 0 and len(one.nodes) > 1:  # a message waits for its sender only
                continue
            for other in self._waits(at if at >= 0 else -1 - at, node.id):
                if other != key:
                    found[names[other]] = None
        return tuple(found)

    def _waits(self, rank: int, node: int) -> Iterable[Key]:
        """Return the operations that a node waits for, those behind nodes that only order too."""
        if rank not in self.by_id:
            self.by_id[rank] = {one.id: one for one in self.ranks[rank]}
        stack = [node]
        while stack:
            at = stack[-1]
            passed = [x for x in self.by_id[rank][at].needs if self._is_passed(rank, x)]
            fresh = [x for x in passed if (rank, x) not in self.found]
            if (rank, at) not in self.found:
                self.found[rank, at] = {}  # also ends a circle of nodes that only order
                if fresh:
                    stack += fresh
                    continue
            stack.pop()
            held = self.found[rank, at]
            for other in self.by_id[rank][at].needs:
                if (rank, other) in self.keys:
                    held[self.keys[rank, other]] = None
                if other in passed:
                    held |= self.found[rank, other]
        return self.found[rank, node]

    def _is_passed(self, rank: int, node: int) -> bool:
        """Return True for nodes that only order, and receives: messages do not wait for them."""
        return (rank, node) not in self.keys or self.by_id[rank][node].kind == "recv"


def _operation(
    name: str,
    key: Key,
    one: _Matched,
    after: tuple[str, ...],
    held: Collection[int],
    where: str,
) -> WorkloadOperation:
    """Return an operation, after its ranks were found to agree; ``held``: ranks with a trace."""
    node = next(iter(one.nodes.values()))
    at = f"{where}: {name}"
    if key[0] == "compute":
        ranks = tuple(sorted(one.nodes))
        return placed(
            lambda: WorkloadOperation(name, "compute", ranks=ranks, us=node.us, after=after), at
        )
    if key[0] == "message":
        return _transfer(name, key, one, after, held, at)
    lost = [rank for rank in node.group if rank not in one.nodes and rank in held]
    if lost:
        raise BadFile(f"rank {lost[0]} takes no part in it, though it is in the group", where=at)
    vector = node.kind == WorkKind.ALLTOALLV or any(x.row for x in one.nodes.values())
    for rank, other in one.nodes.items():
        alike = vector or other.bytes == node.bytes
        if (other.kind, other.root) != (node.kind, node.root) or not alike:
            raise BadFile(
                f"rank {rank} has {other.kind} of {other.bytes} bytes, others {node.kind} of "
                f"{node.bytes}",
                where=at,
                hint="the k-th collective of a group must be the same on all its ranks",
            )
    rows = [one.nodes[rank].row for rank in node.group if rank in one.nodes]
    matrix = tuple(rows) if all(rows) and len(rows) == len(node.group) else ()
    if node.kind != WorkKind.ALLTOALLV and len({x for row in matrix for x in row}) == 1:
        matrix = ()
    kind = WorkKind.ALLTOALLV if matrix else Kind.ALLTOALL if vector else node.kind
    label = node.label or f"{node.kind} of {len(node.group)}"
    return placed(
        lambda: WorkloadOperation(
            name,
            kind,
            group=node.group,
            bytes=0 if matrix else max(x.bytes for x in one.nodes.values()),
            matrix=matrix,
            root=node.root,
            of_class=label,
            after=after,
        ),
        at,
    )


def _transfer(
    name: str,
    key: Key,
    one: _Matched,
    after: tuple[str, ...],
    held: Collection[int],
    where: str,
) -> WorkloadOperation:
    src, dst = key[1], key[2]
    assert isinstance(src, int)
    assert isinstance(dst, int)
    if (src in held and src not in one.nodes) or (dst in held and -1 - dst not in one.nodes):
        missing = "received" if src in one.nodes else "sent"
        raise BadFile(f"a message from rank {src} to rank {dst} is never {missing}", where=where)
    sizes = {node.bytes for node in one.nodes.values() if node.bytes} or {0}
    if len(sizes) > 1:
        told = " and ".join(map(str, sorted(sizes)))
        raise BadFile(
            f"expected one size of a message from rank {src} to rank {dst}, got {told} bytes",
            where=where,
            hint="the k-th send of a pair and tag meets the k-th receive",
        )
    return placed(
        lambda: WorkloadOperation(
            name, "transfer", group=(src, dst), bytes=max(sizes), of_class="messages", after=after
        ),
        where,
    )


# --- files of traces ------------------------------------------------------------------------------
# One a rank: ``NAME.RANK.et`` or ``NAME.RANK.json``, or ``….gz``.

MEMBER = re.compile(
    r"(?P<name>.*?)[._-]?(?:rank[._-]?)?(?P<rank>\d{1,7})\.(?P<form>et|json)(?:\.gz)?"
)


def trace_files(path: str) -> tuple[str, str, dict[int, Path]]:
    """Return name, suffix and files by rank of the traces in a folder, or beside one of them.

    A path may also be the files' common prefix.

    Raises:
        BadFile: there are none, or several sets of them.
    """
    place = Path(path)
    folder, wanted = (place, None) if place.is_dir() else (place.parent, place.name)
    sets: dict[tuple[str, str], dict[int, Path]] = {}
    if not folder.is_dir():
        raise BadFile("no such file", where=path)
    for file in sorted(folder.iterdir()):
        match = MEMBER.fullmatch(file.name)
        if match and file.is_file() and not file.name.startswith("."):
            sets.setdefault((match["name"], match["form"]), {})[int(match["rank"])] = file
    if wanted is not None:
        sets = {
            key: files
            for key, files in sets.items()
            if key[0] == wanted.rstrip(".") or any(x.name == wanted for x in files.values())
        }
    if not sets:
        raise BadFile(
            "no traces there", where=path, hint="they are called NAME.RANK.et or NAME.RANK.json"
        )
    if len(sets) > 1:
        shown = ", ".join(f"{name}.*.{form}" for name, form in sorted(sets))
        raise BadFile(f"several sets of traces: {shown}", where=path, hint="name one file of one")
    ((name, form), files) = next(iter(sets.items()))
    return name or place.stem, form, dict(sorted(files.items()))


def traces_in(
    files: Mapping[int, Path], known: Mapping[Path, Any]
) -> Iterator[tuple[int, str, Any]]:
    """Yield rank, place and JSON of each file; ``known``: those that were parsed already."""
    for rank, file in files.items():
        yield (
            rank,
            str(file),
            known[file] if file in known else parse_json(read_text(file), str(file)),
        )
