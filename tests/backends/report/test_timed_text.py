"""Times as text: what the tables say is what the simulation says."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from strategies import planned_schedules
from timed_programs import ring_allgather, stream

from weft.backends.cli.nouns.timelines import program_run_text, run_text
from weft.backends.report.sizes import TEXT
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.time.program_record import record_program
from weft.synth.time.runtime_model import MSCCL
from weft.synth.time.schedule_time import simulate
from weft.synth.time.timeline import timeline

PAIR = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 1, 8))


def test_a_line_per_link_and_a_bar_over_time() -> None:
    s = Schedule.of(PAIR, make("broadcast", 2, roots=[0]), [Transfer(0, 0, 1, (0,))])
    text = run_text(timeline(s, 8000))  # 8 µs on the link, then 8 µs of latency
    assert text.splitlines()[0] == "time  16.000 µs at 8KB"
    link = next(line for line in text.splitlines() if line.startswith("gpu0 -> gpu1"))
    assert link.split()[-5:] == ["1", "8.000", "50%", "0.000", "8.000"]
    bars = [line.split("|")[1] for line in text.splitlines() if line.count("|") == 2]
    assert bars == [
        "█" * (TEXT.timeline_cells // 2) + " " * (TEXT.timeline_cells // 2),
        " " * TEXT.timeline_cells,
    ]


@settings(max_examples=examples(20, 40), deadline=None)
@given(planned_schedules())
def test_the_busiest_comes_first_and_everything_in_use_is_there(s: Schedule) -> None:
    run, told = timeline(s, 1 << 20), simulate(s, 1 << 20)
    text = run_text(run)
    shares = [line.split()[-3] for line in text.splitlines() if "%" in line]
    used = np.flatnonzero(told.busy_us > 0)
    assert len(shares) == len(used)
    links = len(s.topology.links)
    for rows, part in (
        (used[used < links], slice(0, links)),
        (used[used >= links], slice(links, None)),
    ):
        mine = shares[: len(rows)] if part.start == 0 else shares[len(shares) - len(rows) :]
        busy = sorted((told.busy_us[rows] / told.time_us).tolist(), reverse=True)
        assert [int(x[:-1]) for x in mine] == pytest.approx([100 * x for x in busy], abs=0.51)


def test_blocks_and_what_they_wait_for() -> None:
    text = program_run_text(record_program(stream(1), PAIR, 10_000, MSCCL))
    rows = {line.split("  ")[0]: line.split()[4:] for line in text.splitlines() if "rank" in line}
    assert rows == {"rank 0 block 0": ["0%", "56%"], "rank 1 block 0": ["100%", "0%"]}


def test_what_is_left_out_counts_for_nothing() -> None:
    run = record_program(ring_allgather(4), topology("ring:4"), 1 << 30, MSCCL)
    text = program_run_text(run)
    assert f"{run.skipped} operations repeat others" in text
    assert "of the time that is not left out" in text
    shares = [int(x[:-1]) for line in text.splitlines() if "%" in line for x in line.split()[4:]]
    assert all(0 <= x <= 100 for x in shares)


def test_the_start_of_a_call_is_told_beside_its_time() -> None:
    assert "start       8.400 µs of it" in program_run_text(record_program(stream(1), PAIR, 10_000))
