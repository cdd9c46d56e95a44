"""Page of a program (weft's own, MSCCL XML, an algorithm): on a machine, or by order alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import BadAlgorithm, UserError, WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.program import Op, Program
from weft.dsl.nouns.runtime import MSCCL
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import BOUND_EFFORT, Bounds, binding, bounds, lower_bound_us, runtime_bound
from weft.synth.engines.classic.in_network import InNetwork
from weft.synth.engines.classic.place import ClassicAlgorithm, Site
from weft.synth.engines.classic.schedule import to_schedule
from weft.synth.judge.verify import verify
from weft.synth.time.calibrated import DATASHEET, USUAL_CHOICE, ModelChoice
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline, record_program
from weft.synth.time.program_tables import PreparedProgram, bytes_moved
from weft.synth.time.program_time import ProgramSimulation, simulate_program
from weft.synth.time.routes import routes_of
from weft.synth.time.runtime_model import RuntimeModel
from weft.synth.time.schedule_time import simulate

from ...compile.analyses.order import ProgramOrder
from ..sizes import LIMITS
from .chart import Series
from .code import chunk_names, chunks_moved, listing
from .lanes import Bars, LaneRow, Loads, lane, load_facts, row_order, short_name
from .machine import machine_map
from .page import byte_words, figure, microseconds, share
from .sheet import (
    Facts,
    assumed_section,
    certificate_section,
    curves_section,
    head,
    listing_section,
    problem_facts,
    sheet,
    tile,
    views_section,
)


@dataclass(frozen=True, slots=True)
class ShownProgram:
    """Proved program to be shown: its name, further facts, machine and size."""

    name: str
    program: Program
    topology: Topology | None
    size: int
    facts: tuple[tuple[str, object], ...] = ()
    kind: str = "program"
    choice: ModelChoice = USUAL_CHOICE

    @property
    def model(self) -> RuntimeModel:
        """The model that times it, on its machine."""
        assert self.topology is not None
        return self.choice.on(self.topology)


def program_page(shown: ShownProgram, most: int = LIMITS.bars) -> Facts:
    """Return the page of a program, with times if a machine is known."""
    p, t = shown.program, shown.topology
    title = p.collective.name or str(p.collective.kind)
    title += f" on {t.name}" if t else f" on {p.collective.ranks} ranks"
    if t is None:
        view, notes = order_view(shown, most)
        return sheet(
            shown.kind,
            title,
            [
                _head(shown, None, None, notes),
                views_section("Thread blocks in order", ORDERED) if view else None,
                listing_section(listing(p, 6 * most)),
            ],
            subtitle=shown.name,
            views=[view] if view else [],
        )
    bound = bounds(t, p.collective)
    least = float(lower_bound_us(bound, shown.size))
    run = simulate_program(p, t, shown.size, shown.model, bound_us=least)
    view, notes = timed_view(shown, bound, run, most)
    share_of = run.busy_us / run.time_us if run.time_us else run.busy_us
    if view and view["bytes"] == shown.size:
        view["facts"] = None  # the head has them
    curves = [program_curve(p, t, "this program", shown.model, "this"), *baselines(t, p.collective)]
    sections = [
        _head(shown, run, bound, notes),
        certificate_section(bound),
        curves_section(curves, bound_curve(bound), PREDICTED),
        views_section() if view else None,
        assumed_section(shown.model, (p.protocol,)),
        listing_section(listing(p, 6 * most)),
    ]
    return sheet(
        shown.kind,
        title,
        sections,
        subtitle=shown.name,
        views=[view] if view else [],
        maps=[machine_map(t, share_of)],
    )


ORDERED = (
    "No machine is named (-t TOPO), so times are unknown: each instruction stands as far to the "
    "right as the longest chain of instructions that must come before it."
)
PREDICTED = (
    "Predicted by simulation, thread blocks and all; the classic algorithms that are "
    "quickest somewhere as schedules, by α and bandwidth alone: without the start of a call and "
    "whatever else a runtime adds."
)


def _head(
    shown: ShownProgram, run: ProgramSimulation | None, bound: Bounds | None, notes: list[str]
) -> Facts:
    p = shown.program
    blocks = max((len(r.blocks) for r in p.ranks), default=0)
    tiles = []
    if run and bound:
        tiles = [
            tile(
                f"time at {byte_words(shown.size)}",
                microseconds(run.time_us),
                f"{share(run.of_bound)} of the bound reached",
            ),
            tile("lower bound", microseconds(run.bound_us)),
            *_least_program(shown, run),
            tile("algbw", f"{figure(run.algbw_GBps)} GB/s", f"busbw {figure(run.busbw_GBps)} GB/s"),
        ]
    tiles += [
        tile("thread blocks", str(blocks), "at most, per rank"),
        tile("instructions", f"{p.instructions:,}", "of all ranks"),
    ]
    machine = (
        problem_facts(shown.topology, p.collective)
        if shown.topology
        else [("collective", p.collective)]
    )
    return head(
        [
            *machine,
            ("program", p.name),
            ("protocol", p.protocol),
            ("buffers", "in place" if p.in_place else "out of place"),
            ("channels", p.channels),
            ("start of the call", f"{run.start_us:g} µs of the time" if run else ""),
            ("message", f"{p.message_chunks} chunks"),
            *shown.facts,
        ],
        tiles,
        notes,
    )


def _least_program(shown: ShownProgram, run: ProgramSimulation) -> list[Any]:
    """Return the tile of the least time of any program; none on large machines, and by data sheets,
    by which it is the lower bound."""
    t = shown.topology
    if t is None or t.ranks > BOUND_EFFORT.program_ranks or shown.choice.name == DATASHEET:
        return []
    one = runtime_bound(t, shown.program.collective, shown.size, MSCCL.name, shown.choice)
    optimal = " (optimal in this runtime)" if one.optimal(run.time_us) else ""
    told = f"{one.over(run.time_us):.3f} times that{optimal}; {one.parts}"
    return [tile(f"any program of {one.runtime}", microseconds(one.us), told)]


def timed_view(
    shown: ShownProgram, bound: Bounds, run: ProgramSimulation, most: int = LIMITS.bars
) -> tuple[Facts | None, list[str]]:
    """Return the views of links and thread blocks over time; None and the reason if too large to
    draw."""
    p, t = shown.program, shown.topology
    assert t is not None
    try:
        drawn, notes = record(p, t, shown.size, shown.model)
    except WeftError as error:
        return None, [f"Nothing is drawn: {error.message}."]
    size = drawn.message_bytes
    least, certificate = binding(bound, size)
    if size != run.message_bytes:
        run = simulate_program(p, t, size, shown.model, bound_us=float(least))
    lanes, table = program_lanes(drawn, of=0, links=True, model=shown.model, most=most // 2)
    share_of = run.busy_us / (run.time_us or 1.0)
    moved = bytes_moved(PreparedProgram(p, t, shown.model), run.cut)
    busiest = int(share_of.argmax())
    return {
        "title": shown.name,
        "us": drawn.time_us,
        "bytes": size,
        "size": byte_words(size),
        "tick": LIMITS.ticks,
        "map": 0,
        "share": [round(x, 4) for x in share_of.tolist()],
        "lanes": lanes,
        "items": [table],
        "chunks": chunk_names(p.collective),
        "chain": [],
        "facts": {
            "time_us": run.time_us,
            "bound_us": float(least),
            "of_bound": run.of_bound,
            "algbw_GBps": run.algbw_GBps,
            "busbw_GBps": run.busbw_GBps,
            "busiest": short_name(t, busiest),
            "busy_share": float(share_of[busiest]),
        },
        "notes": notes,
        "spent": spent_facts(run),
        "loads": load_facts(Loads(t, moved, run.busy_us), run.time_us, float(least), certificate),
    }, []


def order_view(shown: ShownProgram, most: int = LIMITS.bars) -> tuple[Facts | None, list[str]]:
    """Return the view of thread blocks with their instructions in order; no machine is needed."""
    p = shown.program
    if p.instructions > most:
        return None, [f"{p.instructions:,} instructions are too many to be drawn."]
    level = np.asarray(ProgramOrder.of(p).positions(), np.float64)
    moved = chunks_moved(p)
    sets: dict[tuple[int, ...], int] = {}
    which = [sets.setdefault(one, len(sets)) for one in moved]
    ops = [str(x.op.value) for x in p.instrs]
    kinds = [7 if op in ("cpy", "re", "nop") else 6 if "s" in op else 0 for op in ops]
    span = float(level.max(initial=0)) + 1
    number = np.arange(p.instructions)
    bars = Bars(p.block, level, np.full(p.instructions, 0.86), number, np.array(kinds, np.int64))
    rows = [
        LaneRow(f"rank {rank} block {at}", -1, len(block.code) / span)
        for rank, r in enumerate(p.ranks)
        for at, block in enumerate(r)
    ]
    chart = lane("Thread blocks", "order", rows, bars, span, most)
    names = {0: "receives", 6: "sends", 7: "works locally"}
    chart |= {"of": 0, "kinds": [[k, names[k]] for k, _ in chart["kinds"]]}
    return {
        "title": shown.name,
        "us": span,
        "unit": "steps",
        "bytes": 0,
        "size": "",
        "tick": LIMITS.ticks,
        "map": None,
        "share": [],
        "lanes": [chart],
        "chain": [],
        "facts": None,
        "notes": [],
        "items": [
            {
                "set": which,
                "route": [0] * p.instructions,
                "sets": [list(x) for x in sets],
                "routes": [[]],
                "late": [0],
            }
        ],
        "chunks": chunk_names(p.collective),
        "loads": None,
        "spent": None,
    }, []


FIRST_ACTIVITY = 2
"""First kind of bars for activities of thread blocks; before it are copies and sums."""


def record(
    program: Program, topology: Topology, message_bytes: int, model: RuntimeModel
) -> tuple[ProgramTimeline, list[str]]:
    """Return the operations of the largest message that can be drawn, halving the requested size.

    The second result holds notes for the reader.

    Raises:
        UserError: it is too large at any size, or does not run on the machine.
    """
    size = message_bytes
    while True:
        try:
            run = record_program(program, topology, size, model, most_operations=LIMITS.operations)
            break
        except UserError:
            if size == 1 or model.cut(program, size).iterations == 1:
                raise
            size //= 2
    notes = []
    if size != message_bytes:
        notes.append(
            f"Thread blocks are drawn at {byte_words(size)}: at {byte_words(message_bytes)} "
            "the loop makes more turns than can be drawn."
        )
    if run.skipped:
        part = float(np.diff(run.skipped_us, axis=1).sum()) / run.time_us
        notes.append(
            f"{run.skipped:,} operations repeat those that are drawn, turn after turn: the gap in "
            f"the chart, {100 * part:.0f} % of the time."
        )
    return run, notes


def program_lanes(
    run: ProgramTimeline,
    *,
    of: int,
    links: bool,
    model: RuntimeModel,
    most: int = LIMITS.bars,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return charts of thread blocks (and of links), and their table of items, which is number
    ``of``."""
    span, found = run.time_us, []
    number = np.empty(len(run), np.int64)  # of each operation as an item: in order of start times
    number[np.argsort(run.reached_us, kind="stable")] = np.arange(len(run))
    if links:
        found.append(
            lane(
                "Links and shared resources",
                "links",
                _link_rows(run),
                _held(run, number),
                span,
                most,
                row_order(run.topology),
            )
        )
    block = run.block[run.phase_of]
    bars = Bars(
        block,
        run.phase_start_us,
        run.phase_end_us - run.phase_start_us,
        number[run.phase_of],
        run.phase + FIRST_ACTIVITY,
    )
    sends = run.phase == Activity.SENDING
    o = run.table
    busy = np.bincount(block[sends], bars.length[sends], o.blocks) / (span or 1.0)
    rows = [
        LaneRow(f"rank {rank} block {index}", -1, share)
        for rank, index, share in zip(
            o.program.block_rank.tolist(),
            o.program.block_index.tolist(),
            busy.tolist(),
            strict=True,
        )
    ]
    found.append(lane("Thread blocks", "blocks", rows, bars, span, most))
    return [{**one, "of": of} for one in found], _items(run, number, model)


def _link_rows(run: ProgramTimeline) -> list[LaneRow]:
    t = run.topology
    start = np.repeat(run.message_start_us, np.diff(run.held_start))
    width = len(t.links) + len(t.resources)
    busy = np.bincount(run.held_row, run.held_until_us - start, width) / (run.time_us or 1.0)
    return [LaneRow(short_name(t, i), i, float(busy[i])) for i in range(width)]


def _held(run: ProgramTimeline, number: Ints) -> Bars:
    """Return the bars of messages on links; a message that the receiver adds to its own is a
    sum."""
    message = np.repeat(np.arange(len(run.message_of)), np.diff(run.held_start))
    code = [x.op in _ADDING for rank in run.program.ranks for b in rank for x in b.code]
    adds = np.array([*code, False])[run.table.owner]
    received = run.received_by[message]
    kind = np.where(received >= 0, adds[run.operation[received]], False).astype(np.int64)
    start = run.message_start_us[message]
    return Bars(
        run.held_row, start, run.held_until_us - start, number[run.message_of[message]], kind
    )


_ADDING = (Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY, Op.RECV_REDUCE_COPY_SEND)


def _items(run: ProgramTimeline, number: Ints, model: RuntimeModel) -> dict[str, Any]:
    o, t = run.table, run.topology
    moved = chunks_moved(run.program)
    sets: dict[tuple[int, ...], int] = {}
    which = [sets.setdefault(moved[i], len(sets)) for i in o.owner.tolist()]
    ways = routes_of(t, o.connections)
    routes: dict[tuple[int, ...], int] = {(): 0}
    out = np.where(o.sends, o.out[o.block_of()], -1).tolist()
    way = [routes.setdefault(ways[c] if c >= 0 else (), len(routes)) for c in out]
    alpha = model.protocol(run.program.protocol).alpha
    scale = LIMITS.ticks / (run.time_us or 1.0)
    late = [round(float(alpha * sum(t.links[i].latency for i in r)) * scale) for r in routes]
    operation = np.empty(len(run), np.int64)
    operation[number] = run.operation
    return {
        "set": [which[i] for i in operation.tolist()],
        "route": [way[i] for i in operation.tolist()],
        "sets": [list(one) for one in sets],
        "routes": [list(route) for route in routes],
        "late": late,
    }


def spent_facts(run: ProgramSimulation) -> list[dict[str, Any]]:
    """Return the share of each activity in the time of all thread blocks together."""
    total = run.spent_us.sum(axis=0)
    whole = float(total.sum()) or 1.0
    return [
        {"name": a.words, "share": float(total[a]) / whole}
        for a in Activity
        if a < Activity.DONE and total[a] > 0
    ]


SIZES = tuple(1 << k for k in range(10, 31, 2))
"""Message sizes of the charts, in bytes: 1 KiB to 1 GiB."""


def bound_curve(bound: Bounds) -> Series:
    """Return the curve of the lower bound."""
    return Series("lower bound", [(n, float(lower_bound_us(bound, n))) for n in SIZES], "bound")


def schedule_curve(schedule: Schedule, name: str, style: str = "") -> Series | None:
    """Return the curve of a schedule by simulation; None where that takes too long."""
    if len(schedule) * schedule.segments > LIMITS.timed_slices:
        return None
    return Series(name, [(n, simulate(schedule, n).time_us) for n in SIZES], style)


def program_curve(
    program: Program,
    topology: Topology,
    name: str,
    model: RuntimeModel,
    style: str = "",
) -> Series | None:
    """Return the curve of a program by simulation; None where it is too large, or does not run."""
    if program.instructions > LIMITS.timed_operations // 4:
        return None
    try:
        return Series(
            name,
            [
                (
                    n,
                    simulate_program(
                        program, topology, n, model, most_operations=LIMITS.timed_operations
                    ).time_us,
                )
                for n in SIZES
            ],
            style,
        )
    except UserError:
        return None


def baselines(topology: Topology, collective: Collective) -> list[Series]:
    """Return the curves of the best classics among those that are quickest at some size."""
    found = []
    site = Site(topology)
    # Each wanted copy is at least one move: most algorithms of 512 ranks need not be written to
    # know that they are too large.
    wanted = _missing(collective) // collective.factor
    root = collective.roots[0] if collective.roots else 0
    try:
        small = [
            one
            for one in site.defined(collective.kind)
            if wanted * site.parts(one) <= LIMITS.baseline_moves
        ]
    except UserError:
        return []
    for one in small:
        try:
            schedule = _baseline(site, one, root, SIZES[-1])
        except (UserError, BadAlgorithm):
            continue
        if schedule is None or not verify(schedule).ok:
            continue
        curve = schedule_curve(schedule, one.name)
        found += [curve] if curve else []
    return _quickest(found)


def _baseline(site: Site, one: ClassicAlgorithm, root: int, size: int) -> Schedule | None:
    """Return the schedule of an algorithm; None where it is too large."""
    if isinstance(one, InNetwork):
        made = one.schedule(site.switches, root=root)
        return made if made.moves <= LIMITS.baseline_moves else None
    algorithm = site.algorithm(one.name, one.kind, root=root)
    if len(algorithm.moves) > LIMITS.baseline_moves:
        return None
    return to_schedule(algorithm, site.topology, size, site.routes)


def _missing(collective: Collective) -> int:
    """Return the number of (rank, chunk) pairs whose values at the start are wrong."""

    def keys(p: Placement) -> Ints:
        at = p.ranks.astype(np.int64) * collective.chunks + p.chunks
        found: Ints = at * len(collective.contributions) + p.sets
        return found

    return int(np.setdiff1d(keys(collective.post), keys(collective.pre)).size)


def _quickest(curves: Sequence[Series]) -> list[Series]:
    """Return the curves that win at most sizes, and always ring, the well-known reference."""
    wins: dict[str, int] = {one.name: 0 for one in curves}
    for at in zip(*(one.points for one in curves), strict=True):
        best = min(range(len(at)), key=lambda i: at[i][1])
        wins[curves[best].name] += 1
    order = sorted(curves, key=lambda one: (one.name != "ring", -wins[one.name]))
    return [one for one in order if wins[one.name] or one.name == "ring"][: LIMITS.baselines]
