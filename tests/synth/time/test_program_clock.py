"""The compiled kernel does what the plain one does, to the last tick; clocks of programs."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import random_program
from timed_cases import MODELS, cases
from timed_programs import (
    all_pairs,
    binomial_broadcast,
    chain_broadcast,
    instr,
    program,
    ring_allgather,
    ring_allreduce,
    stream,
)

from weft.dsl.base.errors import BadTopology, CheckFailed, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.program import Block, Program, Protocol
from weft.dsl.nouns.topology import Link, Topology, both_ways, gpu
from weft.synth.time import program_kernel
from weft.synth.time import program_time as module
from weft.synth.time.program_machine import Machine
from weft.synth.time.program_time import (
    ProgramClock,
    ProgramSimulation,
    simulate_program,
)
from weft.synth.time.runtime_model import MSCCL, RuntimeModel

PYTHON, COMPILED = 1 << 62, 0
"""Operations that are done before the compiled loop is loaded."""


def assert_same(
    p: Program,
    machine: Topology,
    size: int,
    model: RuntimeModel = MSCCL,
    protocol: Protocol | None = None,
    most: int = 100_000,
) -> ProgramSimulation:
    """Both machines, in every number; and no run is below the load of its busiest resource."""
    slow, quick = (
        ProgramClock(p, machine, model).simulate(size, protocol, most_operations=most, few=few)
        for few in (PYTHON, COMPILED)
    )
    assert quick.time_us == slow.time_us
    assert quick.busy_us.tolist() == slow.busy_us.tolist()
    assert quick.finish_us.tolist() == slow.finish_us.tolist()
    assert quick.spent_us.tolist() == slow.spent_us.tolist()
    assert (quick.exact, quick.simulated, quick.operations, quick.cut) == (
        slow.exact,
        slow.simulated,
        slow.operations,
        slow.cut,
    )
    least = ProgramClock(p, machine, model).least_us(size, protocol or p.protocol)
    assert not quick.exact or least <= quick.time_us * (1 + 1e-9)
    return quick


@pytest.fixture(autouse=True)
def compiled_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that ran, one after the other."""
    ran: list[str] = []
    run = module.run_to_end

    def note(machine: Machine, most: float) -> object:
        ran.append("plain" if machine.kernel is program_kernel else "compiled")
        return run(machine, most)

    monkeypatch.setattr(module, "run_to_end", note)
    return ran


# --- the same, in every number --------------------------------------------------------------------

WRITTEN = [
    (stream(3, 4), "line:2"),
    (ring_allgather(5), "ring:5"),
    (ring_allreduce(6), "ring:6"),
    (ring_allreduce(4), "hub:4"),
    (chain_broadcast(4, 3), "line:4"),
    (all_pairs(6), "hub:6"),
    (all_pairs(5), "full:5"),
    (binomial_broadcast(8), "hub:8"),
]


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize(("p", "machine"), WRITTEN)
def test_programs_written_by_hand(p: Program, machine: str, protocol: Protocol) -> None:
    for size in (1, 999, 1_000_003, 70_000_001):
        assert_same(p, topology(machine), size, protocol=protocol)


@settings(max_examples=examples(17, 60), deadline=None)
@given(cases(40), st.sampled_from(MODELS), st.sampled_from(Protocol))
def test_compiled_schedules(
    case: tuple[Program, Topology, int], model: RuntimeModel, protocol: Protocol
) -> None:
    """Under another protocol than its own a program may wait for slots for ever: told by both."""
    p, machine, size = case
    try:
        assert_same(p, machine, size, model, protocol)
    except CheckFailed:
        assert protocol is not p.protocol
        slow, quick = (hang(p, machine, size, model, protocol, few) for few in (PYTHON, COMPILED))
        assert slow == quick != ""


def hang(
    p: Program, machine: Topology, size: int, model: RuntimeModel, protocol: Protocol, few: int
) -> str:
    """Return the error of a program that never ends, else an empty text."""
    clock = ProgramClock(p, machine, model)
    try:
        clock.simulate(size, protocol, most_operations=100_000, few=few)
    except CheckFailed as error:
        return str(error)
    return ""


@settings(max_examples=examples(35, 150), deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 1 << 24),
    st.sampled_from(MODELS),
    st.sampled_from(Protocol),
)
def test_random_programs(
    dice: random.Random, size: int, model: RuntimeModel, protocol: Protocol
) -> None:
    """Messages, waits and counts at random, on links of few speeds: many ties."""
    p = random_program(dice)
    machine = topology(f"{dice.choice(['hub', 'full', 'ring'])}:{len(p.ranks)}")
    if dice.random() < 0.7:
        links = [replace(x, bandwidth=Fraction(dice.choice((10, 20, 25)))) for x in machine.links]
        machine = replace(machine, links=tuple(links))
    if dice.random() < 0.5:
        links = [replace(x, latency=Fraction(dice.choice((0, 1, 2)))) for x in machine.links]
        machine = replace(machine, links=tuple(links))
    assert_same(p, machine, size, model, protocol, most=4000)


def test_no_programs_are_left_to_python(compiled_runs: list[str]) -> None:
    assert_same(ring_allreduce(6), topology("ring:6"), 1 << 26)
    assert compiled_runs == ["plain", "compiled"]


# --- at the edges ---------------------------------------------------------------------------------


def test_a_deadlock_says_the_same() -> None:
    """Where the FIFO of two slots is full, in whichever machine."""
    code = tuple(instr("s", f"o{i}") for i in range(3)) + tuple(
        instr("r", f"o{i}") for i in range(3, 6)
    )
    p = program("allreduce", [[Block(0, 1 - r, 1 - r, code)] for r in range(2)], 6)
    with pytest.raises(CheckFailed) as slow:
        simulate_program(p, topology("line:2"), 600, MSCCL)
    clock = ProgramClock(p, topology("line:2"), MSCCL)
    for ask in (clock.simulate, clock.time_us):
        with pytest.raises(CheckFailed) as quick:
            ask(600)
        assert str(quick.value) == str(slow.value)
    assert clock.time_us(600, Protocol.LL) > 0


SPEEDS = tuple(Fraction(p, 10_007) for p in (100_003, 100_019, 100_043, 100_049))
"""Their common unit is beyond 64 bits."""


def awkward() -> Topology:
    links = [
        replace(x, bandwidth=SPEEDS[i % 4], latency=Fraction(1, 997 + i))
        for i, x in enumerate(topology("ring:6").links)
    ]
    return Topology("awkward", tuple(map(gpu, range(6))), tuple(links))


def test_ticks_that_do_not_fit(compiled_runs: list[str]) -> None:
    """The simulation is exact, in Python; the clock rounds to 2^-n µs."""
    p, machine = ring_allreduce(6), awkward()
    for size in (6_000_003, 80_000_033):
        exact = simulate_program(p, machine, size, MSCCL)
        assert compiled_runs.pop() == "plain"
        assert ProgramClock(p, machine, MSCCL).time_us(size) == pytest.approx(
            exact.time_us, rel=1e-9
        )
        assert compiled_runs.pop() == "compiled"


def test_the_compiled_loop_takes_over(compiled_runs: list[str]) -> None:
    """No state comes back: after a while in Python, from the start once more."""
    ranks = [
        [Block(0, r + 1, None, (instr("s", "o0"),))]
        if r % 2 == 0
        else [Block(0, None, r - 1, (instr("r", "o0"),))]
        for r in range(6)
    ]
    speeds = ("25", "24.97", "24.93")
    links: list[Link] = [x for i, bw in enumerate(speeds) for x in both_ways(2 * i, 2 * i + 1, bw)]
    machine = Topology("three", tuple(map(gpu, range(6))), tuple(links))
    p = program("broadcast", ranks, 1)
    size = 6001 << 21
    run = simulate_program(p, machine, size, MSCCL)
    assert compiled_runs == ["plain", "compiled"]
    assert run.exact
    assert run.time_us == pytest.approx(size / 24.93e3)
    assert_same(p, machine, size, most=300)
    assert not assert_same(p, machine, size, most=300).exact


def test_programs_that_do_nothing() -> None:
    empty = program("broadcast", [[], []], 1)
    assert assert_same(empty, topology("line:2"), 100).time_us == 0
    idle = program("broadcast", [[Block(0, None, None, (instr("nop", "o0", 0),))], []], 1)
    assert assert_same(idle, topology("line:2"), 100).time_us == 0


# --- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [None, *Protocol])
def test_a_clock_tells_what_each_simulation_does(protocol: Protocol | None) -> None:
    """Whatever it was asked before: sizes merge chunks differently."""
    p, machine = stream(7, 3), topology("line:2")
    clock = ProgramClock(p, machine, MSCCL)
    for size in (1, 21, 5_000, 400_000, 3 << 20, 30 << 20, 1 << 28, 21):
        run = simulate_program(p, machine, size, MSCCL, protocol=protocol)
        assert clock.time_us(size, protocol) == run.time_us
        again = clock.simulate(size, protocol)
        assert np.array_equal(again.spent_us, run.spent_us)
        assert (again.cut, again.simulated) == (run.cut, run.simulated)


@pytest.mark.parametrize("protocol", Protocol)
def test_a_large_message_takes_hardly_more_than_its_bytes_hold_a_link(protocol: Protocol) -> None:
    clock = ProgramClock(ring_allreduce(6), topology("ring:6"), MSCCL)
    taken, least = (ask(1 << 30, protocol) for ask in (clock.time_us, clock.least_us))
    assert least <= taken <= 1.3 * least


def test_a_clock_refuses_as_the_simulation_does() -> None:
    with pytest.raises(BadTopology, match="for 2 ranks, and line:5 has 5"):
        ProgramClock(stream(1), topology("line:5"), MSCCL)
    with pytest.raises(UserError, match="0 bytes"):
        ProgramClock(stream(1), topology("line:2"), MSCCL).time_us(0)
    with pytest.raises(BadTopology, match=r"rank 0 sends to rank 2"):
        ProgramClock(all_pairs(4), topology("line:4"), MSCCL).time_us(100)


@pytest.mark.parametrize("size", [1 << 10, 1 << 20, 1 << 26])
def test_a_run_is_given_up_just_beyond_its_limit(size: int) -> None:
    """In one turn of the loop, in some, and where turns that repeat are passed at once."""
    clock = ProgramClock(ring_allreduce(4), topology("ring:4"), MSCCL)
    us = clock.time_us(size)
    assert clock.time_us(size, limit=us) == us
    assert clock.time_us(size, limit=2 * us) == us
    for share in (0.01, 0.5, 0.999):
        assert clock.time_us(size, limit=share * us) == float("inf")
    assert clock.time_us(size) == us
