"""Chakra execution traces as a workload: Protocol Buffers or JSON, a file for each rank.

``comm_size`` is the input of one rank, as ASTRA-sim takes it. Nodes wait for their ``data_deps``:
``ctrl_deps`` name the caller, which may be absent, and Chakra's feeder does not read them. Process
groups come from the node ``process_group:init``, or from ASTRA-sim's side file ``{"id": [ranks]}``;
a collective without a group is of all ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...base.errors import BadFile
from ...base.files import parse_json, read_bytes, read_text
from ...base.layers import least_first
from ...base.lazy_dataclass import dataclass
from ...nouns.collective import LARGEST_GROUP
from ...nouns.workload import WorkKind, Workload
from ..chakra_et import COLL, COMP, RECV, SEND, Attribute, TraceNode, decoded
from .traces import RankNode, trace_files, workload_of_traces

COMM_KINDS = (
    *"allreduce reduce allgather gather scatter broadcast alltoall reduce_scatter".split(),
    *("reduce_scatter", ""),
)
"""By ``comm_type``; a barrier (9) moves nothing."""

PARTS = ("allgather", "gather")
"""Kinds whose input on a rank, the ``comm_size``, is one of n parts of the size M."""

GROUPS_NODE = "process_group:init"

Groups = Mapping[str, tuple[int, ...]]


def read_chakra(path: str, side: Groups) -> Workload:
    """Return the workload of a set of traces; ``side``: process groups of a side file.

    Raises:
        BadFile: traces are missing, cut off, or do not agree.
    """
    name, form, files = trace_files(path)
    reader = _TraceReader(side, tuple(files))
    ranks = {}
    for rank, file in files.items():
        where = str(file)
        nodes = decoded(read_bytes(file), where).nodes if form == "et" else _json_nodes(file)
        ranks[rank] = reader.nodes(rank, nodes, where)
    return workload_of_traces(name, _with_peers(ranks, path), path, reader.notes())


def is_chakra_json(data: Any) -> bool:
    """Return True for the JSON variant of a trace."""
    return isinstance(data, dict) and isinstance(data.get("workload_graph"), list)


def side_file(path: str) -> dict[str, tuple[int, ...]]:
    """Return the groups of a file ``{"id": [ranks]}``."""
    data = parse_json(read_text(path), path)
    if not isinstance(data, dict):
        raise BadFile('groups are written {"id": [ranks]}', where=path)
    found = {}
    for key, ranks in data.items():
        if not isinstance(ranks, list) or not all(type(v) is int and v >= 0 for v in ranks):
            raise BadFile(f"group {key!r} is not a list of ranks", where=path)
        found[str(key)] = tuple(ranks)
    return found


def _json_nodes(file: Path) -> tuple[TraceNode, ...]:
    where = str(file)
    data = parse_json(read_text(file), where)
    if not is_chakra_json(data):
        raise BadFile("no workload_graph: not a Chakra trace in JSON", where=where)
    found = []
    for at, row in enumerate(data["workload_graph"]):
        place = f"{where}: workload_graph[{at}]"
        if not isinstance(row, dict) or type(row.get("Id")) is not int:
            raise BadFile("a node without an Id", where=place)
        deps = row.get("data_deps", [])
        kind, us = row.get("NodeType", 0), row.get("runtime", 0)
        listed = isinstance(deps, list) and all(type(x) is int for x in deps)
        if not listed or type(kind) is not int or not isinstance(us, int | float):
            raise BadFile("NodeType and runtime are numbers, data_deps a list of ids", where=place)
        attributes: dict[str, Attribute] = {
            key: int(value) if isinstance(value, float) else value
            for key, value in row.items()
            if isinstance(value, int | str) or (isinstance(value, float) and value.is_integer())
        }
        name = str(row.get("Name", ""))
        time = Fraction(us).limit_denominator(1000)
        found.append(TraceNode(row["Id"], kind, name, (), tuple(deps), time, attributes))
    return tuple(found)


@dataclass(slots=True)
class _TraceReader:
    side: Mapping[str, tuple[int, ...]]
    ranks: tuple[int, ...]
    counts: dict[str, int] = field(default_factory=dict)

    def nodes(self, rank: int, nodes: Iterable[TraceNode], where: str) -> list[RankNode]:
        listed = list(nodes)
        known = {node.id for node in listed}
        if len(known) < len(listed):
            raise BadFile("two nodes have one id", where=where)
        groups = {**_stated_groups(listed, len(self.ranks), where), **self.side}
        found = []
        last = _before_on_stream(listed)
        for node in listed:
            place = f"{where}: node {node.id}"
            lost = [x for x in node.data_deps if x not in known]
            if lost:
                raise BadFile(f"it waits for node {lost[0]}, which is not there", where=place)
            told = (
                "ctrl_deps name the caller and order nothing: passed over, as Chakra's feeder does"
            )
            self._note(told, bool(node.ctrl_deps))
            self._note("kernels of one stream follow each other by their ids", node.id in last)
            needs = (*node.data_deps, *last.get(node.id, ()))
            found.append(self._node(node, needs, groups, place))
        return _in_order(found, where)

    def _node(
        self, node: TraceNode, needs: tuple[int, ...], groups: Groups, where: str
    ) -> RankNode:
        if (
            node.type == COLL
            and node.attributes.get("is_cpu_op")
            and "comm_type" not in node.attributes
        ):
            self._note("collectives of the host only order: those of the GPU are counted")
            return RankNode(node.id, node.name, needs)
        if node.type == COLL:
            return self._collective(node, needs, groups, where)
        if node.type in (SEND, RECV):
            end = "comm_dst" if node.type == SEND else "comm_src"
            kind = "send" if node.type == SEND else "recv"
            size = _number(node, "comm_size", where)
            if not size:
                return self._nothing(node, needs)
            if end in node.attributes:
                peer = _number(node, end, where)
                tag = _number(node, "comm_tag", where) if "comm_tag" in node.attributes else 0
                return RankNode(node.id, node.name, needs, kind, bytes=size, peer=peer, tag=tag)
            label, group = self._group(node, groups, where)
            return RankNode(node.id, node.name, needs, kind, bytes=size, group=group, label=label)
        if node.type != COMP or node.attributes.get("is_cpu_op"):
            self._note("host and memory operations take no time here", node.type == COMP)
            return RankNode(node.id, node.name, needs)
        if not node.duration_us:
            told = "computations without duration_micros take no time here"
            self._note(told, "num_ops" in node.attributes)
            return RankNode(node.id, node.name, needs)
        time = Fraction(node.duration_us)
        return RankNode(node.id, node.name, needs, WorkKind.COMPUTE, time)

    def _collective(
        self,
        node: TraceNode,
        needs: tuple[int, ...],
        groups: Groups,
        where: str,
    ) -> RankNode:
        number = _number(node, "comm_type", where)
        if not 0 <= number < len(COMM_KINDS):
            raise BadFile(f"comm_type {number} is not known", where=where)
        kind = COMM_KINDS[number]
        if not kind:
            self._note("barriers move nothing, and are left out")
            return RankNode(node.id, node.name, needs)
        label, group = self._group(node, groups, where)
        size = _number(node, "comm_size", where) * (len(group) if kind in PARTS else 1)
        if not size:
            return self._nothing(node, needs)
        meaning = (
            "one rank's part: M is n times that" if kind in PARTS else "the size M of the message"
        )
        self._note(f"comm_size of {kind} is {meaning}")
        root = group[0] if kind in ("broadcast", "reduce", "gather", "scatter") else None
        if root is not None:
            self._note(f"{kind} starts or ends at the first rank of its group")
        named = f"{label}: {kind}" if label else kind
        return RankNode(
            node.id, node.name, needs, kind, bytes=size, group=group, root=root, label=named
        )

    def _nothing(self, node: TraceNode, needs: tuple[int, ...]) -> RankNode:
        """Return the rest of a collective or message of 0 bytes: its place in the order."""
        self._note("collectives and messages of 0 bytes send nothing, and are left out")
        return RankNode(node.id, node.name, needs)

    def _group(self, node: TraceNode, groups: Groups, where: str) -> tuple[str, tuple[int, ...]]:
        """Return name and ranks of a node's process group; without a name: all ranks."""
        label = str(node.attributes.get("pg_name", ""))
        if not label:
            self._note("collectives without a group are of all ranks")
            return label, self.ranks
        if label in groups:
            return label, groups[label]
        raise BadFile(
            f"no file says which ranks are in process group {label!r}",
            where=where,
            hint='--groups FILE, with {"' + label + '": [0, 1, …]}',
        )

    def _note(self, text: str, seen: bool = True) -> None:
        if seen:
            self.counts[text] = self.counts.get(text, 0) + 1

    def notes(self) -> list[str]:
        """Return the assumptions, with how often each was made."""
        return [f"{text} ({number})" for text, number in self.counts.items()]


def _number(node: TraceNode, key: str, where: str) -> int:
    value = node.attributes.get(key)
    if not isinstance(value, int) or value < 0:
        old = "Chakra's converters before 2024 do not write it: convert the trace with a newer one"
        told = f"the attribute {key} is missing, or not a count"
        raise BadFile(told, where=where, hint="" if key in node.attributes else old)
    return value


def _before_on_stream(nodes: Sequence[TraceNode]) -> dict[int, tuple[int, ...]]:
    """Return, for kernels of the GPU, the one before on the same stream.

    Ids count in the order of launches; where a node waits for a later id they do not, and nothing
    is returned.
    """
    if any(x > node.id for node in nodes for x in node.data_deps):
        return {}
    last: dict[object, int] = {}
    found: dict[int, tuple[int, ...]] = {}
    for node in sorted(nodes, key=lambda node: node.id):
        stream = node.attributes.get("stream")
        if stream is None or node.attributes.get("is_cpu_op"):
            continue
        if stream in last:
            found[node.id] = (last[stream],)
        last[stream] = node.id
    return found


def _in_order(nodes: Sequence[RankNode], where: str) -> list[RankNode]:
    """Return nodes as Chakra's feeder issues them: the least id of those that wait for no other."""
    by_id = sorted(nodes, key=lambda node: node.id)
    place = {node.id: at for at, node in enumerate(by_id)}
    order = least_first([{place[one] for one in node.needs} for node in by_id])
    found = [by_id[at] for at in order]
    if len(found) < len(nodes):
        left = place.keys() - {node.id for node in found}
        lost = by_id[place[min(left)]]
        shown = f"node {lost.id} for node {min(left.intersection(lost.needs))} among them"
        raise BadFile(f"nodes wait for each other, {shown}", where=where)
    return found


def _with_peers(ranks: Mapping[int, Sequence[RankNode]], where: str) -> dict[int, list[RankNode]]:
    """Return the traces with both ends of messages that name their group only."""
    ends: dict[tuple[int, ...], dict[str, set[int]]] = {}
    for rank, nodes in ranks.items():
        for node in nodes:
            if node.kind in ("send", "recv") and node.group:
                ends.setdefault(node.group, {"send": set(), "recv": set()})[node.kind].add(rank)

    def peer(rank: int, node: RankNode) -> RankNode:
        if node.kind not in ("send", "recv") or not node.group:
            return node
        group = node.group
        others = (
            set(group)
            if len(group) == 2
            else ends[group]["recv" if node.kind == "send" else "send"]
        )
        found = sorted(others - {rank})
        both = ends[group]["send"] | ends[group]["recv"] | {rank}
        if len(found) != 1 or len(both) != 2:
            raise BadFile(
                f"{node.name}: the trace does not say to which of {len(group)} ranks it goes",
                where=f"{where}: rank {rank}, node {node.id}",
                hint="comm_src, comm_dst and comm_tag are missing, as Chakra's converter of "
                "PyTorch's traces leaves them out; a trace of PyTorch's own has the peer",
            )
        return replace(node, peer=found[0], group=())

    return {rank: [peer(rank, node) for node in nodes] for rank, nodes in ranks.items()}


def _stated_groups(
    nodes: Iterable[TraceNode], ranks: int, where: str
) -> dict[str, tuple[int, ...]]:
    """Return the groups of the node ``process_group:init``; one without ranks has all."""
    for node in nodes:
        if GROUPS_NODE not in node.name:
            continue
        text = node.inputs or str(node.attributes.get("inputs", ""))
        return groups_in(text, ranks, f"{where}: node {node.id}")
    return {}


def groups_in(text: str, ranks: int, where: str) -> dict[str, tuple[int, ...]]:
    """Return process groups by name from the JSON list of ``process_group:init``.

    Raises:
        BadFile: it is cut off, or not such a list.
    """
    try:
        data = json.loads(text)
        if isinstance(data, list) and data and isinstance(data[0], str):
            data = json.loads(data[0])
        return groups_of(data, ranks)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        raise BadFile(
            "the list of process groups is cut off, or not one",
            where=where,
            hint="--groups FILE names them instead",
        ) from None


def groups_of(data: Any, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return process groups by name, and by the number of their back end (schema 1.0.2).

    ``ranks``: how many a group without a list has, where it does not say how many.

    Raises:
        ValueError, TypeError, KeyError: not a list of process groups.
    """
    found = {}
    for one in data:
        members = tuple(int(v) for v in one["ranks"])
        size = int(one.get("group_size", one.get("pg_size", ranks)))
        if size > LARGEST_GROUP:
            raise ValueError(f"a group of {size} ranks")
        found[str(one["pg_name"])] = members or tuple(range(size))
        if "backend_id" in one:
            found[str(one["backend_id"])] = found[str(one["pg_name"])]
    return found
