"""A sketch: what a person knows about good schedules, as rules on one topology.

Rules are concrete here: ranks are numbers, patterns are expanded (the language in
``dsl/language`` does that). Every rule keeps its label, and the span of the text it came from, to
the end, so that *infeasible* can point at the line that made it so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from ..base.spans import Span
from .collective import Kind
from .topology import Hop

Pair = tuple[int, int]
"""An ordered pair of ranks: a hop of any route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What all rules have: a label for people and solvers, and where it was written."""

    label: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Only(Rule):
    """Hops may use these pairs, or pass over these links, and nothing else.

    Several ``only`` rules add up: a hop is allowed if any of them names its pair, or all its links.
    """

    pairs: frozenset[Pair]
    links: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Forbid(Rule):
    """No hop of these pairs, and no hop over these links (indices of the topology)."""

    pairs: frozenset[Pair]
    links: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Relay(Rule):
    """Chunks that start on ``sources`` leave their host only by the pairs of ``through``."""

    sources: frozenset[int]
    through: tuple[Pair, ...]
    own_first: bool = False


class Peers(StrEnum):
    """How many peers a GPU should talk to over a switch."""

    FEW = "few"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class SwitchPolicy(Rule):
    """For hops through node ``switch``: few or many peers, or at most ``limit`` of them per GPU."""

    switch: int
    peers: Peers | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Symmetry(Rule):
    """The schedule is mapped to itself by this permutation of the ranks (image of each rank)."""

    image: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunks(Rule):
    """Every unit of the collective is cut into exactly this many chunks."""

    count: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of chunks there are."""
        return (self.count,)


@dataclass(frozen=True, slots=True)
class ChunksBySize(Rule):
    """Every unit is cut into a number of chunks that the size of the message decides.

    ``steps`` are (most bytes, chunks), the smaller sizes first; larger messages have ``beyond``.
    """

    steps: tuple[tuple[int, int], ...]
    beyond: int

    def at(self, message_bytes: int | None) -> Chunks:
        """The rule for one size (None: no size is given, which means large messages)."""
        fits = (n for most, n in self.steps if message_bytes is not None and message_bytes <= most)
        return Chunks(next(fits, self.beyond), label=self.label, span=self.span)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of chunks there are."""
        return (*(n for _, n in self.steps), self.beyond)


@dataclass(frozen=True, slots=True)
class OwnFirst(Rule):
    """Over each of these pairs the sender's own chunks go before those it passes on."""

    pairs: frozenset[Pair]


@dataclass(frozen=True, slots=True)
class MaxHops(Rule):
    """No chunk travels more than this many GPU-to-GPU hops."""

    count: int


@dataclass(frozen=True, slots=True)
class MaxSteps(Rule):
    """The schedule has at most this many steps."""

    count: int


class Measure(StrEnum):
    """What the length of a path counts."""

    HOPS = "hops"  #: hops from GPU to GPU
    ALPHA = "alpha"  #: the sum of the α of its links, in µs


@dataclass(frozen=True, slots=True)
class MaxDetour(Rule):
    """No path from where data starts to where it arrives is much longer than the shortest one.

    The shortest path is that of the machine, whatever other rules say. A path may be
    ``percent`` per cent and ``more`` (in the unit of the measure) longer.
    """

    measure: Measure
    more: int = 0
    percent: int = 0

    def longest(self, shortest: Fraction | int) -> Fraction:
        """The longest path allowed where the shortest one has this length."""
        return shortest * Fraction(100 + self.percent, 100) + self.more


@dataclass(frozen=True, slots=True)
class Phase:
    """One collective, done in every group of ranks at once.

    The groups are disjoint and hold every rank; one in a group by itself does nothing.
    """

    kind: Kind
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Phases(Rule):
    """Every path of data goes through these phases in this order; together they are ``kind``.

    In a phase data moves inside the groups only, and each group has done its collective on a chunk
    before a later phase takes it up. Different chunks may be in different phases.
    """

    phases: tuple[Phase, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class FixedSend(Rule):
    """Chunk ``piece`` (None: every one) from ``owner`` to ``target`` (None: whatever it is for)
    does, or does not, go over ``pair`` at ``step`` (from 1; None: at any step)."""

    owner: int
    pair: Pair
    must: bool
    step: int | None = None
    piece: int | None = None
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Sketch:
    """An ordered set of rules, and what the text said it is for.

    ``machine`` and ``collective`` are what the sketch names (checked by whoever combines it with
    a problem); empty means any. ``engine`` is the one it proposes, ``packing{trees=4}``.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    machine: str = ""
    collective: str = ""
    size: tuple[int, int] | None = None
    engine: str = ""

    def allows(self, hop: Hop) -> bool:
        """Whether some chunk may take a hop, by the ``only`` and ``forbid`` rules."""
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
        """The same for one message size: chunks by size become a plain number of chunks."""
        if not self.of(ChunksBySize):
            return self
        rules = (r.at(message_bytes) if isinstance(r, ChunksBySize) else r for r in self.rules)
        return replace(self, rules=tuple(rules))

    def of(self, *kinds: type[Rule]) -> tuple[Rule, ...]:
        """The rules of some kinds, in order."""
        return tuple(r for r in self.rules if isinstance(r, kinds))
