"""A schedule's timeline as a trace: nodes are processes, their links threads, arrows are causes.

A transfer is a slice on each link of its route, from its start until it has arrived. A link is free
again once the bytes have left, before they arrive (α overlaps), so that a link may need several
lanes. What shared resources are held for stands on tracks of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.timeline import Timeline

from .trace import Mark, Place, Trace, lanes


def add_schedule(trace: Trace, run: Timeline, group: str = "") -> None:
    """Put a timeline into a trace; ``group`` begins the names of its processes."""
    s, topology = run.schedule, run.schedule.topology
    per_link = _passages_of_links(run)
    totals = trace.process(f"{group}all links")
    first: dict[int, Mark] = {}
    last: dict[int, Mark] = {}
    for node, links in _by_source(topology, per_link):
        process = trace.process(group + node_name(topology, node))
        for link in links:
            _add_link(trace, process, run, link, per_link[link], first, last)
        mine = np.concatenate([per_link[link] for link in links])
        _add_use(trace, process, run, mine, f"of {len(links)} links out")
    _add_resources(trace, run, group)
    for before, after in run.feeds.tolist():
        trace.arrow(last[before], first[after], "data")
    _add_totals(trace, totals, run, s)


def node_name(topology: Topology, node: int) -> str:
    """``rank 3 (gpu3)``; switches and others have a name only."""
    name = topology.nodes[node].name
    return f"rank {node} ({name})" if node < topology.ranks else name


def link_name(topology: Topology, link: int) -> str:
    """``to gpu4``; where several links lead there, with the link's number."""
    one = topology.links[link]
    twins = sum((x.src, x.dst) == (one.src, one.dst) for x in topology.links)
    name = topology.nodes[one.dst].name
    return f"to {name} (link {link})" if twins > 1 else f"to {name}"


def _passages_of_links(run: Timeline) -> dict[int, np.ndarray]:
    """The passages over each link that is used, by their start."""
    s = run.schedule
    start, links = s.route_start, s.route_links.astype(np.int64)
    transfer = np.repeat(np.arange(len(s)), np.diff(start))
    slices = np.arange(s.segments)[:, None] * len(s)
    passage, link = (slices + transfer).ravel(), np.tile(links, s.segments)
    order = np.lexsort((passage, run.start_us[passage], link))
    passage, link = passage[order], link[order]
    cuts = np.flatnonzero(np.diff(link)) + 1
    parts = np.split(passage, cuts)
    return {int(link[at]): part for at, part in zip([0, *cuts], parts, strict=True) if len(part)}


def _by_source(topology: Topology, used: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """The nodes that send, and the links that they use."""
    of: dict[int, list[int]] = {}
    for link in sorted(used):
        of.setdefault(topology.links[link].src, []).append(link)
    yield from sorted(of.items())


def _add_link(
    trace: Trace,
    process: int,
    run: Timeline,
    link: int,
    passages: np.ndarray,
    first: dict[int, Mark],
    last: dict[int, Mark],
) -> None:
    """The slices of a link, in as many lanes as it needs."""
    topology = run.schedule.topology
    name = link_name(topology, link)
    places: list[Place] = []
    for passage, lane in zip(
        passages.tolist(), lanes(run.start_us[passages], run.end_us[passages]), strict=True
    ):
        if lane == len(places):
            more = f", lane {lane + 1}" if lane else ""
            places.append(trace.track(process, name + more))
        i = int(run.transfer[passage])
        mark = trace.slice(
            places[lane],
            run.start_us[passage],
            run.end_us[passage],
            transfer_name(run.schedule, i),
            "transfer",
            transfer_facts(run, passage),
        )
        route = run.schedule.route(i)
        if link == route[0]:
            first[passage] = mark
        if link == route[-1]:
            last[passage] = mark


def transfer_name(s: Schedule, i: int) -> str:
    """``chunk 12 -> 5``; sums say so."""
    return f"chunk {s.chunk[i]} {'+>' if s.reduce[i] else '->'} {s.dst[i]}"


def transfer_facts(run: Timeline, passage: int) -> dict[str, object]:
    """What a viewer shows of a passage that is clicked on."""
    s, i = run.schedule, int(run.transfer[passage])
    return {
        "transfer": i,
        "chunk": int(s.chunk[i]),
        "from rank": int(s.src[i]),
        "to rank": int(s.dst[i]),
        "step": int(s.step[i]) + 1,
        "reduce": bool(s.reduce[i]),
        **({"slice": int(run.slice[passage])} if s.segments > 1 else {}),
        "bytes": float(run.bytes[passage]),
        "waited µs": round(float(run.start_us[passage] - run.ready_us[passage]), 3),
        "left at µs": round(float(run.left_us[passage]), 3),
    }


def _add_resources(trace: Trace, run: Timeline, group: str) -> None:
    """What holds each shared resource, and until when."""
    topology = run.schedule.topology
    links = len(topology.links)
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    if not (run.held_row >= links).any():
        return
    process = trace.process(f"{group}shared resources")
    for row, resource in enumerate(topology.resources, links):
        held = np.flatnonzero(run.held_row == row)
        if not len(held):
            continue
        place = trace.track(process, resource.name)
        for at in held[np.argsort(run.start_us[owner[held]], kind="stable")]:
            passage = int(owner[at])
            i = int(run.transfer[passage])
            name = f"{run.schedule.src[i]}: {transfer_name(run.schedule, i)}"
            trace.slice(
                place,
                run.start_us[passage],
                run.held_until_us[at],
                name,
                "resource",
                transfer_facts(run, passage),
            )


def _add_use(trace: Trace, process: int, run: Timeline, passages: np.ndarray, unit: str) -> None:
    """How many of a node's links are in use."""
    begin, end = run.start_us[passages], run.left_us[passages]
    _counted(trace, process, "links in use", unit, begin, end, np.ones(len(passages)))


def _add_totals(trace: Trace, process: int, run: Timeline, s: Schedule) -> None:
    """Bytes on their way, and links in use, of all."""
    _counted(trace, process, "in flight", "bytes", run.start_us, run.end_us, run.bytes)
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    on_link = run.held_row < len(s.topology.links)
    begin, end = run.start_us[owner][on_link], run.held_until_us[on_link]
    _counted(
        trace,
        process,
        "links in use",
        f"of {len(s.topology.links)} links",
        begin,
        end,
        np.ones(len(begin)),
    )


def _counted(
    trace: Trace, process: int, name: str, unit: str, begin: Floats, end: Floats, amount: Floats
) -> None:
    trace.counter(
        process, name, unit, np.concatenate([begin, end]), np.concatenate([amount, -amount])
    )
