"""Necessary conditions for rules of a sketch to be feasible: a path for each chunk to each rank.

The test is cheap and needs no search: for each chunk by itself (of a sum: for each contribution)
there must be a path over hops that the rules allow, with few enough hops and early enough. If
there is none, no schedule obeys the rules. So any subset of the rules is tested in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import find_hops, hop_distances, latency_units
from weft.dsl.nouns.sketch import (
    Chunks,
    FixedSend,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    Phases,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)
from weft.dsl.nouns.topology import Hop, Topology

from ..base.effort import Effort, setting
from ..fabric.allowed import (
    chunk_images,
    chunks_meant,
    held_and_wanted,
    hop_lengths,
    passing,
)
from ..judge.allowed_pairs import off_relays
from ..judge.paths import UNREACHED, longest_paths


@dataclass(frozen=True, slots=True)
class ExplainEffort(Effort):
    """Limits of explanations: sizes up to which problems are analysed."""

    feasible_cells: int = setting(
        1 << 27, "chunks times pairs of ranks up to which feasibility is tested"
    )
    provable: int = setting(
        128, "chunks times ranks up to which the engine exact is asked to prove a conflict"
    )
    within_pieces: tuple[int, ...] = setting(
        (1, 2, 3, 4),
        "chunks per unit that plans by a time are looked for in, where the sketch names no number",
    )
    within_best: float = setting(
        1.0, "effort for the shortest plan of a sketch without one of its lines, at most"
    )
    within_intervals: int = setting(
        2500, "pairs of chunk and hop up to which CP-SAT is asked for a plan by a time"
    )


EXPLAIN_EFFORT = ExplainEffort()
"""Default limits."""


@dataclass(frozen=True)
class Feasibility:
    """Feasibility tests of subsets of rules, for one machine and one collective."""

    topology: Topology
    collective: Collective
    effort: ExplainEffort = EXPLAIN_EFFORT

    def __post_init__(self) -> None:
        cells = self.collective.chunks * self.topology.ranks**2
        if cells > self.effort.feasible_cells:
            raise UserError(
                f"{self.collective} on {self.topology.ranks} ranks is too large to be explained",
                hint="the same sketch on fewer nodes conflicts alike",
            )

    def obstacle(self, rules: Sequence[Rule]) -> str:
        """Return why no schedule obeys these rules, as a text; empty if no reason is found."""
        return next(_SubsetTest(self, tuple(rules)).obstacles(), "")

    def pairs(self, rules: Sequence[Rule]) -> Bools:
        """The pairs of ranks that each chunk (of the collective as it is) may cross: (chunks,
        ranks, ranks)."""
        asked = _SubsetTest(self, tuple(rules))
        parts = asked.allowed.reshape(
            self.collective.chunks, asked.pieces, *[self.topology.ranks] * 2
        )
        return np.asarray(parts.any(axis=1))

    def alpha(self, rules: Sequence[Rule]) -> tuple[Fraction, int, int]:
        """The largest α in µs of any chunk on its fastest path, and the ranks at its ends."""
        asked = _SubsetTest(self, tuple(rules))
        chunk, starts = asked.items
        needed = np.where(asked.wants[chunk], asked.least, 0)
        i, rank = np.unravel_index(int(needed.argmax()), needed.shape)
        _, scale = latency_units(self.topology)
        return Fraction(int(needed.max()), scale), int(starts[i].argmax()), int(rank)

    @cached_property
    def routes(self) -> tuple[Hop, ...]:
        """Every hop of the machine."""
        return find_hops(self.topology).hops

    @cached_property
    def hops(self) -> tuple[Ints, Ints, Ints]:
        """Source, destination and α (in units of the machine) of every hop."""
        routes = [hop.route for hop in self.routes]
        ends = np.array([(h.src, h.dst) for h in self.routes], np.int64).reshape(-1, 2)
        return ends[:, 0], ends[:, 1], hop_lengths(self.topology, routes, Measure.ALPHA)

    def rates(self, rules: Sequence[Rule]) -> Ints:
        """α of the fastest hop that ``only`` and ``forbid`` leave from rank to rank."""
        src, dst, alpha = self.hops
        sketch = Sketch("", tuple(rules))
        keeps = [sketch.allows(h) for h in self.routes]
        found = np.full((self.topology.ranks, self.topology.ranks), UNREACHED)
        np.minimum.at(found, (src[keeps], dst[keeps]), alpha[keeps])
        return found


@dataclass(frozen=True)
class _SubsetTest:
    feasible: Feasibility
    rules: tuple[Rule, ...]

    def obstacles(self) -> Iterator[str]:
        counts = {r.count for r in self.rules if isinstance(r, Chunks)}
        if len(counts) > 1:
            yield f"units cannot be cut into {' and into '.join(map(str, sorted(counts)))} chunks"
            return
        yield from self._missing_chunks()
        if any(chunks is None for _, chunks in self.images):
            yield "a move of the symmetry does not map the collective to itself"
            return
        yield from self._double_sends()
        yield from self._unreached()
        yield from self._sends_in_vain()
        yield from self._out_of_phase()
        yield from self._too_few_peers()

    # -- the chunks ------------------------------------------------------------------------------

    @cached_property
    def pieces(self) -> int:
        """Pieces of a unit: as a rule says, else as many as fixed sends name."""
        named = [r.piece for r in self.rules if isinstance(r, FixedSend) and r.piece is not None]
        counts = [r.count for r in self.rules if isinstance(r, Chunks)]
        # Pieces that no send names are alike: one of them stands for all.
        wanted = max(named, default=-1) + 2
        return min([wanted, *counts])

    @cached_property
    def collective(self) -> Collective:
        plain = self.feasible.collective
        return plain.split(self.pieces) if self.pieces > 1 else plain

    @cached_property
    def ends(self) -> tuple[Bools, Bools]:
        return held_and_wanted(self.collective)

    @property
    def holds(self) -> Bools:
        return self.ends[0]

    @property
    def wants(self) -> Bools:
        return self.ends[1]

    def chosen(self, rule: FixedSend) -> Ints:
        sums = self.collective.combining
        return np.flatnonzero(chunks_meant(rule, *self.ends, self.pieces, combining=sums))

    @cached_property
    def musts(self) -> list[tuple[FixedSend, int]]:
        rules = [r for r in self.rules if isinstance(r, FixedSend) and r.must]
        return [(r, int(c)) for r in rules for c in self.chosen(r)]

    def _missing_chunks(self) -> Iterator[str]:
        for rule in self.rules:
            if isinstance(rule, FixedSend) and rule.must and not len(self.chosen(rule)):
                yield f"rank {rule.owner} lacks the chunk that it must send"

    def _double_sends(self) -> Iterator[str]:
        """Errors of required sends: two bring one chunk to one rank, or one is also forbidden."""
        never = {
            (int(c), r.pair, r.step)
            for r in self.rules
            if isinstance(r, FixedSend) and not r.must
            for c in self.chosen(r)
        }
        brought: dict[tuple[int, int], tuple[int, int | None]] = {}
        for rule, chunk in self.musts:
            (src, dst), step = rule.pair, rule.step
            if (chunk, rule.pair, step) in never or (chunk, rule.pair, None) in never:
                yield f"rank {rule.owner}'s chunk must go over {src} -> {dst}, and must not"
            if self.collective.combining:
                continue
            if self.holds[chunk, dst]:
                yield f"rank {dst} has from the start what must be sent to it over {src} -> {dst}"
            other = brought.setdefault((chunk, dst), (src, step))
            if other[0] != src or (None not in (other[1], step) and other[1] != step):
                yield f"what rank {rule.owner} has can come to rank {dst} anew only once"

    # -- hops ------------------------------------------------------------------------------------

    @cached_property
    def rates(self) -> Ints:
        return self.feasible.rates(self.rules)

    @cached_property
    def allowed(self) -> Bools:
        """Pairs of ranks that each chunk may cross: (chunks, ranks, ranks)."""
        topology, sketch = self.feasible.topology, Sketch("", self.rules)
        open_pairs = self.rates < UNREACHED
        kinds, kind = np.unique(self.holds, axis=0, return_inverse=True)
        by_kind = np.array([open_pairs & ~off_relays(topology, sketch, row) for row in kinds])
        found: Bools = by_kind[kind.reshape(-1)]
        for rule in self.rules:
            if isinstance(rule, FixedSend) and not rule.must and rule.step is None:
                found[self.chosen(rule), rule.pair[0], rule.pair[1]] = False
        if not self.collective.combining:
            for rule, chunk in self.musts:  # it comes by this send, and by no other one
                src, dst = rule.pair
                kept = found[chunk, src, dst]
                found[chunk, :, dst] = False
                found[chunk, src, dst] = kept
        return self._symmetric(found)

    @cached_property
    def images(self) -> list[tuple[Ints, Ints | None]]:
        """For each move the images of ranks and of chunks (None: there are none)."""
        moves = [np.array(r.image) for r in self.rules if isinstance(r, Symmetry)]
        return [(move, chunk_images(self.holds, self.wants, move)) for move in moves]

    def _symmetric(self, allowed: Bools) -> Bools:
        """A send is possible if all its images are."""
        if self.collective.combining and self.pieces > 1:
            return allowed  # pieces of a sum may be moved to any other
        before = -1
        while before != (before := int(allowed.sum())):
            for ranks, chunks in self.images:
                assert chunks is not None, "asked before"
                allowed = allowed & allowed[np.ix_(chunks, ranks, ranks)]
        return allowed

    # -- ways ------------------------------------------------------------------------------------

    @cached_property
    def items(self) -> tuple[Ints, Bools]:
        """(chunk, where it starts): chunks, or of sums every contribution by itself."""
        if not self.collective.combining:
            return np.arange(len(self.holds)), self.holds
        chunk, rank = np.nonzero(self.holds)
        return chunk, np.eye(self.collective.ranks, dtype=bool)[rank]

    @cached_property
    def most_steps(self) -> int:
        return min((r.count for r in self.rules if isinstance(r, MaxSteps)), default=1 << 30)

    def _limits(self) -> tuple[Ints, Ints]:
        """Hops, and α, that a way to each rank may have: (items, ranks) each."""
        _, starts = self.items
        hops = min((r.count for r in self.rules if isinstance(r, MaxHops)), default=1 << 30)
        found = {m: np.full(starts.shape, UNREACHED) for m in Measure}
        found[Measure.HOPS][:] = min(hops, self.most_steps)
        for rule in self.rules:
            if isinstance(rule, MaxDetour):
                most = longest_paths(self.feasible.topology, rule)
                nearest = np.array([most[row].min(axis=0) for row in starts])
                found[rule.measure] = np.minimum(found[rule.measure], nearest)
        return found[Measure.HOPS], found[Measure.ALPHA]

    @property
    def reached(self) -> Bools:
        """Mask of the ranks that each item reaches."""
        found: Bools = self.least < UNREACHED
        return found

    @cached_property
    def least(self) -> Ints:
        """The least α of a way of each item to each rank, in units of the machine, UNREACHED where
        there is none: Bellman-Ford, so that hops and α are limited together."""
        chunk, starts = self.items
        hops, alpha = self._limits()
        least = np.where(starts, 0, UNREACHED)
        for level in range(1, self.collective.ranks):
            came = np.empty_like(least)
            for i, c in enumerate(chunk.tolist()):
                step = np.where(self.allowed[c], self.rates, UNREACHED)
                came[i] = (least[i][:, None] + step).min(axis=0)
            came[(level > hops) | (came > alpha)] = UNREACHED
            if (came >= least).all():
                break
            least = np.minimum(least, came)
        return least

    def _unreached(self) -> Iterator[str]:
        chunk, starts = self.items
        lost = np.argwhere(self.wants[chunk] & ~self.reached)
        for i, rank in lost[:1].tolist():
            yield self._lost(int(np.flatnonzero(starts[i])[0]), rank)

    def _lost(self, source: int, rank: int) -> str:
        near = int(hop_distances(self.feasible.topology)[source, rank])
        limit = min(int(self._limits()[0].max()), 1 << 30)
        far = f", {near} hops away on the machine" if near > 1 else ""
        within = f" in {limit} hop{'s' * (limit > 1)}" if limit < 1 << 30 else ""
        return f"what starts on rank {source} cannot come to rank {rank}{within}{far}"

    def _sends_in_vain(self) -> Iterator[str]:
        """Yield errors of fixed sends that are impossible, or impossible at their step, and of
        chunks that arrive too late because of them."""
        if not self.musts:
            return
        chunk, _ = self.items
        for rule, c in self.musts:
            src, dst = rule.pair
            first = self.soonest[chunk == c].min(axis=0)
            if not self.allowed[c, src, dst]:
                yield f"rank {rule.owner}'s chunk may not be sent over {src} -> {dst}"
            elif first[src] + 1 > min(rule.step or self.most_steps, self.most_steps):
                yield f"rank {src} cannot have rank {rule.owner}'s chunk in time to send it"
            elif (rule.step or 0) > self.most_steps:
                yield f"step {rule.step} is none of {self.most_steps}"
        late = np.argwhere(self.wants[chunk] & (self.soonest > self.most_steps))
        for i, rank in late[:1].tolist():
            yield f"chunk {chunk[i]} comes to rank {rank} in step {self.soonest[i, rank]} at best"

    @cached_property
    def soonest(self) -> Ints:
        """The first step in which each item can reach each rank (0: it starts there)."""
        chunk, starts = self.items
        pinned = np.zeros((len(self.holds), self.collective.ranks), np.int64)
        if not self.collective.combining:
            for rule, c in self.musts:
                pinned[c, rule.pair[1]] = rule.step or 0
        last = int(pinned.max(initial=0)) + self.collective.ranks
        came = np.where(starts, 0, last + 1)
        for step in range(1, last + 1):
            there = came < step
            now = np.stack([there[i] @ self.allowed[c] for i, c in enumerate(chunk.tolist())])
            came = np.where(now & ~there & (step >= pinned[chunk]), np.minimum(came, step), came)
        return came

    # -- phases, peers ---------------------------------------------------------------------------

    def _out_of_phase(self) -> Iterator[str]:
        """Through the phases in their order, each inside its groups."""
        chunk, starts = self.items
        for rule in self.rules:
            if not isinstance(rule, Phases):
                continue
            there = starts.copy()
            for phase in rule.phases:
                group = np.full(self.collective.ranks, -1)
                for number, members in enumerate(phase.groups):
                    group[list(members)] = number
                inside = self.allowed & (group[:, None] == group[None, :])
                for _ in range(self.collective.ranks):
                    more = [there[i] @ inside[c] for i, c in enumerate(chunk.tolist())]
                    before, there = there, there | np.stack(more)
                    if (before == there).all():
                        break
            for i, rank in np.argwhere(self.wants[chunk] & ~there)[:1].tolist():
                source = int(np.flatnonzero(starts[i])[0])
                yield (
                    f"what starts on rank {source} cannot come to rank {rank} through the phases "
                    "in their order"
                )

    def _too_few_peers(self) -> Iterator[str]:
        """Errors of peer limits: with k peers, h hops reach at most 1 + k + k² + … + k^h ranks."""
        hops = int(self._limits()[0].max(initial=0))
        open_pairs = self.rates < UNREACHED
        for rule in self.rules:
            if not isinstance(rule, SwitchPolicy) or rule.limit is None:
                continue
            beside = open_pairs & ~self._through(rule.switch)
            spread = int(
                (np.minimum(open_pairs.sum(axis=1), rule.limit + beside.sum(axis=1))).max()
            )
            told, layer = 1, 1
            for _ in range(min(hops, self.collective.ranks)):
                layer = min(layer * spread, self.collective.ranks)
                told += layer
            chunk, starts = self.items
            one = starts.sum(axis=1) == 1
            needs = np.zeros((self.collective.ranks, self.collective.ranks), bool)
            for i in np.flatnonzero(one).tolist():
                needs[starts[i]] |= self.wants[chunk[i]] | starts[i]
            if (needs.sum(axis=1) > told).any():
                source = int(needs.sum(axis=1).argmax())
                yield (
                    f"rank {source} must tell {int(needs[source].sum()) - 1} others; with "
                    f"{spread} peers each, {hops} hops reach {told - 1}"
                )

    def _through(self, switch: int) -> Bools:
        """Pairs all of whose hops pass a switch."""
        src, dst, _ = self.feasible.hops
        routes = [hop.route for hop in self.feasible.routes]
        others = ~passing(self.feasible.topology, routes, switch)
        found = np.ones((self.collective.ranks, self.collective.ranks), bool)
        found[src[others], dst[others]] = False
        return found
