"""Judge a plan: first its form, then the counts, then deadlock, then races.

Each family needs those before it: what names nothing cannot be followed, what waits for what never
comes has no order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...check import Finding, Severity, errors
from ..model import Plan
from .form import SWITCH_OPS, form
from .graph import Event, Graph, Key, Step, build, match
from .hazards import hazards

MOST = 20


def check_plan(plan: Plan) -> tuple[Finding, ...]:
    """Everything wrong with a plan, errors first."""
    found = list(form(plan))
    if errors(found):
        return _sorted(found)
    graph = build(plan)
    found += _counts(plan, graph)
    if errors(found):
        return _sorted(found)
    found += _packets(graph)
    _link(plan, graph)
    order, stuck = _topological(graph)
    if stuck:
        return _sorted([*found, stuck])
    if errors(found):
        return _sorted(found)
    if any(op.op in SWITCH_OPS for g in plan.gpus for b in g.blocks for op in b.ops):
        return _sorted(found)  # what a switch writes where is not followed
    return _sorted([*found, *_few(list(hazards(plan, graph, order)))])


def _sorted(found: list[Finding]) -> tuple[Finding, ...]:
    ranks = list(Severity)
    return tuple(sorted(found, key=lambda f: ranks.index(f.severity)))


def _few(found: list[Finding]) -> list[Finding]:
    """Not more than some of each check."""
    seen: dict[str, int] = defaultdict(int)
    kept = []
    for one in found:
        seen[one.check] += 1
        if seen[one.check] <= MOST:
            kept.append(one)
    more = [Finding(name, Severity.ERROR, f"… and {count - MOST} more like this")
            for name, count in seen.items() if count > MOST]  # fmt: skip
    return kept + more


def at(check: str, message: str, step: Step, severity: Severity = Severity.ERROR) -> Finding:
    """A finding at an operation."""
    return Finding(check, severity, message, step.rank, step.block, step.index)


def _counts(plan: Plan, graph: Graph) -> Iterator[Finding]:
    """Signals and waits, releases and acquires, barriers: as many of one as of the other."""
    for key in sorted({*graph.gives, *graph.takes}):
        gives, takes = graph.gives[key], graph.takes[key]
        if len(gives) == len(takes):
            continue
        kind, rank, number = key
        step = (takes or gives)[-1].by
        if kind == "semaphore":
            text = f"{len(gives)} releases and {len(takes)} acquires of semaphore {number}"
            yield at("semaphores", f"{text}: the next launch begins with another value", step)
            continue
        where = f"{kind} channel {number} of rank {rank}" if rank >= 0 else (
            f"{kind} channel {number}, which has no other end")  # fmt: skip
        text = f"{len(gives)} signals to and {len(takes)} waits on {where}"
        late = "a wait never ends" if len(gives) < len(takes) else (
            "the next launch takes what is left for its own")  # fmt: skip
        yield at("signals", f"{text}: {late}", step)
    for (rank, number), blocks in graph.barriers.items():
        sizes = {op.barrier[1] for b in blocks for op in plan.gpus[rank].blocks[b].ops
                 if op.barrier and op.barrier[0] == number}  # fmt: skip
        turns = {len(moments) for moments in blocks.values()}
        if sizes != {len(blocks)} or len(turns) > 1:
            yield Finding(
                "barriers",
                Severity.ERROR,
                f"barrier {number} is for {sorted(sizes)} "
                f"blocks and used by {len(blocks)}, {sorted(turns)} times each",
                rank,
            )


def _packets(graph: Graph) -> list[Finding]:
    """Order packets before their readers; each place is written once per launch, and then read."""
    written: dict[tuple[int, int], list[tuple[int, Step]]] = defaultdict(list)
    read: set[tuple[int, int]] = set()
    for a in graph.accesses:
        if a.packets and a.writes:
            for k in range(a.low, a.high):
                written[a.owner, k].append((a.end, a.by))
    found: list[Finding] = []
    for a in graph.accesses:
        if not a.packets or a.writes or a.late:
            continue
        for k in range(a.low, a.high):
            read.add((a.owner, k))
            if (a.owner, k) not in written:
                found.append(at("deadlock", f"packets in s[{k}] are read and never written", a.by))
                break
            graph.strong[a.start] += [end for end, _ in written[a.owner, k]]
    for (rank, k), ends in written.items():
        if len(ends) > 1:
            text = f"packets in s[{k}] of rank {rank} are written twice in a launch"
            found.append(at("packets", f"{text}; also by {ends[0][1]}", ends[1][1]))
        elif (rank, k) not in read:
            text = f"packets in s[{k}] of rank {rank} are never read"
            found.append(at("packets", text, ends[0][1], Severity.WARNING))
    return _few(found)


def _link(plan: Plan, graph: Graph) -> None:
    """Edges from signals to waits, and from releases to acquires."""
    for key in sorted({*graph.gives, *graph.takes}):
        for give, take in match(graph.gives[key], graph.takes[key], _initial(plan, key)):
            _edge(graph, give, take)


def _initial(plan: Plan, key: Key) -> int:
    kind, rank, number = key
    return plan.gpus[rank].semaphores[number] if kind == "semaphore" else 0


def _edge(graph: Graph, give: Event, take: Event) -> None:
    relaxed = give.relaxed or take.relaxed
    side = graph.weak if relaxed else graph.strong
    side[take.moment] += [give.moment, *give.before]


def _topological(graph: Graph) -> tuple[list[int], Finding | None]:
    """All moments in order; or what waits for itself."""
    before = [[*s, *w] for s, w in zip(graph.strong, graph.weak, strict=True)]
    after: list[list[int]] = [[] for _ in before]
    missing = [len(b) for b in before]
    for moment, ones in enumerate(before):
        for one in ones:
            after[one].append(moment)
    ready = [m for m, count in enumerate(missing) if not count]
    for m in ready:
        for later in after[m]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(ready) == len(before):
        return ready, None
    m = next(m for m, count in enumerate(missing) if count)
    seen: list[int] = []
    while m not in seen:
        seen.append(m)
        m = next(b for b in before[m] if missing[b])
    cycle = list(dict.fromkeys(s for k in reversed(seen[seen.index(m) :]) if (s := graph.step[k])))
    text = "a cycle of waits: " + ", then ".join(map(str, cycle[:8]))
    return ready, Finding("deadlock", Severity.ERROR, text, *(
        (cycle[0].rank, cycle[0].block, cycle[0].index) if cycle else ()))  # fmt: skip
