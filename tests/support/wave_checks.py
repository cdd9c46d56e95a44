"""Checks certificates of waves of whole chunks from the definitions: counts of what can have
arrived before a time, in exact fractions, over the hops of the machine."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, inf
from typing import Any

from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import find_hops, route_latency
from weft.dsl.nouns.topology import Hop, Topology

Row = Sequence[int]


def proved_us(
    machine: Topology, collective: Collective, grain: Fraction, data: dict[str, Any]
) -> Fraction:
    """The bound in µs that a certificate proves; asserts each of its claims."""
    before, after = collective.pre, collective.post
    if collective.combining:
        machine, before, after = machine.reversed(), after, before
    holders = _ranks_by_chunk(collective.chunks, before)
    wanted = _ranks_by_chunk(collective.chunks, after)
    return _Claims(machine, grain, holders, wanted, data).checked()


def _ranks_by_chunk(chunks: int, placement: Any) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(chunks)]
    for rank, chunk in zip(placement.ranks.tolist(), placement.chunks.tolist(), strict=True):
        found[chunk].add(rank)
    return found


class _Claims:
    def __init__(
        self,
        machine: Topology,
        grain: Fraction,
        holders: list[set[int]],
        wanted: list[set[int]],
        data: dict[str, Any],
    ) -> None:
        self.machine, self.grain, self.data = machine, grain, data
        self.unit = Fraction(data["unit"])
        inside = self.inside = set(data["inside"])
        entering = [
            c for c in range(len(holders)) if wanted[c] & inside and not holders[c] & inside
        ]
        self.holders = [holders[c] for c in entering]
        self.wants = sorted(len((wanted[c] - holders[c]) & inside) for c in entering)
        self.hops = find_hops(machine, routes_per_pair=99).hops
        self.sources = set().union(*self.holders)

    def checked(self) -> Fraction:
        data, inside = self.data, self.inside
        n, m = data["chunks"], data["last"]
        assert n == len(self.holders)
        assert 1 <= m <= n
        assert len(data["times"]) == sum(self.wants[:m])
        reach = self._from(self.sources)
        hops = [h for h in self.hops if reach[h.src] < inf]
        doors = [h for h in hops if h.src not in inside and h.dst in inside]
        senders, ends = {h.src for h in doors}, {h.dst for h in doors}
        feeders = [h for h in hops if h.src not in inside | senders and h.dst in senders - inside]
        for listed, group in ((data["doors"], doors), (data["feeders"], feeders)):
            for hop in group:
                assert self._held(hop, listed, reach[hop.src]), hop
        within = [h for h in hops if h.src in inside and h.dst in inside]
        assert set(data["entry_ranks"]) == ends
        for hop in within:
            if ends != {hop.dst}:
                assert self._held(hop, data["arriving"], 0), hop
        for v in inside:
            mine = [h for h in within if h.src == v]
            ports = [x for x in data["leaving"] if all(self._held(h, x, 0) for h in mine)]
            assert ports or not mine
        far = sorted(x for v, x in self._from(ends).items() if v in inside and x < inf)
        assert len(far) == len(data["far"])
        assert all(a * self.unit >= b for a, b in zip(far, data["far"], strict=True))
        self._check_ready(senders)
        for i, at in enumerate(data["entries"]):
            assert self._entry_holds(n - m + 1 + i, at)
        for k, at in enumerate(data["times"]):
            assert self._reception_holds(k, at), (k, at)
        return Fraction(data["times"][-1]) / self.unit

    def _held(self, hop: Hop, listed: Sequence[Row], opens: float | Fraction) -> bool:
        """Return True if a hop holds a listed port, as long and with as long a rest, or longer."""
        holds = _holds(self.machine, hop, self.grain)
        arrives = max(holds.values()) + route_latency(self.machine, hop.route)
        return any(
            row[0] in holds
            and holds[row[0]] * self.unit >= row[1]
            and (arrives - holds[row[0]]) * self.unit >= row[2]
            and opens * self.unit >= row[3]
            for row in listed
        )

    def _from(self, starts: set[int]) -> dict[int, Any]:
        """Least µs from any of some ranks to each, GPU by GPU."""
        at: dict[int, Any] = {v: 0 if v in starts else inf for v in range(self.machine.ranks)}
        changed = True
        while changed:
            changed = False
            for hop in self.hops:
                took = max(_holds(self.machine, hop, self.grain).values())
                there = at[hop.src] + took + route_latency(self.machine, hop.route)
                if there < at[hop.dst]:
                    at[hop.dst], changed = there, True
        return at

    def _check_ready(self, senders: set[int]) -> None:
        alone = {frozenset(x): self._from(x) for x in self.holders}
        paths = sorted(min(alone[frozenset(x)][s] for s in senders) for x in self.holders)
        there = sum(x == 0 for x in paths)
        for i, (path, at) in enumerate(zip(paths, self.data["ready"], strict=True)):
            fed = i >= there and _before(self.data["feeders"], at) <= i - there
            assert at <= path * self.unit or (fed and self.data["feeders"])

    def _entry_holds(self, k: int, at: int) -> bool:
        """Return True if the k-th chunk comes in no sooner than ``at``."""
        doors = self.data["doors"]
        opened = [(r, hold, rest, 0) for r, hold, rest, _ in doors]
        return _before(doors, at) < k or any(
            _before(opened, at - ready) <= k - i
            for i, ready in enumerate(self.data["ready"][:k], 1)
        )

    def _reception_holds(self, k: int, at: int) -> bool:
        """Return True if at most k receptions come before ``at``, by one of the three counts."""
        data = self.data
        n, m, first = data["chunks"], data["last"], data["entries"][0]
        entries = 0
        if at > first:
            most = m * len(data["entry_ranks"])
            entries = min(most, max(0, _before(data["doors"], at) - (n - m)))
        paths = sum(e + far < at for e in data["entries"] for far in data["far"])
        if paths <= k or entries + _before(data["arriving"], at - first) <= k:
            return True
        fed = [
            max((_before(rows, at - since) for rows in data["leaving"]), default=0)
            for since in data["times"][: min(k, len(data["far"]))]
        ]
        return entries + sum(fed) <= k


def _holds(machine: Topology, hop: Hop, grain: Fraction) -> dict[int, Fraction]:
    """µs for which a hop holds each link, and each shared resource, of its route."""
    found: dict[int, Fraction] = {}
    for i in hop.route:
        found[i] = found.get(i, Fraction(0)) + grain / (machine.links[i].bandwidth * 1000)
        for r, one in enumerate(machine.resources, len(machine.links)):
            if i in one.links:
                found[r] = found.get(r, Fraction(0)) + grain / (one.bandwidth * 1000)
    return found


def _before(rows: Sequence[Row], at: int) -> int:
    """Return the number of slots of some ports before ``at``."""
    return sum(max(0, ceil(Fraction(at - rest - start, hold)) - 1) for _, hold, rest, start in rows)
