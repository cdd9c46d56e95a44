"""Random workloads on random machines: bounds and their certificates, plans, and brute force.

``certificates_sweep.py waves [COUNT]``: random hosts of 4 to 12 ranks, copies and sums, 1 to 4
pieces: no verified schedule of three engines is below the bound of its own whole chunks, every
certificate is proved anew, and of small ones CP-SAT finds nothing below.

``certificates_sweep.py [COUNT]``: of each, 2 to 16 ranks, 2 to 5 classes, with and without relays:
the checker proves the bound anew from its prices; prices that are raised or lowered prove no more
than the optimum; no verified plan is below; on machines of up to ``SMALL`` ranks a linear program
of flows, written out without trees, agrees.
"""

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from joint_cases import brute_force_us, is_relaxed, machines, workloads
from wave_cases import connected, least_us
from wave_checks import proved_us

from weft.dsl.base.errors import NothingFound, UserError, WeftError
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import chunk_bound, own_chunk_bound
from weft.synth.bounds.effort import BoundEffort
from weft.synth.joint.bound import JointBound, joint_bound, priced
from weft.synth.joint.demands import demands_of
from weft.synth.judge.verify import verify
from weft.synth.planning.joint_plan import JointPlanner
from weft.synth.prices.joint_prices import joint_prices
from weft.synth.time.schedule_time import simulate

COUNT = 200
WAVES = 300
"""Questions of the sweep of waves."""
ENGINES = ("sketched{{chunks={},patience=100}}", "greedy{{chunks={},seeds=1}}", "classic")
WITHOUT = BoundEffort(wave_receptions=0)
PROVABLE = 40
"""Copies of chunks up to which CP-SAT is asked, for a part of a second."""
SMALL = 6
NEAR = 1e-6


def faults(chip: Topology, found: JointBound, seen: Counter[str]) -> list[str]:
    """Return what is wrong with a bound, its certificate, or a plan."""
    asked = [priced(one) for one in found.demands]
    told = []
    if joint_prices(chip, asked, found.prices).us != found.us:
        told.append("the checker proves another bound")
    for factor in (2, 3):  # any prices prove a bound, so none may be above the optimum
        other = tuple(x * (factor if row % factor else 1) for row, x in enumerate(found.prices))
        if float(joint_prices(chip, asked, other).us) > found.value_us * (1 + NEAR):
            told.append("other prices prove more than the fluid solution takes")
    if float(found.us) > found.value_us * (1 + NEAR):
        told.append(f"the bound {float(found.us)} is above the fluid time {found.value_us}")
    seen["bound = optimum"] += found.exact
    if chip.ranks <= SMALL:
        brute = brute_force_us(chip, found.demands)
        seen["brute force"] += 1
        equal = abs(brute / float(found.us) - 1) <= NEAR
        # Where trees may pass others, the program of flows is a relaxation: at most the optimum.
        relaxed = any(is_relaxed(one) for one in found.demands)
        if brute > found.value_us * (1 + NEAR) or not (equal or relaxed):
            told.append(f"brute force says {brute}, the bound {float(found.us)}")
        seen["brute force equal"] += equal
    return told + _plan_faults(chip, found, seen)


def _plan_faults(chip: Topology, found: JointBound, seen: Counter[str]) -> list[str]:
    planner = JointPlanner(chip, found, Budget(effort=1))
    alone = planner.alone
    seen["bounds of one alone, with latency"] += alone is not None
    try:
        plan = planner.plan()
    except NothingFound:
        seen["without a plan"] += 1
        return []
    seen["plans"] += 1
    told = [] if verify(plan.schedule).ok else ["the plan is wrong"]
    if plan.us < float(found.us) * (1 - 1e-9):
        told.append(f"the plan takes {plan.us}, below the bound {float(found.us)}")
    if alone is not None and plan.us < float(alone.us) * (1 - 1e-9):
        told.append(f"the plan takes {plan.us}, below {float(alone.us)} of {alone.name} alone")
    return told


def wave_faults(seed: int, seen: Counter[str]) -> Iterator[str]:
    """Yield what is wrong with the bounds of one random question in whole chunks."""
    rng = random.Random(seed)
    machine, collective, pieces = connected(rng, 12)
    size = rng.choice((1, 64, 1024)) * 1024 * collective.message_chunks * pieces
    problem = Problem(machine, collective, None, Objective.TIME, size)
    gaps: list[tuple[float, float]] = []
    for engine in ENGINES:
        try:
            points = synthesize(problem, engine.format(pieces), Budget(1, seed=seed)).points
        except WeftError:
            continue
        for point in points:
            yield from _own_faults(point.schedule, size, gaps, seen)
    if gaps:
        before, after = map(min, zip(*gaps, strict=True))
        seen["questions"] += 1
        seen["gap of the best closed by waves"] += before > 1e-9 and after <= 1e-9
        seen["gap of the best smaller by waves"] += after < before - 1e-9
    asked = collective.split(pieces)
    if not collective.combining and len(asked.post) <= PROVABLE:
        grain = Fraction(size, asked.message_chunks)
        best = least_us(machine, asked, grain, 0.2)
        seen["CP-SAT"] += 1
        found = chunk_bound(machine, asked, size)
        seen["CP-SAT equal"] += found is not None and found.us == best
        if found is not None and found.us > best:
            yield f"CP-SAT finds {float(best)}, below {float(found.us)}"


def _own_faults(
    schedule: Schedule, size: int, gaps: list[tuple[float, float]], seen: Counter[str]
) -> Iterator[str]:
    found = own_chunk_bound(schedule, size)
    before = own_chunk_bound(schedule, size, WITHOUT)
    if found is None or before is None:
        seen["not counted"] += 1
        return
    us = simulate(schedule, size).time_us
    seen["schedules"] += 1
    gaps.append((before.gap(us), found.gap(us)))
    if us < float(found.us) * (1 - 1e-9):
        yield f"a schedule takes {us}, below {float(found.us)}: {found.certificate.text}"
    if found.certificate.kind == "chunk waves":
        seen["waves proved anew"] += 1
        cut = schedule.collective.split(schedule.segments)
        grain = Fraction(size, cut.message_chunks)
        try:
            if proved_us(schedule.topology, cut, grain, found.certificate.data) != found.us:
                yield "the checker proves another bound"
        except AssertionError as error:
            yield f"the checker refuses the certificate: {error}"


def _waves(count: int) -> int:
    seen: Counter[str] = Counter()
    bad: list[str] = []
    began = time.process_time()
    for seed in itertools.count():
        if seen["questions"] >= count:
            break
        bad += [f"question {seed}: {x}" for x in wave_faults(seed, seen)]
        if seed % 20 == 19:
            print(f"{seed + 1} questions, {len(bad)} faults", flush=True)
    return _told(seen, bad, began)


def _told(seen: Counter[str], bad: list[str], began: float) -> int:
    for what, number in seen.items():
        print(f"{what}: {number}")
    print(f"{len(bad)} faults, {time.process_time() - began:.0f} CPU s")
    for line in bad:
        print(line)
    return 1 if bad else 0


def main() -> int:
    """Print what was seen; 1 if anything is wrong."""
    if sys.argv[1:2] == ["waves"]:
        return _waves(int(sys.argv[2]) if len(sys.argv) > 2 else WAVES)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    seen: Counter[str] = Counter()
    bad: list[str] = []
    began = time.process_time()

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        chip = data.draw(machines())
        work = data.draw(workloads(chip.ranks))
        seen["workloads"] += 1
        try:
            found = joint_bound(chip, demands_of(work, chip.ranks))
        except UserError as error:
            seen[f"refused: {error.message.partition(': ')[2]}"] += 1
            return
        seen["with relays"] += any(one.relayed for one in found.demands)
        bad.extend(f"workload {seen['workloads']}: {x}" for x in faults(chip, found, seen))
        if seen["workloads"] % 20 == 0:
            print(f"{seen['workloads']} workloads, {len(bad)} faults", flush=True)

    collect()
    return _told(seen, bad, began)


if __name__ == "__main__":
    sys.exit(main())
