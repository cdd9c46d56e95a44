"""Judge a plan: first its form, then the counts, then deadlock, then races.

Each family needs those before it: what names nothing cannot be followed, what waits for what never
comes has no order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ....check import Finding, Severity, errors
from ..plan.model import Plan
from .form import SWITCH_OPS, form
from .graph import Graph, Step, build
from .hazards import hazards
from .link import link, topological

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
    link(plan, graph)
    order = topological(graph)
    if len(order) < len(graph):
        return _sorted([*found, _cycle(graph, set(order))])
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
    more = [
        Finding(name, Severity.ERROR, f"… and {count - MOST} more like this")
        for name, count in seen.items()
        if count > MOST
    ]
    return kept + more


def at(check: str, message: str, step: Step, severity: Severity = Severity.ERROR) -> Finding:
    """A finding at an operation."""
    return Finding(check, severity, message, step.rank, step.block, step.index)


def _counts(plan: Plan, graph: Graph) -> Iterator[Finding]:
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
            else (f"{kind} channel {number}, which has no other end")
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


def _cycle(graph: Graph, sorted_: set[int]) -> Finding:
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
