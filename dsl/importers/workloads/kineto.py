"""Traces of PyTorch's profiler (Kineto) as a workload: of all ranks, or of some.

Calls are the events ``record_param_comms``, else NCCL's kernels, with the arguments that PyTorch
writes from 2.2 on: ``Collective name``, ``dtype``, ``In msg nelems``, ``Process Group Ranks`` ….
Traces of 2023 have the shapes of the inputs of annotations ``nccl:…`` only, and no groups.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from math import inf, prod
from typing import Any

from ...base.errors import BadFile
from ...base.lazy_dataclass import Frozen
from ...nouns.collective import LARGEST_GROUP
from ...nouns.workload import WorkKind, Workload
from .chakra import Groups, groups_of
from .pytorch import EXCHANGES, NODE, TorchCall, call_kind, row_of, strided, width_of
from .traces import RankNode, workload_of_traces

RECORD = (
    "record it anew with PyTorch 2.4 or newer: torch.profiler.profile(record_shapes=True) and "
    "export_chrome_trace, on every rank"
)

NOTES = (
    "M is the larger of a call's input and output",
    "a call waits for the computations that ended before its kernel began, and for the call before "
    "it on its stream; a computation waits for calls that ended while the GPU was idle before it",
)

OLD = "an old trace: sizes are those of the inputs, and all calls are of all ranks"

UNEVEN = "an exchange whose splits are not known on all ranks is an even alltoall"

Event = Mapping[str, Any]

Timed = tuple[float, float, object, TorchCall]
"""Begin and end of a call's kernel in µs, its stream, and the call."""


class _Recorded(Frozen):
    """Facts of a trace apart from its events; ``notes``: assumptions, an ordered set."""

    rank: int
    world: int
    groups: Groups
    where: str
    notes: dict[str, None] = field(default_factory=dict)


def is_kineto(data: Any) -> bool:
    """Return True for a trace of PyTorch's profiler."""
    return isinstance(data, dict) and isinstance(data.get("traceEvents"), list)


def read_kineto(
    name: str, path: str, traces: Iterable[tuple[int | None, str, Any]], side: Groups
) -> Workload:
    """Return the workload of the traces; ``side``: groups of a side file.

    Ranks are those that the traces state, else those of their files' names.

    Raises:
        BadFile: a trace without sizes or groups, two of one rank, or ranks that do not agree.
    """
    ranks: dict[int, list[RankNode]] = {}
    notes = dict.fromkeys(NOTES)
    size = stated = 0
    for file_rank, where, data in traces:
        about = _recorded(data, file_rank, side, where)
        if about.rank in ranks:
            raise BadFile(f"a second trace of rank {about.rank}", where=where)
        ranks[about.rank] = nodes = _nodes(data["traceEvents"], about)
        notes |= about.notes
        named = (v for node in nodes for v in (*node.group, node.peer))
        stated = max(stated, about.world)
        size = max(size, about.world, about.rank + 1, 1 + max(named, default=-1))
    if not any(node.kind and node.kind != WorkKind.COMPUTE for x in ranks.values() for node in x):
        raise BadFile("a profiler trace without calls of collectives", where=path, hint=RECORD)
    if len(ranks) < size:
        shown = ", ".join(map(str, sorted(ranks)[:8])) + (", …" if len(ranks) > 8 else "")
        what = f"the trace of rank {shown}" if len(ranks) == 1 else f"traces of ranks {shown}"
        notes[
            f"{what} of {size}: others of their groups are taken to do the same, "
            "and groups without one of them are left out"
        ] = None
    guessed = f"{size} ranks: the highest that is named, plus 1, as no trace states how many"
    notes |= dict.fromkeys([guessed] if size and not stated else [])
    return workload_of_traces(name, ranks, path, [*notes], size=size)


def _recorded(data: Any, file_rank: int | None, side: Groups, where: str) -> _Recorded:
    if not is_kineto(data):
        raise BadFile("not a trace of PyTorch's profiler", where=where)
    about = data.get("distributedInfo")
    about = about if isinstance(about, dict) else {}
    rank, world = about.get("rank", file_rank), about.get("world_size", 0)
    if type(rank) is not int or type(world) is not int or not 0 <= rank < LARGEST_GROUP >= world:
        hint = "name it NAME.RANK.json, or record it in a process that has a process group"
        raise BadFile("the trace does not say of which rank it is", where=where, hint=hint)
    config = about.get("pg_config") or []
    groups: dict[str, tuple[int, ...]] = {}
    try:
        for one in json.loads(config) if isinstance(config, str) else config:
            members, cut = _numbers(one.get("ranks", []))
            groups |= {} if cut else groups_of([{**one, "ranks": members}], world)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadFile("pg_config is not a list of process groups", where=where) from None
    return _Recorded(rank, world, {**groups, **side}, where)


def _numbers(value: object) -> tuple[tuple[int, ...], bool]:
    """Return the numbers of a list, or of its text, and whether it was cut (``...``)."""
    if isinstance(value, list):
        whole = tuple(x for x in value if type(x) is int)
        return whole, len(whole) < len(value)
    text = str(value or "")
    return tuple(map(int, re.findall(r"\d{1,9}", text))), "..." in text


# --- one rank -------------------------------------------------------------------------------------


def _nodes(events: Sequence[Any], about: _Recorded) -> list[RankNode]:
    """Return the nodes of a rank: computations between its calls, and these."""
    timed = [x for x in events if isinstance(x, dict) and _is_timed(x)]
    kernels = [x for x in timed if x.get("cat") == "kernel"]
    ours = [x for x in kernels if str(x.get("name")).startswith("nccl")]
    calls = sorted(_calls(timed, ours, about), key=lambda x: x[0])
    known = {id(x) for x in ours}
    spans = sorted((x["ts"], _end(x)) for x in kernels if id(x) not in known)
    computing = [*_computations(spans, calls)]
    found: list[RankNode] = []
    for at, (_, us, waits) in enumerate(computing):
        needs = (*([at - 1] if at else []), *(len(computing) + x for x in waits))
        found.append(RankNode(at, "compute", needs, WorkKind.COMPUTE, us))
    ends = [end for end, _, _ in computing]
    last: dict[object, tuple[float, tuple[int, ...], tuple[int, ...]]] = {}
    for number, (begin, _, stream, call) in enumerate(calls, len(computing)):
        then, same, before = last.get(stream, (-inf, (), ()))
        if then < begin:  # calls of one kernel go together
            same, before = (), same
        last[stream] = (begin, (*same, number), before)
        computed = bisect_right(ends, begin) - 1
        found.append(call.node(number, (*before, *([computed] if computed >= 0 else []))))
    return found


def _is_timed(event: Event) -> bool:
    times = (event.get("ts"), event.get("dur", 0))
    return event.get("ph") == "X" and all(isinstance(x, int | float) for x in times)


def _end(event: Event) -> float:
    return float(event["ts"] + event.get("dur", 0))


def _arguments(event: Event) -> Event:
    held = event.get("args")
    return held if isinstance(held, dict) else {}


def _id(event: Event, key: str) -> str:
    return str(_arguments(event).get(key, f"no {key}: {id(event)}"))


def _computations(
    spans: Sequence[tuple[float, float]], calls: Sequence[Timed]
) -> Iterator[tuple[float, Fraction, list[int]]]:
    """Yield end, µs in which any kernel runs, and calls waited for, of kernels between calls.

    ``spans``: begin and end of all kernels but NCCL's, ascending. A computation ends where a call
    begins, or where the GPU was idle until a call ended.
    """
    begins = [begin for begin, _, _, _ in calls]
    by_end = sorted(range(len(calls)), key=lambda at: calls[at][1])
    ends = [calls[at][1] for at in by_end]
    covered, us = -inf, 0.0
    waits: list[int] = []
    for begin, end in spans:
        if end <= covered:
            continue
        idle = by_end[bisect_left(ends, covered) : bisect_right(ends, begin)]
        if us and (idle or bisect_left(begins, end) != bisect_left(begins, covered)):
            yield covered, Fraction(round(us * 1000), 1000), waits
            us = 0.0
        waits = waits if us else idle
        us += end - max(begin, covered)
        covered = end
    if us:
        yield covered, Fraction(round(us * 1000), 1000), waits


# --- calls ----------------------------------------------------------------------------------------


def _calls(timed: Sequence[Event], kernels: Sequence[Event], about: _Recorded) -> Iterator[Timed]:
    """Yield the calls of a rank, with the times of their kernels where those are known."""
    for named, said in (
        ([x for x in timed if x.get("name") == NODE], _stated),
        (kernels, _stated),
        ([x for x in timed if str(x.get("name")).startswith("nccl:")], _annotated),
    ):
        ordered = sorted(named, key=lambda x: float(x["ts"]))
        made = [(x, call) for x in ordered if (call := said(x, about)) is not None]
        if made:
            yield from _with_times(made, timed, kernels)
            return
    if kernels:
        told = "a profiler trace whose collectives have neither names nor sizes"
        raise BadFile(told, where=about.where, hint=RECORD)


def _with_times(
    calls: Sequence[tuple[Event, TorchCall]], timed: Sequence[Event], kernels: Sequence[Event]
) -> Iterator[Timed]:
    """Yield calls with the times of their kernels, ordered by group where those are not known.

    A call's kernel is that of the next launch of its thread, so that several which launch together
    have one; else the one with its id, or of its number where there are as many kernels as calls.
    """
    kernels = sorted(kernels, key=lambda x: float(x["ts"]))
    launches = {_id(x, "correlation"): x for x in timed if str(x.get("cat")).startswith("cuda_")}
    by_id = {_id(x, "External id"): x for x in kernels}
    launched: dict[str, list[tuple[float, int]]] = {}  # by thread: when, and which kernel
    for at, one in enumerate(kernels):
        if launch := launches.get(_id(one, "correlation")):
            launched.setdefault(str(launch.get("tid")), []).append((launch["ts"], at))
    for row in launched.values():
        row.sort()
    for number, (event, call) in enumerate(calls):
        row = launched.get(str(event.get("tid")), [])
        at = bisect_left(row, (event["ts"], -1))
        kernel = event if event.get("cat") == "kernel" else None
        if kernel is None and at < len(row):
            kernel = kernels[row[at][1]]
        kernel = kernel or by_id.get(_id(event, "External id"))
        if kernel is None and not launched and len(calls) == len(kernels):
            kernel = kernels[number]
        if kernel is None:
            yield event["ts"], inf if kernels else event["ts"], call.group, call
        else:
            stream = str(_arguments(kernel).get("stream", kernel.get("tid")))
            yield kernel["ts"], _end(kernel), stream, call


def _whole(value: object) -> Any:
    """Return the number that a text of digits is; some versions write all arguments as texts."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value) else value


def _stated(event: Event, about: _Recorded) -> TorchCall | None:
    """Return the call that an event's arguments state; None if they do not, or it moves nothing."""
    held = {key: _whole(value) for key, value in _arguments(event).items()}
    if "Collective name" not in held:
        return None
    name = str(held["Collective name"])
    where = f"{about.where}: {name[:60]} at {event['ts']} µs"
    kind = call_kind(name, where)
    if not kind:
        return None
    group = _members(held, about, where)
    width = width_of(held.get("dtype"), where)
    sizes = [held.get(key, 0) for key in ("In msg nelems", "Out msg nelems")]
    if not all(type(x) is int and x >= 0 for x in sizes):
        raise BadFile("In msg nelems and Out msg nelems are not counts", where=where)
    row: tuple[int, ...] = ()
    splits, cut = _numbers(held.get("In split size")) if kind in EXCHANGES else ((), False)
    if kind == WorkKind.ALLTOALLV or splits:
        about.notes[UNEVEN] = None
        if splits and not cut:
            row = row_of(splits, sizes[0], width, len(group), where)
    local = held.get("Rank")
    peer = group[local] if type(local) is int and 0 <= local < len(group) else -1
    if kind in ("send", "recv"):
        key = "Dst Rank" if kind == "send" else "Src Rank"
        if peer < 0 and len(group) == 2 and about.rank in group:
            peer = sum(group) - about.rank
        peer = held.get(key, peer)
        if type(peer) is not int or peer < 0:
            hint = f"record it anew with PyTorch 2.5 or newer, which writes {key}"
            raise BadFile(f"{kind} does not say the other rank", where=where, hint=hint)
    pg = str(held.get("Process Group Name", ""))
    label = str(held.get("Process Group Description") or pg)[:60]
    channel = (pg, *([held["Seq"]] if type(held.get("Seq")) is int else []))
    sent, received = (x * width for x in sizes)
    return TorchCall(name, kind, group, sent, received, row, peer, label, channel)


def _members(held: Event, about: _Recorded, where: str) -> tuple[int, ...]:
    """Return the ranks of a call's group.

    Lists of more than 30 are cut; then the trace's list of groups says them, or start and stride.
    """
    listed, cut = _numbers(held.get("Process Group Ranks"))
    size, name = held.get("Group size"), str(held.get("Process Group Name", "0"))
    stated = listed if listed and not cut else about.groups.get(name, ())
    if stated and size in (None, len(stated)):
        return stated
    steps = strided(held.get("Global rank start"), held.get("Global rank stride"), size)
    if steps and steps[: len(listed)] == listed:
        return steps
    everyone = range(about.world)
    if everyone and size in (None, about.world) and listed == tuple(everyone[: len(listed)]):
        return tuple(everyone)
    raise BadFile(
        "the trace does not say which ranks are in the group"
        + (f", which has {size}" if type(size) is int else "")
        + (": its list is cut with ..." if cut else ""),
        where=where,
        hint='--groups FILE says it: {"' + name + '": [0, 1, …]}',
    )


def _annotated(event: Event, about: _Recorded) -> TorchCall | None:
    """Return the call of an annotation ``nccl:…`` of old traces, by the shapes of its inputs."""
    name, held = str(event.get("name")), _arguments(event)
    if event.get("cat") not in ("user_annotation", "cpu_op") or "Input Dims" not in held:
        return None
    where = f"{about.where}: {name[:60]} at {event['ts']} µs"
    ends = re.fullmatch(r"nccl:(send|recv) \d{1,7}(?:->|<-)(\d{1,7})", name)
    kind = ends[1] if ends else call_kind(name.removeprefix("nccl:"), where)
    elements, types = _elements(held["Input Dims"]), held.get("Input type")
    if not kind or not elements:
        return None
    about.notes[OLD] = None
    if not about.world:
        raise BadFile("the trace does not say how many ranks there are", where=where, hint=RECORD)
    sent = elements * width_of(types[0] if isinstance(types, list) and types else types, where)
    peer = int(ends[2]) if ends else -1
    return TorchCall(name, kind, tuple(range(about.world)), sent, 0, peer=peer)


def _elements(dims: object) -> int:
    """Return the elements of all tensors whose shapes are nested in lists."""
    if not isinstance(dims, list) or not dims:
        return 0
    sizes = [x for x in dims if type(x) is int]
    return prod(sizes) if len(sizes) == len(dims) else sum(map(_elements, dims))
