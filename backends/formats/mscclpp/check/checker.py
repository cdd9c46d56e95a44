"""Judge a plan: first its form, then the counts, then deadlock, then races.

Each family needs those before it: an index that is out of range cannot be followed, and operations
that wait for a missing signal are not ordered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from weft.dsl.nouns.program import Buffer

from ....check.findings import LIMITS as CHECK_LIMITS
from ....check.findings import Finding, Severity, errors, errors_first
from ..plan.events import Counter
from ..plan.model import FACTS, LIMITS, ExecutionPlan, chunk_units
from .form import form
from .graph import Access, CounterUse, Past, PlanGraph, at, batches, build


def check_plan(plan: ExecutionPlan, longest: int = FACTS.operations) -> tuple[Finding, ...]:
    """Everything wrong with a plan, errors first.

    ``longest``: the most operations of a thread block; the executor of MSCCL++ takes 64.
    """
    sizes, complete = chunk_units(plan)
    sizes = [*sizes[-1:], *sizes[:-1]]  # first one at which every block has a share
    found = list(form(plan, sizes, longest))
    if errors(found):
        return errors_first(found)
    for turn, units in enumerate(sizes):
        graph = build(plan, units)
        if turn >= max(LIMITS.chunk_sizes, LIMITS.accesses // max(1, len(graph.accesses))):
            complete = False
            break
        wrong = _followed(plan, graph)
        if len(sizes) > 1:
            where = f" (for instance where a chunk has {units * plan.alignment} bytes)"
            wrong = [
                replace(f, message=f.message + where) if f.severity is Severity.ERROR else f
                for f in wrong
            ]
        found += [f for f in wrong if f not in found]
        if errors(found):
            return errors_first(found)
    if not complete:
        text = "thread blocks share chunks in more ways, at other sizes, than are followed here"
        found.append(Finding("races", Severity.WARNING, text))
    return errors_first(found)


def _followed(plan: ExecutionPlan, graph: PlanGraph) -> list[Finding]:
    """Return the faults of a plan of sound form, at one size of its chunks."""
    found = list(_counts(plan, graph))
    if errors(found):
        return found
    found += _packets(graph)
    link(plan, graph)
    sorted_ = Past.of(len(graph), graph.strong, graph.weak).levels.order
    if len(sorted_) < len(graph):
        return [*found, _cycle(graph, set(sorted_.tolist()))]
    if errors(found):
        return found
    return [*found, *_few(list(hazards(plan, graph)))]


def _few(found: list[Finding]) -> list[Finding]:
    """Not more than some of each check."""
    seen: dict[str, int] = defaultdict(int)
    kept = []
    for one in found:
        seen[one.check] += 1
        if seen[one.check] <= CHECK_LIMITS.findings:
            kept.append(one)
    more = [
        Finding(name, Severity.ERROR, f"… and {count - CHECK_LIMITS.findings} more like this")
        for name, count in seen.items()
        if count > CHECK_LIMITS.findings
    ]
    return kept + more


def _counts(plan: ExecutionPlan, graph: PlanGraph) -> Iterator[Finding]:
    """Signals and waits, releases and acquires, barriers: as many of one as of the other."""
    for key in sorted({*graph.gives, *graph.takes}):
        gives, takes = graph.gives[key], graph.takes[key]
        kind, rank, number = key
        initial = plan.gpus[rank].semaphores[number] if kind == "semaphore" else 0
        if len(gives) == len(takes) and initial >= 0:
            continue
        step = (takes or gives)[-1].by
        if kind == "semaphore":
            text = f"{len(gives)} releases and {len(takes)} acquires of semaphore {number}"
            text += f", which begins at {initial}" if initial else ""
            late = (
                "a wait never ends"
                if initial + len(gives) < len(takes)
                else ("the next launch begins with another value")
            )
            yield at("semaphores", f"{text}: {late}", step)
            continue
        where = (
            f"{kind} channel {number} of rank {rank}"
            if rank >= 0
            else (f"{kind} channel {number}, whose other end is missing")
        )
        text = f"{len(gives)} signals to and {len(takes)} waits on {where}"
        late = (
            "a wait never ends"
            if len(gives) < len(takes)
            else ("the next launch takes what is left for its own")
        )
        yield at("signals", f"{text}: {late}", step)
    for (rank, number), blocks in graph.barriers.items():
        sizes = {
            op.barrier[1]
            for b in blocks
            for op in plan.gpus[rank].blocks[b].ops
            if op.barrier and op.barrier[0] == number
        }
        turns = {len(moments) for moments in blocks.values()}
        if sizes != {len(blocks)} or len(turns) > 1:
            yield Finding(
                "barriers",
                Severity.ERROR,
                f"barrier {number} is for {sorted(sizes)} "
                f"blocks and used by {len(blocks)}, {sorted(turns)} times each",
                rank,
            )


def _packets(graph: PlanGraph) -> list[Finding]:
    """Order packets before their readers; each place is written once per launch, and then read."""
    packets = [a for a in graph.accesses if a.place.packets]
    found: list[Finding] = []
    for (owner, low), here in cells(
        [(a.place.rank, a.place.start, a.place.stop) for a in packets]
    ).items():
        place = f"packets in s[{low // graph.units}]"
        writers = [packets[k] for k in here if packets[k].writes]
        readers = [packets[k] for k in here if not packets[k].writes and not packets[k].late]
        for a in readers:
            graph.strong[a.start] += [w.end for w in writers]
        if readers and not writers:
            found.append(at("deadlock", f"{place} are read and never written", readers[0].by))
        elif len(writers) > 1:
            text = f"{place} of rank {owner} are written twice in a launch"
            found.append(at("packets", f"{text}; also by {writers[0].by}", writers[1].by))
        elif writers and not readers:
            text = f"{place} of rank {owner} are never read"
            found.append(at("packets", text, writers[0].by, Severity.WARNING))
    return _few(found)


def _cycle(graph: PlanGraph, sorted_: set[int]) -> Finding:
    """Moments that wait for each other."""

    def before(m: int) -> list[int]:
        return [b for b in (*graph.strong[m], *graph.weak[m]) if b not in sorted_]

    m = next(m for m in range(len(graph)) if m not in sorted_)
    seen: dict[int, None] = {}
    while m not in seen:
        seen[m] = None
        m = before(m)[0]
    path = list(seen)
    moments = reversed(path[path.index(m) :])
    steps = list(dict.fromkeys(s for k in moments if (s := graph.step[k])))
    text = "a cycle of waits: " + ", then ".join(map(str, steps[:8]))
    if not steps:
        return Finding("deadlock", Severity.ERROR, text)
    return at("deadlock", text, steps[0])


Before = Callable[[CounterUse, CounterUse], bool]


def link(plan: ExecutionPlan, graph: PlanGraph) -> None:
    """Add the edges of channels and semaphores to the graph.

    Counters carry no names: a wait is over when there have been enough signals. The signal *g* is
    certain to come before the wait *w* if w is at least the q-th, and fewer than q signals can come
    without g (all but those that g precedes). The same holds for the moment at which the threads of
    g's block met before g: whichever of them is first, what was before that moment is over. What
    precedes what grows with every edge so found, so this is repeated until nothing is new.
    """
    keys = sorted({*graph.gives, *graph.takes})
    shared = [k for k in keys if _blocks(graph.gives[k]) > 1 or _blocks(graph.takes[k]) > 1]
    linked: set[tuple[int, int]] = set()
    for key in keys:
        _add(graph, _pairs(plan, graph, key, _in_block), linked)
    for _ in range(LIMITS.counter_rounds if shared else 0):
        past, found = Past.of(len(graph), graph.strong, graph.weak), len(linked)
        if len(past.levels.order) < len(graph):
            return
        for keys in batches(shared, lambda key: len(_events(graph, key)), 32 * past.words):
            known = _known(past, [e for k in keys for e in _events(graph, k)])
            for key in keys:
                _add(graph, _pairs(plan, graph, key, known), linked)
        if len(linked) == found:
            return


def _blocks(events: Sequence[CounterUse]) -> int:
    return len({e.block for e in events})


def _events(graph: PlanGraph, key: Counter) -> list[CounterUse]:
    return [*graph.gives[key], *graph.takes[key]]


def _in_block(one: CounterUse, other: CounterUse) -> bool:
    """Test if one event of a block always precedes a later one of that block."""
    same = one.block == other.block
    return same and (one.phase < other.phase or one.thread == other.thread)


def _known(past: Past, events: Sequence[CounterUse]) -> Before:
    """Return the order of some events as far as the graph had it."""
    moments = dict.fromkeys(m for e in events for m in (e.moment, e.met))
    bit = {m: k for k, m in enumerate(moments)}
    bits = past.bits(list(bit.items()), [e.moment for e in events])
    return lambda one, other: bool(bits[other.moment] >> bit[one.moment] & 1)


def _pairs(
    plan: ExecutionPlan, graph: PlanGraph, key: Counter, before: Before
) -> Iterator[tuple[CounterUse, CounterUse]]:
    """Yield the (give, take) pairs of a counter in which the take cannot do without the give."""
    kind, rank, number = key
    initial = plan.gpus[rank].semaphores[number] if kind == "semaphore" else 0
    gives, takes = graph.gives[key], graph.takes[key]
    if _one_by_one(gives, before) and _one_by_one(takes, before):
        yield from _in_turn(gives, takes, initial)
        return
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


def _one_by_one(events: Sequence[CounterUse], before: Before) -> bool:
    """Test if all events always happen in the order of their list."""
    return all(map(before, events, events[1:]))


def _in_turn(
    gives: Sequence[CounterUse], takes: Sequence[CounterUse], initial: int
) -> Iterator[tuple[CounterUse, CounterUse]]:
    """Yield the pairs of a counter whose gives, and takes, come one by one: the k-th take cannot do
    without the first k gives, of which the last of each block implies the others of that block.

    Where that one is relaxed, the last that is not and comes before it is needed too.
    """
    blocks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, give in enumerate(gives):
        blocks[give.block].append(k)
    for k, take in enumerate(takes):
        for held in blocks.values():
            for j in range(bisect_right(held, k - initial) - 1, -1, -1):
                yield gives[held[j]], take
                if not gives[held[j]].relaxed:
                    break


def _latest(gives: Sequence[CounterUse]) -> list[CounterUse]:
    """Those that are not implied by a later one of their block."""
    kept: list[CounterUse] = []
    for give in sorted(gives, key=lambda g: (g.phase, g.moment), reverse=True):
        if not any(k.relaxed <= give.relaxed and _in_block(give, k) for k in kept[-4:]):
            kept.append(give)
    return kept


def _meetings(gives: Sequence[CounterUse], before: Before) -> list[tuple[CounterUse, int]]:
    """Return where blocks met before they gave, and how many gives always follow each."""
    if any(g.relaxed for g in gives):
        return []

    def follows(met: CounterUse, give: CounterUse) -> bool:
        if met.block == give.block:
            return give.phase >= met.phase
        return before is not _in_block and before(met, give)

    found = {g.met: replace(g, moment=g.met, before=[]) for g in gives}
    return [(met, sum(follows(met, other) for other in gives)) for met in found.values()]


def _ranks(events: Sequence[CounterUse], before: Before, *, earlier: bool) -> list[int]:
    """For each event how many of the others always precede (or follow) it."""
    count = len(events)
    if before is _in_block and _one_by_one(events, before):
        return list(range(count)) if earlier else list(range(count - 1, -1, -1))
    listed = range(count)
    if before is _in_block:
        pairs = [[i < j and before(events[i], events[j]) for j in listed] for i in listed]
    else:
        pairs = [[i != j and before(events[i], events[j]) for j in listed] for i in listed]
    if earlier:
        return [sum(pairs[i][j] for i in listed) for j in listed]
    return [sum(pairs[i]) for i in listed]


def _add(
    graph: PlanGraph, pairs: Iterator[tuple[CounterUse, CounterUse]], linked: set[tuple[int, int]]
) -> None:
    for give, take in pairs:
        if (give.moment, take.moment) in linked:
            continue
        linked.add((give.moment, take.moment))
        side = graph.weak if give.relaxed or take.relaxed else graph.strong
        side[take.moment] += [give.moment, *give.before]


# --- unordered accesses, and remote accesses that may begin too early or end too late -------------
#
# Every access to the buffers of a rank is a bit, and moments know the accesses that have ended
# before them (:class:`.Past`): O(edges · accesses / 64), for as many ranks at a time as fit.


def hazards(plan: ExecutionPlan, graph: PlanGraph) -> Iterator[Finding]:
    """Races, missing handshakes, and unfinished work at the end, of a graph without cycles."""
    strong = Past.of(len(graph), graph.strong)
    by_owner: dict[int, list[Access]] = defaultdict(list)
    for a in graph.accesses:
        by_owner[a.place.rank].append(a)
    work = strong.edges * sum(1 + len(mine) // 64 for mine in by_owner.values())
    if work > LIMITS.proof_words:
        text = f"too large for the race proof here ({len(graph)} moments)"
        yield Finding("races", Severity.WARNING, text)
        return
    far = [a for a in graph.accesses if a.place.rank != a.by.rank]
    begun = _begun(graph, far)
    done = [0] * len(plan.gpus)
    for rank, moments in enumerate(graph.finish):
        for m in moments:
            done[rank] |= begun[m]
    for a in far:
        yield from _handshake(plan, a, begun, done)
    for ranks in batches(
        range(len(plan.gpus)), lambda rank: len(by_owner[rank]), 64 * strong.words
    ):
        yield from _together(plan, graph, strong, ranks, by_owner)


def _together(
    plan: ExecutionPlan,
    graph: PlanGraph,
    strong: Past,
    ranks: list[int],
    by_owner: dict[int, list[Access]],
) -> Iterator[Finding]:
    """Judge the buffers of some ranks by the operations before each access and the end."""
    accesses = [a for rank in ranks for a in by_owner[rank]]
    marks = [(a.end, k) for k, a in enumerate(accesses)]
    finish = [m for rank in ranks for m in graph.finish[rank]]
    bits = strong.bits(marks, [*(a.start for a in accesses), *finish])
    first = 0
    for rank in ranks:
        mine = by_owner[rank]
        mask = (1 << len(mine)) - 1
        wanted = {*(a.start for a in mine), *graph.finish[rank]}
        ended = {m: bits[m] >> first & mask for m in wanted}
        first += len(mine)
        yield from _rank(plan, graph, rank, mine, ended)


# --- ranks that have begun ------------------------------------------------------------------------


def _begun(graph: PlanGraph, far: list[Access]) -> dict[int, int]:
    """For starts of remote accesses and for ends, as bits, the ranks whose launch has begun."""
    past = Past.of(len(graph), graph.strong, graph.weak)
    marks = [(m, rank) for rank, moments in enumerate(graph.begin) for m in moments]
    return past.bits(marks, [*(a.start for a in far), *(m for f in graph.finish for m in f)])


def _handshake(
    plan: ExecutionPlan, a: Access, begun: dict[int, int], done: list[int]
) -> Iterator[Finding]:
    """Yield a finding if an access may precede its peer's launch; packets may be a launch early."""
    owner = a.place.rank
    if begun[a.start] >> owner & 1:
        return
    if not a.place.packets:
        yield at(
            "handshake",
            f"nothing tells that the launch of rank {owner} has begun: its buffers may be in use",
            a.by,
        )
    elif not plan.double_scratch or not done[a.by.rank] >> owner & 1:
        yield at(
            "handshake",
            f"packets to rank {owner} may overwrite those of an earlier "
            "launch that it has not read",
            a.by,
        )


# --- one rank's buffers --------------------------------------------------------------------------

Span = tuple[Hashable, int, int]
"""A range of a space."""


def cells(spans: Sequence[Span]) -> dict[tuple[Hashable, int], list[int]]:
    """Return which spans cover each cell: all between two neighbouring ends of spans of a space.

    A cell is named by its space and its begin.
    """
    ends: dict[Hashable, set[int]] = defaultdict(set)
    for space, low, high in spans:
        ends[space] |= {low, high}
    cuts = {space: sorted(some) for space, some in ends.items()}
    covering: dict[tuple[Hashable, int], list[int]] = defaultdict(list)
    for k, (space, low, high) in enumerate(spans):
        at = cuts[space]
        for begin in at[bisect_left(at, low) : bisect_left(at, high)]:
            covering[space, begin].append(k)
    return covering


def _address(plan: ExecutionPlan, rank: int, a: Access, units: int) -> Span:
    """Return a space and a range in it, such that aliases are one."""
    if a.place.packets:
        return "s", 2 * a.place.start, 2 * a.place.stop
    if a.place.buffer is Buffer.SCRATCH:
        return "s", a.place.start, a.place.stop
    if not plan.in_place:
        return str(a.place.buffer), a.place.start, a.place.stop
    gpu, shift = plan.gpus[rank], 0
    if a.place.buffer is plan.moving:
        shift = rank * gpu.size_of(a.place.buffer)
    return "u", a.place.start + shift * units, a.place.stop + shift * units


def _rank(
    plan: ExecutionPlan,
    graph: PlanGraph,
    rank: int,
    accesses: list[Access],
    ended: dict[int, int],
) -> Iterator[Finding]:
    """Yield the faults in one rank's buffers; ``ended``: as bits, what has before a moment."""
    at_end = 0
    for m in graph.finish[rank]:
        at_end |= ended[m]
    spans = [_address(plan, rank, a, graph.units) for a in accesses]
    for k, a in enumerate(accesses):
        if not a.place.packets and not at_end >> k & 1:
            if a.by.rank != rank:
                verb = "writes into" if a.writes else "reads"
                yield at(
                    "ending",
                    f"{verb} {a.name} of rank {rank}, which may end before that is done",
                    a.by,
                )
            elif a.late:
                yield at(
                    "ending",
                    f"the network may read {a.name} after the plan "
                    "has ended: flush it, or wait for an answer",
                    a.by,
                )
    told: set[tuple[int, int]] = set()
    for (space, _), here in cells(spans).items():
        if space in ("s", "o"):
            yield from _stale(accesses, ended, here, rank, told)
        for j, y in enumerate(here):
            for x in here[:j]:
                if (x, y) not in told and (
                    problem := _conflict(
                        accesses[x], accesses[y], ended, x, y, same=spans[x] == spans[y]
                    )
                ):
                    told.add((x, y))
                    yield at(
                        "races",
                        f"{_name(accesses[y], rank)} {problem} {accesses[x].by}",
                        accesses[y].by,
                    )


def _stale(
    accesses: list[Access],
    ended: dict[int, int],
    here: list[int],
    rank: int,
    told: set[tuple[int, int]],
) -> Iterator[Finding]:
    """Yield findings for reads of a place that no earlier access can have written."""
    writes = [k for k in here if accesses[k].writes]
    for k in here:
        a = accesses[k]
        later = [w for w in writes if accesses[w].by == a.by or ended[accesses[w].start] >> k & 1]
        if not a.writes and len(later) == len(writes) and (k, k) not in told:
            told.add((k, k))
            yield at("stale", f"{_name(a, rank)} is read and never written before", a.by)


def _name(a: Access, rank: int) -> str:
    kind = "packets in " if a.place.packets else ""
    return f"{kind}{a.name} of rank {rank}"


def _conflict(
    a: Access, b: Access, ended: dict[int, int], x: int, y: int, *, same: bool
) -> str | None:
    """Return the fault between two accesses to one place, or None; ``same``: to all of it."""
    if a.place.packets != b.place.packets and (a.writes or b.writes):
        return "is a place of packets and of plain data, also for"
    if not a.writes and not b.writes:
        return None
    if a.place.packets and not any(one.late and not one.writes for one in (a, b)):
        return None  # flags order packets and their readers, not copies of packets as data
    if a.by == b.by and same and not a.late:
        return None  # a thread reads an element before it writes that element
    if ended[b.start] >> x & 1 or ended[a.start] >> y & 1:
        return None
    return "is unordered with"
