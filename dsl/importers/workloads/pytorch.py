"""PyTorch execution traces (of ``ExecutionTraceObserver``) as a workload, as PARAM reads them.

Collectives are the nodes ``record_param_comms``: inputs are the tensors, the request, the process
group (a tuple of names from schema 1.0.3 on, before that the id of a back end), the peer, the name,
and the splits of an alltoallv.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import BadFile, UserError
from ...base.files import parse_json, read_text
from ...base.lazy_dataclass import dataclass
from ...nouns.workload import WorkKind, Workload, kind_named
from .chakra import GROUPS_NODE, groups_in
from .files import trace_files
from .traces import RankNode, workload_of_traces

NODE = "record_param_comms"

BASES = {
    "all_to_allv": "alltoallv",
    "alltoall_base": "alltoall",
    "_allgather_base": "allgather",
    "all_gather_into_tensor": "allgather",
    "allgather_into_tensor_coalesced": "allgather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "allreduce_coalesced": "allreduce",
}
"""Names of collectives that are not spelled as ours."""

NOTHING = ("wait", "barrier", "init")


def is_pytorch(data: Any) -> bool:
    """Return True for an execution trace of PyTorch."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("nodes"), list)
        and isinstance(data.get("schema"), str)
        and "weft" not in data
    )


def read_pytorch(path: str) -> Workload:
    """Return the workload of a set of traces.

    Raises:
        BadFile: traces are missing, or do not agree.
    """
    name, form, files = trace_files(path)
    if form != "json":
        raise BadFile("PyTorch's execution traces are JSON", where=path)
    held = {rank: _rows(file) for rank, file in files.items()}
    ranks = {
        rank: _nodes(rank, [row for row in rows if isinstance(row, dict)], len(files), where)
        for rank, (where, rows) in held.items()
    }
    notes = [
        "the collectives of a rank that share a process group follow each other; what the host "
        "waits for between them is not in the trace",
        "a trace of the host has no durations of computations: they are left out",
        *(note for where, rows in held.values() for note in _left_out(where, rows)),
    ]
    return workload_of_traces(name, ranks, path, notes)


def _rows(file: Path) -> tuple[str, list[Any]]:
    """Return the file's name and what its list of nodes holds.

    Raises:
        BadFile: it is no execution trace.
    """
    where = str(file)
    data = parse_json(read_text(file), where)
    if not is_pytorch(data):
        raise BadFile("not an execution trace of PyTorch", where=where)
    return where, data["nodes"]


def _left_out(where: str, rows: Sequence[Any]) -> Iterator[str]:
    """Say how many nodes of a trace are no JSON objects, and where the first one stands."""
    bad = [at for at, row in enumerate(rows) if not isinstance(row, dict)]
    if bad:
        yield (
            f"{len(bad)} of {len(rows)} nodes of {where} are no JSON objects, the first is "
            f"nodes[{bad[0]}]: they are left out, and with them what they may have sent"
        )


def _nodes(rank: int, rows: Sequence[Mapping[str, Any]], ranks: int, where: str) -> list[RankNode]:
    """Return a rank's collectives and messages; ``where``: its file."""
    groups: dict[str, tuple[int, ...]] = {}
    for row in rows:
        if GROUPS_NODE in str(row.get("name")):
            values = _values(row, "inputs", f"{where}: node {row.get('id')}")
            groups = groups_in(str(values[0]) if values else "", ranks, where)
    found: list[RankNode] = []
    last: dict[tuple[int, ...], int] = {}
    for row in rows:
        if row.get("name") != NODE:
            continue
        place = f"{where}: node {row.get('id')}"
        one = _Comm.of(row, place)
        if one.name in NOTHING:
            continue
        group = one.members(groups, ranks, place)
        before = (last[group],) if group in last else ()
        node = one.node(len(found), rank, group, before, place)
        last[group] = node.id
        found.append(node)
    return found


def _values(row: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return the values of inputs or outputs, in either form of the schema."""
    held = row.get(key)
    values = held.get("values") if isinstance(held, dict) else held
    if values is None:
        return []
    if not isinstance(values, list):
        raise BadFile(f"the values of {key} are not a list", where=where)
    return values


@dataclass(frozen=True, slots=True)
class _Comm:
    """One node: name of the collective, group, peer, splits; elements and bytes of an element."""

    name: str
    group: Any
    peer: int
    splits: Sequence[int]
    sent: tuple[int, int]
    received: tuple[int, int]

    @staticmethod
    def of(row: Mapping[str, Any], where: str) -> _Comm:
        values, outputs = (_values(row, key, where) for key in ("inputs", "outputs"))
        # wait and barrier have no tensor in front
        shift = 1 if any(x in values[:5] for x in ("wait", "barrier")) else 0
        try:
            name = str(values[4 - shift]).lower()
            splits = values[5 - shift] if len(values) > 5 - shift else []
            return _Comm(
                BASES.get(name, name),
                values[2 - shift],
                values[3 - shift] if type(values[3 - shift]) is int else -1,
                [int(x) for x in splits] if isinstance(splits, list) else [],
                _size(values[:1] if not shift else []),
                _size(outputs[:1]),
            )
        except (IndexError, TypeError, ValueError):
            raise BadFile("not the inputs of a collective", where=where) from None

    def members(
        self, groups: Mapping[str, tuple[int, ...]], ranks: int, where: str
    ) -> tuple[int, ...]:
        """Return the ranks of the process group."""
        name = self.group[0] if isinstance(self.group, list) and self.group else self.group
        if str(name) in groups:
            return groups[str(name)]
        if not groups:
            return tuple(range(ranks))
        raise BadFile(f"process group {name!r} is not in {GROUPS_NODE}", where=where)

    def node(
        self, number: int, rank: int, group: tuple[int, ...], before: tuple[int, ...], where: str
    ) -> RankNode:
        """Return the node of a rank's trace."""
        elements, width = self.sent
        label = f"group {'-'.join(map(str, group[:2]))}… of {len(group)}"
        if self.name in ("send", "recv"):
            if not 0 <= self.peer < len(group):
                raise BadFile(f"peer {self.peer} is not in its group", where=where)
            size = elements * width
            peer = group[self.peer]
            return RankNode(number, self.name, before, self.name, bytes=size, peer=peer)
        try:
            kind = kind_named(re.sub(r"^_|_$", "", self.name))
        except UserError as error:
            raise BadFile(error.message, where=where, hint=error.hint) from None
        row: tuple[int, ...] = ()
        if kind == WorkKind.ALLTOALLV:
            even = elements // max(1, len(group))
            row = tuple(x * width for x in self.splits or [even] * len(group))
            if len(row) != len(group):
                raise BadFile(f"{len(row)} splits for {len(group)} ranks", where=where)
        size = max(elements * width, self.received[0] * self.received[1])
        root = group[0] if kind in ("broadcast", "reduce", "gather", "scatter") else None
        return RankNode(
            number,
            self.name,
            before,
            kind,
            bytes=0 if row else size,
            group=group,
            row=row,
            root=root,
            label=f"{label}: {kind}",
        )


def _size(values: Sequence[Any]) -> tuple[int, int]:
    """Return elements and bytes of one element of the tensors in a value, lists of them too."""
    tensors: list[list[Any]] = []
    todo = list(values)
    for one in todo:
        if isinstance(one, list) and len(one) >= 5 and all(type(x) is int for x in one[:5]):
            tensors.append(one)
        elif isinstance(one, list):
            todo += one
    return sum(x[3] for x in tensors), tensors[0][4] if tensors else 1
