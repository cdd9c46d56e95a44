"""``make repeatable``: the same answer with one thread and with four, at every effort.

Six machines, five collectives, two sizes. For each effort every question is asked twice, by two
processes of which one has four threads and a busy loop beside it; the schedules must be equal byte
by byte. Printed: value over bound and CPU seconds by effort.
"""

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from rich.console import Console
from rich.table import Table

MACHINES = ("dgx1", "ndv2:nodes=2", "dgx-a100:nodes=2", "mi250", "torus:4x4", "fat-tree:k=4")
KINDS = ("allgather", "reduce_scatter", "allreduce", "alltoall", "broadcast")
SIZES = (1 << 14, 1 << 28)
EFFORTS = (1.0, 5.0, 20.0)

Question = tuple[str, str, int]


def answer(question: Question, effort: float, threads: int) -> tuple[str, float, float]:
    """(the schedules' files, best time over the bound, CPU seconds) of a question."""
    import weft
    from weft.dsl.catalogue import topology
    from weft.dsl.nouns.collective import make
    from weft.dsl.nouns.problem import Objective, Problem
    from weft.dsl.nouns.schedule import dumps
    from weft.synth.base.engine import Budget
    from weft.synth.bounds import bounds, lower_bound_us
    from weft.synth.time.schedule_time import simulate

    name, kind, size = question
    machine = topology(name)
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, size)
    began = time.process_time()
    outcome = weft.synthesize(problem, budget=Budget(effort, threads))
    spent = time.process_time() - began
    least = float(lower_bound_us(bounds(machine, problem.collective), size))
    best = min((simulate(p.schedule, size).time_us for p in outcome.points), default=float("inf"))
    return "\n".join(dumps(p.schedule) for p in outcome.points), best / least, spent


def loop() -> None:
    """Keep a core busy."""
    while True:
        pass


def main() -> int:
    """Print a table; exit 1 if two answers to one question differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, help="only the first so many")
    parser.add_argument("--busy", type=int, default=4, help="busy loops beside the second asking")
    parser.add_argument("--efforts", type=float, nargs="+", default=EFFORTS)
    args = parser.parse_args()
    questions = list(product(MACHINES, KINDS, SIZES))[: args.questions]
    spawn = multiprocessing.get_context("spawn")
    values: dict[Question, list[str]] = {q: [] for q in questions}
    spent: dict[float, float] = dict.fromkeys(args.efforts, 0.0)
    different, worse = [], []
    for effort in args.efforts:
        idle = _asked(questions, effort, 1)
        others = [spawn.Process(target=loop, daemon=True) for _ in range(args.busy)]
        for one in others:
            one.start()
        busy = _asked(questions, effort, 4)
        for one in others:
            one.terminate()
        for question, a, b in zip(questions, idle, busy, strict=True):
            if a[0] != b[0]:
                different.append((*question, effort))
            before = values[question]
            if before and a[1] > float(before[-1]) + 5e-4:
                worse.append((*question, effort))
            before.append(f"{a[1]:.3f}")
            spent[effort] += a[2]
    table = Table("machine", "collective", "bytes", *(f"effort {e:g}" for e in args.efforts))
    for (name, kind, size), row in values.items():
        table.add_row(name, kind, str(size), *row)
    console = Console(width=120)
    console.print(table)
    console.print("CPU s:", ", ".join(f"{e:g}: {s:.0f}" for e, s in spent.items()))
    console.print(f"{len(different)} answers differ, {len(worse)} are worse with more effort")
    for line in [*different, *worse]:
        console.print(line, style="red")
    return int(bool(different or worse))


def _asked(
    questions: list[Question], effort: float, threads: int
) -> list[tuple[str, float, float]]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn) as pool:
        jobs = [pool.submit(answer, q, effort, threads) for q in questions]
        return [job.result() for job in jobs]


if __name__ == "__main__":
    sys.exit(main())
