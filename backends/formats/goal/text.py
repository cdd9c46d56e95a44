"""The text of GOAL (Hoefler et al., LogGOPSim, 2010), read and written.

::

    // weft {"name": …, "bytes": …, "collective": {…}, "copies": […]}
    num_ranks 2
    rank 0 {
    // l0: i[0]
    l0: send 1024b to 1 tag 7 nic 1
    l1: calc 500
    l1 requires l0
    }
    rank 1 {
    // l0: o[0]
    l0: recv 1024b from 0 tag 7
    }

As in LogGOPSim's own converter, a statement is a line without blanks before it, a comment has a
line of its own (``//``) or stands before a statement (``/* */``), ranks stand in order, and what
depends on another operation names a label above it. What weft adds stands in comments: the first
line says what the file is for, and a comment above an operation which offsets of the rank's input
it takes, and where in its output its value ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.base.files import Fields, parse_json
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective

from ..messages.model import GraphNode, GraphNodeKind, MessageGraph, copies_of
from .rule import LARGEST, PS

SEND, RECV, SUM = GraphNodeKind.SEND, GraphNodeKind.RECV, GraphNodeKind.SUM

MARK = "// weft "

MOST_RANKS = 1 << 20
MOST_TIME = 1 << 60  # of a computation, in the file's units of time
MOST_TAG = (1 << 32) - 1

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
    """The nodes of a rank as they are read, their labels, and what each waits for.

    ``places``: offsets that a comment names for the operation below it, by its label.
    """

    nodes: list[GraphNode] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    needs: list[list[int]] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def done(self) -> tuple[GraphNode, ...]:
        """Return the nodes, with what each waits for."""
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
            total = _number(said, MOST_RANKS, place)
        elif word == "rank":
            if own is not None or total < 0 or _number(said, MOST_RANKS, place) != len(ranks):
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
        raise BadFile("the last rank has no closing brace", where=where)
    if len(ranks) != total:
        raise BadFile(f"rank {min(len(ranks), max(total, 0))} of {total} is missing", where=where)
    nodes = tuple(rank.done() for rank in ranks)
    return MessageGraph("", nodes) if about is None else MessageGraph(ranks=nodes, **about)


def _statements(text: str, where: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number of a line, the word of a head or a closing brace, and what is said: the
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
    """Read a line inside a rank.

    Raises:
        BadFile: it is neither an operation nor an order, or a label is there twice, or not above.
    """
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
    """Read an operation.

    Raises:
        BadFile: it is none, a label is there twice, or a number is too large.
    """
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
    """Return the node of an operation.

    Raises:
        BadFile: a number is too large, or stands for any rank or tag.
    """
    inputs, outputs = (tuple(int(at) for one, at in places if one == kind) for kind in "io")
    if found["op"] is None:
        ps = _number(found["time"], MOST_TIME, where) * 10**6 // units
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
            ("bytes", LARGEST),
            ("peer", MOST_RANKS),
            ("tag", MOST_TAG),
            ("nic", 255),
        )
    )
    kind = SEND if found["op"] == "send" else RECV
    return GraphNode(kind, size, peer, tag, inputs=inputs, outputs=outputs, port=nic)


def _number(digits: str, most: int, where: str) -> int:
    """Return a number of a text.

    Raises:
        BadFile: it is larger than ``most``.
    """
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
