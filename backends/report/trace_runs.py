"""Traces of runs: simulated schedules and programs, and recorded calls.

Schedules: nodes are processes, their links threads, arrows are causes. A transfer is a slice on
each link of its route, from its start until it has arrived; of a cast each leg is one, and those
out of a switch begin while those into it arrive. A link is free again once the bytes
have left, before they arrive (α overlaps), so that a link may need several lanes. Shared resources
stand on tracks of their own.

Programs: ranks are processes, thread blocks threads; arrows are messages and waits. What occupies
links stands in a process of its own. An operation is one slice: while it sends or works; one that
only receives takes no time, and stands where its message has come. What a block waits for, and for
how long, are the slices before.

Recorded calls: ranks are processes, rounds slices; arrows are messages.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from weft.dsl.base.arrays import Floats, distinct_values
from weft.dsl.nouns.program import Instr, Op
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.fabric.occupancy import resource_name
from weft.synth.time.moves import Movements
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline
from weft.synth.time.timeline import Timeline

from ..formats.listings import instruction_text
from ..ranks.job import Call
from .trace import Mark, TraceFile, TraceTrack, lanes


def add_schedule(trace: TraceFile, run: Timeline, group: str = "") -> None:
    """Add a timeline to a trace; ``group`` begins the names of its processes."""
    topology = run.schedule.topology
    per_link = _passages_of_links(run)
    totals = trace.process(f"{group}all links")
    first: dict[int, Mark] = {}
    last: dict[int, Mark] = {}
    by_source: dict[int, list[int]] = {}
    for link in sorted(per_link):
        by_source.setdefault(topology.links[link].src, []).append(link)
    for node, links in sorted(by_source.items()):
        process = trace.process(group + node_name(topology, node))
        for link in links:
            _add_link(trace, process, run, link, per_link[link], first, last)
        mine = np.concatenate([per_link[link] for link in links])
        unit, ones = f"of {len(links)} links out", np.ones(len(mine))
        _counted(trace, process, "links in use", unit, run.start_us[mine], run.left_us[mine], ones)
    _add_resources(trace, run, group)
    for before, after in run.feeds.tolist():
        trace.arrow(last[before], first[after], "data")
    _counted(trace, totals, "in flight", "bytes", run.start_us, run.end_us, run.bytes)
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    on_link = run.held_row < len(topology.links)
    begin, end = run.start_us[owner][on_link], run.held_until_us[on_link]
    unit, ones = f"of {len(topology.links)} links", np.ones(len(begin))
    _counted(trace, totals, "links in use", unit, begin, end, ones)


def node_name(topology: Topology, node: int) -> str:
    """Return ``rank 3 (gpu3)``; switches and others have a name only."""
    name = topology.nodes[node].name
    return f"rank {node} ({name})" if node < topology.ranks else name


def link_name(topology: Topology, link: int) -> str:
    """Return ``to gpu4``; where several links lead there, with the link's number."""
    one = topology.links[link]
    twins = sum((x.src, x.dst) == (one.src, one.dst) for x in topology.links)
    name = topology.nodes[one.dst].name
    return f"to {name} (link {link})" if twins > 1 else f"to {name}"


def _passages_of_links(run: Timeline) -> dict[int, np.ndarray]:
    """Return the passages over each link that is used, by their start."""
    moves, segments = run.moves, run.schedule.segments
    links = moves.route_links.astype(np.int64)
    slices = np.arange(segments)[:, None] * len(moves)
    passage, link = (slices + moves.of_link).ravel(), np.tile(links, segments)
    order = np.lexsort((passage, run.start_us[passage], link))
    passage, link = passage[order], link[order]
    cuts = np.flatnonzero(np.diff(link)) + 1
    parts = np.split(passage, cuts)
    return {int(link[at]): part for at, part in zip([0, *cuts], parts, strict=True) if len(part)}


def _add_link(
    trace: TraceFile,
    process: int,
    run: Timeline,
    link: int,
    passages: np.ndarray,
    first: dict[int, Mark],
    last: dict[int, Mark],
) -> None:
    topology = run.schedule.topology
    name = link_name(topology, link)
    places: list[TraceTrack] = []
    for passage, lane in zip(
        passages.tolist(), lanes(run.start_us[passages], run.end_us[passages]), strict=True
    ):
        if lane == len(places):
            more = f", lane {lane + 1}" if lane else ""
            places.append(trace.track(process, name + more))
        i = int(run.move[passage])
        mark = trace.slice(
            places[lane],
            run.start_us[passage],
            run.end_us[passage],
            move_name(run.schedule.topology, run.moves, i),
            "transfer" if run.moves.cast[i] < 0 else "leg",
            move_facts(run, passage),
        )
        route = run.moves.route(i)
        if link == route[0]:
            first[passage] = mark
        if link == route[-1]:
            last[passage] = mark


def move_name(topology: Topology, moves: Movements, i: int) -> str:
    """Return ``chunk 12 -> 5``, with a mark for sums; of legs the cast comes first."""
    end = int(moves.dst[i])
    name = str(end) if end < topology.ranks else topology.nodes[end].name
    cast = "" if moves.cast[i] < 0 else f"cast {moves.cast[i]}: "
    return f"{cast}chunk {moves.chunk[i]} {'+>' if moves.reduce[i] else '->'} {name}"


def move_facts(run: Timeline, passage: int) -> dict[str, object]:
    """Return the details that a viewer shows of a selected passage."""
    s, m, i = run.schedule, run.moves, int(run.move[passage])
    return {
        **_ends_of(s, m, i),
        "step": int(m.step[i]) + 1,
        "reduce": bool(m.reduce[i]),
        **({"slice": int(run.slice[passage])} if s.segments > 1 else {}),
        "bytes": float(run.bytes[passage]),
        "waited µs": round(float(run.start_us[passage] - run.ready_us[passage]), 3),
        "left at µs": round(float(run.left_us[passage]), 3),
    }


def _ends_of(s: Schedule, m: Movements, i: int) -> dict[str, object]:
    """Return the chunk, source and destination; of a leg also the members of its cast."""
    chunk = {"chunk": int(m.chunk[i])}
    if m.cast[i] < 0:
        number = int(np.flatnonzero(m.row == i)[0]) if len(s.casts) else i
        ends = {"from rank": int(m.src[i]), "to rank": int(m.dst[i])}
        return {"transfer": number, **chunk, **ends}
    cast, nodes = s.casts[int(m.cast[i])], s.topology.nodes
    return {
        "cast": int(m.cast[i]),
        **chunk,
        "from": nodes[int(m.src[i])].name,
        "to": nodes[int(m.dst[i])].name,
        "sources": ", ".join(map(str, cast.sources)),
        "destinations": ", ".join(map(str, cast.destinations)),
    }


def _add_resources(trace: TraceFile, run: Timeline, group: str) -> None:
    topology = run.schedule.topology
    links = len(topology.links)
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    if not (run.held_row >= links).any():
        return
    process = trace.process(f"{group}shared resources")
    for row, resource in topology.shared_rows():
        held = np.flatnonzero(run.held_row == row)
        if not len(held):
            continue
        place = trace.track(process, resource.name)
        for at in held[np.argsort(run.start_us[owner[held]], kind="stable")]:
            passage = int(owner[at])
            i = int(run.move[passage])
            name = f"{run.moves.src[i]}: {move_name(topology, run.moves, i)}"
            trace.slice(
                place,
                run.start_us[passage],
                run.held_until_us[at],
                name,
                "resource",
                move_facts(run, passage),
            )


def _counted(
    trace: TraceFile, process: int, name: str, unit: str, begin: Floats, end: Floats, amount: Floats
) -> None:
    trace.counter(
        process, name, unit, np.concatenate([begin, end]), np.concatenate([amount, -amount])
    )


_WORK = (Activity.SENDING, Activity.LOCAL)


def add_program(trace: TraceFile, run: ProgramTimeline, group: str = "") -> None:
    """Add a timeline to a trace; ``group`` begins the names of its processes."""
    marks: dict[int, Mark] = {}
    phases: dict[int, list[int]] = {}
    for phase, one in enumerate(run.phase_of.tolist()):
        phases.setdefault(one, []).append(phase)
    process = rank = -1
    for block in distinct_values(run.block).tolist():
        if run.table.program.block_rank[block] != rank:
            rank = int(run.table.program.block_rank[block])
            name = run.topology.nodes[rank].name
            process = trace.process(f"{group}rank {rank} ({name})")
        _add_block(trace, process, run, block, phases, marks)
    _add_links(trace, run, group)
    for sender, receiver in zip(run.message_of.tolist(), run.received_by.tolist(), strict=True):
        if receiver >= 0:
            trace.arrow(marks[sender], marks[receiver], "message")
    for before, after in run.waits.tolist():
        trace.arrow(marks[before], marks[after], "wait")
    if run.skipped:
        place = trace.track(trace.process(f"{group}iterations"), "not drawn")
        facts = {"operations not drawn, in all": run.skipped}
        for start, end in run.skipped_us.tolist():
            trace.slice(place, start, end, "iterations that repeat those before", "gap", facts)


def _add_block(
    trace: TraceFile,
    process: int,
    run: ProgramTimeline,
    block: int,
    phases: dict[int, list[int]],
    marks: dict[int, Mark],
) -> None:
    program = run.table.program
    rank, number = int(program.block_rank[block]), int(program.block_index[block])
    code = run.program.ranks[rank].blocks[number]
    peers = [f"to {code.send}"] * (code.send is not None)
    peers += [f"from {code.recv}"] * (code.recv is not None)
    name = " ".join([f"block {number}, channel {code.channel}", *peers])
    place = trace.track(process, name)
    for one in np.flatnonzero(run.block == block).tolist():
        own = phases.get(one, [])
        working = [p for p in own if Activity(run.phase[p]) in _WORK]
        for p in own:
            activity, span = Activity(run.phase[p]), (run.phase_start_us[p], run.phase_end_us[p])
            if p != (working[-1] if working else -1):
                trace.slice(place, *span, activity.words, "wait", _facts(run, one, code.code))
        done = run.done_us[one]
        instruction = code.code[run.table.step_of(int(run.operation[one]))]
        name = " ".join(instruction_text(instruction).split(" after ")[0].split())
        begin = run.phase_start_us[working[-1]] if working else done
        marks[one] = trace.slice(place, begin, done, name, "operation", _facts(run, one, code.code))


def _facts(run: ProgramTimeline, one: int, code: tuple[Instr, ...]) -> dict[str, object]:
    operation = int(run.operation[one])
    number = run.table.step_of(operation)
    return {
        "step": number,
        "instruction": instruction_text(code[number]),
        "does": tuple(Op)[run.table.op[operation]].name.lower().replace("_", " "),
        "iteration": int(run.turn[one]) + 1,
        "iterations": run.cut.iterations,
        "chunks": int(run.table.chunks[operation]),
        "bytes": float(run.bytes[one]),
        "reached at µs": round(float(run.reached_us[one]), 3),
    }


def _add_links(trace: TraceFile, run: ProgramTimeline, group: str) -> None:
    owner = np.repeat(np.arange(len(run.message_of)), np.diff(run.held_start))
    if not len(owner):
        return
    process = trace.process(f"{group}links")
    moved = run.bytes[run.message_of]
    _counted(trace, process, "in flight", "bytes", run.message_start_us, run.message_end_us, moved)
    for row in distinct_values(run.held_row).tolist():
        held = np.flatnonzero(run.held_row == row)
        place = trace.track(process, resource_name(run.topology, row))
        for at in held[np.argsort(run.message_start_us[owner[held]], kind="stable")].tolist():
            message = int(owner[at])
            source, target, channel = run.table.connections[run.message_connection[message]]
            size = float(run.bytes[run.message_of[message]])
            trace.slice(
                place,
                run.message_start_us[message],
                run.held_until_us[at],
                f"{source} -> {target}, channel {channel}",
                "message",
                {
                    "from rank": source,
                    "to rank": target,
                    "channel": channel,
                    "bytes": size,
                    "arrives at µs": round(float(run.message_end_us[message]), 3),
                },
            )


def add_measured(trace: TraceFile, call: Call) -> None:
    """Add a recorded call to a trace; times are from the end of its ranks' barrier."""
    marks: list[list[Mark]] = []
    for rank, watch in enumerate(call.ranks):
        process = trace.process(f"measured: rank {rank}")
        whole = trace.track(process, "the call")
        trace.slice(
            whole,
            0.0,
            watch.us,
            f"call of {call.bytes} bytes of {call.dtype}",
            "call",
            {"bytes": call.bytes, "rounds": len(watch.rounds)},
        )
        place = trace.track(process, "rounds")
        marks.append([])
        for one in watch.rounds:
            facts = {"round": one.round, "to": list(one.to), "from": list(one.source)}
            marks[rank].append(
                trace.slice(
                    place, one.start_us, one.end_us, _round_name(one.to, one.source), "round", facts
                )
            )
    _add_arrows(trace, call, marks)


def _round_name(to: tuple[int, ...], source: tuple[int, ...]) -> str:
    """Return ``to 1, from 3``; long lists are counted."""
    parts = [
        f"{word} {','.join(map(str, peers)) if len(peers) <= 3 else f'{len(peers)} ranks'}"
        for word, peers in (("to", to), ("from", source))
        if peers
    ]
    return ", ".join(parts) or "nothing"


def _add_arrows(trace: TraceFile, call: Call, marks: list[list[Mark]]) -> None:
    """Add arrows from the round before a message is sent to the round in which it is received.

    The two rounds of a message overlap in time, so no arrow can lead between them: it starts at
    the round that its sender had done before, whose results it may send. There is none where the
    receiver was in its round before that one ended: it waited.
    """
    rounds = [{one.round: i for i, one in enumerate(watch.rounds)} for watch in call.ranks]
    seen: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for rank, watch in enumerate(call.ranks):
        for i, one in enumerate(watch.rounds):
            for peer in one.source:
                at = rounds[peer].get(one.round, 0)
                if at and peer not in seen[rank, i]:
                    seen[rank, i].add(peer)
                    trace.arrow(marks[peer][at - 1], marks[rank][i], "message")
