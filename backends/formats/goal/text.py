"""The text of GOAL (Hoefler et al., LogGOPSim, 2010), read and written.

::

    // weft {"name": …, "bytes": …, "collective": {…}, "copies": […]}
    num_ranks 2
    rank 0 {
    l0: send 1024b to 1 tag 7 nic 1 // i[0]
    }
    rank 1 {
    l0: recv 1024b from 0 tag 7 // o[0]
    }

What weft adds stands in comments: the first line says what the file is for, and a comment behind a
line which offsets of the rank's input a node takes, and where in its output its value ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.base.files import Fields, parse_json
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective

from ..messages.model import GraphNode, GraphNodeKind, MessageGraph, copies_of

SEND, RECV, SUM = GraphNodeKind.SEND, GraphNodeKind.RECV, GraphNodeKind.SUM

MARK = "// weft "
LARGEST = (1 << 31) - 1
"""Bytes of a message: LogGOPSim's queues hold 32 bits."""

MOST_RANKS = 1 << 20

_LABEL = r"[A-Za-z][A-Za-z0-9_]*"
_MESSAGE = re.compile(
    rf"(?P<label>{_LABEL})\s*:\s*(?P<op>send|recv)\s+(?P<bytes>\d+)b\s+(?P<way>to|from)\s+"
    r"(?P<peer>\d+)(?:\s+tag\s+(?P<tag>\d+))?(?:\s+cpu\s+\d+)?(?:\s+nic\s+(?P<nic>\d+))?"
)
_CALC = re.compile(rf"(?P<label>{_LABEL})\s*:\s*calc\s+(?P<time>\d+)(?:\s+cpu\s+\d+)?")
_ORDER = re.compile(rf"(?P<later>{_LABEL})\s+(?P<how>requires|irequires)\s+(?P<first>{_LABEL})")
_RANK = re.compile(r"rank\s+(\d+)\s*\{")
_PLACE = re.compile(r"([io])\[(\d{1,9})\]")


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
    lines = [MARK + json.dumps(about, separators=(",", ":")), *(f"// {note}" for note in notes)]
    lines.append(f"num_ranks {len(graph.ranks)}")
    for rank, own in enumerate(graph.ranks):
        lines.append(f"rank {rank} {{")
        for place, node in enumerate(own):
            lines.append(f"l{place}: {_operation(node, units_per_us)}{_places(node)}")
            lines += [f"l{place} requires l{other}" for other in (*node.needs, *node.waits)]
            lines += [f"l{place} irequires l{other}" for other in node.after]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _operation(node: GraphNode, units_per_us: int) -> str:
    if node.kind is SUM:
        return f"calc {max(1, node.ps * units_per_us // 10**6)}"
    way = "to" if node.kind is SEND else "from"
    nic = f" nic {node.port}" if node.port else ""
    return f"{node.kind} {node.bytes}b {way} {node.peer} tag {node.tag}{nic}"


def _places(node: GraphNode) -> str:
    places = [f"i[{at}]" for at in node.inputs] + [f"o[{at}]" for at in node.outputs]
    return f" // {' '.join(places)}" if places else ""


# --- reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _RankText:
    """The nodes of a rank as they are read, and the lines that order them."""

    nodes: list[GraphNode]
    labels: dict[str, int]
    orders: list[tuple[str, str, str, str]]

    def done(self) -> tuple[GraphNode, ...]:
        """Return the nodes, with what each waits for.

        Raises:
            BadFile: a label that is not there.
        """
        needs: list[list[int]] = [[] for _ in self.nodes]
        after: list[list[int]] = [[] for _ in self.nodes]
        for later, how, first, where in self.orders:
            for label in (later, first):
                if label not in self.labels:
                    raise BadFile(f"no operation of the rank has the label {label}", where=where)
            found = needs if how == "requires" else after
            found[self.labels[later]].append(self.labels[first])
        return tuple(
            replace(node, needs=tuple(dict.fromkeys(a)), after=tuple(dict.fromkeys(b)))
            for node, a, b in zip(self.nodes, needs, after, strict=True)
        )


def read_goal(text: str, where: str) -> MessageGraph:
    """Return the graph in a text.

    Raises:
        BadFile: it is not GOAL, a rank is missing, or a label names nothing.
    """
    about = _about(text, where)
    units = 10**6 if about is None else about["units_per_us"]
    ranks: dict[int, _RankText] = {}
    total = -1
    own: _RankText | None = None
    for number, line, comment in _lines(text):
        place = f"{where}:{number}"
        if own is None and (head := re.fullmatch(r"num_ranks\s+(\d{1,7})", line)) and total < 0:
            total = int(head[1])
        elif own is None and (head := _RANK.fullmatch(line)):
            own = ranks.setdefault(int(head[1]), _RankText([], {}, []))
        elif own is not None and line == "}":
            own = None
        elif own is not None:
            _statement(own, line, comment, units, place)
        else:
            raise BadFile(f"{line[:60]!r} stands outside of the ranks", where=place)
    if own is not None:
        raise BadFile("the last rank has no closing brace", where=where)
    if sorted(ranks) != list(range(total)):
        missing = next((r for r in range(min(total, MOST_RANKS)) if r not in ranks), total)
        raise BadFile(f"rank {missing} of {total} is missing", where=where)
    nodes = tuple(ranks[rank].done() for rank in range(total))
    if about is None:
        return MessageGraph("", nodes)
    return MessageGraph(about["name"], nodes, about["collective"], about["bytes"], about["copies"])


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number, the text and the comment of every line that says something."""
    bare = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(bare.split("\n"), 1):
        said, _, comment = line.partition("//")
        # Braces may share a line with what they enclose.
        for part in said.replace("{", "{\n").replace("}", "\n}\n").split("\n"):
            if part.strip():
                yield number, part.strip(), comment


def _statement(own: _RankText, line: str, comment: str, units: int, where: str) -> None:
    """Read a line inside a rank.

    Raises:
        BadFile: it is neither an operation nor an order, or a label is there twice.
    """
    if order := _ORDER.fullmatch(line):
        own.orders.append((order["later"], order["how"], order["first"], where))
        return
    message, calc = _MESSAGE.fullmatch(line), _CALC.fullmatch(line)
    if message and (message["op"] == "send") != (message["way"] == "to"):
        message = None
    found = message or calc
    if found is None:
        raise BadFile(
            f"{line[:60]!r} is not an operation",
            where=where,
            hint="as in L: send 8b to 1 tag 0 · L: recv 8b from 1 tag 0 · L: calc 5 · L requires K",
        )
    if found["label"] in own.labels:
        raise BadFile(f"the label {found['label']} is there twice", where=where)
    own.labels[found["label"]] = len(own.nodes)
    own.nodes.append(_node(message, calc, comment, units, where))


def _node(
    message: re.Match[str] | None, calc: re.Match[str] | None, comment: str, units: int, where: str
) -> GraphNode:
    """Return the node of an operation.

    Raises:
        BadFile: a number is too large.
    """
    found = [(kind, int(at)) for kind, at in _PLACE.findall(comment)]
    inputs, outputs = (tuple(at for one, at in found if one == kind) for kind in "io")
    if message is None:
        assert calc is not None
        if len(calc["time"]) > 18:
            raise BadFile("the time is too large", where=where)
        ps = int(calc["time"]) * 10**6 // units
        return GraphNode(SUM, inputs=inputs, outputs=outputs, ps=ps)
    numbers = [message[name] or "0" for name in ("bytes", "peer", "tag", "nic")]
    if any(len(digits) > 10 for digits in numbers):
        raise BadFile("a number is too large", where=where)
    size, peer, tag, nic = map(int, numbers)
    if size > LARGEST or nic > 255:
        raise BadFile("sizes have 31 bits, and NICs are numbered from 0 to 255", where=where)
    kind = SEND if message["op"] == "send" else RECV
    return GraphNode(kind, size, peer, tag, inputs=inputs, outputs=outputs, port=nic)


def _about(text: str, where: str) -> dict[str, Any] | None:
    """Return what weft says of the file; None: it is of another writer."""
    if not text.startswith(MARK):
        return None
    fields = Fields(parse_json(text.partition("\n")[0].removeprefix(MARK), where), where)
    collective = Collective.from_json(fields.get("collective", dict), f"{where}: collective")
    name, size = fields.get("name", str), fields.get("bytes", int)
    units = fields.get("units_per_us", int)
    rows = fields.get("copies", list)
    fields.finish()
    if units < 1 or size < 1:
        raise BadFile("bytes and units_per_us are at least 1", where=where)
    copies = tuple(copies_of(own, where) for own in rows)
    if len(copies) != collective.ranks:
        raise BadFile("copies must have an entry for each rank", where=where)
    return {
        "name": name,
        "bytes": size,
        "collective": collective,
        "copies": copies,
        "units_per_us": units,
    }
