"""Sketches derived from a machine: phases over hosts and rails, relays, chains, wide links, moves.

Each idea is written in the sketch language, dropped where it does not fit the machine or leaves a
chunk no way, and raced for a little effort. The result is text for a person to edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import microseconds
from weft.dsl.base.units import format_bytes
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.format import format
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology

from ..api import synthesize
from ..base.effort import Effort, setting
from ..base.engine import Budget, Observer
from ..bounds import bounds, lower_bound_us
from ..explain.feasibility import Feasibility
from ..judge.allowed_pairs import orbits_for
from ..time.schedule_time import simulate


@dataclass(frozen=True, slots=True)
class DeriveEffort(Effort):
    """Limits of the derivation of sketches."""

    ring_ranks: int = setting(64, "GPUs up to which a ring through all of them is looked for")
    ring_turns: int = setting(20_000, "extensions of a path that are tried for that ring")


DERIVE_EFFORT = DeriveEffort()
"""Default limits."""

PHASES = {
    Kind.ALLREDUCE: (
        "reduce_scatter within node",
        "allreduce across nodes by local rank",
        "allgather within node",
    ),
    Kind.ALLGATHER: ("allgather across nodes by local rank", "allgather within node"),
    Kind.REDUCE_SCATTER: (
        "reduce_scatter within node",
        "reduce_scatter across nodes by local rank",
    ),
    Kind.ALLTOALL: ("alltoall within node", "alltoall across nodes by local rank"),
}
"""Phases over hosts and rails."""

GRID_PHASES = {
    Kind.ALLREDUCE: (
        "reduce_scatter along x",
        "reduce_scatter along y",
        "allgather along y",
        "allgather along x",
    ),
    Kind.ALLGATHER: ("allgather along y", "allgather along x"),
    Kind.REDUCE_SCATTER: ("reduce_scatter along x", "reduce_scatter along y"),
    Kind.ALLTOALL: ("alltoall along x", "alltoall along y"),
}
"""Phases over the dimensions of a grid."""


@dataclass(frozen=True, slots=True)
class SketchDraft:
    """An idea for a sketch: a name, a description, and its lines."""

    name: str
    idea: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DerivedSketch:
    """A derived sketch, and the time in µs of the schedule found under it."""

    draft: SketchDraft
    text: str
    us: float


@dataclass(frozen=True, slots=True)
class DerivedSketches:
    """Derived sketches for a message of ``bytes``, the quickest first.

    ``plain_us``: µs of the schedule found without a sketch for the same effort, None without one;
    ``bound_us``: lower bound without a sketch.
    """

    bytes: int
    sketches: tuple[DerivedSketch, ...]
    plain_us: float | None
    bound_us: float


def derive_sketches(
    topology: Topology,
    collective: Collective,
    message_bytes: int,
    budget: Budget,
    observer: Observer | None = None,
    machine: str = "",
) -> DerivedSketches:
    """Return sketches for a collective, each raced within ``budget`` at one message size.

    ``machine``: the text that names it in a sketch, such as ``ndv2:nodes=2``.

    Raises:
        UserError: the collective is too large to be looked at chunk by chunk, or nothing has to
            move.
    """
    feasible = Feasibility(topology, collective)

    def race(sketch: Sketch | None) -> float | None:
        problem = Problem(topology, collective, sketch, Objective.TIME, message_bytes)
        try:
            found = synthesize(problem, budget=budget, observer=observer)
        except UserError:
            return None
        times = [simulate(point.schedule, message_bytes).time_us for point in found.points]
        return min(times, default=None)

    derived = []
    for draft in drafts(topology, collective):
        text = sketch_text(draft, machine, collective)
        sketch = _sketch(text, topology)
        if sketch is None or feasible.obstacle(sketch.rules):
            continue
        if observer is not None:
            observer.stage(draft.name)
        us = race(sketch)
        if us is not None:
            derived.append(DerivedSketch(draft, text, us))
    least = float(lower_bound_us(bounds(topology, collective), message_bytes))
    derived.sort(key=lambda one: (one.us, len(one.draft.lines)))
    return DerivedSketches(message_bytes, tuple(derived), race(None), least)


def sketch_text(draft: SketchDraft, machine: str, collective: Collective) -> str:
    """Return the text of a sketch in its canonical form."""
    head = [f"sketch {draft.name}"]
    head += [f"machine {machine}"] if machine else []
    named = str(collective.kind) if collective.kind is not Kind.CUSTOM else ""
    head += [f"collective {named}"] if named else []
    return format(parse("\n".join([*head, "", *draft.lines, ""]), draft.name))


def derived_text(found: DerivedSketches) -> str:
    """Return one file: the quickest sketch, and the others below as comments."""
    parts = []
    for place, one in enumerate(found.sketches):
        over = one.us / found.bound_us - 1 if found.bound_us else 0.0
        told = f"# {microseconds(one.us)} µs at {format_bytes(found.bytes)}, {over:.1%} above the "
        told += f"bound without a sketch: {one.draft.idea}.\n"
        text = one.text
        if place:
            text = "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
        parts.append(told + text)
    if found.plain_us is not None:
        parts.append(
            f"# Without a sketch, for the same effort: {microseconds(found.plain_us)} µs.\n"
        )
    return "# Derived by weft, the quickest first; edit it.\n" + "\n".join(parts)


def _sketch(text: str, topology: Topology) -> Sketch | None:
    """Return the sketch of a text; None where it does not fit the machine."""
    try:
        sketch = elaborate(parse(text, "derived"), topology)
        orbits_for(topology, sketch)
    except UserError:
        return None
    return sketch


# --- ideas ----------------------------------------------------------------------------------------


def drafts(
    topology: Topology, collective: Collective, effort: DeriveEffort = DERIVE_EFFORT
) -> Iterator[SketchDraft]:
    """Yield ideas for a machine; some may not fit it."""
    kind = collective.kind
    moves = _moves(topology)
    if topology.hosts > 1:
        turned = ("symmetry: rotate nodes",) * any("rotate nodes" in move for move in moves)
        if kind in PHASES:
            yield SketchDraft("rails_in_phases", "hosts × rails, in phases", _block(PHASES[kind]))
        rails = "forbid links between nodes except same local rank"
        yield SketchDraft("rails", "from host to host over rails only", (rails, *turned))
        yield from _relays(topology, turned)
    elif kind in GRID_PHASES:
        yield SketchDraft("dimensions", "one dimension after the other", _block(GRID_PHASES[kind]))
    if moves:
        yield SketchDraft("moves", "all parts of the machine do the same", moves)
    if slow := _slow(topology):
        yield SketchDraft(
            "wide_links", "the widest links of each GPU only", (f"forbid links {slow}",)
        )
    if ring := _ring(topology, effort):
        pairs = zip(ring, (*ring[1:], ring[0]), strict=True)
        cables = ", ".join(f"{a} <-> {b}" for a, b in pairs)
        yield SketchDraft("ring", "a ring through all GPUs, both ways", (f"only links {cables}",))


def _block(phases: Sequence[str]) -> tuple[str, ...]:
    return "phases:", *(f"    {phase}" for phase in phases)


def _relays(topology: Topology, turned: tuple[str, ...]) -> Iterator[SketchDraft]:
    """Yield who sends and receives where hosts are left: at the links of the cut round a host."""
    gates = _gates(topology)
    if not gates:  # hosts that differ, or that no link joins
        return
    shared = [gate for gate in gates if len(gate) > 1]
    if shared:
        lines = [f"    relay {_ranks(gate, topology)} through {_way(gate)}" for gate in gates]
        idea = "at each NIC one GPU sends and another receives"
        yield SketchDraft("relays", idea, ("between nodes:", *lines, *turned))
        owned = [f"{line}, own data first" for line in lines]
        idea = f"{idea}, own data first"
        yield SketchDraft("relays_own_first", idea, ("between nodes:", *owned, *turned))
    each = "    for p in 0..gpus-1: relay p through p -> p"
    direct = ("between nodes:", each, *turned)
    yield SketchDraft("direct", "each GPU sends its own data to its peers", direct)
    if topology.hosts > 2:
        ring = (
            "for i in 0..nodes-1:",
            "    only links within node i, between nodes i -> (i+1)%nodes",
            f"    between nodes i -> (i+1)%nodes: relay any through {_way(gates[0])}",
        )
        yield SketchDraft("chain_of_hosts", "hosts in a ring, one GPU sends", (*ring, *turned))
        yield SketchDraft("ring_of_hosts", "hosts in a ring", (*ring[:2], *turned))


def _ranks(gate: tuple[int, ...], topology: Topology) -> str:
    everyone = len(gate) == topology.ranks // topology.hosts
    return "any" if everyone else f"({', '.join(map(str, gate))})"


def _way(gate: tuple[int, ...]) -> str:
    return f"{gate[0]} -> {gate[min(1, len(gate) - 1)]}"


def _gates(topology: Topology) -> tuple[tuple[int, ...], ...] | None:
    """Return the local ranks that leave a host by the same node of it, if all hosts are alike."""
    hosts = topology.host_of
    place = Counter[int | None]()
    local = []
    for host in hosts:
        local.append(place[host])
        place[host] += 1
    if len(set(place.values())) > 1:
        return None
    gates: list[dict[int, int]] = [{} for _ in place]
    number = {host: i for i, host in enumerate(place)}
    for hop in find_hops(topology, routes_per_pair=1).hops:
        here = hosts[hop.src]
        if here == hosts[hop.dst]:
            continue
        inside = [topology.links[i].src for i in hop.route]
        last = [v for v in inside if topology.nodes[v].host == here][-1]
        gates[number[here]].setdefault(local[hop.src], last)
    groups = set()
    for found in gates:
        by_node: dict[int, list[int]] = {}
        for rank, node in sorted(found.items()):
            by_node.setdefault(node, []).append(rank)
        groups.add(tuple(sorted(map(tuple, by_node.values()))))
    return groups.pop() if len(groups) == 1 else None


def _moves(topology: Topology) -> tuple[str, ...]:
    """Return a line of moves that the machine has together, each of which adds some; or none."""
    gpus = topology.ranks // topology.hosts
    tried = [f"rotate 1 along {axis}" for axis in "xyz"]
    tried += ["rotate nodes"] * (topology.hosts > 1)
    tried += [f"rotate {k} within node" for k in range(1, gpus) if gpus % k == 0]
    tried += [f"rotate {k} in blocks of {2 * k}" for k in (1, 2, 4) if gpus % (2 * k) == 0]
    kept: tuple[str, ...] = ()
    order = 1
    for move in tried:
        moves = (*kept, move)
        try:
            text = f"sketch moves\nsymmetry: {', '.join(moves)}\n"
            grown = orbits_for(topology, elaborate(parse(text, "derived"), topology)).order
        except UserError:
            continue
        if grown > order:
            kept, order = moves, grown
    return (f"symmetry: {', '.join(kept)}",) if kept else ()


def _slow(topology: Topology) -> str:
    """Return the links between GPUs that are narrower than the widest of both their ends; empty if
    there are none, or GPUs are joined by switches."""
    if len(topology.nodes) > topology.ranks:
        return ""
    widest: dict[int, Fraction] = {}
    for link in topology.links:
        widest[link.src] = max(widest.get(link.src, link.bandwidth), link.bandwidth)
    slow = {
        (min(x.src, x.dst), max(x.src, x.dst))
        for x in topology.links
        if x.bandwidth < min(widest[x.src], widest.get(x.dst, x.bandwidth))
    }
    return ", ".join(f"{a} <-> {b}" for a, b in sorted(slow))


def _ring(topology: Topology, effort: DeriveEffort) -> tuple[int, ...]:
    """Return a ring through all GPUs, over wide hops and within hosts where it can; empty if none
    is found."""
    n = topology.ranks
    if not 2 < n <= effort.ring_ranks:
        return ()
    width: dict[tuple[int, int], tuple[bool, Fraction]] = {}
    for hop in find_hops(topology, routes_per_pair=1).hops:
        same = topology.host_of[hop.src] == topology.host_of[hop.dst]
        narrow = min(topology.links[i].bandwidth for i in hop.route)
        width[hop.src, hop.dst] = same, narrow
    turns = [0]

    def joined(a: int, b: int) -> bool:
        return (a, b) in width and (b, a) in width

    return _grown([0], n, joined, lambda a, b: width[a, b], turns, effort.ring_turns)


def _grown(
    path: list[int],
    n: int,
    joined: Callable[[int, int], bool],
    rank: Callable[[int, int], tuple[bool, Fraction]],
    turns: list[int],
    most: int,
) -> tuple[int, ...]:
    """Return the first ring through ``n`` places that continues a path, by depth-first search."""
    turns[0] += 1
    if turns[0] > most:
        return ()
    if len(path) == n:
        return tuple(path) if joined(path[-1], path[0]) else ()
    here = path[-1]
    free = [v for v in range(n) if v not in path and joined(here, v)]
    for v in sorted(free, key=lambda v: (rank(here, v), -v), reverse=True):
        if found := _grown([*path, v], n, joined, rank, turns, most):
            return found
    return ()
