"""Page of a program (weft's own, MSCCL XML, an algorithm): on a machine, or by order alone."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.errors import WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds, binding, bounds, lower_bound_us
from weft.synth.time.calibrated import USUAL_CHOICE, ModelChoice
from weft.synth.time.program_tables import PreparedProgram, bytes_moved
from weft.synth.time.program_time import ProgramSimulation, simulate_program
from weft.synth.time.runtime_model import RuntimeModel

from ...compile.analyses.order import ProgramOrder
from .assumed import assumed_section
from .chunks import chunk_names
from .code import chunks_moved
from .curves import baselines, bound_curve, program_curve
from .lanes import MOST_BARS, TICKS, Bars, LaneRow, lane
from .listing import listing
from .loads import Loads, load_facts, short_name
from .machine import machine_map
from .page import byte_words, figure, microseconds, share
from .program import program_lanes, record, spent_facts
from .sheet import (
    Facts,
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


def program_page(shown: ShownProgram, most: int = MOST_BARS) -> Facts:
    """Return the page of a program; without a machine there are no times."""
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
        curves_section([c for c in curves if c], bound_curve(bound), PREDICTED),
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
    "No machine is named (-t TOPO), so there are no times: each instruction stands as far to the "
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


def timed_view(
    shown: ShownProgram, bound: Bounds, run: ProgramSimulation, most: int = MOST_BARS
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
        "tick": TICKS,
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


def order_view(shown: ShownProgram, most: int = MOST_BARS) -> tuple[Facts | None, list[str]]:
    """Return the view of thread blocks with their instructions in order; no machine is needed."""
    p = shown.program
    if p.instructions > most:
        return None, [f"{p.instructions:,} instructions are too many to be drawn."]
    level = np.asarray(ProgramOrder.of(p).positions(), np.float64)
    moved = chunks_moved(p)
    sets: dict[tuple[int, ...], int] = {}
    which = [sets.setdefault(one, len(sets)) for one in moved]
    kinds = [_kind(str(x.op.value)) for x in p.instrs]
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
        "tick": TICKS,
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


def _kind(op: str) -> int:
    """Return the colour class of an instruction: sends, only receives, or works locally."""
    if op in ("cpy", "re", "nop"):
        return 7
    return 6 if "s" in op else 0
