"""Cases of the whole job in time: orders J15 to J17 and J23, shifts J18, traces J24."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from training_steps import KNOWN, file

from weft.dsl.importers.chakra_et import COLL, ExecutionTrace, TraceNode, encoded
from weft.dsl.importers.workloads.read import WorkloadSource, read_workload
from weft.dsl.nouns.workload_file import load
from weft.synth.base.meter import Meter
from weft.synth.ordering.check import bound_faults, timeline_faults
from weft.synth.ordering.judge import judged
from weft.synth.ordering.order import order_tasks
from weft.synth.ordering.shifts import PeriodicJob, Use, best_shifts
from weft.synth.ordering.tasks import tasks_of

WORK = 400_000
LIMIT_S = 10.0
ORDERED_S = 0.5

ORDERS = {
    "J15": "MoE 960/2000",
    "J15, 32 layers": "MoE 32 layers",
    "J16": "data parallel",
    "J17": "FSDP 4",
    "J17, 6 layers": "FSDP 6",
    "J23": "MoE 240/4000",
}


def ordered(name: str, step_name: str) -> list[tuple[str, float, float, bool]]:
    """Bound, plan, fair and one queue of a step, and whether all are as known."""
    step = next(one for one in KNOWN if one.name == step_name)
    tasks = tasks_of(load(file(step.operations), name))
    started = time.process_time()
    found = order_tasks(tasks, Meter(WORK))
    seconds = time.process_time() - started
    sound = not bound_faults(tasks, found.bound) and not timeline_faults(tasks, found.line)
    lines = [
        ("bound", float(found.bound.us), step.bound),
        ("plan", found.line.us, step.best),
        ("fair", found.fair.us, step.fair),
        ("one queue", found.queue.us, step.queue),
    ]
    rows = [(what, us, want, sound and abs(us - want) < 1e-3) for what, us, want in lines]
    return [*rows, ("CPU s", seconds, ORDERED_S, seconds <= ORDERED_S)]


def judged_fsdp() -> list[tuple[str, float, float, bool]]:
    """J17 by CP-SAT: 14,600 is the best of 16 pieces each."""
    step = next(one for one in KNOWN if one.name == "FSDP 6")
    found = judged(tasks_of(load(file(step.operations), "J17")), 16)
    us = float(found.us) if found is not None and found.us is not None else 0.0
    return [("CP-SAT", us, 14600, us == 14600 and found is not None and found.optimal)]


def job(period: int, busy: int, *links: str) -> PeriodicJob:
    """A job that uses links whole from the start of its period on."""
    uses = tuple(Use(x, Fraction(0), Fraction(busy), Fraction(1)) for x in links or ("link",))
    return PeriodicJob("job", Fraction(period), uses)


WIDTH = 50
SHIFTS = {
    "J18 a": ([job(100, 50)] * 2, 0),
    "J18 b": ([job(100, 60)] * 2, 1000),
    "J18 c": ([job(120, 40)] * 3, 0),
    "J18 d": ([job(100, 50, "x", "y"), job(100, 50, "x", "z"), job(100, 50, "y", "z")], 2500),
    "J18 e": ([job(99, 33)] * 3, 0),
    "J18 f": ([job(40, 10), job(60, 20)], 500),
}


def shifted(jobs: list[PeriodicJob], want: int) -> list[tuple[str, float, float, bool]]:
    """Excess in GB/s times µs of a link of 50 GB/s, proved."""
    started = time.process_time()
    found = best_shifts(jobs)
    seconds = time.process_time() - started
    excess = float(found.excess * WIDTH)
    return [
        ("excess", excess, want, excess == want and found.optimal),
        ("CPU s", seconds, LIMIT_S, seconds <= LIMIT_S),
    ]


def traced(ranks: int, kind: int, name: str) -> list[tuple[str, float, float, bool]]:
    """A trace as ASTRA-sim's generators write it is one collective of all ranks."""
    node = TraceNode(0, COLL, name, attributes={"comm_type": kind, "comm_size": 1 << 20})
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            data = encoded(ExecutionTrace({}, (node,)))
            (Path(folder) / f"{name}.{rank}.et").write_bytes(data)
        found = read_workload(WorkloadSource(folder))
    (one,) = found.operations
    good = (one.kind, one.group, one.bytes) == (name, tuple(range(ranks)), 1 << 20)
    return [("bytes", one.bytes, 1 << 20, good)]


Rows = Callable[[], list[tuple[str, float, float, bool]]]


def cases() -> dict[str, Rows]:
    """All cases by name."""
    found: dict[str, Rows] = {
        name: lambda name=name, step=step: ordered(name, step)  # type: ignore[misc]
        for name, step in ORDERS.items()
    }
    found["J17, 6 layers, judged"] = judged_fsdp
    for name, (jobs, want) in SHIFTS.items():
        found[name] = lambda jobs=jobs, want=want: shifted(jobs, want)  # type: ignore[misc]
    for ranks, kind, word in (
        (4, 6, "alltoall"),
        (8, 6, "alltoall"),
        (8, 0, "allreduce"),
        (8, 2, "allgather"),
    ):
        found[f"J24, {word} of {ranks}"] = (
            lambda ranks=ranks, kind=kind, word=word: traced(ranks, kind, word)  # type: ignore[misc]
        )
    return found


def main() -> int:
    """Print a line for each figure; 1 if one fails."""
    table = Table("case", "figure", "value", "known", "pass")
    good = True
    for name, rows in cases().items():
        for what, value, want, fine in rows():
            table.add_row(name, what, f"{value:,.6g}", f"{want:,.6g}", "yes" if fine else "NO")
            good = good and fine
    Console(width=100).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
