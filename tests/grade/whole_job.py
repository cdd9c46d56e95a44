"""Cases of the whole job: collectives at once J01 to J13 and J22, places J14, orders J15 to J17
and J23, shifts J18, demands J19, resharding J20, shapes J21, traces J24. Arguments name the cases
to run: ``whole_job.py J07 J18``.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from joint_cases import boxes, collective, rails
from training_steps import KNOWN, file

from weft.dsl.base.liveness import running_below, vitals
from weft.dsl.catalogue import topology
from weft.dsl.importers.chakra_et import COLL, ExecutionTrace, TraceNode, encoded
from weft.dsl.importers.workloads.read import WorkloadSource, read_workload
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.reshard import reshard_workload
from weft.dsl.nouns.workload import Forwarders, Workload, WorkloadOperation, axis_groups
from weft.dsl.nouns.workload_file import load
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.base.meter import Meter
from weft.synth.joint.axis_placement import ranked_placements
from weft.synth.joint.bound import joint_bound, priced
from weft.synth.joint.demands import demands_of
from weft.synth.joint.shapes import ranked_shapes
from weft.synth.joint.times import collective_times
from weft.synth.judge.verify import verify
from weft.synth.ordering.check import bound_faults, timeline_faults
from weft.synth.ordering.jobs import PeriodicJob, Use, best_shifts
from weft.synth.ordering.judge import judged
from weft.synth.ordering.plan import order_tasks
from weft.synth.ordering.tasks import tasks_of
from weft.synth.planning.joint_plan import PLAN_EFFORT, JointPlanner
from weft.synth.prices.joint_prices import joint_prices
from weft.synth.time.schedule_time import simulate

WORK = 400_000
LIMIT_S = 10.0
ORDERED_S = 0.5


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its workers until now."""
    me = os.getpid()
    return sum(vitals(one).cpu for one in (me, *running_below(me)))


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
    started = cpu_s()
    found = order_tasks(tasks, Meter(WORK))
    seconds = cpu_s() - started
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
    started = cpu_s()
    found = best_shifts(jobs)
    seconds = cpu_s() - started
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
    wanted = (ranks if name == "allgather" else 1) << 20  # there comm_size is a rank's share of M
    good = (one.kind, one.group, one.bytes) == (name, tuple(range(ranks)), wanted)
    return [("bytes", one.bytes, wanted, good), *against_synth(found, relays="none")]


def against_synth(work: Workload, relays: str) -> list[tuple[str, float, float, bool]]:
    """The plan of one collective on a DGX-1, against ``weft synth --relays`` of the same."""
    chip = topology("dgx1")
    one = replace(work.operations[0], relays=Forwarders(relays))
    bound = joint_bound(chip, demands_of(Workload("job", (one,)), chip.ranks))
    plan = JointPlanner(chip, bound, Budget(effort=PLAN_EFFORT.engine)).plan()
    made = make(one.kind, len(one.group))
    if relays == "none":
        problem = Problem(chip.restricted_to(one.group), made, objective=Objective.TIME)
    else:
        problem = Problem(chip, made.within(one.group, chip.ranks), objective=Objective.TIME)
    problem = replace(problem, bytes=one.bytes)
    best = synthesize(problem, "packing", Budget(effort=PLAN_EFFORT.engine)).points[0]
    us = float(simulate(best.schedule, one.bytes).time_us)
    fine = verify(plan.schedule).ok and plan.us <= 1.02 * us
    return [(f"plan, {plan.way}, relays {relays}", plan.us, us, fine)]


def relayed(kind: str) -> list[tuple[str, float, float, bool]]:
    """A quad of a DGX-1, 100 MB, the other GPUs forwarding."""
    one = collective(kind, kind, range(4), 100)
    return against_synth(Workload("quad", (one,)), relays="all")


@dataclass(frozen=True)
class AtOnce:
    """Collectives that start together: their known least time, and what a plan may take.

    Attributes:
        us: the least time; the bound must be equal.
        most: µs of the plan, at most; None: only the bound is graded.
        bound_s, plan_s: CPU seconds, at most.
        gains: what the answer must say, if anything.
        first: class and end in µs, at most, of the class that has priority.
    """

    machine: str
    operations: list[WorkloadOperation]
    us: Fraction
    most: float | None = None
    bound_s: float = 10.0
    plan_s: float = 120.0
    gains: str = ""
    first: tuple[str, float] | None = None


def graded(one: AtOnce) -> list[tuple[str, float, float, bool]]:
    """Bound, as its prices prove it anew, and the verified plan in the simulator."""
    chip = topology(one.machine)
    demands = demands_of(Workload("job", tuple(one.operations)), chip.ranks)
    started = cpu_s()
    found = joint_bound(chip, demands)
    seconds = cpu_s() - started
    again = joint_prices(chip, [priced(each) for each in found.demands], found.prices)
    same = found.us == again.us == one.us
    rows = [
        ("bound", float(found.us), float(one.us), same),
        ("bound, CPU s", seconds, one.bound_s, seconds <= one.bound_s),
    ]
    if one.gains:
        said = collective_times(chip, demands).gains()
        rows.append((f"says {one.gains}", float(one.gains in said), 1, one.gains in said))
    if one.most is None:
        return rows
    started = cpu_s()
    plan = JointPlanner(chip, found, Budget(effort=PLAN_EFFORT.engine)).plan()
    seconds = cpu_s() - started
    fine = plan.us <= one.most and verify(plan.schedule).ok
    rows.append((f"plan, {plan.way}", plan.us, one.most, fine))
    rows.append(("plan, CPU s", seconds, one.plan_s, seconds <= one.plan_s))
    if one.first is not None:
        name, most = one.first
        parts = zip(plan.schedule.parts, plan.ends, strict=True)
        end = max(us for part, us in parts if part.of_class == name)
        rows.append((f"end of {name}", end, most, end <= most))
    return rows


A100, DGX_1, TORUS = "dgx-a100:nodes=4", "dgx1", "torus:8x8,bw=50GB/s"


def reduced(name: str, group: object, mb: float, relays: str = "all") -> WorkloadOperation:
    """An allreduce for which others may forward."""
    return collective(name, "allreduce", group, mb, relays=relays)


def spread(ranks: int) -> WorkloadOperation:
    """An alltoall of 100 MB of all ranks."""
    return collective("ep", "alltoall", range(ranks), 100)


def lines(name: str, mb: float) -> list[WorkloadOperation]:
    """An allreduce in each row, or each column, of the torus."""
    groups = [range(8 * i, 8 * i + 8) if name == "row" else range(i, 64, 8) for i in range(8)]
    return [
        collective(f"{name}{i}", "allreduce", group, mb, of_class=name)
        for i, group in enumerate(groups)
    ]


def eights(relays: str) -> list[WorkloadOperation]:
    """Two quads and four pairs of eight GPUs."""
    quads = [replace(reduced(f"q{i}", range(i, i + 4), 100, relays), of_class="q") for i in (0, 4)]
    pairs = [replace(reduced(f"p{i}", (i, i + 4), 100, relays), of_class="p") for i in range(4)]
    return [*quads, *pairs]


def optccl_step() -> list[WorkloadOperation]:
    """OptCCL's workload on eight NVLink boxes, in MB, read from its format.

    In each box an alltoall; on each rail 16 MB from every GPU four boxes on, and an allgather of
    each half of the boxes.
    """

    def gpu(host: int, k: int) -> list[object]:
        return [host % 8, ["g", k + 1]]

    rows: list[dict[str, object]] = []
    for box in range(8):
        ends = [gpu(box, k) for k in range(8)]
        rows.append({"type": "all_to_all", "demand": 0.008, "participants": ends})
    for k, box in product(range(8), range(8)):
        ends = {"source": gpu(box, k), "sink": gpu(box + 4, k)}
        rows.append({"type": "point_to_point", "demand": 0.016, **ends})
    for k, half in product(range(8), (0, 4)):
        ends = [gpu(half + i, k) for i in range(4)]
        rows.append({"type": "all_gather", "demand": 0.016, "participants": ends})
    spec = {"format": "optccl-workload-spec", "topology": "a100_multi_nv.json", "num_nodes": 8}
    for i, row in enumerate(rows):
        row |= {"name": f"c{i}", "group": row["type"]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.json"
        path.write_text(json.dumps({**spec, "collectives": rows}))
        return list(read_workload(WorkloadSource(str(path))).operations)


def skewed(n: int) -> list[WorkloadOperation]:
    """An alltoallv whose sources and destinations are both skewed, in MB."""
    p = [Fraction(1, 1 + (7 * j + 3) % n) for j in range(n)]
    q = [Fraction(1, 1 + (11 * i + 5) % n) for i in range(n)]
    scale = 1200 * n / (sum(q) * sum(p))
    rows = [[int(scale * q[i] * p[j]) * 10**6 * (i != j) for j in range(n)] for i in range(n)]
    matrix = tuple(map(tuple, rows))
    return [WorkloadOperation("experts", "alltoallv", group=tuple(range(n)), matrix=matrix)]


RAIL = range(0, 32, 8)
THREE = [*boxes(4, 8, 1000), *rails(4, 8, 100)]
AT_ONCE = {
    "J01": AtOnce(A100, [*THREE, spread(32)], Fraction(9000), 9050),
    "J01, alltoall first": AtOnce(
        A100, [*THREE, replace(spread(32), priority=0)], Fraction(9000), 9050, first=("ep", 3050)
    ),
    "J02": AtOnce(
        A100,
        [*boxes(4, 8, 1000), *rails(4, 8, 97.2)],
        Fraction(17500, 3),
        5870,
        gains="overlap ×2.00, joint routing ×1.00",
    ),
    "J03": AtOnce(A100, [reduced("dp", RAIL, 100, "none"), spread(32)], Fraction(6000), 6060),
    "J04": AtOnce(A100, [reduced("dp", RAIL, 100), spread(32)], Fraction(3750), 3830),
    "J05": AtOnce(A100, [reduced("dp", RAIL, 1000)], Fraction(7500), 7900),
    "J05, no relays": AtOnce(A100, [reduced("dp", RAIL, 1000, "none")], Fraction(60000)),
    "J06": AtOnce(A100, [reduced("dp", RAIL, 1000), *boxes(4, 8, 1000)], Fraction(7500), 8100),
    "J07": AtOnce(
        DGX_1,
        [reduced("a", range(4), 100), reduced("b", range(4, 8), 100)],
        Fraction(4000, 3),
        1390,
    ),
    "J08": AtOnce(
        DGX_1,
        [reduced("a", (0, 5, 6), 100), reduced("b", (1, 2, 3, 4, 7), 100)],
        Fraction(16000, 11),
        1530,
    ),
    "J09": AtOnce("mi300x", eights("all"), Fraction(11875, 16), 775),
    "J09, no relays": AtOnce("mi300x", eights("none"), Fraction(3125, 2)),
    "J10": AtOnce(
        TORUS, [*lines("row", 100), *lines("column", 100), spread(64)], Fraction(3750), 3850
    ),
    "J11": AtOnce(TORUS, [reduced("row", range(8), 400), spread(64)], Fraction(278375, 88), 3350),
    "J12": AtOnce(
        "dgx-h100:nodes=8",
        [*boxes(8, 8, 1000), *rails(8, 8, 100), spread(64)],
        Fraction(5250),
        5330,
        plan_s=300,
    ),
    "J13": AtOnce("dgx-a100:nodes=8", optccl_step(), Fraction(2560), 2620),
    "J19, 32": AtOnce(A100, skewed(32), Fraction(74325), 1.03 * 74325, bound_s=2, plan_s=60),
    "J19, 64": AtOnce(
        "dgx-h100:nodes=8", skewed(64), Fraction(102725, 2), 1.03 * 51362.5, bound_s=2, plan_s=60
    ),
    "J22, plan": AtOnce(
        "dgx-h100:nodes=128",
        [*boxes(128, 8, 1000), *rails(128, 8, 100)],
        Fraction(127, 32) * 1000,
        4050,
        bound_s=60,
        plan_s=600,
    ),
    "J22": AtOnce(
        "dgx-h100:nodes=128",
        [*boxes(128, 8, 1000), *rails(128, 8, 100), spread(1024)],
        Fraction(190500, 32),
        bound_s=60,
    ),
}
BOXES = "dgx-a100:nodes=2"
RESHARDED = {
    "J20, copies to parts": "0..7/1,8..15/8,800MB",
    "J20, parts to copies": "0..7/8,8..15/1,800MB",
    "J20, one to four": "0/1,8..11/1,800MB,all",
}
AT_ONCE |= {
    name: AtOnce(BOXES, list(reshard_workload(f"reshard:{text}").operations), Fraction(4000), 4120)
    for name, text in RESHARDED.items()
}

SHAPES = {
    "torus:8x8": 20000,
    "torus:4x16": 40000,
    "torus:4x4x4": 10000,
    "torus:4x4x8": 20000,
    "torus:4x8x8": 20000,
    "torus:4x4x16": 40000,
    "twisted:4x4x8": Fraction(137500, 12),
    "twisted:4x8x8": 14375,
}
CIRCULANTS = {16: Fraction(18125, 2), 64: Fraction(167500, 9)}


def alltoall_on(shape: str, want: Fraction) -> list[tuple[str, float, float, bool]]:
    """The alltoall of 1,000 MB on a shape at 50 GB/s."""
    started = cpu_s()
    chip = topology(f"{shape},bw=50GB/s")
    one = collective("a", "alltoall", range(chip.ranks), 1000)
    found = joint_bound(chip, demands_of(Workload("a", (one,)), chip.ranks))
    seconds = cpu_s() - started
    return [
        ("bound", float(found.us), float(want), found.us == want and found.exact),
        ("CPU s", seconds, 5, seconds <= 5),
    ]


def best_circulant(ranks: int, want: Fraction) -> list[tuple[str, float, float, bool]]:
    """The best circulant of degree 4 for an alltoall of 1,000 MB."""
    started = cpu_s()
    one = Workload("a", (collective("a", "alltoall", range(ranks), 1000),))
    kinds = ("circulant",)
    best = ranked_shapes(one, ranks, 4, kinds=kinds, options="bw=50GB/s", top=1).shapes[0]
    seconds = cpu_s() - started
    return [
        (best.name, float(best.us), float(want), best.us == want),
        ("CPU s", seconds, 5, seconds <= 5),
    ]


PLACED = {
    "J14, alltoall 100": ("alltoall", 100, {"4,2": 3000, "2,4": 4000, "1,8": 6000}),
    "J14, allreduce 1000": ("allreduce", 1000, {"1,8": 6000, "2,4": 12000, "4,2": 30000}),
}


def placed(kind: str, mb: int, known: dict[str, int]) -> list[tuple[str, float, float, bool]]:
    """An axis of 8 and an allreduce of 100 MB over one of 4, best place first.

    ``known``: µs by the hosts and GPUs of a host that the first axis takes.
    """
    axes = (("a", 8), ("b", 4))
    work = [
        collective(f"{axis}{i}", what, group, size, of_class=axis)
        for axis, what, size in (("a", kind, mb), ("b", "allreduce", 100))
        for i, group in enumerate(axis_groups(axes, [axis]))
    ]
    started = cpu_s()
    found = ranked_placements(topology(A100), Workload("job", tuple(work)), axes).placements
    seconds = cpu_s() - started
    ours = [(",".join(map(str, one.matrix[0])), one.us) for one in found]
    pairs = zip(ours, known.items(), strict=True)
    rows = [(f"axis of 8 as {at[0]}", float(at[1]), want[1], at == want) for at, want in pairs]
    return [*rows, ("CPU s", seconds, LIMIT_S, seconds <= LIMIT_S)]


Rows = Callable[[], list[tuple[str, float, float, bool]]]


def cases() -> dict[str, Rows]:
    """All cases by name."""
    found: dict[str, Rows] = {name: partial(graded, one) for name, one in AT_ONCE.items()}
    for name, step in ORDERS.items():
        found[name] = partial(ordered, name, step)
    found["J17, 6 layers, judged"] = judged_fsdp
    for shape, us in SHAPES.items():
        found[f"J21, {shape}"] = partial(alltoall_on, shape, us)
    for name, (what, mb, known) in PLACED.items():
        found[name] = partial(placed, what, mb, known)
    for ranks, us in CIRCULANTS.items():
        found[f"J21, circulant of {ranks}"] = partial(best_circulant, ranks, us)
    for name, (jobs, want) in SHIFTS.items():
        found[name] = partial(shifted, jobs, want)
    for ranks, kind, word in (
        (4, 6, "alltoall"),
        (8, 6, "alltoall"),
        (8, 0, "allreduce"),
        (8, 2, "allgather"),
    ):
        found[f"J24, {word} of {ranks}"] = partial(traced, ranks, kind, word)
    for kind in ("allgather", "reduce_scatter", "allreduce", "alltoall"):
        found[f"J24, {kind} of a quad, relays"] = partial(relayed, kind)
    return found


def main() -> int:
    """Print a line for each figure; 1 if one fails."""
    table = Table("case", "figure", "value", "known", "pass")
    good = True
    wanted = tuple(sys.argv[1:]) or ("J",)
    some = {name: rows for name, rows in cases().items() if name.startswith(wanted)}
    for name, rows in some.items():
        for what, value, want, fine in rows():
            table.add_row(name, what, f"{value:,.6g}", f"{want:,.6g}", "yes" if fine else "NO")
            good = good and fine
    Console(width=100).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
