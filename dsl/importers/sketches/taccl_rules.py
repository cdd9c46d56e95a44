"""Translation of TACCL's sketches to weft's language: canonical text without lint warnings.

Differences between TACCL's semantics and weft's are reported as remarks.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ...base.errors import BadFile, UserError
from ...base.lazy_dataclass import Frozen
from ...base.units import format_bytes
from ...language.format import format
from ...language.lint import lint
from ...language.machine import SketchMachine
from ...language.parse import parse
from ...nouns.topology import NodeKind, Topology
from ..taccl_sketch import EVERYWHERE, SAME_PLACE, TacclRemark, TacclSketch
from ..teccl import TecclInput

Row = tuple[int, ...]

WIDTH = 96
PEERS = {"uc-min": "few", "uc-max": "many"}


class Imported(Frozen):
    """Text of a translated sketch, and remarks on differences."""

    text: str
    remarks: tuple[TacclRemark, ...]


def translate(sketch: TacclSketch, topology: Topology, kind: str = "") -> Imported:
    """Translate a TACCL sketch for a machine; for an allreduce, if that is the ``kind``.

    Raises:
        BadFile: the machine has other hosts, no such switch or no such symmetry.
    """
    return _SketchTranslation(sketch, SketchMachine(topology), kind).imported()


class _SketchTranslation:
    def __init__(self, sketch: TacclSketch, machine: SketchMachine, kind: str) -> None:
        self.sketch, self.machine, self.kind = sketch, machine, kind
        self.remarks = list(sketch.remarks)
        self.gpus = self._gpus()
        name = f"{machine.topology.name} ({self.gpus} GPUs)"
        self.title = name if sketch.nodes == 1 else f"{sketch.nodes} nodes of {name}"
        sketch.check_ranks(self.gpus, machine.topology.name)

    def imported(self) -> Imported:
        """Return the formatted text, and the remarks in the order of the file's keys."""
        rules = [f"chunks {self._chunks()}", "", *self._switches(), *self._between()]
        moves = self._moves(rules)
        if moves:
            rules.append(f"symmetry: {', '.join(moves)}")
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self.sketch.name)
        name = name if name[:1].isalpha() else f"taccl{name}"
        lines = [*self._header(rules), f"sketch {name}", *rules]
        text = format(parse("\n".join(lines).rstrip() + "\n", self.sketch.name))
        return Imported(text, tuple(dict.fromkeys(self.remarks)))

    def _chunks(self) -> int:
        """Return the chunk count; TACCL's allreduce cuts the blocks of a reduce_scatter."""
        if self.kind != "allreduce":
            return self.sketch.chunks
        count = self.sketch.chunks * self.machine.topology.ranks
        self._remark(
            "hyperparameters.input_chunkup",
            "of an allreduce TACCL cuts the block of "
            f"every GPU, so the buffer is in {count} chunks",
        )
        return count

    def _remark(self, where: str, text: str) -> None:
        self.remarks.append(TacclRemark(where, text))

    def _gpus(self) -> int:
        """Return the number of GPUs of one host; raise BadFile if the machine's hosts differ."""
        hosts, name = self.machine.hosts, self.machine.topology.name
        sizes = {len(host) for host in hosts}
        if len(hosts) != self.sketch.nodes or len(sizes) != 1:
            has = f"{len(hosts)} node{'s' * (len(hosts) > 1)}"
            raise BadFile(
                f"the sketch is for {self.sketch.nodes} equal nodes, {name} has {has}",
                where=f"{self.sketch.where}: nnodes",
                hint=f"nodes={self.sketch.nodes} after the machine's name makes as many",
            )
        return sizes.pop()

    # ---- inside a node

    def _switches(self) -> Iterator[str]:
        sketch, place = self.sketch, "intranode_sketch"
        if sketch.strategy != "switch":
            if self._host_switches():
                self._remark(
                    f"{place}.strategy",
                    "without 'switch' TACCL takes each pair of GPUs "
                    "for a link of its own; here a GPU shares one port on the switch "
                    "among its peers",
                )
            return
        families = dict.fromkeys(
            self._switch_of(one, f"{place}.switches[{i}]") for i, one in enumerate(sketch.switches)
        )
        peers = PEERS.get(sketch.peers)
        for family in families:
            if family and peers:
                yield f"switch {family}: {peers} peers"
        if any(families) and peers:
            self._remark(
                f"{place}.switch_hyperedge_strategy",
                f"TACCL wants {peers} connections "
                "in all in node 0, with 0.01 of the weight of time; here it is a rule for "
                "every GPU of every node",
            )

    def _host_switches(self) -> list[int]:
        nodes = self.machine.topology.nodes
        host = nodes[0].host
        return [i for i, n in enumerate(nodes) if n.kind is NodeKind.SWITCH and n.host == host]

    def _switch_of(self, ranks: Row, place: str) -> str:
        """Return the switch that connects some GPUs; empty if they are cabled directly."""
        links = self.machine.link_ends
        for node in self._host_switches():
            on_it = set(links[links[:, 1] == node, 0].tolist()) & set(self.machine.hosts[0])
            if on_it >= set(ranks):
                if on_it > set(ranks):
                    self._remark(
                        place,
                        "TACCL shares a port among the GPUs of this set only; here "
                        f"among all {len(on_it)} on the switch",
                    )
                own = self.machine.topology.nodes[node].name
                family = re.sub(r"\d+$", "", own)  # of all hosts: nvswitch of nvswitch0
                return family if family.isidentifier() else f'"{own}"'
        lost = next(
            ((a, b) for a in ranks for b in ranks if a != b and not self.machine.hops[a, b]), None
        )
        if lost is not None:
            raise BadFile(
                f"GPUs {lost[0]} and {lost[1]} are on no switch and have no link in "
                f"{self.machine.topology.name}",
                where=f"{self.sketch.where}: {place}",
                hint="is the sketch for another machine?",
            )
        self._remark(
            place,
            "these GPUs have cables, no switch: no rule; TACCL would let a GPU "
            "send over one of them at a time",
        )
        return ""

    # ---- between nodes

    def _between(self) -> Iterator[str]:
        sketch = self.sketch
        if sketch.nodes == 1:
            return
        pairs = sketch.pairs(self.gpus)
        if sketch.nodes > 2:
            self._remark(
                "internode_sketch",
                "TACCL sends every chunk straight from its own node "
                "to each other node; here nodes may also pass it on",
            )
        lines: list[str] = []
        if set(pairs) == {(s, s) for s in range(self.gpus)}:
            yield "forbid links between nodes except same local rank"
        elif len(pairs) < self.gpus**2:
            to = _receivers(pairs)
            each = len(next(iter(to.values())))
            lines += looped([(s, *r) for s, r in to.items()], "only links {0} -> {1}", each)
        lines += self._relays(pairs)
        if lines:
            yield "between nodes:"
            yield from (f"    {line}" for line in joined(lines))

    def _relays(self, pairs: Sequence[tuple[int, int]]) -> list[str]:
        sketch, to = self.sketch, _receivers(pairs)
        own = ", own data first" if sketch.own_first else ""
        if sketch.senders is None:
            if not own:
                return []
            through = ", ".join(f"{s} -> {group(r)}" for s, r in to.items())
            through = "any -> any" if len(pairs) == self.gpus**2 else through
            return [f"relay any through {through}{own}"]
        self._check_senders(to)
        together: dict[Row, list[int]] = {}
        for source, senders in sketch.senders.items():
            together.setdefault(senders, []).append(source)
        if all(len(senders) == 1 for senders in together):
            rows = [(s, *to[s], *sources) for (s,), sources in together.items()]
            each = len(next(iter(to.values())))
            return looped(rows, "relay {2} through {0} -> {1}" + own, each)
        return [
            f"relay {group(sources)} through "
            + ", ".join(f"{s} -> {group(to[s])}" for s in senders)
            + own
            for senders, sources in together.items()
        ]

    def _check_senders(self, to: Mapping[int, Row]) -> None:
        assert self.sketch.senders is not None
        place = f"{self.sketch.where}: internode_sketch.gpus_to_sender_rev_map"
        for g in range(self.gpus):
            if g not in self.sketch.senders:
                raise BadFile(
                    f"the chunks of GPU {g} leave the node through no sender",
                    where=place,
                    hint="list every GPU under a sender, or leave the map out",
                )

    # ---- symmetry

    def _moves(self, rules: list[str]) -> list[str]:
        found = []
        for i, (offset, block) in enumerate(self.sketch.rotations):
            place = f"symmetry_offsets[{i}]"
            if self.machine.ranks % block:
                raise BadFile(
                    f"{self.title} do not divide into blocks of {block} ranks",
                    where=f"{self.sketch.where}: {place}",
                    hint="is the sketch for another machine?",
                )
            if offset % block == 0:
                self._remark(place, "moves nothing; left out")
            elif self._holds(rules, move := self._move(offset % block, block), place, block):
                found.append(move)
        return list(dict.fromkeys(found))

    def _move(self, offset: int, block: int) -> str:
        """Return the move as text: ``rotate 2 within node`` for [2, 16]."""
        ranks, gpus = self.machine.ranks, self.gpus
        if block == ranks and offset % gpus == 0 and ranks > gpus:
            by = offset // gpus
            return "rotate nodes" + (f" by {by}" if by > 1 else "")
        if block == gpus:
            return f"rotate {offset} within node"
        return f"rotate {offset}" + ("" if block == ranks else f" in blocks of {block}")

    def _holds(self, rules: list[str], move: str, place: str, block: int) -> bool:
        """Return True if a move is a symmetry of machine and rules."""
        if _is_clean([*rules, f"symmetry: {move}"], self.machine.topology):
            if self.sketch.nodes > 1 and block <= self.gpus:
                self._remark(
                    place,
                    "TACCL asks this of sends inside nodes; here it holds for "
                    "those between nodes too",
                )
            return True
        if self.sketch.nodes > 1 and block <= self.gpus:
            if _is_clean([f"symmetry: {move.replace(' within node', '')}"], self._alone()):
                self._remark(
                    place,
                    "TACCL asks this of sends inside nodes only, and those between "
                    "nodes are not symmetric in this way; left out",
                )
                return False
        raise BadFile(
            f"{move!r} is not a symmetry of {self.title} with these connections",
            where=f"{self.sketch.where}: {place}",
            hint="is the sketch for another machine? (or leave the symmetry out)",
        )

    def _alone(self) -> Topology:
        alone = self.machine.topology.restricted_to(self.machine.hosts[0])
        inside = {*range(alone.ranks)} | {
            i
            for i, n in enumerate(alone.nodes)
            if n.kind is not NodeKind.NIC and n.host == alone.nodes[0].host
        }
        return alone.without_links(
            i for i, x in enumerate(alone.links) if not {x.src, x.dst} <= inside
        )

    # ---- text

    def _header(self, rules: list[str]) -> Iterator[str]:
        sketch = self.sketch
        said = [f"TACCL's sketch {sketch.name} for {self.title}."]
        if any(rule.startswith("switch ") for rule in rules):
            small = "large" if PEERS[sketch.peers] == "few" else "small"
            said.append(
                f"Over the switch every GPU talks to {PEERS[sketch.peers]} others (for "
                f"{small} messages)."
            )
        if sketch.nodes > 1:
            said.append(self._connections_in_words())
        if sketch.senders is not None:
            said.append("Data of a GPU leaves its node through the sender that is named for it.")
        if sketch.own_first:
            said.append("A sender's own data goes first.")
        if rules[-1].startswith("symmetry"):
            said.append("The schedule looks the same after each move of the symmetry.")
        pieces = "one piece" if sketch.chunks == 1 else f"{sketch.chunks} pieces"
        said.append(f"Every input goes in {pieces}.")
        return (f"# {line}" for line in textwrap.wrap(" ".join(said), WIDTH - 2))

    def _connections_in_words(self) -> str:
        to = self.sketch.connections
        if to == EVERYWHERE:
            return "Between nodes any GPU sends to any other."
        if to == SAME_PLACE:
            return "Between nodes a GPU sends to the GPU at its own place."
        pairs = self.sketch.pairs(self.gpus)
        shown = ", ".join(f"{s} to {r}" for s, r in pairs[:4]) + (", …" if len(pairs) > 4 else "")
        return f"Between nodes only these local ranks talk: {shown}."


def _is_clean(rules: list[str], topology: Topology) -> bool:
    try:
        return not lint(parse("\n".join(["sketch trial", *rules]) + "\n"), topology)
    except UserError:
        return False


def _receivers(pairs: Sequence[tuple[int, int]]) -> dict[int, Row]:
    found: dict[int, Row] = {}
    for sender, receiver in pairs:
        found[sender] = (*found.get(sender, ()), receiver)
    return found


# ---- rows of ranks as lines, folded into a loop for arithmetic progressions


def looped(rows: Sequence[Row], pattern: str, each: int) -> list[str]:
    """Return one line per row, or one loop over p if every column is an arithmetic progression.

    A row is a sender, ``each`` receivers, and the remaining ranks; the pattern has placeholders for
    these three.
    """
    if len(rows) > 2 and len(set(map(len, rows))) == 1:
        growth = {tuple(b - a for a, b in zip(*two, strict=True)) for two in pairwise(rows)}
        if len(growth) == 1:
            terms = [_term(step, start) for step, start in zip(*growth, rows[0], strict=True)]
            return [f"for p in 0..{len(rows) - 1}:", "    " + pattern.format(*_parts(terms, each))]
    return [pattern.format(*_parts(list(map(str, row)), each)) for row in rows]


def _parts(terms: list[str], each: int) -> tuple[str, str, str]:
    return terms[0], group(terms[1 : 1 + each]), group(terms[1 + each :])


def _term(step: int, start: int) -> str:
    """Return a linear term such as ``2p+1``."""
    if step == 0:
        return str(start)
    size = "p" if abs(step) == 1 else f"{abs(step)}p"
    if step < 0:
        return f"{start}-{size}"
    return size + (f"+{start}" if start else "")


def group(items: Sequence[object]) -> str:
    """Return a list as ``3`` or ``(3, 5)``."""
    shown = ", ".join(map(str, items))
    return shown if len(items) == 1 else f"({shown})"


def joined(lines: list[str]) -> list[str]:
    """Return the lines with loops of the same head merged."""
    heads = [line for line in lines if line.startswith("for ")]
    if len(heads) == 2 and heads[0] == heads[1] and len(lines) == 4:
        return [lines[0], lines[1], lines[3]]
    return lines


# --- inputs of TE-CCL -----------------------------------------------------------------------------
# Translation of a TE-CCL input to a sketch: collective, size and chunks.


def teccl_sketch(asked: TecclInput, topology: Topology, name: str) -> Imported:
    """Translate an input for its machine, with remarks on differences to TE-CCL."""
    pieces = f"{asked.chunks} chunk{'s' * (asked.chunks > 1)} of {format_bytes(asked.chunk)}"
    each = "each GPU for each other" if asked.kind == "alltoall" else "each GPU"
    said = (
        f"TE-CCL's input {name}: {asked.kind} on {topology.name} ({topology.ranks} GPUs), "
        f"{pieces} on {each}."
    )
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    lines = [
        *(f"# {line}" for line in textwrap.wrap(said, 94)),
        f"sketch {plain if plain[:1].isalpha() else f'teccl{plain}'}",
        f"collective {asked.kind}",
        f"size {asked.message(topology.ranks)}B",
        f"chunks {asked.chunks}",
    ]
    remarks = (
        TacclRemark(
            "InstanceParams",
            "TE-CCL counts time in whole epochs, and small α as 0; here time is continuous",
        ),
    )
    return Imported(format(parse("\n".join(lines) + "\n", name)), remarks)
