"""PyTorch execution traces (of ``ExecutionTraceObserver``) as a workload, as PARAM reads them.

Collectives are the nodes ``record_param_comms``: inputs are the tensors, the request, the process
group (a tuple of names from schema 1.0.3 on, before that the id of a back end), the peer or root in
its group, the name, and the splits of an alltoallv. PARAM's own traces list calls with their sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import BadFile, UserError
from ...base.lazy_dataclass import Frozen
from ...nouns.collective import LARGEST_GROUP, ROOTED
from ...nouns.workload import WorkKind, Workload, kind_named
from .chakra import GROUPS_NODE, Groups, groups_in
from .traces import RankNode, workload_of_traces

NODE = "record_param_comms"

NOTHING = (
    *("", "wait", "barrier", "allreducebarrier", "monitoredbarrier", "init", "coalesced"),
    *("startcoalescing", "endcoalescing", "batchisendirecv"),
)
"""Names, without underscores, of calls that move nothing themselves."""

ENDINGS = ("coalesced", "single", "tensor", "into", "base", "oop")
"""Endings of names of a collective beside its kind."""

EXCHANGES = ("alltoall", WorkKind.ALLTOALLV)
"""Kinds whose calls may state splits: a list of tensors, one for each rank, does so too."""

WIDTHS = {
    1: "bool byte char uint8 int8 qint8 quint8 unsigned_char signed_char",
    2: "half bfloat16 float16 short int16 uint16 short_int",
    4: "float float32 int int32 uint32 qint32 complexhalf",
    8: "double float64 long int64 uint64 long_int complexfloat complex64",
    16: "complexdouble complex128",
}
"""Types of elements by their bytes; all of ``float8``, and pairs of ``float4``, have one."""

Trace = tuple[int, str, Any]
"""Rank, place and JSON of a trace."""

Row = tuple[int, ...]
"""Bytes from one rank to each."""


def call_kind(name: str, where: str) -> str:
    """Return the kind of a collective, ``send``, ``recv``, or empty for calls that move nothing.

    Raises:
        BadFile: a name that is not known.
    """
    plain = name.lower().replace("_", "").replace("-", "").removeprefix("nccl:")
    if plain in NOTHING:
        return ""
    if plain in ("send", "isend", "recv", "irecv"):
        return plain.removeprefix("i")
    for ending in ENDINGS:
        plain = plain.removesuffix(ending)
    try:
        return kind_named(plain)
    except UserError:
        raise BadFile(f"unknown collective {name[:60]!r}", where=where) from None


def width_of(dtype: object, where: str) -> int:
    """Return the bytes of an element of a type, as PyTorch or PARAM call it.

    Raises:
        BadFile: a type that is not known.
    """
    name = str(dtype).lower().replace("c10::", "").removeprefix("torch.").replace(" ", "_")
    if name.startswith(("float8", "float4")):
        return 1
    for width, names in WIDTHS.items():
        if name in names.split():
            return width
    raise BadFile(f"unknown type of elements {str(dtype)[:60]!r}", where=where)


def row_of(splits: Sequence[int], elements: int, width: int, ranks: int, where: str) -> Row:
    """Return the bytes to each rank: splits count the rows of a tensor of ``elements``.

    Raises:
        BadFile: not a split for each rank, or splits that do not divide the tensor.
    """
    if len(splits) != ranks or any(x < 0 for x in splits):
        raise BadFile(f"expected {ranks} splits of 0 or more, got {len(splits)}", where=where)
    rows = sum(splits)
    if elements % (rows or 1) or (elements and not rows):
        told = f"expected splits into rows of {elements} elements in all, got splits of {rows} rows"
        raise BadFile(told, where=where, hint="each row has a whole number of elements")
    return tuple(x * (elements // (rows or 1)) * width for x in splits)


def strided(start: object, stride: object, size: object) -> tuple[int, ...]:
    """Return the ranks of a group of ``size`` from ``start`` in equal steps; empty if unknown."""
    if not (type(start) is int and type(stride) is int and type(size) is int):
        return ()
    if start < 0 or not 0 < size <= LARGEST_GROUP or (stride < 1 and size > 1):
        return ()
    return tuple(range(start, start + size * max(stride, 1), max(stride, 1)))


class TorchCall(Frozen):
    """One call of a collective or message on a rank."""

    name: str
    kind: str  # of a collective, or send or recv
    group: tuple[int, ...]
    # sent, received: bytes of its tensors; 0 also where the trace omits it
    sent: int
    received: int
    # Of an exchange, bytes to each rank of the group; empty where it is not known
    row: tuple[int, ...] = ()
    peer: int = -1  # the other rank of a message; the root of a rooted collective. -1: not known.
    label: str = ""
    channel: tuple[object, ...] = ()

    def node(self, number: int, needs: tuple[int, ...]) -> RankNode:
        """Return the node of a rank's trace."""
        if self.kind in ("send", "recv"):
            size = max(self.sent, self.received)
            return RankNode(number, self.name, needs, self.kind, bytes=size, peer=self.peer)
        parts = len(self.group)
        sent = self.kind == "gather" or (self.kind == "allgather" and not self.received)
        size = max(
            self.sent * (parts if sent else 1),
            self.received * (parts if self.kind == "scatter" else 1),
        )
        if not size and not self.row and self.kind != WorkKind.ALLTOALLV:
            return RankNode(number, self.name, needs)
        root = None
        if self.kind in ROOTED:
            root = self.peer if self.peer in self.group else self.group[0]
        group = f"group {'-'.join(map(str, self.group[:2]))}… of {parts}"
        return RankNode(
            number,
            self.name,
            needs,
            self.kind,
            bytes=size,
            group=self.group,
            row=self.row,
            root=root,
            label=f"{self.label or group}: {self.kind}",
            channel=self.channel,
        )


def is_pytorch(data: Any) -> bool:
    """Return True for an execution trace of PyTorch."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("nodes"), list)
        and isinstance(data.get("schema"), str)
        and "weft" not in data
    )


def is_param(data: Any) -> bool:
    """Return True for a trace of PARAM: a list of calls and computations."""
    first = data[0] if isinstance(data, list) and data else None
    return isinstance(first, dict) and ("comms" in first or "compute" in first)


def read_pytorch(
    name: str, path: str, traces: Iterable[Trace], count: int, side: Groups
) -> Workload:
    """Return the workload of a set of traces, ``count`` in all; ``side``: groups of a side file.

    Raises:
        BadFile: traces are missing, or do not agree.
    """
    notes = [
        "the collectives of a rank that share a process group follow each other; what the host "
        "waits for between them is not in the trace",
        "a trace of the host lacks durations of computations: they are left out",
    ]
    ranks = {}
    for rank, where, data in traces:
        if is_param(data):
            ranks[rank] = _chained(_param_calls(data, count, where))
            continue
        if not is_pytorch(data):
            raise BadFile("not an execution trace of PyTorch", where=where)
        rows = data["nodes"]
        notes += _left_out(where, rows)
        nodes = [row for row in rows if isinstance(row, dict)]
        ranks[rank] = _chained(_calls(nodes, count, side, where))
    if not any(ranks.values()):
        hint = "an observer sees them in processes with a process group, while they communicate"
        raise BadFile("no rank calls a collective", where=path, hint=hint)
    return workload_of_traces(name, ranks, path, notes)


def _chained(calls: Iterable[TorchCall | None]) -> list[RankNode]:
    """Return the nodes of a rank's calls, each after the one before it in its group.

    None among them: the host waits. Messages that were posted since it did so go at once.
    """
    found: list[RankNode] = []
    last: dict[tuple[int, ...], tuple[int, ...]] = {}
    posted: dict[tuple[int, ...], tuple[int, ...]] = {}
    for call in calls:
        if call is None:
            last |= posted
            posted.clear()
            continue
        number, group = len(found), call.group
        before = last.get(group, ())
        if call.kind in ("send", "recv"):
            posted[group] = (*posted.get(group, ()), number)
        else:
            before += posted.pop(group, ())
            last[group] = (number,)
        found.append(call.node(number, before))
    return found


def _left_out(where: str, rows: Sequence[Any]) -> Iterator[str]:
    """Report how many nodes of a trace are not JSON objects, and where the first one stands."""
    bad = [at for at, row in enumerate(rows) if not isinstance(row, dict)]
    if bad:
        yield (
            f"{where}: {len(bad)} of {len(rows)} nodes are not JSON objects, the first is "
            f"nodes[{bad[0]}]: they are left out, and with them what they may have sent"
        )


# --- execution traces -----------------------------------------------------------------------------


def _calls(
    rows: Sequence[Mapping[str, Any]], ranks: int, side: Groups, where: str
) -> Iterator[TorchCall | None]:
    """Yield a rank's calls, None for those that move nothing; ``where``: its file."""
    groups: Groups = side
    cut: BadFile | None = None
    for row in rows:
        if GROUPS_NODE in str(row.get("name")):
            values = _values(row, "inputs", f"{where}: node {row.get('id')}")
            try:
                listed = groups_in(str(values[0]) if values else "", ranks, where)
                groups = {**listed, **side}
            except BadFile as error:  # of long lists; later nodes may list their groups themselves
                cut = error
    for row in sorted(rows, key=_id):
        if row.get("name") != NODE:
            continue
        place = f"{where}: node {row.get('id')}"
        values, outputs = (_values(row, key, place) for key in ("inputs", "outputs"))
        # wait and barrier lack a tensor in front
        shift = 1 if any(x in values[:5] for x in ("wait", "barrier")) else 0
        try:
            kind = call_kind(name := str(values[4 - shift]), place)
            given, local = values[2 - shift], values[3 - shift]
            splits = values[5 - shift] if kind in EXCHANGES and len(values) > 5 else []
            parts = [int(x) for x in splits] if isinstance(splits, list) else []
        except (IndexError, TypeError, ValueError):
            raise BadFile("not the inputs of a collective", where=place) from None
        if not kind:
            yield None
            continue
        label = str(given[0] if isinstance(given, list) and given else given)
        group = groups.get(label) or _stated_ranks(row)
        if not group and not groups and cut is None:
            group = tuple(range(ranks))
        if not group:
            told = f"process group {label!r} is not in {GROUPS_NODE}"
            raise cut or BadFile(told, where=place, hint="--groups FILE names it")
        peer = group[local] if type(local) is int and 0 <= local < len(group) else -1
        if kind in ("send", "recv") and peer < 0:
            raise BadFile(f"peer {local} is not in its group", where=place)
        sent, received = _tensors(values[:1]), _tensors(outputs[:1])
        if kind == WorkKind.ALLTOALLV and not parts:
            parts = [1] * len(group)
        elements, width = sum(x[3] for x in sent), sent[0][4] if sent else 1
        bytes_to = row_of(parts, elements, width, len(group), place) if parts else ()
        sizes = [sum(x[3] * x[4] for x in tensors) for tensors in (sent, received)]
        yield TorchCall(name, kind, group, sizes[0], sizes[1], bytes_to, peer)


def _id(row: Mapping[str, Any]) -> int:
    number = row.get("id")
    return number if isinstance(number, int) else 0


def _stated_ranks(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ranks that attributes of a node state (from schema 1.1.0 on); empty: none do."""
    rows = row.get("attrs")
    if not isinstance(rows, list):
        return ()
    held = {one.get("name"): one.get("value") for one in rows if isinstance(one, dict)}
    return strided(*(held.get(x) for x in ("global_rank_start", "global_rank_stride", "pg_size")))


def _values(row: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return the values of inputs or outputs, in either form of the schema."""
    held = row.get(key)
    values = held.get("values") if isinstance(held, dict) else held
    if values is None:
        return []
    if not isinstance(values, list):
        raise BadFile(f"the values of {key} are not a list", where=where)
    return values


def _tensors(values: Sequence[Any]) -> list[list[Any]]:
    """Return the tensors in a value, lists of them too: elements stand at 3, their bytes at 4."""
    found: list[list[Any]] = []
    todo = list(values)
    for one in todo:
        if isinstance(one, list) and len(one) >= 5 and all(type(x) is int for x in one[:5]):
            found.append(one)
        elif isinstance(one, list):
            todo += one
    return found


# --- PARAM's own traces ---------------------------------------------------------------------------


def _param_calls(rows: Sequence[Any], ranks: int, where: str) -> Iterator[TorchCall | None]:
    """Yield the calls of a rank's list, and None for those that move nothing.

    Sizes are elements, peers and roots ranks of all.
    """
    groups: dict[str, tuple[int, ...]] = {}
    for at, row in enumerate(rows):
        place = f"{where}: entry {at}"
        if not isinstance(row, dict) or not ("comms" in row or "compute" in row):
            raise BadFile("expected an entry with comms or compute", where=place)
        kind = call_kind(str(row["comms"]), place) if "comms" in row else ""
        listed, world = row.get("global_ranks"), row.get("world_size")
        group = tuple(listed) if isinstance(listed, list) and listed else ()
        if not all(type(x) is int for x in group):
            raise BadFile("global_ranks is not a list of ranks", where=place)
        if group:
            groups[str(row.get("pg_id"))] = group
        if not kind:
            yield None
            continue
        group = group or groups.get(str(row.get("pg_id"))) or strided(0, 1, world or ranks)
        splits = row.get("in_split")
        ends = {"send": "dst_rank", "recv": "src_rank"}
        peer = row.get(ends.get(kind, "root"))
        numbers = [row.get("in_msg_size", 0), row.get("out_msg_size", 0)]
        numbers += splits if isinstance(splits, list) and kind in EXCHANGES else []
        if not group or not all(type(x) is int and x >= 0 for x in numbers):
            raise BadFile("sizes, splits or ranks are not whole numbers", where=place)
        width = width_of(row.get("dtype"), place)
        sent, received, *parts = numbers
        exact = kind == WorkKind.ALLTOALLV or bool(parts)
        bytes_to = row_of(parts, sent, width, len(group), place) if exact else ()
        known = peer if type(peer) is int else -1
        name = str(row["comms"])
        yield TorchCall(name, kind, group, sent * width, received * width, bytes_to, known)
