"""Chakra execution traces as a format: one file a rank, and the files that ASTRA-sim needs too."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import Fields, parse_json
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS, format_bytes
from weft.dsl.importers.chakra_et import (
    COLL,
    COMP,
    RECV,
    SEND,
    Attribute,
    ExecutionTrace,
    TraceNode,
    decoded,
    encoded,
)
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.routes import Route

from ...compile.request import ProvedArtefact, Request
from ..messages.format import MessageFormat, PlannedGraph
from ..messages.lower import in_turns, with_turns
from ..messages.model import LIMITS, GraphNode, GraphNodeKind, MessageGraph, copies_of
from ..messages.replay import Hop, ReplayRule, replayed, router
from ..recognition import file_set

COMM_TYPE = {
    Kind.ALLREDUCE: (0, "all-reduce"),
    Kind.ALLGATHER: (2, "all-gather"),
    Kind.ALLTOALL: (6, "all-to-all"),
    Kind.REDUCE_SCATTER: (7, "reduce-scatter"),
}
"""``CollectiveCommType``, and the word in the keys of ``system.json``, of the collectives that have
one there."""


@dataclass(frozen=True, slots=True)
class ChakraEffort:
    """Least gains for which a trace is changed, as shares of its replayed time."""

    turns_gain: float = 0.005  # of the order of sends; with less it is not written
    pieces_gain: float = 0.01  # of cutting pieces in two; with less it ends


EFFORT = ChakraEffort()


PREFIX, NAMING = "PREFIX", frozenset({".system.json", ".per-node.yml"})
"""The prefix in an artefact's text, which its files replace; those of them that have it."""

WORKLOAD = ".workload"
_MEMBER = re.compile(r"(?P<set>.*)\.(?P<rank>0|[1-9]\d{0,6})\.et")


class Turns(StrEnum):
    """Setting for writing the order of sends."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Segments(StrEnum):
    """Setting for the number of pieces of a chunk."""

    GIVEN = "given"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ChakraEt(MessageFormat):
    """Chakra execution traces: a collective algorithm for ASTRA-sim, one file a rank.

    ``local_mem_bw``: GB/s; a sum takes 3 · bytes ÷ this, in whole µs, as in ASTRA-sim's own
    algorithms. 0: sums take no time. ``turns``: the order of a port's sends is written too, always,
    never, or (auto) where the replay gains. ``segments``: the schedule's, or (auto) the number of
    pieces of every chunk that is quickest in the replay.
    """

    name: ClassVar[str] = "chakra-et"
    cites: ClassVar[str] = "Won et al., ASTRA-sim 2.0, 2023, arXiv:2303.14006"
    noun: ClassVar[str] = "Chakra execution trace"
    suffix: ClassVar[str] = ".et"
    several: ClassVar[bool] = True
    says_kind: ClassVar[bool] = True
    rule: ClassVar[str] = "ASTRA-sim's rule"
    local_mem_bw: int = 50
    turns: Turns = Turns.AUTO
    segments: Segments = Segments.GIVEN

    # --- files ------------------------------------------------------------------------------------

    def files(self, text: str, where: str, prefix: str = PREFIX) -> dict[str, bytes]:
        data = parse_json(text, where)
        fields = Fields(data, where)
        fields.get("weft", str)
        fields.get("schema", int)
        members = fields.get("files", dict)
        fields.finish()
        try:
            files = {str(k): base64.b64decode(str(v), validate=True) for k, v in members.items()}
        except (binascii.Error, ValueError):
            raise BadFile("the files of the set are not in base64", where=where) from None
        held, named = (json.dumps(name)[:-1].encode() for name in (PREFIX, prefix))
        return files | {k: files[k].replace(held, named) for k in NAMING & files.keys()}

    def graphs(self, text: str, where: str) -> dict[str, MessageGraph]:
        sets: dict[str, dict[int, ExecutionTrace]] = defaultdict(dict)
        for name, data in self.files(text, where).items():
            if member := _MEMBER.fullmatch(name):
                found = decoded(data, f"{where}: {name}")
                sets[member["set"]][int(member["rank"])] = found
        graphs = {}
        for name, traces in sets.items():
            if any(node.type == COLL for trace in traces.values() for node in trace.nodes):
                continue
            graphs[name.removeprefix(".")] = _graph(traces, f"{where}{name and ': ' + name}")
        if not graphs:
            raise BadFile(
                "a workload of collectives, not a collective algorithm",
                where=where,
                hint="name a file of the algorithm: PREFIX.RANK.et",
            )
        return graphs

    def graph_us(self, graph: MessageGraph, topology: Topology | None) -> float:
        assert topology is not None
        return astra_sim_us(graph, topology)

    # --- compiling --------------------------------------------------------------------------------

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        if self.local_mem_bw < 0:
            raise UserError(f"local_mem_bw is {self.local_mem_bw}", where=self.name)
        sizes = self.sizes_of(request)
        prefix = request.output or PREFIX
        files: dict[str, bytes] = {}
        tags: dict[int, str] = {}
        written = []
        for size in sizes:
            tell("messages")
            planned = self._best(request, size)
            tags[size] = f".{format_bytes(size)}" if len(sizes) > 1 else ""
            files |= {f"{tags[size]}{name}": data for name, data in _traces(planned.graph).items()}
            written.append(planned)
        collective = written[0].graph.collective
        assert collective is not None
        files |= self._beside(tags, collective)
        remarks = [("Names", _names(prefix, collective, len(sizes) > 1))]
        if written[0].schedule is not None:
            machine = written[0].schedule.topology
            files |= network_files(machine)
            remarks.append(_run(prefix, machine))
        files[".memory.json"] = MEMORY.encode()
        told = [
            format_bytes(size)
            for size, one in zip(sizes, written, strict=True)
            if one.graph.count(GraphNodeKind.TURN)
        ]
        if told:
            remarks.append(("Order", f"sends take turns at each port ({', '.join(told)})"))
        return self.proved(request, file_set(files), written, tell, tuple(remarks))

    def _best(self, request: Request, size: int) -> PlannedGraph:
        """Return the graph for a size: the quickest in the replay of those that may be written.

        Pieces are doubled while that gains.
        """
        first = self.planned(request, size, self._sum_ps)
        if first.schedule is None or self.segments is Segments.GIVEN or request.segments > 1:
            return self._ordered(first)
        noun: Schedule = request.noun
        pieces = 1
        best = first if first.pieces == 1 else self.planned(request, size, self._sum_ps, 1)
        best_us = self._us(best, turned=True)
        while (
            2 * pieces <= self.most_pieces(noun, size)
            and len(noun) * pieces <= LIMITS.messages // 2
        ):
            pieces *= 2
            one = self.planned(request, size, self._sum_ps, pieces)
            us = self._us(one, turned=True)
            if us >= best_us * (1 - EFFORT.pieces_gain):
                break
            best, best_us = one, us
        return self._ordered(best)

    def _ordered(self, planned: PlannedGraph) -> PlannedGraph:
        """Return the graph with the order of sends, where it is written."""
        if planned.schedule is None or self.turns is Turns.NEVER:
            return planned
        if self.turns is Turns.AUTO and (
            len(planned.schedule) > LIMITS.messages
            or self._us(planned, turned=True) >= (1 - EFFORT.turns_gain) * self._us(planned)
        ):
            return planned
        return replace(planned, graph=_in_turns(planned))

    def _us(self, planned: PlannedGraph, *, turned: bool = False) -> float:
        """Return the time of a graph in the replay, with turns or without.

        Without, nodes that are free at once go in any order: the slower of two counts.
        """
        assert planned.schedule is not None
        machine = planned.schedule.topology
        if turned:
            return astra_sim_us(_in_turns(planned), machine)
        return max(astra_sim_us(planned.graph, machine, mixed=mixed) for mixed in (False, True))

    def _sum_ps(self, size: int) -> int:
        """Picoseconds of a sum: whole µs, the finest unit of a trace."""
        if not self.local_mem_bw:
            return 0
        taken = LIMITS.sum_traffic * size / (self.local_mem_bw * BYTES_PER_US_PER_GBPS)
        return int(taken + 0.5) * PS_PER_US

    def _beside(self, tags: Mapping[int, str], collective: Collective) -> dict[str, bytes]:
        """Return the system's configuration, and a workload that calls each size once."""
        comm_type, word = COMM_TYPE.get(collective.kind, (0, ""))
        system: dict[str, Any] = {"scheduling-policy": "FIFO", "preferred-dataset-splits": 1}
        files = {}
        if word and len(tags) == 1:
            system[f"{word}-implementation-custom"] = [PREFIX]
        else:
            system["per-node-custom-implementation"] = f"{PREFIX}.per-node.yml"
            lines = (f"{i}: {json.dumps(PREFIX + tag)}\n" for i, tag in enumerate(tags.values(), 1))
            files[".per-node.yml"] = "".join(lines).encode()
        system["local-mem-bw"] = self.local_mem_bw or 50
        files[".system.json"] = (json.dumps(system, indent=2) + "\n").encode()
        files |= _workload(tags, collective, comm_type)
        return files


def _in_turns(planned: PlannedGraph) -> MessageGraph:
    assert planned.schedule is not None
    return with_turns(in_turns(planned.graph, planned.schedule, planned.start_us))


def _run(prefix: str, machine: Topology) -> tuple[str, str]:
    """Return a remark with the line that runs the simulator, or on the network that it lacks."""
    kind = network_of(machine)
    if kind is None:
        return "Network", (
            "ASTRA-sim's analytical network is a Ring, Switch or FullyConnected of equal links, "
            f"which {machine.name} is not: {prefix}.links.csv has the links for a network of your "
            "own"
        )
    files = {
        "workload": "workload",
        "system": "system.json",
        "network": "network.yml",
        "remote-memory": "memory.json",
    }
    flags = (f"--{what}-configuration={prefix}.{file}" for what, file in files.items())
    return "Run", f"AstraSim_Analytical_Congestion_Aware {' '.join(flags)}"


def _names(prefix: str, collective: Collective, several: bool) -> str:
    key = COMM_TYPE.get(collective.kind, (0, ""))[1]
    if several or not key:
        return f"{prefix}.system.json names the files by the nodes of {prefix}.workload"
    return f"{prefix}.system.json names the files for every {key} of a workload"


def _traces(graph: MessageGraph) -> dict[str, bytes]:
    """Return the trace files of a graph; the first one's metadata names its purpose."""
    files = {}
    for rank, own in enumerate(graph.ranks):
        about: dict[str, Any] = {"rank": rank, "copies": graph.copies[rank]}
        if not rank:
            assert graph.collective is not None
            about |= {"name": graph.name, "bytes": graph.message_bytes}
            about["collective"] = graph.collective.to_json()
        metadata = {"weft": json.dumps(about, separators=(",", ":"))}
        files[f".{rank}.et"] = encoded(trace_of(own, metadata))
    return files


def _workload(tags: Mapping[int, str], collective: Collective, type: int) -> dict[str, bytes]:
    """Return a workload for each rank: one call of each size, one after another."""
    share = collective.ranks if collective.kind is Kind.ALLGATHER else 1
    nodes = tuple(
        TraceNode(
            number,
            COLL,
            f"{collective.name or collective.kind} {format_bytes(size)}",
            data_deps=(number - 1,) if number > 1 else (),
            attributes={"is_cpu_op": False, "comm_type": type, "comm_size": max(1, size // share)},
        )
        for number, size in enumerate(tags, 1)
    )
    data = encoded(ExecutionTrace({}, nodes))
    return {f"{WORKLOAD}.{rank}.et": data for rank in range(collective.ranks)}


# --- reading --------------------------------------------------------------------------------------


def _graph(traces: Mapping[int, ExecutionTrace], where: str) -> MessageGraph:
    missing = next((rank for rank in range(max(traces) + 1) if rank not in traces), None)
    if missing is not None:
        raise BadFile(
            f"the file of rank {missing} is missing: ASTRA-sim needs one for every rank",
            where=where,
            hint=f"put PREFIX.{missing}.et beside the others",
        )
    ranks = tuple(nodes_of(traces[r], f"{where}: rank {r}") for r in range(len(traces)))
    told = [_about(traces[rank], f"{where}: rank {rank}") for rank in range(len(traces))]
    about = [one for one in told if one is not None]
    if len(about) < len(told):
        return MessageGraph("", ranks)
    first = Fields(about[0], where)
    first.get("rank", int)
    first.get("copies", list)
    collective = Collective.from_json(first.get("collective", dict), f"{where}: collective")
    if collective.ranks < len(traces):
        raise BadFile(
            f"files of {len(traces)} ranks, and the collective has {collective.ranks}",
            where=where,
            hint=f"PREFIX.{collective.ranks}.et and further ones are of another set: remove them",
        )
    name, size = first.get("name", str), first.get("bytes", int)
    first.finish()
    copies = tuple(copies_of(one.get("copies"), where) for one in about)
    return MessageGraph(name, ranks, collective, size, copies)


def _about(trace: ExecutionTrace, where: str) -> dict[str, Any] | None:
    """Return the metadata of weft in a rank's trace; None: the trace is of another writer."""
    told = trace.metadata.get("weft")
    if told is None:
        return None
    about = parse_json(str(told), where)
    if not isinstance(about, dict):
        raise BadFile("the attribute weft is not a JSON object", where=where)
    return about


# Files that describe a machine to ASTRA-sim's analytical network: ``network.yml``, else links.
#
# ``network.yml`` names one ``Ring``, ``Switch`` or ``FullyConnected`` of equal links (one
# dimension, as the congestion-aware back end takes). Other machines are written link by link, for a
# program that builds the network with its library.

GIB_PER_S = (1 << 30) / 10**6 / BYTES_PER_US_PER_GBPS
"""GB/s in a "GB/s" of ASTRA-sim, which is 2^30 bytes a second."""

MEMORY = '{"memory-type": "NO_MEMORY_EXPANSION"}\n'
"""``memory.json``: no memory beside that of the ranks."""


def network_of(machine: Topology) -> str | None:
    """Return the kind of network that a machine is; None: one that ASTRA-sim cannot express.

    A ring of at least four ranks, all pairs, or one switch, each with equal links both ways.
    """
    n, ends = machine.ranks, sorted((link.src, link.dst) for link in machine.links)
    if len({(link.bandwidth, link.latency) for link in machine.links}) != 1 or machine.resources:
        return None
    if len(machine.nodes) == n + 1:
        star = sorted([(r, n) for r in range(n)] + [(n, r) for r in range(n)])
        return "Switch" if ends == star else None
    if ends == [(a, b) for a in range(n) for b in range(n) if a != b] and len(machine.nodes) == n:
        return "FullyConnected"
    around = {(r, (r + 1) % n) for r in range(n)}
    return "Ring" if ends == sorted(around | {(b, a) for a, b in around}) else None


def network_files(machine: Topology) -> dict[str, bytes]:
    """Return ``network.yml`` of a machine, or else the list of its links.

    The list has each link once: copies share a bandwidth, which it cannot express.
    """
    kind = network_of(machine)
    if kind is None:
        lines = ["link,src,dst,GiB_per_s,latency_ns"]
        lines += [
            f"{number},{link.src},{link.dst},{_speed(link.bandwidth)},{_ns(link.latency)}"
            for number, link in enumerate(plain_machine(machine).machine.links)
        ]
        return {".links.csv": ("\n".join(lines) + "\n").encode()}
    link = machine.links[0]
    text = (
        f"topology: [ {kind} ]\nnpus_count: [ {machine.ranks} ]\n"
        f"bandwidth: [ {_speed(link.bandwidth)} ]\nlatency: [ {_ns(link.latency)} ]\n"
    )
    return {".network.yml": text.encode()}


def _speed(bandwidth: Fraction) -> str:
    return f"{float(bandwidth) / GIB_PER_S:.12g}"


def _ns(latency: Fraction) -> str:
    return f"{float(latency) * NS_PER_US:.12g}"


# The rule of ASTRA-sim's congestion-aware analytical network, for replays of traces.
#
# Every link serves whole messages, first come first served; a message of b bytes holds it for b /
# bandwidth and is at the link's end latency later, where it is stored whole before it goes on.
# Times are cut to whole nanoseconds at every link. A computation takes its whole microseconds, or 1
# ns. Shared resources (NICs) are not known. (astra-sim/astra-network-analytical 599a047.)
#
# Of nodes that are free at one instant any may go first: they are issued in the order of a hash
# set.

NS_PER_US = 1000
"""Nanoseconds in a µs; as many picoseconds are a nanosecond."""


def astra_sim_us(graph: MessageGraph, topology: Topology, *, mixed: bool = False) -> float:
    """Return the time of a graph in µs, its messages on their routes in the file, or the fastest.

    Nodes that are free at one instant are issued in the order of the file, or ``mixed``.

    Raises:
        BadTopology: two ranks that talk are not joined.
    """
    route_of = router(graph, topology)

    @cache
    def along(route: Route, size: int) -> tuple[Hop, ...]:
        hops = []
        for number in route:
            link = topology.links[number]
            holds = size * NS_PER_US / float(link.bandwidth * BYTES_PER_US_PER_GBPS)
            hops.append((number, int(holds), int(float(link.latency) * NS_PER_US + holds)))
        return tuple(hops)

    def hops(rank: int, node: GraphNode) -> tuple[Hop, ...]:
        return along(route_of(rank, node), node.bytes)

    def work(node: GraphNode) -> int:
        return max(1, node.ps // NS_PER_US)

    rule = ReplayRule(hops, work, on_arrival=True, mixed=mixed)
    return replayed(graph, rule) / NS_PER_US


# Nodes of Chakra execution traces (mlcommons/chakra 1.0.0, ``et_def.proto``), read and written.
#
# weft adds attributes and names of its own, which readers pass over: ``weft_input`` and
# ``weft_output`` are offsets in a rank's buffers (as ``3`` or ``3,7``), ``weft_route`` of a send
# the links of its message, and the attribute ``weft`` of the first file's metadata is a JSON object
# with collective, size and copies. A turn is a computation of no time that takes no value.

PS_PER_US = 10**6

TYPES = {GraphNodeKind.SEND: SEND, GraphNodeKind.RECV: RECV}
KINDS = {number: kind for kind, number in TYPES.items()} | {COMP: GraphNodeKind.SUM}

NUMBERS = {"weft_input": "inputs", "weft_output": "outputs", "weft_route": "route"}
"""Attributes that list numbers, and the fields of nodes that hold them."""


def trace_of(nodes: Sequence[GraphNode], metadata: Mapping[str, Attribute]) -> ExecutionTrace:
    """Return the trace of a rank; one without nodes gets one that does nothing: ASTRA-sim's
    algorithm ends when its last node is over, and never without any."""
    written = [_written(number, node) for number, node in enumerate(nodes)]
    return ExecutionTrace(metadata, tuple(written or [TraceNode(0, COMP, "idle")]))


def _written(number: int, node: GraphNode) -> TraceNode:
    attributes: dict[str, Attribute] = {}
    name = f"sum {node.bytes}B" if node.kind is GraphNodeKind.SUM else str(node.kind)
    if not node.local:
        end, word = ("comm_dst", "to") if node.kind is GraphNodeKind.SEND else ("comm_src", "from")
        name = f"{node.kind} {word} {node.peer}"
        attributes = {end: node.peer, "comm_tag": node.tag, "comm_size": node.bytes}
    for key, field in NUMBERS.items():
        if numbers := getattr(node, field):
            attributes[key] = ",".join(map(str, numbers))
    return TraceNode(
        number,
        TYPES.get(node.kind, COMP),
        name,
        ctrl_deps=node.waits,
        data_deps=node.needs,
        duration_us=node.ps // PS_PER_US,
        attributes=attributes,
    )


# --- reading --------------------------------------------------------------------------------------


def nodes_of(trace: ExecutionTrace, where: str) -> tuple[GraphNode, ...]:
    """Return the nodes of a rank's trace: sends, receives and computations.

    Raises:
        BadFile: another type of node, an identifier twice, or an attribute that ASTRA-sim needs
            is missing.
    """
    place = {node.id: number for number, node in enumerate(trace.nodes)}
    if len(place) < len(trace.nodes):
        raise BadFile("two nodes have one id", where=where)
    return tuple(_read(node, place, where) for node in trace.nodes)


def _read(node: TraceNode, place: Mapping[int, int], where: str) -> GraphNode:
    at = f"{where}: node {node.id}"
    kind = KINDS.get(node.type)
    if kind is None:
        raise BadFile(
            f"a node of the type {node.type}: a collective algorithm has sends, receives and "
            "computations",
            where=at,
        )
    unknown = [other for other in (*node.ctrl_deps, *node.data_deps) if other not in place]
    if unknown:
        raise BadFile(f"it depends on node {unknown[0]}, which is not there", where=at)
    peer = tag = -1
    size = 0
    if kind is GraphNodeKind.SUM and not (
        node.data_deps or node.duration_us or "weft_input" in node.attributes
    ):
        kind = GraphNodeKind.TURN
    if kind in TYPES:
        end = "comm_dst" if kind is GraphNodeKind.SEND else "comm_src"
        peer, tag, size = (_needed(node, name, at) for name in (end, "comm_tag", "comm_size"))
    return GraphNode(
        kind,
        size,
        peer,
        tag,
        needs=tuple(place[other] for other in node.data_deps),
        waits=tuple(place[other] for other in node.ctrl_deps),
        inputs=_offsets(node, "weft_input", at),
        outputs=_offsets(node, "weft_output", at),
        ps=int(node.duration_us * PS_PER_US),
        route=_offsets(node, "weft_route", at),
    )


def _needed(node: TraceNode, name: str, where: str) -> int:
    value = node.attributes.get(name)
    if not isinstance(value, int):
        raise BadFile(f"the attribute {name} is missing: ASTRA-sim ends there", where=where)
    return value


def _offsets(node: TraceNode, name: str, where: str) -> tuple[int, ...]:
    value = node.attributes.get(name)
    if value is None:
        return ()
    parts = str(value).split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise BadFile(f"{name} is {str(value)[:40]!r}, not offsets such as 3,7", where=where)
    return tuple(map(int, parts))
