"""Problems: a topology, a collective, an optional sketch, and an objective."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction

from ..base.errors import BadTopology, UserError, require_type
from ..base.integers import plain
from ..base.lazy_dataclass import Frozen
from ..base.tables import count
from ..base.units import format_bytes
from .collective import Collective
from .hops import hop_distances, islands
from .sketch import Sketch
from .topology import Topology

_SHOWN = 16


class Objective(StrEnum):
    """Quantity to minimize."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    TIME = "time"
    FRONTIER = "frontier"


class Problem(Frozen):
    """Input of an engine. The collective is the plain one; engines choose how to split it.

    ``bytes`` is the message size M for the objective ``time``; the sketch is reduced to its form
    for that size, and one without rules to none: it restricts nothing. ``most_moves``: transfers
    that a rank should send at most, whatever their slices, so that a program of them fits its
    runtime; schedules of more are answers only where none has as few. ``message_us``: µs for which
    each message holds what it passes beside its bytes, where slices, orders and schedules are
    chosen; 0: the least time wins, in any number of messages; None: the default of
    :class:`weft.synth.time.slices.SliceEffort`, which the least time limits.

    Raises:
        BadTopology: a rank needs data of another one that cannot reach it.
    """

    topology: Topology
    collective: Collective
    sketch: Sketch | None = None
    objective: Objective = Objective.FRONTIER
    bytes: int | None = None
    most_moves: int | None = None
    message_us: Fraction | None = None

    def __repr__(self) -> str:
        what = self.collective.name or str(self.collective.kind)
        size = "" if self.bytes is None else f" at {format_bytes(self.bytes)}"
        ruled = "" if self.sketch is None else f", {count(len(self.sketch.rules), 'rule')}"
        return f"<Problem {what} on {self.topology.name}: {self.objective}{size}{ruled}>"

    def __post_init__(self) -> None:
        require_type(self.topology, Topology, "topology", 'weft.topology("dgx1")')
        require_type(self.collective, Collective, "collective", 'weft.make("allgather", 8)')
        if self.sketch is not None:
            hint = "weft.elaborate(weft.load_sketch(NAME), topology)"
            require_type(self.sketch, Sketch, "sketch", hint)
        object.__setattr__(self, "bytes", plain(self.bytes))
        object.__setattr__(self, "most_moves", plain(self.most_moves))
        if self.most_moves is not None and self.most_moves < 1:
            raise UserError(f"expected 1 transfer of a rank or more, got {self.most_moves}")
        if self.message_us is not None:
            object.__setattr__(self, "message_us", Fraction(self.message_us))
            if self.message_us < 0:
                raise UserError(f"expected 0 µs or more of a message, got {self.message_us}")
        if self.bytes is not None and self.bytes < 0:
            raise UserError(f"a message of {self.bytes} bytes", hint='size="1MiB"')
        if self.collective.ranks != self.topology.ranks:
            raise BadTopology(
                f"the collective is for {self.collective.ranks} ranks, "
                f"{self.topology.name} has {self.topology.ranks}",
                hint="restrict the topology to the process group first",
            )
        check_connected(self.topology, self.collective)
        if self.sketch is not None:  # frozen from here on
            ruled = self.sketch.at(self.bytes)
            object.__setattr__(self, "sketch", ruled if ruled.rules else None)


def check_connected(topology: Topology, collective: Collective) -> None:
    """Raise BadTopology, naming ranks and cut, if needed data cannot reach some rank."""
    if len(islands(topology)) == 1:
        return  # all ranks reach each other
    distance = hop_distances(topology)
    for src, dst in required_pairs(collective):
        if distance[src, dst] < 0:
            lost = [v for v in range(topology.ranks) if distance[src, v] < 0]
            what = str(collective.name or collective.kind)
            raise cut_off(topology, src, dst, lost, what)


def cut_off(topology: Topology, src: int, dst: int, lost: Sequence[int], what: str) -> BadTopology:
    """Return the error for ranks that ``src`` cannot reach, with the cut between it and ``dst``.

    The cut is named by its smaller side: the nodes that ``src`` reaches, or that reach ``dst``.
    """
    near = _closure([(x.src, x.dst) for x in topology.links], src)
    before = _closure([(x.dst, x.src) for x in topology.links], dst)
    way, side = ("leaves", near) if len(near) <= len(before) else ("enters", before)
    names = [topology.nodes[v].name for v in sorted(side)]
    more = ", …" if len(names) > _SHOWN else ""
    ranks = ", ".join(map(str, lost[:_SHOWN])) + (", …" if len(lost) > _SHOWN else "")
    plural = "rank" if len(lost) == 1 else "ranks"
    return BadTopology(
        f"{topology.name}: rank {src} cannot reach {plural} {ranks}, which {what} needs: "
        f"no link {way} {{{', '.join(names[:_SHOWN])}{more}}}",
        hint="check the links, or leave those GPUs out of the group",
    )


def _closure(arcs: list[tuple[int, int]], start: int) -> set[int]:
    """Return the nodes reachable from a node, itself included."""
    near: dict[int, list[int]] = {}
    for tail, head in arcs:
        near.setdefault(tail, []).append(head)
    found, queue = {start}, [start]
    while queue:
        for node in near.get(queue.pop(), ()):
            if node not in found:
                found.add(node)
                queue.append(node)
    return found


def required_pairs(collective: Collective) -> tuple[tuple[int, int], ...]:
    """Return ordered pairs (source, destination) of ranks where data of the source must arrive.

    A chunk that starts on several ranks with the same contribution requires no single source and
    gives no pair.
    """
    holders: dict[tuple[int, int], list[int]] = {}
    pre, post = collective.pre, collective.post
    for rank, chunk, index in zip(
        pre.ranks.tolist(), pre.chunks.tolist(), pre.sets.tolist(), strict=True
    ):
        for who in collective.contributions[index]:
            holders.setdefault((chunk, who), []).append(rank)
    pairs = set()
    for rank, chunk, index in zip(
        post.ranks.tolist(), post.chunks.tolist(), post.sets.tolist(), strict=True
    ):
        for who in collective.contributions[index]:
            sources = holders[chunk, who]
            if len(sources) == 1 and sources[0] != rank:
                pairs.add((sources[0], rank))
    return tuple(sorted(pairs))
