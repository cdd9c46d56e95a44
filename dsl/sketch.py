"""A sketch: what a person knows about good schedules, as rules on one topology.

Rules are concrete here: ranks are numbers, patterns are expanded (the language in
``dsl/language`` does that). Every rule keeps its label, and the span of the text it came from, to
the end, so that *infeasible* can point at the line that made it so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .spans import Span
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


@dataclass(frozen=True, slots=True)
class MaxHops(Rule):
    """No chunk travels more than this many GPU-to-GPU hops."""

    count: int


@dataclass(frozen=True, slots=True)
class MaxSteps(Rule):
    """The schedule has at most this many steps."""

    count: int


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
    a problem); empty means any.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    machine: str = ""
    collective: str = ""
    size: tuple[int, int] | None = None

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

    def of(self, *kinds: type[Rule]) -> tuple[Rule, ...]:
        """The rules of some kinds, in order."""
        return tuple(r for r in self.rules if isinstance(r, kinds))
