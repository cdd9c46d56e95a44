"""Plan of echoes: every pair alone first, then the flows that may share a resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from weft.dsl.base.lazy_dataclass import dataclass

from .model import EFFORT, Echo, Flow, LinkClass, Session


@dataclass(frozen=True, slots=True)
class ContentionTrial:
    """Flows that may share something.

    Attributes:
        kind: what it would be; trials of one kind are pooled where they are alike.
        name: of the shared thing.
        flows: those that are timed together, the slowest first.
        members: all flows that would share it.
        like: for a pair, what else is taken to share as it does: name and members.
    """

    kind: str
    name: str
    flows: tuple[Flow, ...]
    members: frozenset[Flow]
    like: tuple[tuple[str, frozenset[Flow]], ...] = ()


def ladder(largest: int) -> tuple[int, ...]:
    """Sizes from ``small_bytes`` to the largest, in bytes."""
    steps = [EFFORT.small_bytes, 1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24]
    return (*[x for x in steps if x < largest], largest)


def pairs(ranks: int, sizes: Sequence[int]) -> list[Session]:
    """Every pair alone, in both directions, at every size."""
    return [
        tuple(Echo((flow,), size) for flow in ((a, b), (b, a)) for size in sizes)
        for a, b in combinations(range(ranks), 2)
    ]


def trial_sizes(largest: int) -> tuple[int, int]:
    """Two sizes, the slope between which is free of any α."""
    return max(1, largest // 4), largest


def session_of(trial: ContentionTrial, largest: int) -> Session:
    """Return a trial's echoes: one of its flows alone, then all together; at both sizes."""
    sizes = trial_sizes(largest)
    return tuple(Echo(flows, size) for flows in (trial.flows[:1], trial.flows) for size in sizes)


def trials(groups: Sequence[Sequence[int]], classes: Sequence[LinkClass]) -> list[ContentionTrial]:
    """Return the trials of flows that may share a resource, narrow before wide."""
    ranks = sorted(rank for group in groups for rank in group)
    everything = frozenset(permutations(ranks, 2))
    found = list(_of_pairs(classes)) if len(ranks) > 1 else []
    if len(ranks) > 2:
        near = _neighbours(groups)
        for rank in spread(ranks, EFFORT.witnesses):
            peers = near[rank][: EFFORT.flows]
            out = frozenset(f for f in everything if f[0] == rank)
            into = frozenset(f for f in everything if f[1] == rank)
            for kind, name, flows, members in (
                ("out of ranks", f"out of rank {rank}", tuple((rank, x) for x in peers), out),
                ("into ranks", f"into rank {rank}", tuple((x, rank) for x in peers), into),
                ("at ranks", f"rank {rank}", ((rank, peers[0]), (peers[1], rank)), out | into),
            ):
                found.append(ContentionTrial(kind, name, flows, members))
    if len(groups) > 1:
        for number, group in enumerate(groups):
            found += _of_group(number, group, ranks, everything)
    if len(ranks) > 3:
        ring = tuple(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
        found.append(ContentionTrial("everybody", "everybody", ring, everything))
    beta = {flow: one.line.beta for one in classes for flow in one.flows}
    return [replace(one, flows=tuple(sorted(one.flows, key=lambda f: -beta[f]))) for one in found]


def spread(things: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of the things, evenly spaced."""
    if len(things) <= count:
        return list(things)
    return [things[i * len(things) // count] for i in range(count)]


def _of_pairs(classes: Sequence[LinkClass]) -> Iterator[ContentionTrial]:
    label = {flow: i for i, one in enumerate(classes) for flow in one.flows}
    kinds: dict[tuple[int, ...], list[Flow]] = {}
    for a, b in sorted(flow for flow in label if flow[0] < flow[1]):
        kinds.setdefault(tuple(sorted((label[a, b], label[b, a]))), []).append((a, b))
    for number, some in enumerate(kinds.values()):
        like = tuple((f"pair {a}-{b}", frozenset(((a, b), (b, a)))) for a, b in some)
        for i in spread(range(len(some)), EFFORT.witnesses):
            a, b = some[i]
            yield ContentionTrial(
                f"pairs of kind {number}", like[i][0], ((a, b), (b, a)), like[i][1], like
            )


def _of_group(
    number: int, group: Sequence[int], ranks: Sequence[int], everything: frozenset[Flow]
) -> list[ContentionTrial]:
    """Return trials of flows out of a group, into it, and both; a rank has one message at most."""
    own = set(group)
    others = [rank for rank in ranks if rank not in own]
    width = min(len(group), len(others))
    if width < 2:
        return []
    out = frozenset(f for f in everything if f[0] in own and f[1] not in own)
    into = frozenset(f[::-1] for f in out)
    cross = tuple(zip(group[:width], _turned(others, number, width), strict=True))
    half = width // 2
    ring = tuple(zip(group, [*group[1:], group[0]], strict=True))
    inside = frozenset(permutations(group, 2))
    mixed = (*cross[:half], *(f[::-1] for f in cross[half:]))
    return [
        ContentionTrial("out of groups", f"out of group {number}", cross, out),
        ContentionTrial("into groups", f"into group {number}", tuple(f[::-1] for f in cross), into),
        ContentionTrial("at groups", f"around group {number}", mixed, out | into),
        *[ContentionTrial("inside groups", f"inside group {number}", ring, inside)]
        * (len(group) >= 4),
    ]


def _neighbours(groups: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """Other ranks that are all as near: those of the group, or else the ranks outside it."""
    everybody = [rank for group in groups for rank in group]
    found = {}
    for group in groups:
        for place, rank in enumerate(group):
            near = [*group[place + 1 :], *group[:place]]
            far = [r for r in everybody if r not in group]
            found[rank] = near if len(near) > 1 else [*_turned(far, place, len(far)), *near]
    return found


def _turned(ranks: Sequence[int], first: int, count: int) -> list[int]:
    """``count`` of them from a place on, round and round."""
    return [ranks[(first + i) % len(ranks)] for i in range(count)]
