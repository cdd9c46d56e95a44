"""Solvers die, are cut off, lack memory: what was found stays, and the next question works."""

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pulp
import pytest
from scipy.sparse import random_array

from weft.dsl.base.environment import SOLVER_MEMORY
from weft.dsl.base.errors import UserError
from weft.dsl.base.processes import descendants
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import GIVEN_UP, SOLVER_DIED, Budget, Silent
from weft.synth.lp import highs as lp_solver
from weft.synth.lp.highs import INFEASIBLE, solve_lp
from weft.synth.solvers.cp_sat import CpAnswer, CpModel, CpVerdict, solve
from weft.synth.solvers.pool import Listener, solvers

STEPS = 300_000
DEATHS = [signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV]


def knapsack(things: int = 40, rows: int = 6) -> CpModel:
    """A model with several better and better solutions."""
    model = CpModel()
    chance = random.Random(7)
    x = [model.boolean() for _ in range(things)]
    for _ in range(rows):
        weights = [chance.randint(1, 99) for _ in x]
        model.linear(list(zip(x, weights, strict=True)), least=sum(weights) // 2)
    model.minimize([(y, chance.randint(1, 99)) for y in x])
    return model


@cache
def answered() -> CpAnswer:
    """The answer of a solver that is left in peace; one runs afterwards."""
    return solve(knapsack(), steps=STEPS)


def solver_processes() -> list[int]:
    """Of this process; a browser that other tests left running is none."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if b"solvers.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def kill_at_first_poll(number: int) -> Callable[[], bool]:
    """A request to stop that is never made: the first time it is asked it kills the solver."""
    left = [number]

    def stopped() -> bool:
        while left:
            signals = [left.pop(), signal.SIGCONT]
            for pid in solver_processes():
                for one in signals:
                    os.kill(pid, one)
        return False

    return stopped


def test_one_process_answers_question_after_question() -> None:
    solve(knapsack(), steps=1000)
    first = solver_processes()
    solve(knapsack(10), steps=STEPS)
    assert len(first) == 1
    assert solver_processes() == first


@pytest.mark.parametrize("number", DEATHS)
def test_a_question_of_which_it_dies_once_has_the_same_answer(number: int) -> None:
    expected = answered()
    for pid in solver_processes():
        os.kill(pid, signal.SIGSTOP)  # until it is killed: it must not answer before
    told: list[str] = []
    listener = Listener(kill_at_first_poll(number), told.append)
    assert solve(knapsack(), steps=STEPS, listener=listener) == expected
    assert expected.found
    assert len(told) == 1
    assert told[0].startswith(SOLVER_DIED)
    assert signal.Signals(number).name in told[0]
    assert "started again" in told[0]


def test_what_it_found_before_it_died_is_kept() -> None:
    """Killed at the first poll after it has sent a solution, every time it is asked."""
    heard: list[object] = []
    told: list[str] = []

    def stopped() -> bool:
        if heard:
            for pid in solver_processes():
                os.kill(pid, signal.SIGKILL)
            heard.clear()
        return False

    found: list[list[int]] = []

    def hear(values: list[int]) -> None:
        heard.append(values)
        found.append(values)

    model = knapsack(200, 30)
    question = {
        "solver": "cp-sat",
        "model": model.text,
        "parameters": "num_workers:1 max_deterministic_time:1",
    }
    assert solvers().ask(question, Listener(stopped, told.append), hear) is None
    assert len(found) >= 2
    assert all(len(values) == 200 for values in found)
    assert "given up" in told[-1]


def cut_off_after(polls: int) -> Listener:
    left = iter(range(polls))
    return Listener(lambda: next(left, None) is None)


def test_a_cut_off_keeps_the_best_so_far() -> None:
    """The more polls it lives, the better: never worse, and never without what was heard."""
    model = knapsack(200, 30)
    steps = STEPS // 3
    whole = solve(model, steps=steps)
    answers = [solve(model, steps=steps, listener=cut_off_after(polls)) for polls in (0, 1, 60)]
    assert answers[0] == CpAnswer(CpVerdict.UNKNOWN, (), steps)
    assert all(len(x.values) == 200 for x in answers if x.found)
    assert solve(model, steps=steps) == whole


def test_out_of_memory_is_told_and_the_next_question_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setenv(SOLVER_MEMORY, "100MiB")
    large = CpModel()
    x = [large.boolean() for _ in range(60_000)]
    for y, z in pairwise(x):
        large.linear([(y, 3), (z, 2)], least=1, most=4)
    answer = solve(large, steps=20_000_000, listener=Listener(tell=told.append))
    assert answer.verdict is CpVerdict.UNKNOWN
    assert "100MiB" in told[0]
    assert solve(knapsack(10), steps=STEPS).verdict is CpVerdict.OPTIMAL
    monkeypatch.delenv(SOLVER_MEMORY)
    assert solve(large, steps=20_000_000).verdict is CpVerdict.OPTIMAL


def test_a_limit_of_memory_must_be_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOLVER_MEMORY, "much")
    with pytest.raises(UserError) as error:
        solve(knapsack(10), steps=STEPS)
    assert SOLVER_MEMORY in error.value.render()


class Killer(Silent):
    """An observer that kills the solver three times, some polls apart."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.left = 3
        self.alone = threading.Lock()  # the search and its caller both poll

    def cancelled(self) -> bool:
        with self.alone:
            if self.left and self.chance.random() < 0.5:
                for pid in solver_processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, self.chance.choice(DEATHS))
                        self.left -= 1
        return False


@pytest.mark.parametrize("seed", range(2))
def test_a_search_whose_solver_dies_again_and_again_ends_with_an_answer(seed: int) -> None:
    killer = Killer(seed)
    machine = topology("dgx1")
    outcome = synthesize(Problem(machine, make("allgather", 8)), "exact", Budget(20), killer)
    assert outcome.points
    assert killer.left < 3


def mixed_program(things: int = 120, rows: int = 20) -> pulp.LpProblem:
    """A program of which HiGHS finds several better and better solutions."""
    chance = random.Random(3)
    model = pulp.LpProblem("things", pulp.LpMaximize)
    x = [model.add_variable(f"x{i}", cat="Binary") for i in range(things)]
    model += pulp.lpSum(chance.randint(1, 99) * y for y in x)
    for _ in range(rows):
        weights = [chance.randint(1, 99) for _ in x]
        model += pulp.lpSum(w * y for w, y in zip(weights, x, strict=True)) <= sum(weights) // 2
    return model


def test_a_mixed_program_within_steps_is_the_same_again_and_after_an_abort() -> None:
    first = lp_solver.solve(mixed_program(), "highs", steps=50_000)
    assert first.values is not None
    assert first.bound is not None
    told: list[str] = []
    listener = Listener(kill_at_first_poll(signal.SIGABRT), told.append)
    again = lp_solver.solve(mixed_program(), "highs", steps=50_000, listener=listener)
    assert again == first
    assert len(told) == 1


def test_a_mixed_program_cut_off_keeps_its_incumbent() -> None:
    heard = 0

    def stopped() -> bool:
        nonlocal heard
        heard += 1
        return heard > 60

    model = mixed_program(400, 60)
    answer = lp_solver.solve(model, "highs", steps=10**12, listener=Listener(stopped))
    assert answer.steps == 10**12
    assert answer.values


def test_a_solver_that_is_stopped_for_ever_is_replaced() -> None:
    """No CPU is used meanwhile, so that no cut-off would come."""
    expected = answered()
    told: list[str] = []

    def stopped() -> bool:
        if not told:
            for pid in solver_processes():
                os.kill(pid, signal.SIGSTOP)
        return False

    assert solve(knapsack(), steps=STEPS, listener=Listener(stopped, told.append)) == expected
    assert "stopped and not continued" in told[0]


class AlwaysDeadly(Silent):
    """An observer that kills the solver whenever it is asked anything."""

    def cancelled(self) -> bool:
        for pid in solver_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return False


def test_an_answer_says_which_questions_were_given_up() -> None:
    machine = topology("ring:4")
    outcome = synthesize(Problem(machine, make("allgather", 4)), "exact", Budget(3), AlwaysDeadly())
    assert [x for x in outcome.statements if x.startswith(SOLVER_DIED) and x.endswith(GIVEN_UP)]


def random_program(columns: int = 400, rows: int = 120) -> dict[str, Any]:
    """Cover all rows at the least cost."""
    chance = np.random.default_rng(5)
    matrix = random_array((rows, columns), density=0.1, rng=chance, format="csr")
    cost = chance.integers(1, 99, columns).astype(float)
    return {"cost": cost, "a_ub": -matrix, "b_ub": -np.ones(rows), "bounds": (0, None)}


def test_a_linear_program_has_the_same_bits_here_in_the_process_and_after_an_abort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = solve_lp(**random_program())
    monkeypatch.setattr("weft.synth.lp.highs.PROCESS_ENTRIES", 1)
    told: list[str] = []
    listener = Listener(kill_at_first_poll(signal.SIGABRT), told.append)
    for other in (solve_lp(**random_program()), solve_lp(**random_program(), listener=listener)):
        assert other.x is not None
        assert here.x is not None
        assert other.x.tobytes() == here.x.tobytes()
        assert other.ub_prices.tobytes() == here.ub_prices.tobytes()
        assert (other.value, other.iterations) == (here.value, here.iterations)
    assert len(told) == 1


def test_a_linear_program_in_the_process_can_be_infeasible_limited_or_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.synth.lp.highs.PROCESS_ENTRIES", 1)
    impossible = random_program() | {"bounds": (0, 0)}
    assert solve_lp(**impossible).status == INFEASIBLE
    assert solve_lp(**random_program(), iterations=3).unfinished
    assert solve_lp(**random_program(), listener=Listener(lambda: True)).unfinished


@pytest.mark.parametrize("memory", ["30MiB", "110MiB"])
def test_a_linear_program_without_memory_is_given_up(
    monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    """SciPy is loaded before the limit holds: OpenBLAS tries for ever to allocate, and no thread
    starts."""
    monkeypatch.setattr("weft.synth.lp.highs.PROCESS_ENTRIES", 1)
    monkeypatch.setenv(SOLVER_MEMORY, memory)
    told: list[str] = []
    large = random_program(4000, 1200)
    assert solve_lp(**large, listener=Listener(tell=told.append)).unfinished
    assert told[-1].endswith(GIVEN_UP)


# --- models ---------------------------------------------------------------------------------------


def test_a_variable_without_values_makes_a_model_impossible() -> None:
    model = CpModel()
    x = model.boolean()
    model.minimize([(model.integer(1, 0), 1), (x, 1)])
    assert solve(model, steps=1_000_000).verdict is CpVerdict.INFEASIBLE


def test_a_range_of_one_value_is_that_value() -> None:
    model = CpModel()
    model.integer(3, 3)
    assert solve(model, steps=1_000_000).values == (3,)
