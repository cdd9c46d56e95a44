"""Times by the rules of other simulators, before and after start order and turns, beside weft's.

Run: ``python tests/grade/outside.py [--astra-sim PATH] [--loggopsim PATH] [--json]``. *Before*: in
each step all ranks send to rank 0, then 1, … (made for this table: engines order better by
themselves), without turns; *after*: in start order, as ``weft synth`` writes it, with turns where
``weft compile`` writes them. The columns
``ASTRA-sim`` and ``LogGOPSim`` are weft's replays of their rules; with the path of a simulator (or
``$WEFT_ASTRA_SIM``, ``$WEFT_LOGGOPSIM``), columns of its own times follow. ASTRA-sim knows uniform
rings, switches and full meshes only.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
from outside_simulators import ASTRA_SIM, LOGGOPSIM, astra_sim_us, loggopsim_us, made, time_of

from weft.backends.formats.chakra.format import ChakraEt, Turns, network_of
from weft.backends.formats.goal.format import GoalFile
from weft.dsl.base.tables import microseconds, table
from weft.dsl.base.units import format_bytes
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.judge.verify import require_valid
from weft.synth.time.order import in_start_order
from weft.synth.time.schedule_time import simulate

DIRECT = "direct"
"""Every chunk goes straight to all that want it, in one step."""


@dataclass(frozen=True)
class OutsideCase:
    """A machine, a collective, bytes, and an engine or DIRECT."""

    machine: str
    collective: str
    size: int
    engine: str

    @property
    def name(self) -> str:
        """In a few words."""
        return f"{self.machine} {self.collective} {format_bytes(self.size)} {self.engine}"


MIB = 1 << 20

CASES = (
    OutsideCase("ring:8", "allreduce", MIB, "classic"),
    OutsideCase("ring:8", "allgather", 64 * MIB, "classic"),
    OutsideCase("full:8", "alltoall", 64 * MIB, DIRECT),
    OutsideCase("torus:4x4", "allgather", 64 * MIB, "classic"),
    OutsideCase("dgx1", "allgather", 64 * MIB, "classic"),
    OutsideCase("dgx2", "alltoall", 64 * MIB, DIRECT),
    OutsideCase("dgx2", "allgather", 64 * MIB, DIRECT),
    OutsideCase("dgx2", "reduce_scatter", 64 * MIB, DIRECT),
    OutsideCase("dgx2", "allreduce", 64 * MIB, "classic"),
    OutsideCase("dgx-a100", "alltoall", 64 * MIB, DIRECT),
)


def schedule_of(case: OutsideCase) -> Schedule:
    """The schedule of a case, verified."""
    machine = topology(case.machine)
    collective = make(case.collective, machine.ranks)
    if case.engine != DIRECT:
        problem = Problem(machine, collective, None, Objective.BANDWIDTH, case.size)
        return synthesize(problem, case.engine, Budget(effort=1)).points[0].schedule
    routes = {(hop.src, hop.dst): hop.route for hop in find_hops(machine).hops}
    sums = collective.combining
    pre, post = (p.rows().tolist() for p in (collective.pre, collective.post))
    held = {(chunk, rank) for rank, chunk, _, _ in pre}
    moves = [
        Transfer(chunk, src, dst, routes[src, dst], reduce=sums)
        for dst, chunk, _, _ in post
        for at, src in sorted(held)
        if at == chunk and src != dst and (sums or (chunk, dst) not in held)
    ]
    found = Schedule.of(machine, collective, moves)
    require_valid(found)
    return found


def crowded(schedule: Schedule) -> Schedule:
    """In each step all ranks send to rank 0, then to rank 1, …"""
    columns = schedule.columns()
    del columns["route_links"], columns["route_lengths"]
    order = np.lexsort((schedule.chunk, schedule.src, schedule.dst, schedule.step))
    routes = [schedule.route(int(i)) for i in order]
    return Schedule.from_columns(
        schedule.topology,
        schedule.collective,
        **{name: column[order] for name, column in columns.items()},
        route_lengths=[len(route) for route in routes],
        route_links=[i for route in routes for i in route],
        rounds=schedule.rounds,
        segments=schedule.segments,
        stride=schedule.stride,
    )


def row_of(
    case: OutsideCase, schedule: Schedule, paths: argparse.Namespace, turns: Turns
) -> dict[str, Any]:
    """µs of a schedule by each rule, and by each simulator that is there."""
    row: dict[str, Any] = {"weft": simulate(schedule, case.size).time_us}
    format = ChakraEt(local_mem_bw=0, turns=turns)
    row["astra_rule"] = time_of(made(format, schedule, case.size))["us"]
    row["loggop_rule"] = time_of(made(GoalFile(), schedule, case.size))["us"]
    with tempfile.TemporaryDirectory() as folder:
        if paths.astra_sim and network_of(schedule.topology):
            row["astra_sim"] = astra_sim_us(
                paths.astra_sim, schedule, case.size, Path(folder), turns
            )
        if paths.loggopsim:
            row["loggopsim"] = loggopsim_us(paths.loggopsim, schedule, case.size, Path(folder))
    return row


COLUMNS = {
    "weft": "weft",
    "astra_rule": "ASTRA-sim's rule",
    "loggop_rule": "ATLAHS' rule",
    "astra_sim": "ASTRA-sim",
    "loggopsim": "LogGOPSim",
}


def main() -> int:
    """Print the table, or its JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--astra-sim", default=ASTRA_SIM, metavar="PATH")
    parser.add_argument("--loggopsim", default=LOGGOPSIM, metavar="PATH")
    parser.add_argument("--json", action="store_true")
    paths = parser.parse_args()
    for name, path in (("ASTRA-sim", paths.astra_sim), ("LogGOPSim", paths.loggopsim)):
        if not path:
            print(f"{name} is skipped: no path; its rule is replayed instead", file=sys.stderr)
    found = []
    for case in CASES:
        given = crowded(schedule_of(case))
        after = in_start_order(given, case.size)
        both = {
            "before": row_of(case, given, paths, Turns.NEVER),
            "after": row_of(case, after, paths, Turns.AUTO),
        }
        found.append({"case": case.name, **both})
        print(f"  {case.name}", file=sys.stderr)
    losses = {
        key: {
            when: statistics.mean(one[when][key] / one[when]["weft"] - 1 for one in there)
            for when in ("before", "after")
        }
        for key in COLUMNS
        if key != "weft" and (there := [one for one in found if key in one["after"]])
    }
    if paths.json:
        print(json.dumps({"schema": 1, "cases": found, "mean_over_weft": losses}, indent=2))
        return 0
    keys = [key for key in COLUMNS if any(key in one["after"] for one in found)]
    rows = []
    for one in found:
        for when in ("before", "after"):
            times = [one[when].get(key) for key in keys]
            shown = ["-" if us is None else microseconds(us) for us in times]
            rows.append((one["case"] if when == "before" else "", when, *shown))
    print(table(("case", "start order", *(f"{COLUMNS[key]} µs" for key in keys)), rows))
    for key, loss in losses.items():
        shown = f"{loss['before']:+.1%} before, {loss['after']:+.1%} after"
        print(f"{COLUMNS[key]} over weft's, mean: {shown}")
    worse = [one["case"] for one in found if one["after"]["weft"] > one["before"]["weft"]]
    if worse:
        print(f"slower by weft's rule: {', '.join(worse)}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
