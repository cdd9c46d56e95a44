"""Chakra execution traces as a workload: Protocol Buffers or JSON, a file for each rank.

Sizes are ASTRA-sim's ``comm_size``. Process groups come from the node ``process_group:init``, or
from ASTRA-sim's side file ``{"id": [ranks]}``; a collective without a group is of all ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...base.errors import BadFile
from ...base.files import parse_json, read_bytes, read_text
from ...base.lazy_dataclass import dataclass
from ...nouns.workload import WorkKind, Workload
from ..chakra_et import COLL, COMP, RECV, SEND, Attribute, TraceNode, decoded
from .files import trace_files
from .traces import RankNode, workload_of_traces

COMM_KINDS = (
    "allreduce",
    "reduce",
    "allgather",
    "gather",
    "scatter",
    "broadcast",
    "alltoall",
    "reduce_scatter",
    "reduce_scatter",
    "",
)
"""By ``comm_type``; a barrier (9) moves nothing."""

GROUPS_NODE = "process_group:init"


def read_chakra(path: str, groups: str | None = None) -> Workload:
    """Return the workload of a set of traces; ``groups``: the side file with process groups.

    Raises:
        BadFile: traces are missing, cut off, or do not agree.
    """
    name, form, files = trace_files(path)
    side = _side_file(groups) if groups is not None else {}
    reader = _TraceReader(side, tuple(files))
    ranks = {}
    for rank, file in files.items():
        where = str(file)
        nodes = decoded(read_bytes(file), where).nodes if form == "et" else _json_nodes(file)
        ranks[rank] = reader.nodes(rank, nodes, where)
    return workload_of_traces(name, ranks, path, reader.notes())


def is_chakra_json(data: Any) -> bool:
    """Return True for the JSON variant of a trace."""
    return isinstance(data, dict) and isinstance(data.get("workload_graph"), list)


def _side_file(path: str) -> dict[str, tuple[int, ...]]:
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
    """Return the nodes of a file of the JSON variant."""
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
            key: value for key, value in row.items() if isinstance(value, int | str)
        }
        name = str(row.get("Name", ""))
        found.append(TraceNode(row["Id"], kind, name, (), tuple(deps), round(us), attributes))
    return tuple(found)


@dataclass(slots=True)
class _TraceReader:
    """Reads the nodes of all ranks, and remembers what it assumed."""

    side: Mapping[str, tuple[int, ...]]
    ranks: tuple[int, ...]
    counts: dict[str, int] = field(default_factory=dict)

    def nodes(self, rank: int, nodes: Iterable[TraceNode], where: str) -> list[RankNode]:
        """Return the nodes of a rank.

        Raises:
            BadFile: an unknown predecessor, group or kind.
        """
        listed = list(nodes)
        known = {node.id for node in listed}
        if len(known) < len(listed):
            raise BadFile("two nodes have one id", where=where)
        groups = {**_stated_groups(listed, len(self.ranks), where), **self.side}
        found = []
        for node in listed:
            place = f"{where}: node {node.id}"
            lost = [x for x in (*node.ctrl_deps, *node.data_deps) if x not in known]
            if lost:
                raise BadFile(f"it waits for node {lost[0]}, which is not there", where=place)
            found.append(self._node(rank, node, groups, place))
        return found

    def _node(
        self, rank: int, node: TraceNode, groups: Mapping[str, tuple[int, ...]], where: str
    ) -> RankNode:
        needs = (*node.ctrl_deps, *node.data_deps)
        if node.type == COLL:
            return self._collective(node, needs, groups, where)
        if node.type in (SEND, RECV):
            end = "comm_dst" if node.type == SEND else "comm_src"
            peer, size = (_number(node, key, where) for key in (end, "comm_size"))
            kind = "send" if node.type == SEND else "recv"
            tag = int(node.attributes.get("comm_tag", 0))
            return RankNode(node.id, node.name, needs, kind, bytes=size, peer=peer, tag=tag)
        if node.type != COMP or node.attributes.get("is_cpu_op"):
            self._note("host and memory operations take no time here", node.type == COMP)
            return RankNode(node.id, node.name, needs)
        if not node.duration_us:
            told = "computations without duration_micros take no time here"
            self._note(told, "num_ops" in node.attributes)
            return RankNode(node.id, node.name, needs)
        return RankNode(node.id, node.name, needs, WorkKind.COMPUTE, Fraction(node.duration_us))

    def _collective(
        self,
        node: TraceNode,
        needs: tuple[int, ...],
        groups: Mapping[str, tuple[int, ...]],
        where: str,
    ) -> RankNode:
        number = _number(node, "comm_type", where)
        if not 0 <= number < len(COMM_KINDS):
            raise BadFile(f"comm_type {number} is not known", where=where)
        kind = COMM_KINDS[number]
        if not kind:
            self._note("barriers move nothing, and are left out")
            return RankNode(node.id, node.name, needs)
        label = str(node.attributes.get("pg_name", ""))
        if not label:
            self._note("collectives without a group are of all ranks")
            group = self.ranks
        elif label in groups:
            group = groups[label]
        else:
            raise BadFile(
                f"no file says which ranks are in process group {label!r}",
                where=where,
                hint='--groups FILE, with {"' + label + '": [0, 1, …]}',
            )
        size = _number(node, "comm_size", where)
        self._note(f"comm_size of {kind} is the size M of the message")
        root = group[0] if kind in ("broadcast", "reduce", "gather", "scatter") else None
        if root is not None:
            self._note(f"{kind} starts or ends at the first rank of its group")
        named = f"{label}: {kind}" if label else kind
        return RankNode(
            node.id, node.name, needs, kind, bytes=size, group=group, root=root, label=named
        )

    def _note(self, text: str, seen: bool = True) -> None:
        if seen:
            self.counts[text] = self.counts.get(text, 0) + 1

    def notes(self) -> list[str]:
        """Return what was assumed, with how often."""
        return [f"{text} ({number})" for text, number in self.counts.items()]


def _number(node: TraceNode, key: str, where: str) -> int:
    value = node.attributes.get(key)
    if not isinstance(value, int) or value < 0:
        raise BadFile(f"the attribute {key} is missing", where=where)
    return value


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
        found = {}
        for one in data:
            members = tuple(int(v) for v in one["ranks"])
            size = int(one.get("group_size", ranks)) if not members else len(members)
            found[str(one["pg_name"])] = members or tuple(range(size))
    except (ValueError, TypeError, KeyError, IndexError):
        raise BadFile(
            "the list of process groups is cut off, or not one",
            where=where,
            hint="--groups FILE names them instead",
        ) from None
    return found
