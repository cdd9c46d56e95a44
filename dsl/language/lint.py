"""Warnings about legal sketches: rules that match nothing, contradictions, a different machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np

from ..base.arrays import Bools, Floats
from ..base.errors import UserError, suggest
from ..base.lazy_dataclass import Frozen
from ..base.shortest import distances
from ..base.spans import Span
from ..catalogue import names, topology
from ..nouns.hops import find_hops
from ..nouns.sketch import (
    Chunks,
    ChunksBySize,
    FixedSend,
    Forbid,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    Only,
    Pair,
    Phase,
    Phases,
    Relay,
    Rule,
    Sketch,
    Symmetry,
)
from ..nouns.topology import Topology
from . import ast
from .elaborate import Elaboration, Written, trace
from .evaluate import PairScope
from .format import text_of
from .machine import SketchMachine

# Collectives in which every rank needs data of every other one.
_ALL = ("", "allgather", "reduce_scatter", "allreduce", "alltoall")


class Concern(StrEnum):
    """Category of a warning."""

    UNUSED = "matches nothing"
    CONTRADICTION = "contradiction"
    MISFIT = "another machine"


class LintWarning(Frozen):
    """A warning and its location."""

    concern: Concern
    message: str
    span: Span | None = None
    hint: str = ""

    def render(self) -> str:
        """Return the warning as printed, in the form of an error."""
        lines = [f"warning: {self.message}"]
        if self.span is not None:
            lines.append(self.span.render())
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return "\n".join(lines)


def lint(
    tree: ast.SketchTree, machine: Topology, arguments: Mapping[str, int] | None = None
) -> tuple[LintWarning, ...]:
    """Return all warnings, in text order.

    Raises:
        UserError: the sketch does not elaborate on this machine (see ``elaborate``).
    """
    done = trace(tree, machine, arguments)
    findings = [
        *_misfits(tree, done),
        *(LintWarning(Concern.UNUSED, "this loop has no values", x.span) for x in done.idle_loops),
        *_unused(done),
        *_repeated(done),
        *_contradictions(done),
    ]
    return tuple(sorted(findings, key=lambda f: -1 if f.span is None else f.span.start))


# ---- the machine


def _misfits(tree: ast.SketchTree, done: Elaboration) -> Iterator[LintWarning]:
    text, here = done.sketch.machine, done.machine
    span = next((s.span for s in tree.statements if isinstance(s, ast.MachineLine)), None)
    known = [entry.name for entry in names()]
    if not text or text == here.topology.name:
        return
    if text.partition(":")[0] not in known:
        hint = suggest(text.partition(":")[0], known)
        yield LintWarning(Concern.MISFIT, f"no machine is called {text!r}", span, hint)
        return
    try:
        there = SketchMachine(topology(text))
    except UserError as error:
        yield LintWarning(Concern.MISFIT, f"{text}: {error.message}", span, error.hint)
        return
    name = here.topology.name
    if there.ranks != here.ranks:
        message = f"the sketch is for {text} ({there.ranks} GPUs); {name} has {here.ranks}"
        yield LintWarning(Concern.MISFIT, message, span)
    elif not np.array_equal(there.hops, here.hops) or there.hosts != here.hosts:
        message = f"the sketch is for {text}; {name} connects its GPUs differently"
        yield LintWarning(Concern.MISFIT, message, span)


# ---- rules that match nothing


def _unused(done: Elaboration) -> Iterator[LintWarning]:
    """Yield warnings about lines and list items that select nothing in any loop iteration."""
    lonely = len(done.machine.hosts) == 1
    used: dict[int, tuple[ast.Syntax, str, bool]] = {}

    def note(what: ast.Syntax, message: str, is_used: bool) -> None:
        before = used.get(id(what))
        used[id(what)] = (what, message, is_used or (before is not None and before[2]))

    for one in done.written:
        if one.meaning.reach is PairScope.BETWEEN and lonely:
            note(one.line, "there is only one node, so no links are between nodes", False)
        elif not one.meaning.joined.any():
            note(one.line, "this block covers no pair of nodes", False)
        elif isinstance(one.line, ast.OnlyRule | ast.ForbidRule | ast.OwnFirstRule):
            for what, message, is_used in _items(one, one.line.selection):
                note(what, message, is_used)
        elif isinstance(one.line, ast.PhasesRule):
            for place, phase in zip(one.line.phases, _phases(one.rules), strict=True):
                note(
                    place,
                    "no group of this phase has two ranks",
                    any(len(group) > 1 for group in phase.groups),
                )
        for rule in one.rules:
            if isinstance(rule, Symmetry) and rule.image == tuple(range(len(rule.image))):
                note(one.line, "this symmetry moves nothing", False)
            if isinstance(rule, ChunksBySize):
                for message in _other_sizes(rule, done.sketch.size):
                    note(one.line, message, False)
    for what, message, is_used in used.values():
        if not is_used:
            yield LintWarning(Concern.UNUSED, message, what.span)


def _phases(rules: Iterable[Rule]) -> tuple[Phase, ...]:
    return next((r.phases for r in rules if isinstance(r, Phases)), ())


def _other_sizes(rule: ChunksBySize, sizes: tuple[int, int] | None) -> Iterator[str]:
    """Yield warnings about chunk counts for sizes outside the sketch's range."""
    if sizes is None:
        return
    low, high = sizes
    edges = [0, *(most for most, _ in rule.steps)]
    if edges[1] < low or edges[-1] >= high or edges[-2] >= high:
        yield "some of these counts are for sizes outside the sketch's range"


def _items(one: Written, selection: ast.Selection | None) -> Iterator[tuple[ast.Syntax, str, bool]]:
    """Yield each item of a list of links, the message if it is useless, and whether it is used."""
    if selection is None:
        return
    total = one.meaning.machine.nothing()
    for selector in selection.selectors:
        found = one.meaning.selector(selector)
        total = total | found
        yield selector, f"{text_of(selector)} matches no link", not found.empty
    for selector in selection.exceptions:
        found = one.meaning.selector(selector)
        message = f"{text_of(selector)} excludes none of the links before 'except'"
        yield selector, message, found.meets(total)


def _repeated(done: Elaboration) -> Iterator[LintWarning]:
    first: dict[tuple[Rule, ...], ast.Rule] = {}
    for one in done.written:
        bare = tuple(replace(rule, label="", span=None) for rule in one.rules)
        before = first.setdefault(bare, one.line)
        if before is not one.line and bare:
            place = f" of line {before.span.line}" if before.span else ""
            yield LintWarning(Concern.UNUSED, f"this repeats the rule{place}", one.line.span)


# ---- contradictions


def _contradictions(done: Elaboration) -> Iterator[LintWarning]:
    sketch, machine = done.sketch, done.machine
    allowed = allowed_pairs(sketch, machine)
    distance = _distances(allowed)
    yield from _sends(sketch, allowed, distance)
    yield from _lost(sketch, machine, distance)
    yield from _too_far(sketch, distance)
    yield from _detours(sketch, machine, distance)
    yield from _torn_phases(sketch, allowed)
    yield from _asymmetric(sketch, allowed)
    yield from _blocked_relays(sketch, allowed)


def allowed_pairs(sketch: Sketch, machine: SketchMachine) -> Bools:
    """Return the ordered pairs of ranks with a hop that ``only`` and ``forbid`` allow."""
    only = [r for r in sketch.rules if isinstance(r, Only)]
    forbid = [r for r in sketch.rules if isinstance(r, Forbid)]
    if any(r.links for r in only) or any(r.links for r in forbid):
        allowed = np.zeros_like(machine.hops)
        for hop in find_hops(machine.topology).hops:
            allowed[hop.src, hop.dst] |= sketch.allows(hop)
        return allowed
    allowed = machine.hops & _union(machine, only) if only else machine.hops.copy()
    return allowed & ~_union(machine, forbid)


def _union(machine: SketchMachine, rules: list[Only] | list[Forbid]) -> Bools:
    table = np.zeros_like(machine.hops)
    for rule in rules:
        if rule.pairs:
            table[tuple(np.array(sorted(rule.pairs)).T)] = True
    return table


def _distances(allowed: Bools) -> Floats:
    """Return the least number of hops between ranks, infinite where unreachable."""
    tails, heads = np.nonzero(allowed)
    ones = np.ones(len(tails), np.int64)
    return distances(len(allowed), tails, heads, ones, np.arange(len(allowed)))


def _sends(sketch: Sketch, allowed: Bools, distance: Floats) -> Iterator[LintWarning]:
    steps = min((r.count for r in sketch.rules if isinstance(r, MaxSteps)), default=None)
    counts = [n for r in sketch.rules if isinstance(r, Chunks | ChunksBySize) for n in r.counts]
    chunks = max(counts, default=None)
    sends = [r for r in sketch.rules if isinstance(r, FixedSend)]
    for rule in sends:
        problem = ""
        if chunks is not None and rule.piece is not None and rule.piece >= chunks:
            problem = f"expected a chunk from 0 to {chunks - 1}, got {rule.piece}"
        elif rule.must:
            problem = _cannot_send(rule, sketch, allowed, distance, steps)
        if problem:
            yield LintWarning(Concern.CONTRADICTION, problem, rule.span)
        for other in sends:
            if rule.must and not other.must and _covers(other, rule):
                message = f"{other.label!r} says that this must never be sent"
                yield LintWarning(Concern.CONTRADICTION, message, rule.span)


def _cannot_send(
    rule: FixedSend,
    sketch: Sketch,
    allowed: Bools,
    distance: Floats,
    steps: int | None,
) -> str:
    """Return the reason why a required send is impossible; empty if none is known."""
    src, dst = rule.pair
    if not allowed[src, dst]:
        return f"{src} -> {dst} is not allowed: {_culprit(sketch, rule.pair)}"
    away = distance[rule.owner, src]
    if np.isinf(away):
        return f"chunks of rank {rule.owner} cannot come to rank {src}"
    if rule.step is not None and rule.step <= away:
        return (
            f"a chunk of rank {rule.owner} is on rank {src} after step {away:.0f} "
            f"at the earliest, so it leaves at step {away + 1:.0f} or later"
        )
    if steps is not None and max(rule.step or 0, away + 1) > steps:
        return f"there are at most {steps} steps"
    return ""


def _culprit(sketch: Sketch, pair: Pair) -> str:
    for rule in sketch.rules:
        if isinstance(rule, Forbid) and pair in rule.pairs:
            return repr(rule.label)
    only = [r.label for r in sketch.rules if isinstance(r, Only)]
    return f"no 'only' names it ({only[0]!r})" if only else "its links are forbidden"


def _covers(never: FixedSend, must: FixedSend) -> bool:
    same = never.owner == must.owner and never.pair == must.pair
    details = ((never.step, must.step), (never.piece, must.piece), (never.target, must.target))
    return same and all(a is None or a == b for a, b in details)


def _lost(sketch: Sketch, machine: SketchMachine, distance: Floats) -> Iterator[LintWarning]:
    """Yield warnings about ranks that the machine connects and the rules cut off."""
    lost = np.isinf(distance) & ~np.isinf(_distances(machine.hops))
    if sketch.collective not in _ALL:
        # One direction may suffice: a rank is cut off only if it can neither receive nor send.
        alone = np.isinf(distance).sum(axis=0) == len(distance) - 1
        alone &= np.isinf(distance).sum(axis=1) == len(distance) - 1
        lost &= alone[:, None]
    if not lost.any():
        return
    src, dst = map(int, np.argwhere(lost)[0])
    count = int(lost.sum()) - 1
    more = f" (nor {count} other pairs)" if count else ""
    message = f"with these links, no data gets from rank {src} to rank {dst}{more}"
    rule = _first_cut(sketch, machine, (src, dst))
    yield LintWarning(Concern.CONTRADICTION, message, rule.span, f"cut off by {rule.label!r}")


def _first_cut(sketch: Sketch, machine: SketchMachine, pair: Pair) -> Rule:
    """Return the first rule that, with those before it, cuts a pair off; ``only`` rules first."""
    only = [r for r in sketch.rules if isinstance(r, Only)]
    forbid = [r for r in sketch.rules if isinstance(r, Forbid)]
    order: list[Rule] = [*only, *forbid]
    for count in range(max(1, len(only)), len(order) + 1):
        part = replace(sketch, rules=tuple(order[:count]))
        if np.isinf(_distances(allowed_pairs(part, machine))[pair]):
            return order[count - 1]
    return order[-1]


def _too_far(sketch: Sketch, distance: Floats) -> Iterator[LintWarning]:
    """Yield warnings about limits on hops or steps below the distance the collective needs."""
    if sketch.collective not in _ALL[1:] or np.isinf(distance).any():
        return
    far = int(distance.max())
    src, dst = map(int, np.argwhere(distance == far)[0])
    for rule in sketch.rules:
        if isinstance(rule, MaxHops | MaxSteps) and rule.count < far:
            message = f"rank {dst} is {far} hops from rank {src}, more than {rule.count}"
            yield LintWarning(Concern.CONTRADICTION, message, rule.span)


def _detours(sketch: Sketch, machine: SketchMachine, distance: Floats) -> Iterator[LintWarning]:
    """Yield warnings about detour limits that the remaining links cannot meet."""
    if sketch.collective not in _ALL[1:] or np.isinf(distance).any():
        return
    shortest = _distances(machine.hops)
    for rule in sketch.rules:
        if not isinstance(rule, MaxDetour) or rule.measure is not Measure.HOPS:
            continue
        late = np.argwhere(distance > shortest * (100 + rule.percent) / 100 + rule.more)
        if len(late):
            src, dst = map(int, late[0])
            message = (
                f"with these links rank {dst} is {distance[src, dst]:.0f} hops from rank {src}; "
                f"the shortest path has {shortest[src, dst]:.0f}"
            )
            yield LintWarning(Concern.CONTRADICTION, message, rule.span)


def _torn_phases(sketch: Sketch, allowed: Bools) -> Iterator[LintWarning]:
    """Yield warnings about phase groups whose ranks cannot reach each other inside the group."""
    for rule in sketch.rules:
        if not isinstance(rule, Phases):
            continue
        for number, phase in enumerate(rule.phases, 1):
            torn = next((g for g in phase.groups if _is_torn(allowed, g)), None)
            if torn is not None:
                shown = ", ".join(map(str, torn[:8])) + (", …" if len(torn) > 8 else "")
                message = (
                    f"phase {number} ({phase.kind}) stays in groups, and inside {{{shown}}} "
                    "the links that are allowed do not lead from every rank to every other"
                )
                yield LintWarning(Concern.CONTRADICTION, message, rule.span)


def _is_torn(allowed: Bools, group: tuple[int, ...]) -> bool:
    return len(group) > 1 and bool(np.isinf(_distances(allowed[np.ix_(group, group)])).any())


def _asymmetric(sketch: Sketch, allowed: Bools) -> Iterator[LintWarning]:
    """Yield warnings about symmetries under which the other rules are not invariant."""
    relays = {_relay_key(r, None) for r in sketch.rules if isinstance(r, Relay)}
    for rule in sketch.rules:
        if not isinstance(rule, Symmetry):
            continue
        moved = np.asarray(rule.image)
        broken = np.argwhere(allowed & ~allowed[np.ix_(moved, moved)])
        if len(broken):
            a, b = map(int, broken[0])
            message = (
                f"the rules allow {a} -> {b}, but not {moved[a]} -> {moved[b]}, "
                "to which this symmetry moves it"
            )
            hint = "with both, neither is used"
            yield LintWarning(Concern.CONTRADICTION, message, rule.span, hint)
        elif relays != {_relay_key(r, rule.image) for r in sketch.rules if isinstance(r, Relay)}:
            message = "this symmetry does not map the relays to each other"
            yield LintWarning(Concern.CONTRADICTION, message, rule.span)
        elif not _keeps_phases(rule.image, _phases(sketch.rules)):
            message = "this symmetry does not map the groups of the phases to each other"
            yield LintWarning(Concern.CONTRADICTION, message, rule.span)


def _keeps_phases(image: tuple[int, ...], phases: tuple[Phase, ...]) -> bool:
    for phase in phases:
        groups = set(map(frozenset, phase.groups))
        if {frozenset(image[r] for r in group) for group in groups} != groups:
            return False
    return True


def _relay_key(
    rule: Relay, image: tuple[int, ...] | None
) -> tuple[frozenset[int], frozenset[Pair], bool]:
    """Return a comparable key of a relay, after applying a symmetry."""
    if image is None:
        return rule.sources, frozenset(rule.through), rule.own_first
    through = frozenset((image[a], image[b]) for a, b in rule.through)
    return frozenset(image[r] for r in rule.sources), through, rule.own_first


def _blocked_relays(sketch: Sketch, allowed: Bools) -> Iterator[LintWarning]:
    for rule in sketch.rules:
        if isinstance(rule, Relay) and rule.through and not any(allowed[p] for p in rule.through):
            a, b = rule.through[0]
            message = f"the relay {a} -> {b} is not allowed: {_culprit(sketch, (a, b))}"
            yield LintWarning(Concern.CONTRADICTION, message, rule.span)
