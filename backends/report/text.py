"""Topologies, collectives, schedules and sketches as plain text.

The same text on any terminal or pipe; numbers carry their units; long lists are cut with a note.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.tables import facts, table
from weft.dsl.base.units import format_bytes
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.nics import Nic, nics_of
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import find_hops, islands
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Link, Topology
from weft.synth.fabric.occupancy import links_used

from .sizes import TEXT

SHADES = " ▁▂▃▄▅▆▇█"


# --- topologies -----------------------------------------------------------------------------------


def topology_text(topology: Topology) -> str:
    """Return facts, kinds of links, shared resources, and bandwidths between ranks as text."""
    plain = plain_machine(topology).machine
    kinds = Counter(node.kind for node in plain.nodes)
    head = facts(
        [
            ("topology", topology.name),
            ("nodes", ", ".join(f"{count} {kind}" for kind, count in kinds.items())),
            ("hosts", topology.hosts),
            ("links", len(plain.links)),
            ("in switches", _able(topology)),
            ("round", f"{_short(topology.round_bandwidth())} GB/s" if topology.links else None),
            ("symmetries", f"{len(topology.symmetries)} declared" if topology.symmetries else None),
            ("islands", _islands(topology)),
            ("digest", topology.digest()),
        ]
    )
    parts = [head, _link_kinds(plain)]
    if plain.resources:
        rows = [(r.name, len(r.links), _short(r.bandwidth)) for r in plain.resources]
        parts.append(cut_table("shared resources", table(("name", "links", "GB/s"), rows)))
    if nics := [nic for nic in nics_of(plain) if nic.own]:
        names = [(nic.name, ", ".join(nic.names[1:]), _ends_of(plain, nic)) for nic in nics]
        parts.append(cut_table("", table(("NIC", "also named", "serves"), names)))
    if topology.ranks <= TEXT.matrix_ranks:
        parts.append(_matrix(topology))
    if topology.notes:
        parts.append("notes:\n" + "\n".join(f"  {note}" for note in topology.notes))
    return "\n\n".join(parts)


def _able(topology: Topology) -> str | None:
    """Return which switches do more than forward: ``multicast+reduces: nvswitch0, nvswitch1``."""
    able: dict[str, list[str]] = {}
    for node in topology.nodes:
        if node.capabilities:
            able.setdefault("+".join(node.capabilities), []).append(node.name)
    shown = [
        f"{words}: {', '.join(names[: TEXT.listed])}{', …' * (len(names) > TEXT.listed)}"
        for words, names in able.items()
    ]
    return "; ".join(shown) or None


def _ends_of(topology: Topology, nic: Nic) -> str:
    """Return the nodes of its host that a NIC has a cable to."""
    links = [topology.links[i] for i in nic.links]
    ends = {v for link in links for v in (link.src, link.dst)} - {nic.node}
    inside = sorted(v for v in ends if topology.nodes[v].host == nic.host)
    return ", ".join(topology.nodes[v].name for v in nic.gpus or inside)


def _islands(topology: Topology) -> str | None:
    """Return the groups of ranks that reach each other; None where all do."""
    groups = islands(topology)
    if len(groups) == 1:
        return None
    shown = " | ".join(runs(group) for group in groups[: TEXT.listed])
    more = " | …" if len(groups) > TEXT.listed else ""
    return f"{len(groups)}: {shown}{more} (no way there and back between them)"


def _link_kinds(topology: Topology) -> str:
    def ends(src: int, dst: int) -> str:
        a, b = topology.nodes[src], topology.nodes[dst]
        across = a.host is not None and b.host is not None and a.host != b.host
        return f"{a.kind} -> {b.kind}{' across hosts' if across else ''}"

    count = Counter((ends(x.src, x.dst), x.bandwidth, x.latency, x.lanes) for x in topology.links)
    rows = [
        (name, number, _short(bandwidth), _short(latency), lanes)
        for (name, bandwidth, latency, lanes), number in count.items()
    ]
    return cut_table("", table(("links", "count", "GB/s", "α µs", "lanes"), rows))


def _matrix(topology: Topology) -> str:
    """Return GB/s from rank (row) to rank (column) over one link; ``~`` through nodes that
    forward."""
    n = topology.ranks
    direct: dict[tuple[int, int], Fraction] = {}
    for one in topology.links:
        if one.src < n and one.dst < n:
            pair = (one.src, one.dst)
            direct[pair] = direct.get(pair, Fraction(0)) + one.bandwidth
    through: dict[tuple[int, int], Fraction] = {}
    for hop in find_hops(topology).hops:
        width = min(topology.links[i].bandwidth for i in hop.route)
        pair = (hop.src, hop.dst)
        through[pair] = max(through.get(pair, Fraction(0)), width)

    def cell(a: int, b: int) -> str:
        if (a, b) in direct:
            return _short(direct[a, b])
        return f"~{_short(through[a, b])}" if (a, b) in through else "."

    cells = [[cell(a, b) if a != b else "-" for b in range(n)] for a in range(n)]
    wide = max(len(str(n)), *(len(c) for row in cells for c in row))
    lines = [f"{'':4}" + " ".join(str(b).rjust(wide) for b in range(n))]
    lines += [f"{a:<4}" + " ".join(c.rjust(wide) for c in row) for a, row in enumerate(cells)]
    title = "GB/s from rank (row) to rank (column) in one hop (~ through switches, . not):"
    return title + "\n" + "\n".join(lines)


# --- collectives ----------------------------------------------------------------------------------


def collective_text(collective: Collective) -> str:
    """Return facts and, for short lists, the initial and final ranks of every chunk."""
    c = collective
    head = facts(
        [
            ("collective", c.name or c.kind),
            ("ranks", c.ranks),
            ("chunks", c.chunks),
            ("pieces", f"{c.factor} {'grains ' if c.sizes else ''}of every unit"),
            ("roots", ", ".join(map(str, c.roots))),
            ("combining", c.combining),
            ("message", f"{c.message_chunks} {_measure(c)}"),
        ]
    )
    start, end = holders(c.pre), holders(c.post)
    rows = [(k, runs(start.get(k, ())), runs(end.get(k, ()))) for k in range(c.chunks)]
    return head + "\n\n" + cut_table("", table(("chunk", "starts on", "must end on"), rows))


def _measure(collective: Collective) -> str:
    return "grains" if collective.sizes else "chunks"


def holders(placement: Placement) -> dict[int, set[int]]:
    """Return the ranks of each chunk."""
    held: dict[int, set[int]] = defaultdict(set)
    for rank, chunk in zip(placement.ranks.tolist(), placement.chunks.tolist(), strict=True):
        held[chunk].add(rank)
    return held


def runs(numbers: Iterable[int], to: str = "..", apart: str = ",") -> str:
    """Return sorted numbers with runs joined: ``0..3,7``."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return apart.join(str(a) if a == b else f"{a}{to}{b}" for a, b in found)


# --- schedules ------------------------------------------------------------------------------------


def schedule_text(schedule: Schedule) -> str:
    """Return facts, a table per step, the load of every link, and a Gantt chart up to 16 ranks."""
    s = schedule
    provenance = ", ".join(
        f"{k} {v if isinstance(v, str) else json.dumps(v, default=str)}"
        for k, v in s.provenance.items()
    )
    rounds = sum(s.rounds)
    per_chunk = Fraction(rounds, s.collective.factor)
    head = facts(
        [
            ("schedule", s.collective),
            ("topology", s.topology.name),
            ("steps", s.steps),
            ("rounds", f"{rounds} ({per_chunk} per chunk)" if rounds else ""),
            ("transfers", len(s)),
            ("casts", len(s.casts) or ""),
            ("slots", _slots(s)),
            ("segments", s.segments if s.segments > 1 else ""),
            ("made for", format_bytes(s.bytes) if s.bytes else ""),
            ("made by", provenance),
        ]
    )
    load = _load(s)
    parts = [head, _steps(s, load), _links(s, load)]
    if len(s.casts):
        parts.append(_casts(s))
    if s.topology.ranks <= TEXT.gantt_ranks and s.steps:
        parts.append(_gantt(s, load))
    return "\n\n".join(parts)


def _load(s: Schedule) -> Ints:
    """Return the grains (a chunk is one, where all are equal) over each link of the machine with
    each part once (:func:`plain_machine`) in each step; shape (links, steps)."""
    load = np.zeros((len(s.topology.links), s.steps), np.int64)
    links, step, chunk = links_used(s)
    np.add.at(load, (links, step), s.collective.grains[chunk])
    whole = plain_machine(s.topology)
    if whole.machine is s.topology:
        return load
    rows = whole.rows[: len(whole.machine.links)]
    return np.array([load[list(copies)].sum(axis=0) for copies in rows], np.int64)


def _slots(s: Schedule) -> str:
    """Return the rate at which switches pass a cast at most; empty where they do not limit any."""
    limits = sorted({x for x in s.casts.GBps if x is not None})
    return f"let {' or '.join(f'{float(x):.4g}' for x in limits)} GB/s of a cast through" * bool(
        limits
    )


def _casts(s: Schedule) -> str:
    """Return the sums and copies of switches, each way once, with the chunks that go that way."""
    ways: dict[Cast, int] = {}
    for one in s.casts:
        way = replace(one, chunk=0)
        ways[way] = ways.get(way, 0) + 1
    names = [node.name for node in s.topology.nodes]
    rows = []
    for way, chunks in ways.items():
        switches = {s.topology.links[k].src for k in way.links} - set(range(s.topology.ranks))
        many_in, many_out = len(way.sources) > 1, len(way.destinations) > 1
        rows.append(
            (
                way.step + 1,
                " and ".join(["sum"] * many_in + ["copy"] * many_out),
                ", ".join(names[v] for v in sorted(switches)),
                runs(way.sources),
                runs(way.destinations),
                chunks,
            )
        )
    head = ("step", "switches", "which", "of ranks", "to ranks", "chunks")
    return cut_table("casts", table(head, rows))


def _busy(s: Schedule, load: Ints) -> Floats:
    """Return the share of each link's rounds in use per step, 1 for a full link; shape (links,
    steps)."""
    unit, links = s.topology.round_bandwidth(), plain_machine(s.topology).machine.links
    width = np.array([float(x.bandwidth / unit) for x in links])
    per_round = load / width[:, None]
    rounds = np.array(s.rounds, float)
    if len(rounds) != s.steps or not rounds.all():
        rounds = np.maximum(per_round.max(axis=0, initial=0.0), 1e-9)
    return np.asarray(per_round / rounds)


def _steps(s: Schedule, load: Ints) -> str:
    busy = _busy(s, load)
    has_rounds = len(s.rounds) == s.steps
    sums = np.diff(s.casts.source_start) > 1
    rows = []
    for step in range(s.steps):
        mine = s.step == step
        used = load[:, step] > 0
        rows.append(
            (
                step + 1,
                s.rounds[step] if has_rounds else None,
                int(mine.sum()) + int((s.casts.step == step).sum()),
                int(s.reduce[mine].sum()) + int(sums[s.casts.step == step].sum()),
                int(used.sum()),
                f"{busy[used, step].mean():.0%}" if used.any() else "-",
            )
        )
    head = ("step", "rounds", "transfers", "reducing", "links in use", "their mean use")
    return cut_table("", table(head, rows))


def _links(s: Schedule, load: Ints) -> str:
    """Return the links by falling share of use, with the steps they work in."""
    busy = _busy(s, load).mean(axis=1) if s.steps else np.zeros(len(load))
    total = load.sum(axis=1)
    plain = plain_machine(s.topology).machine
    names = [node.name for node in plain.nodes]
    rows = []
    for i in np.argsort(-busy, kind="stable"):
        if total[i]:
            one, at = plain.links[i], np.flatnonzero(load[i]) + 1
            steps = f"{at[0]}..{at[-1]}" if len(at) > 1 else str(at[0])
            rows.append(
                (
                    f"{names[one.src]} -> {names[one.dst]}",
                    int(total[i]),
                    _short(one.bandwidth),
                    f"{busy[i]:.0%}",
                    steps,
                )
            )
    return cut_table("", table(("link", _measure(s.collective), "GB/s", "use", "steps"), rows))


def _gantt(s: Schedule, load: Ints) -> str:
    """Return a chart with a row per rank, a cell per step: the fill of its outgoing links."""
    cells = s.rounds if len(s.rounds) == s.steps else (1,) * s.steps
    scale = max(1, -(-max(cells) // 12))
    links = plain_machine(s.topology).machine.links
    wide = [max(1, -(-rounds // scale)) for rounds in cells]
    lines = []
    for name, marks in rank_fills(s.topology, links, _busy(s, load)):
        drawn = "|".join(mark * width for mark, width in zip(marks, wide, strict=True))
        lines.append(f"{name} |{drawn}|")
    return "use of the outgoing links of every rank, step by step:\n" + "\n".join(lines)


def rank_fills(
    topology: Topology, links: Sequence[Link], use: Floats
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each rank, and the shades of the use of its outgoing links; ``use``: share
    of each link in each cell."""
    width = np.array([float(x.bandwidth) for x in links])
    source = np.array([x.src for x in links])
    for rank in range(topology.ranks):
        mine = source == rank
        fill = np.average(use[mine], axis=0, weights=width[mine]) if mine.any() else use[0] * 0
        marks = np.ceil(np.clip(fill, 0, 1) * 8 - 1e-9).astype(int)
        yield f"{topology.nodes[rank].name:>8}", [SHADES[m] for m in marks]


def _short(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.5g}"


def cut_table(title: str, text: str) -> str:
    """Return a titled table without the rows beyond the longest list, and the number of these."""
    lines = text.split("\n")
    hidden = len(lines) - 1 - TEXT.listed
    if hidden > 0:
        lines = [*lines[: TEXT.listed + 1], f"… and {hidden} more"]
    return "\n".join(([f"{title}:"] if title else []) + lines)
