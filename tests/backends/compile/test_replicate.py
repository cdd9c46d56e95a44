"""The program of n instances is that of one, n times."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from weft.backends.check.checker import check_program
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.compile.replicate import replicated
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import MSCCL
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.time.program_time import ProgramClock
from weft.synth.time.runtime_model import MSCCL as MODEL


def found(machine: str, kind: str, engine: str) -> Schedule:
    where = topology(machine)
    problem = Problem(where, make(kind, where.ranks))
    return synthesize(problem, engine, Budget(1.0)).points[0].schedule


CASES = (
    ("ring:4", "allreduce", "classic{algorithm=ring}"),
    ("dgx1", "allreduce", "classic{algorithm=recursive_doubling}"),
    ("full:4", "alltoall", "classic{algorithm=pairwise}"),
    ("ring:4", "broadcast", "classic{algorithm=chain}"),
)


@pytest.mark.parametrize(
    ("machine", "kind", "engine", "in_place"),
    [(*case, False) for case in CASES]
    + [(*case, True) for case in CASES if "alltoall" not in case],
)
@pytest.mark.parametrize("pairing", [Pairing.AUTO, Pairing.NONE])
def test_it_is_what_the_passes_make(
    machine: str, kind: str, engine: str, in_place: bool, pairing: Pairing
) -> None:
    schedule = found(machine, kind, engine)
    options: dict[str, Any] = {"pairing": pairing, "in_place": in_place, "name": "same"}
    one = lower_schedule(schedule, CompileOptions(**options))
    wanted = lower_schedule(schedule, CompileOptions(instances=2, **options))
    twice = replicated(one, 2, MSCCL)
    assert twice is not None
    assert not any(check_program(twice))
    assert _columns(twice) == _columns(wanted)
    size = 1 << 20
    times = {ProgramClock(p, schedule.topology, MODEL).time_us(size) for p in (twice, wanted)}
    assert len(times) == 1


def _columns(program: Program) -> dict[str, Any]:
    values = {f.name: getattr(program, f.name) for f in fields(program)}
    # What is read by an instruction that reads nothing is no one's business.
    return {k: v.tolist() if isinstance(v, np.ndarray) else str(v) for k, v in values.items()}


def test_no_more_than_the_target_has_room_for() -> None:
    one = lower_schedule(found(*CASES[0]), CompileOptions())
    assert replicated(one, 1, MSCCL) is one
    assert replicated(one, 33, MSCCL) is None


def test_neighbours_of_different_units_are_not_torn_apart() -> None:
    # The whole output of a rank is sent on in one message, of blocks that instances cut apart.
    schedule = found("full:8", "gather", "classic{algorithm=binomial}")
    one = lower_schedule(schedule, CompileOptions())
    assert int(one.count.max()) > 1
    assert replicated(one, 2, MSCCL) is None
