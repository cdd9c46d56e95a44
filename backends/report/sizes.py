"""Sizes of drawings in pixels, and how much pages, charts and texts show."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DrawingPixels:
    """Lengths in drawings, in pixels."""

    node_radius: float = 13.0  # of a GPU
    arrow: float = 3.0  # between the end of a link and its node, for the head of an arrow
    spacing: float = 46.0  # of neighbours on a circle or grid
    circle_radius: float = 62.0  # of a circle of few GPUs
    frame_gap: float = 40.0
    box_gap: float = 10.0  # least, in a line
    width: float = 640.0  # of a line chart, its margins included
    height: float = 342.0
    left: float = 64.0  # margins of a line chart
    right: float = 30.0
    top: float = 30.0
    bottom: float = 60.0
    labels: float = 110.0  # of the names of rows, left of a Gantt chart
    time_axis: float = 760.0  # of a Gantt chart
    row: float = 14.0  # height, in a Gantt chart


PIXELS = DrawingPixels()


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Limits of pages and drawings, and of the times that are computed for them."""

    page_bytes: int = 1_000_000  # larger pages show fewer bars and lines of code, with a note
    characters: int = 150_000  # in all listings of a page
    message_bytes: int = 1 << 20  # of a schedule whose size is not given
    host_ratio: float = 1.7  # width of rows of hosts by their height, about that of screens
    circle_gpus: int = 24  # that stand in a circle
    grid_gpus: int = 4096  # whose sides are looked for
    cable_share: float = 0.6  # least, of the cables of a grid: some may be dead
    open_ranks: int = 100  # of a machine that is drawn without folding its hosts
    links: int = 2500  # drawn at a time; of more, the busiest
    folded_links: int = 8000  # of a machine of which one host is drawn at a time
    link_kinds: int = 12
    listed_resources: int = 24  # in the list beside a drawing; of more, the busiest
    bound_ranks: int = 1024  # of a machine whose bounds a page has
    schedule_ranks: int = 512  # on a page; more would be illegible
    notebook_ranks: int = 64  # of a drawing in a notebook
    notebook_transfers: int = 20_000  # of a schedule with figures in a notebook
    plan_ranks: int = 128  # of a library with a picture of each plan; more take minutes
    plan_baselines: int = 4  # in the charts of a library
    candidates: int = 30  # of a library
    gain_rows: int = 40  # a size each; of more, the powers of two
    styles: int = 7  # of lines in a chart, which then begin again
    bars: int = 26_000  # of the charts of a page
    ticks: int = 20_000  # of the time axis of a chart: bars begin and end on them
    rows: int = 1_200  # of a chart
    least_rows: int = 48  # of a chart with few bars
    row_bars: int = 20  # for which a chart has room for one more row
    cells: int = 160  # of a row that is drawn by its density
    gantt_rows: int = 64  # of a static chart
    gantt_bars: int = 5_000  # of a static chart; of more, those that touch are one
    loads: int = 40  # rows of a table; the others are counted
    named_chunks: int = 6_000  # that are described
    few_named_chunks: int = 600  # the same of a long page
    slices: int = 60_000  # transfers x segments, beyond which a transfer is one bar
    operations: int = 12_000  # drawn; a smaller message makes fewer iterations of the loop
    compiled_transfers: int = 6_000  # of a schedule whose thread blocks are shown
    timed_slices: int = 40_000  # transfers x segments simulated at every size
    timed_operations: int = 60_000  # simulated at every size
    baseline_moves: int = 3_000  # of an algorithm that is timed beside a schedule
    baselines: int = 3  # in the chart of a schedule


LIMITS = PageLimits()


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Limits of texts for a terminal, in lines, rows and characters."""

    matrix_ranks: int = 32  # shown as a matrix; a larger machine is shown by its kinds of links
    gantt_ranks: int = 16
    listed: int = 40  # rows of a list
    path_names: int = 6  # operations of a path; of longer ones the middle is left out
    order_names: int = 40  # classes, and operations of an order
    compared_rows: int = 200_000  # transfers or moves; of more, only counts and loads
    timeline_cells: int = 64  # of a row, each of the same duration
    diff_letters: int = 30  # of a column's name; longer ones are called A and B
    diff_rows: int = 20  # of a sheet; the others are counted
    chain_transfers: int = 40  # of longer chains, the first and the last ones
    named_rules: int = 3  # of one statement
    named_ranks: int = 8  # that are cut off
    host_orders: int = 8  # of one host in the table; ``--json`` has all that were solved
    plan_faults: int = 5
    folder_files: int = 200
    folder_bytes: int = 4 << 20  # of a file that is read for its line
    folder_letters: int = 100  # of what a file is


TEXT = TextLimits()
