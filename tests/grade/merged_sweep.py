"""Random workloads, planned, merged, and run as one program by real processes.

``merged_sweep.py [COUNT [FIRST [RANKS ...]]]``: workloads number FIRST to FIRST + COUNT, on 8 and
on 16 ranks, each by MPI and by torch's gloo; every result of every collective is compared. The
launch order of each plan is changed at random as well: an order is refused exactly where ranks that
follow it never finish.
"""

import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from jobs import Outcome, on_processes, piece
from joint_cases import hangs, machines, workloads

from weft.backends.ranks.job import Case
from weft.dsl.base.errors import NothingFound, UserError
from weft.dsl.nouns.schedule import Schedule
from weft.synth.base.engine import Budget
from weft.synth.joint.bound import joint_bound
from weft.synth.joint.demands import demands_of
from weft.synth.judge.merged import launch_problems
from weft.synth.judge.verify import verify
from weft.synth.planning.joint_plan import JointPlanner

COUNT = 100
BATCH = 5
"""Programs of one start of the ranks."""

LARGEST = 1 << 17
"""Elements of a buffer, at most: a program with finer grains is left out, and counted, as it is
lowered grain by grain (minutes, and more than a GB on each rank)."""

ORDERS = 20


def planned(first: int, last: int, ranks: int) -> tuple[list[Schedule], int]:
    """Return verified merged schedules of random workloads, and how many had none."""
    found: list[Schedule] = []
    left_out = drawn = 0

    @settings(
        max_examples=last,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        nonlocal left_out, drawn
        chip = data.draw(machines(least=ranks, most=ranks))
        work = data.draw(workloads(ranks))
        drawn += 1
        if drawn <= first:
            return
        try:
            bound = joint_bound(chip, demands_of(work, ranks))
            plan = JointPlanner(chip, bound, Budget(effort=1)).plan()
        except (UserError, NothingFound):
            left_out += 1
            return
        assert verify(plan.schedule).ok
        assert plan.us >= float(bound.us) * (1 - 1e-9)
        if plan.schedule.collective.message_chunks > LARGEST:
            left_out += 1
            return
        found.append(replace(plan.schedule, segments=1))

    collect()
    return found, left_out


def run(on: str, schedules: list[Schedule]) -> list[Outcome]:
    """Run all, a batch at a start of the ranks."""
    found = []
    for begin in range(0, len(schedules), BATCH):
        some = schedules[begin : begin + BATCH]
        cases = [Case(number, 1, "int32") for number in range(len(some))]
        found += on_processes(on, [piece(on, one) for one in some], cases, timeout=900)
    return found


def orders(schedules: list[Schedule]) -> tuple[int, int, int]:
    """Change launch orders; return how many were refused, accepted, and judged wrongly."""
    rng = random.Random(0)
    refused = accepted = wrong = 0
    for one in schedules:
        groups = [part.group for part in one.parts]
        for _ in range(ORDERS):
            launch = [rng.sample(order, len(order)) for order in one.launch]
            problems = [*launch_problems(one.parts, launch, one.topology.ranks)]
            wrong += bool(problems) != hangs(groups, [tuple(x) for x in launch])
            refused, accepted = refused + bool(problems), accepted + (not problems)
    return refused, accepted, wrong


def main() -> int:
    """Print a line for each number of ranks; 1 if a result or an order is wrong."""
    count, first, *sizes = [*map(int, sys.argv[1:]), *(COUNT, 0)[len(sys.argv) - 1 :]]
    bad = 0
    for ranks in sizes or (8, 16):
        began = time.process_time()
        schedules, left_out = planned(first, first + count, ranks)
        parts = sum(len(one.parts) for one in schedules)
        told = f"{ranks} ranks: {len(schedules)} programs of {parts} collectives"
        print(f"{told}, {left_out} left out, {time.process_time() - began:.0f} CPU s", flush=True)
        for on in ("mpi", "torch"):
            wrong = [one.wrong for _, one in run(on, schedules) if one.wrong]
            bad += len(wrong)
            print(f"  {on}: {len(schedules) - len(wrong)} right, {len(wrong)} wrong", flush=True)
            for text in wrong[:3]:
                print(f"    {text}")
        refused, accepted, misjudged = orders(schedules)
        bad += misjudged
        print(f"  launch orders: {refused} refused, {accepted} accepted, {misjudged} misjudged")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
