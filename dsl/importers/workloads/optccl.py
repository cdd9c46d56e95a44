"""OptCCL's workloads (``optccl-workload-spec``): collectives on components, demands in GB.

A demand is that of one shard, or of one pair of ranks. A component is ``[host, ["g", k]]``, k from
1; ranks are numbered host after host.
"""

from __future__ import annotations

import re
from typing import Any

from ...base.errors import BadFile, placed
from ...base.files import Fields
from ...base.units import exact
from ...nouns.workload import Shard, Workload, WorkloadOperation

FORMAT = "optccl-workload-spec"

GB = 10**9

UNIFORM = {
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
    "all_reduce": "allreduce",
}


def is_optccl(data: Any) -> bool:
    """Return True for an object of that format."""
    return isinstance(data, dict) and data.get("format") == FORMAT


def read_optccl(data: Any, where: str, name: str) -> Workload:
    """Return the workload; all of its collectives start together.

    ``sequential_repeats`` say how OptCCL's own baseline runs groups in turn, and are left out.

    Raises:
        BadFile: a type, component or demand that is not one.
    """
    fields = Fields(data, where)
    fields.get("format", str)
    machine = str(fields.get("topology", str))
    hosts = fields.get("num_nodes", int, 1)
    rows = fields.get("collectives", list)
    fields.finish(ignore=())
    components = {_key(x) for row in rows if isinstance(row, dict) for x in _named(row)}
    for host, gpu in components:
        if not 0 <= host < hosts:
            raise BadFile(f"component {[host, ['g', gpu]]} is beyond {hosts} hosts", where=where)
    first = min((gpu for _, gpu in components), default=1)
    width = max((gpu for _, gpu in components), default=first) - first + 1
    stated = re.search(r"(\d+)[_-]?gpu", machine)
    width = (int(stated[1]) if stated else 0) or width
    ranks = {(host, gpu): host * width + gpu - first for host, gpu in components}
    operations = []
    for at, row in enumerate(rows):
        operations.append(_operation(row, at, ranks, f"{where}: collectives[{at}]"))
    notes = [
        f"for OptCCL's machine {machine}, {hosts} hosts; rank = {width} · host + GPU",
        "demands are GB of each shard or pair; M is all of them",
        "all start together; sequential_repeats and concat_group are left out",
    ]
    return placed(
        lambda: Workload(name, tuple(operations), notes=tuple(notes), size=hosts * width), where
    )


def _named(row: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for key in ("participants", "sinks", "sources"):
        if isinstance(row.get(key), list):
            found += row[key]
    return found + [row[key] for key in ("source", "sink") if key in row]


def _key(component: Any) -> tuple[int, int]:
    match component:
        case [int(host), [str(), int(gpu)]]:
            return host, gpu
        case [str(), int(gpu)]:
            return 0, gpu
        case int(gpu):
            return 0, gpu
    raise BadFile(f"{str(component)[:60]} is not a component", hint='[host, ["g", 1]]')


def _operation(
    row: Any, at: int, ranks: dict[tuple[int, int], int], where: str
) -> WorkloadOperation:
    fields = Fields(row, where)
    kind = fields.get("type", str)
    name = fields.get("name", str, f"{kind}_{at}")
    group = fields.get("group", str, kind)
    demand = placed(lambda: exact(fields.get("demand", (int, float)), "demand"), where) * GB
    fields.get("concat_group", str, "")
    fields.get("sequential_repeats", int, 1)
    if demand <= 0:
        raise BadFile("the demand must be positive", where=where)

    def rank(key: str) -> int:
        return ranks[_key(fields.get(key, (list, int)))]

    def several(key: str) -> tuple[int, ...]:
        return tuple(ranks[_key(x)] for x in fields.get(key, list))

    if kind in UNIFORM:
        members = several("participants")
        size = int(demand * len(members))  # the demand is of a shard or a pair
        made = placed(
            lambda: WorkloadOperation(
                name, UNIFORM[kind], group=members, bytes=size, of_class=group
            ),
            where,
        )
    elif kind == "point_to_point":
        pair = (rank("source"), rank("sink"))
        made = placed(
            lambda: WorkloadOperation(
                name, "transfer", group=pair, bytes=int(demand), of_class=group
            ),
            where,
        )
    elif kind == "gather":  # one source to several sinks: a multicast
        shard = Shard((rank("source"),), several("sinks"), int(demand))
        made = placed(
            lambda: WorkloadOperation(name, "multicast", shards=(shard,), of_class=group), where
        )
    elif kind == "reduce":
        sink, sources = rank("sink"), several("sources")
        made = placed(
            lambda: WorkloadOperation(
                name,
                "reduce",
                group=(sink, *sources),
                bytes=int(demand),
                root=sink,
                of_class=group,
            ),
            where,
        )
    else:
        known = ", ".join([*UNIFORM, "gather", "reduce", "point_to_point"])
        raise BadFile(f"unknown type {kind!r}", where=where, hint=f"known: {known}")
    fields.finish(ignore=())
    return made
