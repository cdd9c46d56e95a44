"""``make grade``: the grade cases, each size a line: value, bound, limit, seconds, pass.

Every schedule is verified before it is timed; the bound is weft's own and must not exceed the
case's. Seconds are CPU seconds of this process (solver threads included) for the whole case.
"""

import argparse
import sys
import time
from pathlib import Path

from cases import CASES, Case
from rich.console import Console
from rich.table import Table

from weft.dsl.base.units import format_bytes
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.load import load_sketch
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Outcome
from weft.synth.bounds import Bounds, bounds, lower_bound_us
from weft.synth.engines.exact.engine import Exact
from weft.synth.time.schedule_time import simulate

SKETCHES = Path(__file__).parent / "sketches"
SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "nccl-topo"


def grade(case: Case, table: Table) -> bool:
    """Solve one case and add its lines; whether all of them pass."""
    machine = _machine(case.topology)
    if machine is None:
        table.add_row(case.name, case.collective, "", "", "", "", "", "no sample file")
        return True
    collective = make(case.collective, machine.ranks)
    if case.engine != "exact":
        good = True
        for line in case.limits:  # every size gets its line, also after one that fails
            good = _one_size(case, machine, collective, *line, table) and good
        return good
    started = time.process_time()
    problem = Problem(machine, collective, _sketch(case, machine), Objective.FRONTIER)
    outcome = synthesize(problem, Exact(), Budget(60))
    seconds = time.process_time() - started
    own = bounds(machine, collective)
    good = True
    for size, limit in case.limits:
        best = min(simulate(p.schedule, size).time_us for p in outcome.points)
        good = _line(case, size, limit, best, own, seconds, table) and good
    return _points(case, outcome, seconds, table) and good


def _one_size(
    case: Case, machine: Topology, collective: Collective, size: int, limit: float, table: Table
) -> bool:
    """From the machine to a verified schedule and its bound, for one size."""
    started = time.process_time()
    problem = Problem(machine, collective, _sketch(case, machine), Objective.TIME, size)
    outcome = synthesize(problem, case.engine, Budget(case.effort))
    own = bounds(machine, collective)
    seconds = time.process_time() - started
    best = min(simulate(p.schedule, size, case.cost).time_us for p in outcome.points)
    return _line(case, size, limit, best, own, seconds, table)


def _line(
    case: Case, size: int, limit: float, best: float, own: Bounds, seconds: float, table: Table
) -> bool:
    bound = float(lower_bound_us(own, size))
    published = max(case.alpha_us, case.ps_per_byte * size / 1e6)
    # The published bounds know α and cuts alone; ours of that kind must not say more.
    plain = float(max(own.latency_us, own.us_per_byte * size))
    ok = best <= limit and bound <= best * (1 + 1e-9) and seconds <= case.seconds
    ok = ok and plain <= published * (1 + 1e-6)
    what = f"{case.collective} ({case.note})" if case.note else case.collective
    table.add_row(
        case.name,
        what,
        format_bytes(size),
        f"{best:,.3f}",
        f"{bound:,.3f}",
        f"{limit:,.3f}",
        f"{seconds:.2f}",
        "pass" if ok else "FAIL",
    )
    return ok


def _machine(text: str) -> Topology | None:
    """A machine of the catalogue, or of a sample file where those are."""
    if ".xml" not in text:
        return topology(text)
    path = SAMPLES / text
    return topology(str(path)) if Path(str(path).partition(":")[0]).exists() else None


def _points(case: Case, outcome: Outcome, seconds: float, table: Table) -> bool:
    """The points in steps and rounds that a case names must be on the frontier."""
    found = {(p.steps, p.rounds_per_chunk) for p in outcome.points}
    good = True
    for steps, rounds, chunks in case.points:
        ok = any(s == steps and ratio * chunks == rounds for s, ratio in found) and seconds < 10
        good = good and ok
        table.add_row(
            case.name,
            case.collective,
            f"{steps} steps",
            f"{rounds} rounds / {chunks}",
            "",
            "",
            f"{seconds:.2f}",
            "pass" if ok else "FAIL",
        )
    return good


def _sketch(case: Case, machine: Topology) -> Sketch | None:
    if not case.sketch:
        return None
    return elaborate(load_sketch(str(SKETCHES / f"{case.sketch}.sketch")), machine)


def main() -> int:
    """Print the table; exit 1 if a line fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", help="only these cases, for example G01")
    wanted = parser.parse_args().case
    table = Table("case", "collective", "size M", "value µs", "bound µs", "limit µs", "CPU s", "")
    good = [grade(c, table) for c in CASES if not wanted or c.name in wanted]
    Console(width=120).print(table)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
