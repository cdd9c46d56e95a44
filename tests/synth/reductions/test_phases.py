"""Phases as a reduction: parts, the machines of groups, and schedules that are put together."""

from fractions import Fraction

import numpy as np
import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.composition import composed
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Chunks, Forbid, Phase, Phases, Rule, Sketch, Symmetry
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Outcome, Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.judge.verify import require_valid, verify
from weft.synth.reductions.groups import cells_of, group_machines, parts_of
from weft.synth.reductions.phases import whole_sums
from weft.synth.time.schedule_time import simulate

ROWS = ((0, 1, 2), (3, 4, 5))
COLUMNS = ((0, 3), (1, 4), (2, 5))
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))
SQUARES = ((0, 2), (1, 3), (4, 6), (5, 7))
HALVES = ((0, 4), (1, 5), (2, 6), (3, 7))

RAILS = """sketch rails
machine ndv2:nodes=2
phases:
    reduce_scatter within node
    allreduce across nodes by local rank
    allgather within node
"""

R, A, G, T = Kind.REDUCE_SCATTER, Kind.ALLREDUCE, Kind.ALLGATHER, Kind.ALLTOALL

COMPOSITIONS = [
    ("full:6", ((R, ROWS), (A, COLUMNS), (G, ROWS))),
    ("full:6", ((A, ROWS), (A, COLUMNS))),
    ("full:6", ((R, ROWS), (R, COLUMNS), (G, COLUMNS), (G, ROWS))),
    ("full:6", ((G, COLUMNS), (G, ROWS))),
    ("full:6", ((R, ROWS), (R, COLUMNS))),
    ("full:6", ((T, ROWS), (T, COLUMNS))),
    ("hypercube:3", ((R, PAIRS), (R, SQUARES), (A, HALVES), (G, SQUARES), (G, PAIRS))),
    ("hypercube:3", ((R, PAIRS), (A, SQUARES), (A, HALVES), (G, PAIRS))),
    ("hypercube:3", ((G, PAIRS), (G, SQUARES), (G, HALVES))),
    ("hypercube:3", ((T, HALVES), (T, PAIRS), (T, SQUARES))),
    ("torus:3x2", ((A, ROWS), (A, COLUMNS))),
]


def problem(
    machine: str,
    phases: tuple[tuple[Kind, tuple[tuple[int, ...], ...]], ...],
    *rules: Rule,
    size: int = 1 << 20,
    objective: Objective = Objective.TIME,
) -> Problem:
    where = topology(machine)
    steps = tuple(Phase(kind, groups) for kind, groups in phases)
    whole = composed(steps)
    sketch = Sketch("phased", (Phases(steps, whole, label="phases"), *rules))
    return Problem(where, make(whole, where.ranks), sketch, objective, size)


def solved(asked: Problem, engine: str, effort: float = 1) -> Outcome:
    return synthesize(asked, engine, Budget(effort))


@pytest.mark.parametrize(("machine", "phases"), COMPOSITIONS)
@pytest.mark.parametrize("engine", ["packing", "sketched"])
def test_engines_that_know_no_phases_obey_them(
    machine: str, phases: tuple[tuple[Kind, tuple[tuple[int, ...], ...]], ...], engine: str
) -> None:
    """The checker of sketches, which shares nothing with the reduction, agrees."""
    asked = problem(machine, phases, size=1 << 16)
    (point,) = solved(asked, engine, 0.5).points
    assert verify(point.schedule, asked.sketch).ok
    assert point.schedule.provenance["reduction"] == "phases"
    least = float(lower_bound_us(bounds(asked.topology, asked.collective), 1 << 16))
    assert simulate(point.schedule, 1 << 16).time_us >= least * (1 - 1e-9)


def test_a_group_without_links_is_named() -> None:
    asked = problem("ring:6", ((A, ROWS), (A, COLUMNS)))
    with pytest.raises(UserError, match="phase 2: no links join ranks 0, 3"):
        solved(asked, "packing")


def test_an_engine_refuses_a_part_in_its_own_words() -> None:
    asked = problem("full:6", ((T, ROWS), (T, COLUMNS)))
    with pytest.raises(UserError, match=r"alltoall|all to all|paths"):
        solved(asked, "packing{trees=1}")


def rails(machine: str, size: int) -> Problem:
    where = topology(machine)
    sketch = elaborate(parse(RAILS, "rails"), where)
    return Problem(where, make("allreduce", where.ranks), sketch, Objective.TIME, size)


def test_the_portfolio_takes_the_better_of_phases_and_classic() -> None:
    asked = rails("dgx-h100:nodes=2", 1 << 20)
    best = solved(asked, "portfolio{engines=packing+classic}").points[0]
    classic = solved(asked, "classic").points[0]
    assert best.schedule.provenance["found_by"] == "phases"
    assert len(best.schedule.provenance["parts"]) == 3
    took, before = (simulate(p.schedule, 1 << 20).time_us for p in (best, classic))
    assert took < 0.95 * before


def test_the_nics_work_while_the_links_inside_do() -> None:
    point = solved(rails("ndv2:nodes=2", 64 << 20), "packing").points[0]
    assert point.schedule.segments > 1


# --- parts ----------------------------------------------------------------------------------------


def test_cells_are_what_no_phase_divides_further() -> None:
    rails = (Phase(R, ROWS), Phase(A, COLUMNS), Phase(G, ROWS))
    assert cells_of(rails, A, 6) == 3
    scatter, *columns, gather = (
        [p for p in parts_of(rails, A, 6) if p.phase == n] for n in range(3)
    )
    assert [p.cells.tolist() for p in scatter] == [[[0], [1], [2]]] * 2
    assert [p.cells.tolist() for p in columns[0]] == [[[0]], [[1]], [[2]]]
    assert [p.cells.tolist() for p in gather] == [[[0], [1], [2]]] * 2


def test_a_later_allgather_moves_what_the_earlier_ones_brought() -> None:
    first, second = (Phase(G, COLUMNS), Phase(G, ROWS))
    parts = parts_of((first, second), G, 6)
    assert parts[0].cells.tolist() == [[0], [3]]
    assert parts[-1].cells.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_an_alltoall_hands_on_what_later_groups_want() -> None:
    parts = parts_of((Phase(T, ROWS), Phase(T, COLUMNS)), T, 6)
    first = parts[0].cells.reshape(3, 3, -1)
    # What rank 0 has for column 1, which is ranks 1 and 4: units 1 and 4 of its row.
    assert first[0, 1].tolist() == [1, 4]
    last = parts[-1].cells.reshape(2, 2, -1)
    # Rank 2 holds for rank 5 what all of its row had for it.
    assert last[0, 1].tolist() == [5, 11, 17]


# --- the machines of groups -----------------------------------------------------------------------


def test_groups_share_what_they_have_in_common() -> None:
    """Eight rails of an NDv2 go through one NIC: each has an eighth of it."""
    where = topology("ndv2:nodes=2")
    rails = tuple((i, 8 + i) for i in range(8))
    machines = group_machines(where, rails, "rail")
    parts = (m.topology for m in machines)
    assert len({(one.nodes, one.links, one.resources) for one in parts}) == 1
    nic = min(where.capacities())
    one = machines[0].topology
    assert min(one.capacities()) == nic / 8
    for machine in machines:
        for here, i in zip(machine.topology.links, machine.links.tolist(), strict=True):
            there = where.links[i]
            assert (machine.nodes[here.src], machine.nodes[here.dst]) == (there.src, there.dst)


def test_a_group_has_all_of_what_is_its_own() -> None:
    where = topology("full:6")
    for machine in group_machines(where, ROWS, "row"):
        assert machine.topology.capacities() == tuple([where.links[0].bandwidth] * 6)


# --- rules ----------------------------------------------------------------------------------------


def test_rules_about_hops_bind_the_parts() -> None:
    forbid = Forbid(frozenset([(0, 1), (3, 4)]), label="no shortcut")
    asked = problem("full:6", ((G, COLUMNS), (G, ROWS)), forbid)
    (point,) = solved(asked, "packing").points
    s = point.schedule
    assert not ((s.src == 0) & (s.dst == 1)).any()


def test_the_symmetry_of_a_sketch_is_kept() -> None:
    swap = Symmetry((3, 4, 5, 0, 1, 2), label="swap the rows")
    asked = problem("full:6", ((G, COLUMNS), (G, ROWS)), swap)
    (point,) = solved(asked, "sketched").points
    assert verify(point.schedule, asked.sketch).ok


def test_the_chunks_of_a_unit_are_shared_out_among_its_cells() -> None:
    phases = ((R, ROWS), (R, COLUMNS), (G, COLUMNS), (G, ROWS))
    (point,) = solved(problem("full:6", phases, Chunks(12, label="twelve")), "sketched").points
    assert point.factor == 12
    with pytest.raises(UserError, match="8 chunks are not shared out among the 6 parts"):
        solved(problem("full:6", phases, Chunks(8, label="eight")), "sketched")


# --- sums -----------------------------------------------------------------------------------------


def test_contributions_that_come_straight_are_sums_on_the_way() -> None:
    where = topology("full:3")
    (one,) = synthesize(
        Problem(where, make("allreduce", 3), None, Objective.LATENCY), "classic{algorithm=one_shot}"
    ).points
    summed = whole_sums(one.schedule)
    assert summed is not None
    assert summed.reduce.all()
    require_valid(summed)


def test_every_objective_is_answered() -> None:
    for objective in Objective:
        asked = problem("full:6", ((G, COLUMNS), (G, ROWS)), objective=objective)
        outcome = solved(asked, "packing")
        assert outcome.status is Status.FEASIBLE
        assert all(verify(p.schedule, asked.sketch).ok for p in outcome.points)
        assert all(p.rounds_per_chunk >= Fraction(p.bound) for p in outcome.points)
        assert np.all([p.steps >= 2 for p in outcome.points])
