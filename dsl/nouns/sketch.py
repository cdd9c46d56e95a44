"""Sketches: a user's rules about good schedules on one topology.

Rules are concrete here: ranks are numbers, patterns are expanded (by ``dsl/language``). Every rule
keeps its label and the span of its source text, so that an *infeasible* answer can point at the
lines in conflict.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from fractions import Fraction

from ..base.lazy_dataclass import Frozen
from ..base.spans import Span
from .collective import Kind
from .topology import Hop

Pair = tuple[int, int]
"""An ordered pair of ranks, standing for every route between them."""


class Rule(Frozen, kw_only=True):
    """Base of all rules: a label for messages and solvers, and the span of the source text."""

    label: str
    span: Span | None = None


class Only(Rule):
    """Restrict hops to these pairs or these links.

    Several ``only`` rules add up: a hop is allowed if any of them names its pair, or all its links.
    """

    pairs: frozenset[Pair]
    links: frozenset[int] = frozenset()


class Forbid(Rule):
    """Exclude hops of these pairs and hops over these links (indices of the topology)."""

    pairs: frozenset[Pair]
    links: frozenset[int] = frozenset()


class Relay(Rule):
    """Let chunks that start on ``sources`` leave their host only by the pairs of ``through``."""

    sources: frozenset[int]
    through: tuple[Pair, ...]
    own_first: bool = False


class Peers(StrEnum):
    """Number of peers of a GPU over a switch: few or many."""

    FEW = "few"
    MANY = "many"


class SwitchPolicy(Rule):
    """Prefer few or many peers over node ``switch``, or at most ``limit`` peers per GPU."""

    switch: int
    peers: Peers | None = None
    limit: int | None = None


class CastPolicy(Rule):
    """Limit casts at node ``switch``: to some of its capabilities, or its groups.

    ``allowed``: of ``reduces`` and ``multicast``, those that may be used; None: all that it has.
    ``groups``: member sets at most; None: as many as it has.
    """

    switch: int
    allowed: frozenset[str] | None = None
    groups: int | None = None


class Symmetry(Rule):
    """Require a schedule invariant under this permutation of the ranks (image of each rank)."""

    image: tuple[int, ...]


class Chunks(Rule):
    """Cut every unit of the collective into exactly this many chunks."""

    count: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the possible numbers of chunks."""
        return (self.count,)


class ChunksBySize(Rule):
    """Cut every unit into a number of chunks that depends on the message size.

    ``steps`` are (largest size in bytes, chunks), ascending; larger messages have ``beyond``.
    """

    steps: tuple[tuple[int, int], ...]
    beyond: int

    def at(self, message_bytes: int | None) -> Chunks:
        """Return the rule for one message size in bytes; None stands for large messages."""
        fits = (n for most, n in self.steps if message_bytes is not None and message_bytes <= most)
        return Chunks(next(fits, self.beyond), label=self.label, span=self.span)

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the possible numbers of chunks."""
        return (*(n for _, n in self.steps), self.beyond)


class OwnFirst(Rule):
    """Send a rank's own chunks before forwarded ones over each of these pairs."""

    pairs: frozenset[Pair]


class MaxHops(Rule):
    """Limit the GPU-to-GPU hops of each chunk."""

    count: int


class MaxSteps(Rule):
    """Limit the steps of the schedule."""

    count: int


class Measure(StrEnum):
    """Measure of the length of a path."""

    HOPS = "hops"  #: hops from GPU to GPU
    ALPHA = "alpha"  #: the sum of the α of its links, in µs


class MaxDetour(Rule):
    """Limit how much longer a data path is than the shortest one.

    The shortest path is that of the machine, regardless of other rules. A path may be ``percent``
    per cent plus ``more`` (in the unit of the measure) longer.
    """

    measure: Measure
    more: int = 0
    percent: int = 0

    def longest(self, shortest: Fraction | int) -> Fraction:
        """Return the longest length allowed where the shortest path has this length."""
        return shortest * Fraction(100 + self.percent, 100) + self.more


class Phase(Frozen):
    """One collective, carried out in all groups of ranks at once.

    The groups are disjoint and cover all ranks; a rank alone in its group does nothing.
    """

    kind: Kind
    groups: tuple[tuple[int, ...], ...]


class Phases(Rule):
    """Route all data through these phases in this order; together they make collective ``kind``.

    In a phase data moves inside the groups only, and each group completes its collective on a chunk
    before a later phase uses the chunk. Different chunks may be in different phases.
    """

    phases: tuple[Phase, ...]
    kind: Kind


class FixedSend(Rule):
    """Require or forbid the send of one chunk over ``pair``.

    Chunk ``piece`` (None: every one) from ``owner`` to ``target`` (None: any) at ``step`` (from 1;
    None: at any step).
    """

    owner: int
    pair: Pair
    must: bool
    step: int | None = None
    piece: int | None = None
    target: int | None = None


class Sketch(Frozen):
    """An ordered set of rules, with the machine, collective and engine that the text names.

    ``machine`` and ``collective`` are checked where the sketch meets a problem; empty means any.
    ``engine`` is the proposed engine with options, such as ``packing{trees=4}``.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    machine: str = ""
    collective: str = ""
    size: tuple[int, int] | None = None
    engine: str = ""

    def __repr__(self) -> str:
        machine = f" on {self.machine}" if self.machine else ""
        return f"<Sketch {self.name}{machine}: {'; '.join(self.labels) or 'no rules'}>"

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the rules as they are named in messages."""
        return tuple(rule.label for rule in self.rules)

    def allows(self, hop: Hop) -> bool:
        """Return True if the ``only`` and ``forbid`` rules let some chunk take a hop."""
        pair, route = (hop.src, hop.dst), frozenset(hop.route)
        only = [r for r in self.rules if isinstance(r, Only)]
        named = any(pair in r.pairs or (r.links and route <= r.links) for r in only)
        forbidden = any(
            pair in r.pairs or not route.isdisjoint(r.links)
            for r in self.rules
            if isinstance(r, Forbid)
        )
        return (named or not only) and not forbidden

    def at(self, message_bytes: int | None) -> Sketch:
        """Return the sketch for one message size: chunks by size become a number of chunks."""
        if not self.of(ChunksBySize):
            return self
        rules = (r.at(message_bytes) if isinstance(r, ChunksBySize) else r for r in self.rules)
        return replace(self, rules=tuple(rules))

    def of(self, *kinds: type[Rule]) -> tuple[Rule, ...]:
        """Return the rules of some kinds, in order."""
        return tuple(r for r in self.rules if isinstance(r, kinds))
