"""NCCL's rings and trees in lanes race for a library: no plan is slower than they are as files."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from weft.backends.cli import main
from weft.backends.compile.variants import PLAIN
from weft.backends.tune.asks import BASELINES, asks
from weft.backends.tune.work import Stand, TimedProgram, on_binary_grid
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import ROOTED, make
from weft.dsl.nouns.library import Library, read
from weft.dsl.nouns.program import Protocol
from weft.synth.engines.classic.lanes import LANED, Laned
from weft.synth.engines.classic.place import Site
from weft.synth.engines.classic.schedule import to_schedule


@pytest.mark.parametrize("one", LANED, ids=lambda one: f"{one.name}-{one.kind}")
def test_algorithms_in_lanes_are_asked_for_as_baselines(one: Laned) -> None:
    assert one.name in BASELINES[one.kind]
    wanted = make(one.kind, 8, roots=(0,) if one.kind in ROOTED else ())
    found = asks(topology("dgx1"), wanted, SizeRange(1 << 10, 1 << 20))
    assert any(q.baseline and f"={one.name}," in q.engine for q in found)


@pytest.mark.parametrize(
    ("machine", "asked"),
    [("dgx-h100:nodes=8", True), ("dgx-h100:nodes=64", False), ("torus:32x32", False)],
)
def test_rings_of_more_messages_than_are_timed_are_not_asked_for(machine: str, asked: bool) -> None:
    made = topology(machine)
    found = asks(made, make("allreduce", made.ranks), SizeRange(1 << 10, 1 << 20))
    assert any("=rings," in q.engine for q in found) == asked


def test_one_rank_has_questions_too() -> None:
    alone = topology("dgx1").restricted_to((0,))
    assert asks(alone, make("allreduce", 1), SizeRange(1 << 10, 1 << 20))


CASES = {
    "two rings of cables": (("-t", "ring:4"), "allgather", "4MiB:8MiB"),
    "two rails": (("-t", "dgx-a100:nodes=2", "--group", "0,1,8,9"), "reduce_scatter", "4MiB:8MiB"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_plan_is_slower_than_rings_and_trees_as_files(case: str, tmp_path: Path) -> None:
    where, kind, sizes = CASES[case]
    engine = ("-e", "classic{algorithm=ring}", "--effort", "0.5", "--jobs", "1")
    out = tmp_path / "library"
    assert main(["tune", *where, "-c", kind, "--sizes", sizes, *engine, "-o", str(out), "-q"]) == 0
    library = read(out)
    (one,) = library.tuned
    files = list(as_files(library))
    assert files
    for at, size in enumerate(one.grid):
        least = min(timer.clock.time_us(size) for timer in files)
        assert one.chosen_us[at] <= 1.001 * least, size


def as_files(library: Library) -> Iterator[TimedProgram]:
    """The algorithms in lanes that the machine has, in forms that fit nearly every schedule."""
    machine, wanted = library.topology, library.tuned[0].collective
    for one in LANED:
        if one.kind is not wanted.kind or (one.name == "rail_tree" and machine.hosts < 2):
            continue
        algorithm = Site(machine).algorithm(one.name, one.kind)
        schedule = on_binary_grid(to_schedule(algorithm, machine, 1 << 20))
        stand = Stand(schedule, "msccl", tuple(Protocol), "calibrated")
        for form, protocol in product(PLAIN, Protocol):
            timer = stand.timer(replace(form, protocol=protocol))
            if isinstance(timer, TimedProgram):
                yield timer
