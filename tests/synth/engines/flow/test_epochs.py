"""The program in epochs: a relaxation, whatever the epoch; its answer in real time."""

from dataclasses import replace
from fractions import Fraction

import pytest

from weft.dsl.base.errors import Missing
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.flow.copies import Epochs, EpochSize, placements_of
from weft.synth.engines.flow.engine import FlowEngine
from weft.synth.engines.sketched.field import SearchInstance
from weft.synth.judge.verify import verify
from weft.synth.lp.highs import solve
from weft.synth.solvers.pool import Listener
from weft.synth.time.schedule_time import simulate

SIZE = 400_000


def field_of(machine: Topology, kind: str = "allgather", pieces: int = 1) -> SearchInstance:
    collective = make(kind, machine.ranks, roots=(0,) if kind == "broadcast" else ())
    cut = collective.split(pieces) if pieces > 1 else collective
    return SearchInstance.of(Problem(machine, collective), cut, Fraction(SIZE, cut.message_chunks))


def size_of(field: SearchInstance, us: float, most: int = 0, starts: int = 6000) -> EpochSize:
    effort = replace(FlowEngine().effort, good_starts=starts)
    return EpochSize.chosen(field, int(us * field.machine.unit), most, effort)


def epochs_of(field: SearchInstance, us: float, most: int = 0) -> Epochs:
    return Epochs.of(field, int(us * field.machine.unit), size_of(field, us, most).tau)


@pytest.mark.parametrize(
    ("machine", "kind", "pieces", "best"),
    [
        ("ring:4", "allgather", 1, 9.4),  # two chunks one after the other: 2 · (4 + 0.7)
        ("ring:5", "broadcast", 1, 33.4),  # two hops: 2 · (16 + 0.7)
        ("line:3", "broadcast", 4, 21.4),  # four pieces and one hop more, 4 each: 20, and 2 α
    ],
)
@pytest.mark.parametrize("most", [3, 6, 24])
def test_it_never_proves_too_much_and_finds_the_best(
    machine: str, kind: str, pieces: int, best: float, most: int
) -> None:
    field = field_of(topology(machine), kind, pieces)
    epochs = epochs_of(field, 1.3 * best, most)
    answer = solve(epochs.model(0.0), "highs", steps=10_000_000)
    assert answer.bound is not None
    assert answer.values is not None
    proved = field.machine.us(Fraction(answer.bound * epochs.tau))
    schedule = field.schedule(placements_of(field, epochs.chosen(answer.values)))
    assert verify(schedule).ok
    assert proved <= best * (1 + 1e-6)
    assert simulate(schedule, SIZE).time_us >= best * (1 - 1e-9)


def test_below_the_best_there_is_nothing() -> None:
    field = field_of(topology("ring:4"))
    epochs = epochs_of(field, 9.0)
    assert solve(epochs.model(0.0), "highs", steps=10_000_000).infeasible


@pytest.mark.parametrize("most", [1, 2])
def test_hops_shorter_than_an_epoch_bring_chunks_from_somewhere(most: int) -> None:
    """In one epoch two ranks could hand each other a chunk that neither has."""
    field = field_of(topology("ring:5"), "broadcast")
    epochs = epochs_of(field, 1.3 * 33.4, most)
    assert epochs.tau > field.hops.arrives.min()
    answer = solve(epochs.model(0.0), "highs", steps=10_000_000)
    assert answer.values is not None
    assert field.machine.us(Fraction(answer.bound * epochs.tau)) == pytest.approx(33.4)
    schedule = field.schedule(placements_of(field, epochs.chosen(answer.values)))
    assert verify(schedule).ok
    assert simulate(schedule, SIZE).time_us == pytest.approx(33.4)


def test_epochs_of_a_far_horizon_are_long_and_few_starts_make_them_longer() -> None:
    """A known schedule a hundred times too slow: starts, not epochs, limit the program."""
    field, limit = field_of(topology("ring:4")), 100 * 9.4
    far = size_of(field, limit)
    assert far.starts <= 6000
    few = size_of(field, limit, starts=40)
    assert few.starts <= 40
    assert few.tau > far.tau
    assert "at least 40 starts" not in few.too_many(39)
    assert f"at least {few.starts} starts, in {few.epochs} epochs" in few.too_many(39)


def test_a_solver_that_is_no_longer_wanted_is_killed() -> None:
    field = field_of(topology("torus:4x4"), "allgather", 2)
    epochs = epochs_of(field, 13)
    polls = iter(range(10))
    listener = Listener(lambda: next(polls, None) is None)
    answer = solve(epochs.model(0.0), "highs", steps=10**12, listener=listener)
    assert answer.steps == 10**12  # it has no answer of its own
    assert not answer.infeasible


def test_a_solver_that_is_not_there_is_told() -> None:
    field = field_of(topology("ring:4"))
    epochs = epochs_of(field, 10)
    with pytest.raises(Missing, match="MOSEK"):
        solve(epochs.model(0.0), "MOSEK", steps=5_000_000)
