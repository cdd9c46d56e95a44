"""Strict readers of GOAL and of Chakra traces, from the published grammar and schema alone.

They know nothing of weft: GOAL is read as the automaton of ``txt2bin.re`` (spcl/LogGOPSim, the same
in ATLAHS) reads it, state after state; a trace as ``et_def.proto`` (mlcommons/chakra 1.0.0) and the
feeder of ASTRA-sim read it. Whatever those refuse, or would take for something else, is refused.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


class Refused(Exception):
    """The program that a file is for does not read it."""


# --- GOAL -----------------------------------------------------------------------------------------

TOKENS = {
    "start": {
        r"[ \t]+(?=\r?\n)": "start",  # the rule of blanks falls through, and eats what follows
        r"send": "size",
        r"recv": "size",
        r"calc": "time",
        r"rank": "rank",
        r"num_ranks": "ranks",
        r"[a-zA-Z][a-zA-Z0-9_]*": "label",
        r"//": "line comment",
        r"/\*": "comment",
        r"\r?\n": "start",
        r"\}": "end",
    },
    "label": {r"[ \t]+": "label", ":": "kind", "requires": "other", "irequires": "other"},
    "kind": {r"[ \t]+": "kind", "calc": "time", "send": "size", "recv": "size"},
    "other": {r"[ \t]+": "other", r"[a-zA-Z][a-zA-Z0-9_]*": "eol"},
    "time": {r"[ \t]+": "time", r"[0-9]+": "after time"},
    "after time": {r"[ \t]+": "after time", "cpu": "last cpu", r"\r?\n": "done"},
    "last cpu": {r"[ \t]+": "last cpu", r"[0-9]+": "eol"},
    "size": {r"[ \t]+": "size", r"[0-9]+": "unit"},
    "unit": {r"[ \t]+": "unit", "b": "way"},
    "way": {r"[ \t]+": "way", "to": "peer", "from": "peer"},
    "peer": {r"[ \t]+": "peer", r"[0-9]+": "after peer"},
    "after peer": {
        r"[ \t]+": "after peer",
        "tag": "tag",
        "cpu": "cpu",
        "nic": "nic",
        r"\r?\n": "done",
    },
    "tag": {r"[ \t]+": "tag", r"[0-9]+": "after tag"},
    "after tag": {r"[ \t]+": "after tag", "cpu": "cpu", "nic": "nic", r"\r?\n": "done"},
    "cpu": {r"[ \t]+": "cpu", r"[0-9]+": "after cpu"},
    "after cpu": {r"[ \t]+": "after cpu", "nic": "nic", r"\r?\n": "done"},
    "nic": {r"[ \t]+": "nic", r"[0-9]+": "eol"},
    "eol": {r"[ \t]+": "eol", r"\r?\n": "done"},
    "rank": {r"[ \t]+": "rank", r"[0-9]+": "brace"},
    "brace": {r"[ \t]+": "brace", r"\{": "start"},
    "ranks": {r"[ \t]+": "ranks", r"[0-9]+": "start"},
    "line comment": {r"\r?\n": "start", r"[^\n]+": "line comment"},
    "comment": {r"\*/": "start", r"\r?\n": "comment", r"[^\n]": "comment"},
}
"""For each state the tokens it takes and the state after; the longest wins, then the first."""

COMPILED = {
    state: [(re.compile(token), after) for token, after in tokens.items()]
    for state, tokens in TOKENS.items()
}

NAMES = {
    (state, kind): "kind" for state in ("start", "kind") for kind in ("send", "recv", "calc")
} | {("label", how): "how" for how in ("requires", "irequires")}
"""Names of tokens that are not named by their state."""

MOST = {"size": (1 << 31) - 1, "tag": (1 << 32) - 1, "cpu": 255, "last cpu": 255, "nic": 255}


def tokens_of(text: str) -> Iterator[tuple[str, str, str]]:
    """State, token and next state, to the end of the text.

    Raises:
        Refused: a state has no token for what follows.
    """
    text += "\n"
    state, at = "start", 0
    while at < len(text):
        found = [(m.end(), after) for rx, after in COMPILED[state] if (m := rx.match(text, at))]
        if not found:
            line = text.count("\n", 0, at) + 1
            raise Refused(f"line {line}: {text[at : at + 20]!r} after {state}")
        end = max(end for end, _ in found)
        after = next(after for e, after in found if e == end)
        yield state, text[at:end], after
        state, at = "start" if after in ("done", "end") else after, end
    if state != "start":
        raise Refused(f"the text ends in the state {state}")


@dataclass
class GoalRank:
    """Operations of a rank as (kind, size or time, peer, tag), and (later, how, first)."""

    operations: list[tuple[str, int, int, int]] = field(default_factory=list)
    orders: list[tuple[int, str, int]] = field(default_factory=list)


def read_goal(text: str) -> list[GoalRank]:
    """The ranks of a GOAL text.

    Raises:
        Refused: the converter does not read it, or LogGOPSim never ends with it.
    """
    ranks: list[GoalRank] = []
    total, own, labels = 0, None, {}
    said: dict[str, str] = {}
    for state, token, after in tokens_of(text):
        if state == "ranks" and token.isdigit():
            total = int(token)
        elif state == "rank" and token.isdigit():
            if own is not None or int(token) != len(ranks):
                raise Refused(f"rank {token} after {len(ranks)} ranks")
            own, labels = GoalRank(), {}
            ranks.append(own)
        elif after == "end":
            if own is None:
                raise Refused("a brace that closes no rank")
            own = None
        elif token.strip(" \t") and after not in ("start", "line comment", "comment"):
            said[NAMES.get((state, token), state)] = token
        if after == "done":
            if own is None:
                raise Refused(f"{said} outside of the ranks")
            _take(own, labels, said)
            said = {}
    if own is not None or len(ranks) != total:
        raise Refused(f"{len(ranks)} ranks of {total}")
    _match(ranks)
    return ranks


def _take(own: GoalRank, labels: dict[str, int], said: dict[str, str]) -> None:
    if "how" in said:
        for label in (said["start"], said["other"]):
            if label not in labels:
                raise Refused(f"a dependency references label {label}, which is undefined")
        own.orders.append((labels[said["start"]], said["how"], labels[said["other"]]))
        return
    for name, most in MOST.items():
        if name in said and int(said[name]) > most:
            raise Refused(f"{name} {said[name]} is cut to its bits")
    kind = said["kind"]
    if (kind, said.get("way")) not in (("send", "to"), ("recv", "from"), ("calc", None)):
        raise Refused(f"{kind} {said.get('way')}")
    if "start" in said:
        if said["start"] in labels:
            raise Refused(f"two operations are {said['start']}: the first one counts")
        labels[said["start"]] = len(own.operations)
    numbers = (int(said.get(name, 0)) for name in ("peer", "tag"))
    own.operations.append((kind, int(said.get("size") or said["time"]), *numbers))


def _match(ranks: list[GoalRank]) -> None:
    """Every send has its receive, and nothing waits for itself."""
    sends, recvs = Counter(), Counter()
    for rank, own in enumerate(ranks):
        for kind, size, peer, tag in own.operations:
            if kind == "send":
                sends[rank, peer, tag, size] += 1
            elif kind == "recv":
                recvs[peer, rank, tag, size] += 1
    if sends != recvs:
        raise Refused(f"unmatched: {(sends - recvs) or (recvs - sends)}")
    for own in ranks:
        _acyclic({i: set() for i in range(len(own.operations))}, own.orders)


def _acyclic(before: dict[int, set[int]], orders: list[tuple[int, str, int]]) -> None:
    for later, _, first in orders:
        before[later].add(first)
    after = defaultdict(list)
    for later, firsts in before.items():
        for first in firsts:
            after[first].append(later)
    ready = [node for node, firsts in before.items() if not firsts]
    done = 0
    while ready:
        node = ready.pop()
        done += 1
        for later in after[node]:
            before[later].discard(node)
            if not before[later]:
                ready.append(later)
    if done != len(before):
        raise Refused("a cycle of dependencies")


# --- Chakra ---------------------------------------------------------------------------------------

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

NODE = {
    "id": (1, VARINT),
    "name": (2, LENGTH),
    "type": (3, VARINT),
    "ctrl_deps": (4, "packed"),
    "data_deps": (5, "packed"),
    "start_time_micros": (6, VARINT),
    "duration_micros": (7, VARINT),
    "inputs": (8, LENGTH),
    "outputs": (9, LENGTH),
    "attr": (10, LENGTH),
}
METADATA = {"version": (1, LENGTH), "attr": (2, LENGTH)}
ATTRIBUTE = {
    "name": (1, LENGTH),
    "doc_string": (2, LENGTH),
    "double_val": (3, FIXED64),
    "float_val": (5, FIXED32),
    "int32_val": (7, VARINT),
    "int64_val": (9, VARINT),
    "uint32_val": (11, VARINT),
    "uint64_val": (13, VARINT),
    "bool_val": (27, VARINT),
    "string_val": (29, LENGTH),
}
"""Fields of the messages: number and wire type (lists of values are not used here)."""

COMP_NODE, SEND_NODE, RECV_NODE, COLL_NODE = 4, 5, 6, 7

Read = dict[str, list[int | bytes]]


def _varint(data: bytes, at: int, most: int = 10) -> tuple[int, int]:
    value = 0
    for k in range(most):
        if at + k >= len(data):
            raise Refused("a number is cut off")
        value |= (data[at + k] & 0x7F) << 7 * k
        if data[at + k] < 0x80:
            return value, at + k + 1
    raise Refused("a number is too long")


def _message(data: bytes, schema: Mapping[str, tuple[int, int | str]]) -> Read:
    """The fields of a message, each with all its values in order."""
    names = {number: (name, kind) for name, (number, kind) in schema.items()}
    found: Read = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key >> 3 not in names:
            raise Refused(f"field {key >> 3} is not in the schema")
        name, kind = names[key >> 3]
        wire = key & 7
        if wire != kind and not (kind == "packed" and wire in (VARINT, LENGTH)):
            raise Refused(f"{name} has the wire type {wire}")
        if wire == VARINT:
            value, at = _varint(data, at)
            found[name].append(value)
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire, -1)
        if size < 0:
            size, at = _varint(data, at)
        part, at = data[at : at + size], at + size
        if at > len(data):
            raise Refused(f"{name} is cut off")
        if kind != "packed":
            found[name].append(part)
            continue
        inside = 0
        while inside < len(part):
            value, inside = _varint(part, inside)
            found[name].append(value)
    return found


def _attributes(parts: list[int | bytes]) -> dict[str, int | str]:
    held: dict[str, int | str] = {}
    for part in parts:
        assert isinstance(part, bytes)
        one = _message(part, ATTRIBUTE)
        (name,) = one.pop("name")
        one.pop("doc_string", None)
        ((kind, (value,)),) = one.items()
        name = str(name, "utf-8")
        if name in held:
            raise Refused(f"two attributes are {name}: the first one counts")
        if isinstance(value, bytes):
            held[name] = str(value, "utf-8")
        else:
            held[name] = value - (1 << 64) if kind[:3] == "int" and value >> 63 else value
    return held


@dataclass(frozen=True)
class EtNode:
    """A node of a trace."""

    id: int
    type: int
    before: tuple[int, ...]
    micros: int
    attributes: Mapping[str, int | str]


def read_trace(data: bytes) -> list[EtNode]:
    """The nodes of one rank's file.

    Raises:
        Refused: it is not a metadata message and nodes, or the feeder throws an error.
    """
    messages, at = [], 0
    while at < len(data):
        size, at = _varint(data, at, most=5)
        if at + size > len(data):
            raise Refused("a message is cut off")
        messages.append(data[at : at + size])
        at += size
    if not messages:
        raise Refused("no global metadata")
    _attributes(_message(messages[0], METADATA)["attr"])
    nodes = []
    for message in messages[1:]:
        one = _message(message, NODE)
        for name in ("id", "type", "duration_micros", "name"):
            if len(one[name]) > 1:
                raise Refused(f"{name} stands twice")
        before = tuple(dict.fromkeys([*one["data_deps"], *one["ctrl_deps"]]))
        number, kind, micros = (int((one[n] or [0])[0]) for n in ("id", "type", "duration_micros"))
        nodes.append(EtNode(number, kind, before, micros, _attributes(one["attr"])))
    known = {node.id for node in nodes}
    if len(known) < len(nodes) or not nodes:
        raise Refused("two nodes have one id, or there is none")
    if any(other not in known for node in nodes for other in node.before):
        raise Refused("a dependency that is not there: it never ends")
    return nodes


def read_algorithm(files: Mapping[int, bytes]) -> dict[int, list[EtNode]]:
    """The nodes of all ranks of a custom collective.

    Raises:
        Refused: ASTRA-sim ends with an error, or never.
    """
    traces = {rank: read_trace(data) for rank, data in files.items()}
    if sorted(traces) != list(range(len(traces))):
        raise Refused("a rank without a file")
    sends, recvs = Counter(), Counter()
    for rank, nodes in traces.items():
        for node in nodes:
            if node.type not in (COMP_NODE, SEND_NODE, RECV_NODE):
                raise Refused(f"a node of the type {node.type} is passed over")
            if node.type == COMP_NODE:
                continue
            end = "comm_dst" if node.type == SEND_NODE else "comm_src"
            words = (end, "comm_tag", "comm_size")
            peer, tag, size = (node.attributes.get(word) for word in words)
            if not isinstance(peer, int) or not isinstance(tag, int) or not isinstance(size, int):
                raise Refused(f"node {node.id} of rank {rank} lacks one of {words}")
            if size < 1 or not 0 <= tag < 1 << 32 or peer not in traces or peer == rank:
                raise Refused(f"rank {rank}: {size} bytes with the tag {tag} to or from {peer}")
            if node.type == SEND_NODE:
                sends[tag, rank, peer, size] += 1
            else:
                recvs[tag, peer, rank, size] += 1
        place = {node.id: i for i, node in enumerate(nodes)}
        orders = [(place[node.id], "", place[other]) for node in nodes for other in node.before]
        _acyclic({i: set() for i in range(len(nodes))}, orders)
    if sends != recvs:
        raise Refused(f"unmatched: {(sends - recvs) or (recvs - sends)}")
    return traces
