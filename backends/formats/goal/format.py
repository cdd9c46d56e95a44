"""GOAL as a format: one text for all ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import field, replace
from math import ceil
from typing import Any, ClassVar

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import Fields, parse_json
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import microseconds
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.library import MOST_COPIES
from weft.dsl.nouns.topology import Topology
from weft.synth.time.routes import Route

from ...compile.request import ProvedArtefact, Request
from ..messages.format import MessageFormat
from ..messages.lower import in_turns, ported
from ..messages.model import LIMITS, GraphNode, GraphNodeKind, Key, MessageGraph, copies_of, key_of
from ..messages.replay import Hop, ReplayRule, replayed, router


@dataclass(frozen=True, slots=True)
class GoalFacts:
    """Number types of LogGOPSim, and how closely its one G must fit."""

    ranks: int = 1 << 20
    nics: int = 256  # of a rank
    tag: int = (1 << 32) - 1  # largest
    time_units: int = 1 << 60  # of a computation
    message_bytes: int = (1 << 31) - 1  # and time units of L: it has 32 bits for them
    gap_share: float = 1e-3  # by which the G of a route may differ with its bytes unscaled


FACTS = GoalFacts()


@dataclass(frozen=True, slots=True)
class GoalFile(MessageFormat):
    """GOAL, for LogGOPSim and ATLAHS: sends of a port follow each other in the planned order.

    ``ports``: every link of a rank is a NIC of its own; otherwise a rank has one. ``local_mem_bw``:
    GB/s; a sum takes 3 · bytes ÷ this. 0: sums take no time. ``scaled``: where links are unequal,
    messages on slower ones get more bytes, as there is one G; otherwise bytes are bytes, for
    simulators with a network of their own (htsim).
    """

    name: ClassVar[str] = "goal"
    cites: ClassVar[str] = "Hoefler, Schneider and Lumsdaine, LogGOPSim, 2010"
    noun: ClassVar[str] = "GOAL file"
    suffix: ClassVar[str] = ".goal"
    rule: ClassVar[str] = "ATLAHS' rule"
    ports: bool = True
    local_mem_bw: int = 0
    scaled: bool = True

    def graphs(self, text: str, where: str) -> dict[str, MessageGraph]:
        return {"": read_goal(text, where)}

    def graph_us(self, graph: MessageGraph, topology: Topology | None) -> float:
        assert topology is not None
        if graph.flags is None:
            rule, graph = loggop_of(graph, topology)
            return loggop_us(graph, rule)
        latency, gap, units, digest = graph.flags
        if digest != topology.digest():
            raise UserError(
                f"the file's L, G and bytes are for the links of another machine than "
                f"{topology.name}",
                where=graph.name or None,
                hint="-t with the schedule's own machine, or compile it again for this one",
            )
        return loggop_us(graph, LogGop(latency, gap, units))

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        if self.local_mem_bw < 0:
            raise UserError(f"local_mem_bw is {self.local_mem_bw}", where=self.name)
        sizes = self.sizes_of(request)
        if len(sizes) > 1:
            raise UserError("a GOAL file is for one message size", where="--size")
        tell("messages")
        planned = self.planned(request, sizes[0], self._sum_ps)
        graph = planned.graph
        notes: tuple[str, ...] = ()
        remarks: tuple[tuple[str, str], ...] = ()
        units = PS
        if planned.schedule is None:
            graph = ported(graph, [[(0, node.tag) for node in own] for own in graph.ranks])
        else:
            graph = in_turns(graph, planned.schedule, planned.start_us, not self.ports)
            topology = planned.schedule.topology
            rule, scaled = loggop_of(graph, topology)
            units = rule.units_per_us
            if not rule.exact and len(planned.schedule) <= LIMITS.messages:
                rule = nearest(scaled, rule, planned.time_us)
            if self.scaled and not rule.exact:
                graph = replace(scaled, flags=(rule.latency, rule.gap, units, topology.digest()))
            notes = (f"LogGOPSim -f FILE.bin {rule.flags}",)
            remarks = (("Run", self._told(rule)),)
        self._require_fit(graph, request)
        return self.proved(request, goal_text(graph, units, notes), [planned], tell, remarks)

    def _require_fit(self, graph: MessageGraph, request: Request) -> None:
        largest = max((node.bytes for _, _, node in graph.nodes()), default=0)
        if largest > FACTS.message_bytes:
            pieces = max(1, request.segments, getattr(request.noun, "segments", 1))
            pieces *= -(-largest // FACTS.message_bytes)
            cut = f"--segments {pieces} cuts every chunk into messages that fit"
            raise UserError(
                f"a message of {largest} bytes: LogGOPSim's have 31 bits",
                where=request.where or None,
                hint=cut if pieces <= MOST_COPIES else "a smaller --size: no --segments is enough",
            )
        for rank, _, node in graph.nodes():
            if node.port >= FACTS.nics:
                raise UserError(
                    f"rank {rank} has more than {FACTS.nics} links, and a file names no more NICs",
                    where=self.name,
                    hint="--to 'goal{ports=false}' gives every rank one",
                )

    def _sum_ps(self, size: int) -> int:
        if not self.local_mem_bw:
            return 0
        return round(
            LIMITS.sum_traffic * size / (self.local_mem_bw * BYTES_PER_US_PER_GBPS) * 10**6
        )

    def _told(self, rule: LogGop) -> str:
        unit = "ps" if rule.units_per_us == PS else "fs"
        told = f"txt2bin -i FILE -o FILE.bin; LogGOPSim -f FILE.bin {rule.flags} ({unit}"
        if not rule.alike and self.scaled:
            told += "; bytes are scaled, since links are unequal and G is one for all"
        elif not rule.alike:
            told += "; links are unequal, bytes are not scaled: too quick with this G"
        if rule.alpha_us[0] < rule.alpha_us[1]:
            least, most = map(microseconds, rule.alpha_us)
            told += f"; L is one for all, the α of routes are {least} to {most} µs"
        return f"{told}; spcl's version works one port of a rank at a time, and takes longer)"


# The text of GOAL (Hoefler et al., LogGOPSim, 2010), read and written.
#
# ::
#
#     // weft {"name": …, "bytes": …, "collective": {…}, "copies": […]}
#     num_ranks 2
#     rank 0 {
#     // l0: i[0]
#     l0: send 1024b to 1 tag 7 nic 1
#     l1: calc 500
#     l1 requires l0
#     }
#     rank 1 {
#     // l0: o[0]
#     l0: recv 1024b from 0 tag 7
#     }
#
# As in LogGOPSim's own converter, a statement is a line without blanks before it, a comment has a
# line of its own (``//``) or stands before a statement (``/* */``), ranks stand in order, and what
# depends on another operation names a label above it. What weft adds stands in comments: the first
# line says what the file is for, and a comment above an operation which offsets of the rank's input
# it takes, and where in its output its value ends.

SEND, RECV, SUM = GraphNodeKind.SEND, GraphNodeKind.RECV, GraphNodeKind.SUM

MARK = "// weft "

_LABEL = r"(?!(?:send|recv|calc|rank|num_ranks)\b)[A-Za-z][A-Za-z0-9_]*"
_OPERATION = re.compile(
    rf"(?:(?P<label>{_LABEL})[ \t]*:[ \t]*)?(?:"
    r"(?P<op>send|recv)[ \t]+(?P<bytes>\d+)[ \t]*b[ \t]+(?P<way>to|from)[ \t]+(?P<peer>-1|\d+)"
    r"(?:[ \t]+tag[ \t]+(?P<tag>-1|\d+))?(?:[ \t]+cpu[ \t]+\d+)?(?:[ \t]+nic[ \t]+(?P<nic>\d+))?"
    r"|calc[ \t]+(?P<time>\d+)(?:[ \t]+cpu[ \t]+\d+)?)[ \t]*\r?",
    re.ASCII,
)
_ORDER = re.compile(
    rf"(?P<later>{_LABEL})[ \t]+(?P<how>i?requires)[ \t]+(?P<first>{_LABEL})[ \t]*\r?",
    re.ASCII,
)
_TOTAL = re.compile(r"num_ranks[ \t]+([0-9]+)")
_RANK = re.compile(r"rank[ \t]+([0-9]+)[ \t]*\{")
_PLACES = re.compile(rf"[ \t]*(?P<label>{_LABEL}):(?P<places>(?: [io]\[\d{{1,9}}\])+)", re.ASCII)
_PLACE = re.compile(r"([io])\[(\d+)\]", re.ASCII)


# --- writing --------------------------------------------------------------------------------------


def goal_text(graph: MessageGraph, units_per_us: int, notes: tuple[str, ...]) -> str:
    """Return the text of a graph; ``notes``: lines for people, written as comments."""
    assert graph.collective is not None
    about = {
        "name": graph.name,
        "bytes": graph.message_bytes,
        "units_per_us": units_per_us,
        "collective": graph.collective.to_json(),
        "copies": graph.copies,
    }
    if graph.flags is not None:
        latency, gap, _, machine = graph.flags
        about["flags"] = [latency, gap, machine]
    lines = [MARK + json.dumps(about, separators=(",", ":")), *(f"// {note}" for note in notes)]
    lines.append(f"num_ranks {len(graph.ranks)}")
    for rank, own in enumerate(graph.ranks):
        lines.append(f"rank {rank} {{")
        for place, node in enumerate(own):
            if node.inputs or node.outputs:
                lines.append(f"// l{place}:{_places(node)}")
            lines.append(f"l{place}: {_operation(node, units_per_us)}")
        for place, node in enumerate(own):
            lines += [f"l{place} requires l{other}" for other in (*node.needs, *node.waits)]
            lines += [f"l{place} irequires l{other}" for other in node.after]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _operation(node: GraphNode, units_per_us: int) -> str:
    if node.local:
        return f"calc {max(1, node.ps * units_per_us // 10**6)}"
    way = "to" if node.kind is SEND else "from"
    nic = f" nic {node.port}" if node.port else ""
    return f"{node.kind} {node.bytes}b {way} {node.peer} tag {node.tag}{nic}"


def _places(node: GraphNode) -> str:
    return "".join([f" i[{at}]" for at in node.inputs] + [f" o[{at}]" for at in node.outputs])


# --- reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _RankText:
    """The nodes of a rank as they are read, their labels, and the predecessors of each.

    ``places``: offsets that a comment names for the operation below it, by its label.
    """

    nodes: list[GraphNode] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    needs: list[list[int]] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def done(self) -> tuple[GraphNode, ...]:
        """Return the nodes, with their predecessors."""
        return tuple(
            replace(node, needs=tuple(dict.fromkeys(a)), after=tuple(dict.fromkeys(b)))
            for node, a, b in zip(self.nodes, self.needs, self.after, strict=True)
        )


def read_goal(text: str, where: str) -> MessageGraph:
    """Return the graph in a text.

    Raises:
        BadFile: LogGOPSim's converter reads no such text, a rank is missing, or a label is there
            twice.
    """
    units, about = _about(text, where)
    ranks: list[_RankText] = []
    total = -1
    own: _RankText | None = None
    for number, word, said in _statements(text, where):
        place = f"{where}:{number}"
        if word == "num_ranks":
            if total >= 0 or own is not None:
                raise BadFile("num_ranks stands once, before the ranks", where=place)
            total = _number(said, FACTS.ranks, place)
        elif word == "rank":
            if own is not None or total < 0 or _number(said, FACTS.ranks, place) != len(ranks):
                raise BadFile(
                    f"rank {said[:20]} stands where rank {len(ranks)} should",
                    where=place,
                    hint="num_ranks N, then rank 0 { … }, rank 1 { … }, … in order",
                )
            own = _RankText()
            ranks.append(own)
        elif own is not None and word:
            own = None
        elif own is not None:
            _statement(own, said, units, place)
        elif not said.startswith("//"):
            raise BadFile(f"{said[:60]!r} stands outside of the ranks", where=place)
    if own is not None:
        raise BadFile("expected a closing brace, got the end of the file", where=where)
    if len(ranks) != total:
        raise BadFile(f"rank {min(len(ranks), max(total, 0))} of {total} is missing", where=where)
    nodes = tuple(rank.done() for rank in ranks)
    return MessageGraph("", nodes) if about is None else MessageGraph(ranks=nodes, **about)


def _statements(text: str, where: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of a line, the word of a head or a closing brace, and its contents: the
    number of the head, or (with no word) a statement or a comment to the end of the line."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        rest = line
        while rest:
            if inside:
                _, closed, rest = rest.partition("*/")
                inside = not closed
                continue
            if rest[0] in " \t":
                if rest.strip(" \t\r"):
                    raise BadFile(
                        f"blanks before {rest.strip()[:60]!r}",
                        where=f"{where}:{number}",
                        hint="LogGOPSim's converter takes the next character for a blank too",
                    )
                break
            if rest.startswith("/*"):
                inside, rest = True, rest[2:]
            elif rest.startswith("}"):
                yield number, "}", "}"
                rest = rest[1:]
            elif head := _RANK.match(rest) or _TOTAL.match(rest):
                yield number, "rank" if head.re is _RANK else "num_ranks", head[1]
                rest = rest[head.end() :]
            else:
                if rest != "\r":
                    yield number, "", rest
                break
    if inside:
        raise BadFile("a comment is not closed", where=where)


def _statement(own: _RankText, line: str, units: int, where: str) -> None:
    if line.startswith("//"):
        if places := _PLACES.fullmatch(line, 2):
            own.places[places["label"]] = places["places"]
    elif order := _ORDER.fullmatch(line):
        for label in (order["later"], order["first"]):
            if label not in own.labels:
                raise BadFile(
                    f"no operation above has the label {label[:60]}",
                    where=where,
                    hint="all operations of the rank first, then what requires what",
                )
        found = own.needs if order["how"] == "requires" else own.after
        found[own.labels[order["later"]]].append(own.labels[order["first"]])
    else:
        _operation_in(own, line, units, where)


def _operation_in(own: _RankText, line: str, units: int, where: str) -> None:
    found = _OPERATION.fullmatch(line)
    if found is None or (found["op"] and (found["op"] == "send") != (found["way"] == "to")):
        behind = _OPERATION.fullmatch(line.partition("/")[0]) if "/" in line else None
        raise BadFile(
            f"{line[:60]!r} is not an operation",
            where=where,
            hint="LogGOPSim reads no comment behind an operation: // begins a line of its own"
            if behind
            else "as in L: send 8b to 1 tag 0 · L: recv 8b from 1 tag 0 · L: calc 5 · L requires K",
        )
    label = found["label"]
    if label is not None:
        if label in own.labels:
            raise BadFile(f"the label {label[:60]} is there twice", where=where)
        own.labels[label] = len(own.nodes)
    places = _PLACE.findall(own.places.pop(label, ""))
    own.nodes.append(_node(found, places, units, where))
    own.needs.append([])
    own.after.append([])


def _node(found: re.Match[str], places: list[tuple[str, str]], units: int, where: str) -> GraphNode:
    inputs, outputs = (tuple(int(at) for one, at in places if one == kind) for kind in "io")
    if found["op"] is None:
        ps = _number(found["time"], FACTS.time_units, where) * 10**6 // units
        return GraphNode(SUM, inputs=inputs, outputs=outputs, ps=ps)
    if "-1" in (found["peer"], found["tag"]):
        raise BadFile(
            "a message of any rank or any tag (-1)",
            where=where,
            hint="name both: which message comes is known only when the program runs",
        )
    size, peer, tag, nic = (
        _number(found[name] or "0", most, where)
        for name, most in (
            ("bytes", FACTS.message_bytes),
            ("peer", FACTS.ranks),
            ("tag", FACTS.tag),
            ("nic", 255),
        )
    )
    kind = SEND if found["op"] == "send" else RECV
    return GraphNode(kind, size, peer, tag, inputs=inputs, outputs=outputs, port=nic)


def _number(digits: str, most: int, where: str) -> int:
    if len(digits) > 20 or int(digits) > most:
        raise BadFile(f"expected a number up to {most}, got {digits[:24]}", where=where)
    return int(digits)


def _about(text: str, where: str) -> tuple[int, dict[str, Any] | None]:
    """Return the units of time in a µs, and the fields of the graph that weft states; None: the
    file is of another writer."""
    if not text.startswith(MARK):
        return PS, None
    fields = Fields(parse_json(text.partition("\n")[0].removeprefix(MARK), where), where)
    collective = Collective.from_json(fields.get("collective", dict), f"{where}: collective")
    name, size = fields.get("name", str), fields.get("bytes", int)
    units = fields.get("units_per_us", int)
    rows = fields.get("copies", list)
    flags = fields.get("flags", list, None)
    fields.finish()
    if units < 1 or size < 1:
        raise BadFile("bytes and units_per_us are at least 1", where=where)
    copies = tuple(copies_of(own, where) for own in rows)
    if len(copies) != collective.ranks:
        raise BadFile("copies must have an entry for each rank", where=where)
    if flags is not None and list(map(type, flags)) != [int, int, str]:
        raise BadFile("flags must be L, G and the digest of a machine", where=where)
    return units, {
        "name": name,
        "message_bytes": size,
        "collective": collective,
        "copies": copies,
        "flags": flags and (flags[0], flags[1], units, flags[2]),
    }


# LogGOPSim's rule, as ATLAHS has it, for replays of GOAL.
#
# A message of b bytes holds the sender's NIC for (b - 1) · G and arrives L later; receivers' NICs
# are never busy. One L and one G are for all messages (spcl/atlahs 8837294; with o = g = O = 0), so
# that a message on a slower route is written with more bytes: b · G(route) ÷ G. The version of
# spcl/LogGOPSim holds the receiver too, one port of a rank at a time.

PS, FS = 10**6, 10**9
"""Units of time of a µs: picoseconds, and femtoseconds for times that those round too coarsely."""


@dataclass(frozen=True, slots=True)
class LogGop:
    """L and G in units of which a µs has ``units_per_us``.

    ``alpha_us``: the least and the largest α of routes. ``alike``: all routes have this G.
    """

    latency: int
    gap: int
    units_per_us: int
    alpha_us: tuple[float, float] = (0.0, 0.0)
    alike: bool = True

    @property
    def exact(self) -> bool:
        """True if L and G hold for all messages."""
        return self.alike and self.alpha_us[0] == self.alpha_us[1]

    @property
    def flags(self) -> str:
        """The flags of LogGOPSim; S keeps sends from waiting for their receivers."""
        return f"-L {self.latency} -o 0 -g 0 -O 0 -G {self.gap} -S {FACTS.message_bytes}"


def loggop_of(graph: MessageGraph, topology: Topology) -> tuple[LogGop, MessageGraph]:
    """Return L and G for a graph on a machine, and the graph with bytes scaled to this G.

    L is the least α of the routes (see :func:`nearest`), G that of the widest route (or more, where
    scaled bytes were too many for LogGOPSim).

    Raises:
        BadTopology: two ranks that talk are not joined.
    """
    route_of = router(graph, topology)
    sends = [(rank, n) for rank, _, n in graph.nodes() if n.kind is GraphNodeKind.SEND]
    if not sends:
        return LogGop(0, 1, PS), graph
    largest: dict[Route, int] = {}
    for rank, node in sends:
        route = route_of(rank, node)
        largest[route] = max(largest.get(route, 0), node.bytes)
    links = topology.links
    alphas = [float(sum(links[i].latency for i in route)) for route in largest]
    alpha = min(alphas), max(alphas)
    us_per_byte = {
        route: 1 / float(min(links[i].bandwidth for i in route) * BYTES_PER_US_PER_GBPS)
        for route in largest
    }
    units = _units(min(us_per_byte.values()), alpha[1])
    gap = max(1, round(min(us_per_byte.values()) * units))
    rule = LogGop(round(alpha[0] * units), gap, units, alpha)
    if all(abs(one * units - gap) <= FACTS.gap_share * gap for one in us_per_byte.values()):
        return rule, graph
    needed = max(
        size * us_per_byte[route] * units / FACTS.message_bytes for route, size in largest.items()
    )
    gap = max(gap, ceil(needed))
    share = {key_of(*one): us_per_byte[route_of(*one)] * units / gap for one in sends}
    return replace(rule, gap=gap, alike=False), _scaled(graph, share)


def nearest(graph: MessageGraph, rule: LogGop, planned_us: float) -> LogGop:
    """Return the rule with the least or the largest α as L, whichever comes nearer to a time."""
    rules = [replace(rule, latency=round(one * rule.units_per_us)) for one in rule.alpha_us]
    return min(rules, key=lambda one: abs(loggop_us(graph, one) - planned_us))


def _units(us_per_byte: float, alpha: float) -> int:
    """Return the units of a µs in which G is round enough, and L not too large."""
    coarse = abs(round(us_per_byte * PS) - us_per_byte * PS) > FACTS.gap_share * us_per_byte * PS
    return FS if coarse and alpha * FS <= FACTS.message_bytes else PS


def _scaled(graph: MessageGraph, share: dict[Key, float]) -> MessageGraph:
    """Return the graph with the bytes of both ends of each message times its share."""

    def scaled(rank: int, node: GraphNode) -> GraphNode:
        if node.local:
            return node
        return replace(node, bytes=max(1, round(node.bytes * share[key_of(rank, node)])))

    ranks = (tuple(scaled(rank, node) for node in own) for rank, own in enumerate(graph.ranks))
    return replace(graph, ranks=tuple(ranks))


def loggop_us(graph: MessageGraph, rule: LogGop) -> float:
    """Return the time of a graph, whose bytes are scaled to the rule's G, in µs."""

    def hops(rank: int, node: GraphNode) -> tuple[Hop, ...]:
        holds = (node.bytes - 1) * rule.gap
        return ((rank * FACTS.nics + node.port, holds, rule.latency + holds),)

    def work(node: GraphNode) -> int:
        return max(1, node.ps * rule.units_per_us // 10**6)

    return replayed(graph, ReplayRule(hops, work, on_arrival=False)) / rule.units_per_us
