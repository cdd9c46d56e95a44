"""Which signal a wait cannot do without, and which release an acquire.

Counters carry no names: a wait is over when there have been enough signals. The signal *g* is
certain to come before the wait *w* if w is at least the q-th, and fewer than q signals can come
without g (all but those that g precedes). The same holds for the moment at which the threads of
g's block met before g: whichever of them is first, what was before that moment is over. What
precedes what grows with every edge so found, so this is repeated until nothing is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..plan.model import Plan
from .graph import Event, Graph, Key

ROUNDS = 20
"""Repetitions; every one orders a further pair of blocks that share a counter."""

Before = Callable[[Event, Event], bool]


def link(plan: Plan, graph: Graph) -> None:
    """Add the edges of channels and semaphores to the graph."""
    keys = sorted({*graph.gives, *graph.takes})
    shared = [k for k in keys if _blocks(graph.gives[k]) > 1 or _blocks(graph.takes[k]) > 1]
    linked: set[tuple[int, int]] = set()
    for key in keys:
        _add(graph, _pairs(plan, graph, key, _in_block), linked)
    for _ in range(ROUNDS if shared else 0):
        order = topological(graph)
        if len(order) < len(graph):
            return
        known = _known(graph, order, [e for k in shared for e in _events(graph, k)])
        found = len(linked)
        for key in shared:
            _add(graph, _pairs(plan, graph, key, known), linked)
        if len(linked) == found:
            return


def _blocks(events: Sequence[Event]) -> int:
    return len({e.block for e in events})


def _events(graph: Graph, key: Key) -> list[Event]:
    return [*graph.gives[key], *graph.takes[key]]


def _in_block(one: Event, other: Event) -> bool:
    """Whether one event of a block always precedes a later one of that block."""
    same = one.block == other.block
    return same and (one.phase < other.phase or one.thread == other.thread)


def _known(graph: Graph, order: Sequence[int], events: Sequence[Event]) -> Before:
    """The order of some events as far as the graph has it now."""
    moments = dict.fromkeys(m for e in events for m in (e.moment, e.met))
    bit = {m: 1 << k for k, m in enumerate(moments)}
    bits = [0] * len(graph)
    for m in order:
        known = bit.get(m, 0)
        for b in graph.strong[m]:
            known |= bits[b]
        for b in graph.weak[m]:
            known |= bits[b]
        bits[m] = known
    return lambda one, other: bool(bits[other.moment] & bit[one.moment])


def _pairs(plan: Plan, graph: Graph, key: Key, before: Before) -> Iterator[tuple[Event, Event]]:
    """The (give, take) pairs of a counter in which the take cannot do without the give."""
    kind, rank, number = key
    initial = plan.gpus[rank].semaphores[number] if kind == "semaphore" else 0
    gives, takes = graph.gives[key], graph.takes[key]
    without = _ranks(gives, before, earlier=False)
    meetings = _meetings(gives, before)
    for take, earlier in zip(takes, _ranks(takes, before, earlier=True), strict=True):
        needed = earlier + 1 - initial
        certain = [
            g for g, later in zip(gives, without, strict=True) if needed > len(gives) - 1 - later
        ]
        certain += [m for m, after in meetings if needed > len(gives) - after]
        for give in _latest(certain):
            yield give, take


def _latest(gives: Sequence[Event]) -> list[Event]:
    """Those that are not implied by a later one of their block."""
    kept: list[Event] = []
    for give in sorted(gives, key=lambda g: (g.phase, g.moment), reverse=True):
        if not any(k.relaxed <= give.relaxed and _in_block(give, k) for k in kept[-4:]):
            kept.append(give)
    return kept


def _meetings(gives: Sequence[Event], before: Before) -> list[tuple[Event, int]]:
    """Where blocks met before they gave, and how many gives always follow each."""
    if any(g.relaxed for g in gives):
        return []

    def follows(met: Event, give: Event) -> bool:
        if met.block == give.block:
            return give.phase >= met.phase
        return before is not _in_block and before(met, give)

    found = {g.met: replace(g, moment=g.met, before=[]) for g in gives}
    return [(met, sum(follows(met, other) for other in gives)) for met in found.values()]


def _ranks(events: Sequence[Event], before: Before, *, earlier: bool) -> list[int]:
    """For each event how many of the others always precede (or follow) it."""
    count = len(events)
    if before is _in_block and all(map(_in_block, events, events[1:])):
        return list(range(count)) if earlier else list(range(count - 1, -1, -1))
    listed = range(count)
    if before is _in_block:
        pairs = [[i < j and before(events[i], events[j]) for j in listed] for i in listed]
    else:
        pairs = [[i != j and before(events[i], events[j]) for j in listed] for i in listed]
    if earlier:
        return [sum(pairs[i][j] for i in listed) for j in listed]
    return [sum(pairs[i]) for i in listed]


def _add(graph: Graph, pairs: Iterator[tuple[Event, Event]], linked: set[tuple[int, int]]) -> None:
    for give, take in pairs:
        if (give.moment, take.moment) in linked:
            continue
        linked.add((give.moment, take.moment))
        side = graph.weak if give.relaxed or take.relaxed else graph.strong
        side[take.moment] += [give.moment, *give.before]


def topological(graph: Graph) -> list[int]:
    """All moments in order; fewer if some wait for each other."""
    after: list[list[int]] = [[] for _ in range(len(graph))]
    missing = [len(s) + len(w) for s, w in zip(graph.strong, graph.weak, strict=True)]
    for side in (graph.strong, graph.weak):
        for moment, ones in enumerate(side):
            for one in ones:
                after[one].append(moment)
    ready = [m for m, count in enumerate(missing) if not count]
    for m in ready:
        for later in after[m]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    return ready
