"""GOAL texts and Chakra traces of many schedules, in strict readers of the published grammars."""

from functools import cache

import outside_readers
import pytest
from outside_simulators import made, time_of

from weft.backends.formats.chakra.format import ChakraEt
from weft.backends.formats.goal.format import GoalFile
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget

MACHINES = (
    "ring:5 full:4 torus:3x3 hypercube:3 fat-tree:k=4 dgx1 dgx2 mi250 dgx-a100:nodes=2 "
    "dgx-h100:nodes=2"
).split()
COLLECTIVES = {
    "allreduce": ("classic",),
    "allgather": ("classic",),
    "reduce_scatter": ("classic",),
    "broadcast": ("classic", "greedy"),
    "alltoall": ("greedy",),
}
SIZE = 1 << 17

SCHEDULES = [
    (machine, collective, engine)
    for machine in MACHINES
    for collective, engines in COLLECTIVES.items()
    for engine in engines
]


@cache
def schedule(machine: str, collective: str, engine: str) -> Schedule:
    on = topology(machine)
    problem = Problem(on, make(collective, on.ranks), None, Objective.TIME, SIZE)
    return synthesize(problem, engine, Budget(effort=1)).points[0].schedule


@pytest.mark.parametrize("machine", MACHINES)
def test_files_are_read_by_the_published_grammars(machine: str) -> None:
    """Every message of the schedule is in both files, and in neither twice."""
    for name, collective, engine in SCHEDULES:
        if name != machine:
            continue
        found = schedule(name, collective, engine)
        goal = made(GoalFile(), found, SIZE)
        ranks = outside_readers.read_goal(goal.text)
        sends = [one for own in ranks for one in own.operations if one[0] == "send"]
        format = ChakraEt()
        et = made(format, found, SIZE)
        files = format.files(et.text, "x")
        traces = outside_readers.read_algorithm(
            {rank: files[f".{rank}.et"] for rank in range(found.topology.ranks)}
        )
        told = [n for own in traces.values() for n in own if n.type == outside_readers.SEND_NODE]
        assert len(sends) == len(told) == goal.facts["messages"]
        one = time_of(et)
        assert one["schedule_us"] == time_of(goal)["schedule_us"]
