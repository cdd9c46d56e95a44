"""The program in epochs: a relaxation, whatever the epoch; its answer in real time."""

from fractions import Fraction

import pytest

from weft.dsl.base.errors import Missing
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.flow.copies import Epochs, placements_of
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


@pytest.mark.parametrize(
    ("machine", "kind", "pieces", "best"),
    [
        ("ring:4", "allgather", 1, 9.4),  # two chunks one after the other: 2 · (4 + 0.7)
        ("ring:5", "broadcast", 1, 33.4),  # two hops: 2 · (16 + 0.7)
        ("line:3", "broadcast", 4, 21.4),  # four pieces and one hop more, 4 each: 20, and 2 α
    ],
)
@pytest.mark.parametrize("most", [6, 12, 24])
def test_it_never_proves_too_much_and_finds_the_best(
    machine: str, kind: str, pieces: int, best: float, most: int
) -> None:
    field = field_of(topology(machine), kind, pieces)
    epochs = Epochs.of(field, int(1.3 * best * field.machine.unit), most)
    assert epochs is not None
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
    epochs = Epochs.of(field, int(9.0 * field.machine.unit), 24)
    assert epochs is not None
    assert solve(epochs.model(0.0), "highs", steps=10_000_000).infeasible


def test_too_few_epochs_are_told() -> None:
    field = field_of(topology("ring:4"))
    assert Epochs.of(field, 100 * int(9.4 * field.machine.unit), 24) is None


def test_a_solver_that_is_no_longer_wanted_is_killed() -> None:
    field = field_of(topology("torus:4x4"), "allgather", 2)
    epochs = Epochs.of(field, int(13 * field.machine.unit), 24)
    assert epochs is not None
    polls = iter(range(10))
    listener = Listener(lambda: next(polls, None) is None)
    answer = solve(epochs.model(0.0), "highs", steps=10**12, listener=listener)
    assert answer.steps == 10**12  # it has no answer of its own
    assert not answer.infeasible


def test_a_solver_that_is_not_there_is_told() -> None:
    field = field_of(topology("ring:4"))
    epochs = Epochs.of(field, int(10 * field.machine.unit), 24)
    assert epochs is not None
    with pytest.raises(Missing, match="MOSEK"):
        solve(epochs.model(0.0), "MOSEK", steps=5_000_000)
