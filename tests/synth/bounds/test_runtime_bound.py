"""Least time of any program of a runtime: known values, programs that attain it, none below."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_forms import random_form
from strategies import tree_schedule

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.tune.baselines import SwitchSums, nccl_baselines
from weft.backends.tune.cast_plans import cast_timer
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import EXECUTOR, RCCL, TARGETS, TIMED, Target
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.symmetry import verified
from weft.synth.api import synthesize
from weft.synth.bounds import bounds, lower_bound_us, program_machine, runtime_bound
from weft.synth.time.calibrated import (
    CALIBRATED,
    DATASHEET,
    ModelChoice,
    at_best,
    given_number,
    named_model,
)
from weft.synth.time.program_time import ProgramClock

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def least(machine: Topology, kind: str, size: int, runtime: str, **given: object) -> float:
    found = runtime_bound(machine, make(kind, machine.ranks), size, runtime, **given)  # type: ignore[arg-type]
    assert found.us == pytest.approx(found.start_us + found.alpha_us + found.bytes_us)
    return found.us


@pytest.mark.parametrize(
    ("name", "kind", "runtime", "known"),
    [
        ("dgx1", "allreduce", "msccl", {KIB: 9.263, MIB: 34.80, 64 * MIB: 994.6, GIB: 15_674.6}),
        ("dgx1", "alltoall", "msccl", {64 * KIB: 10.83, GIB: 17_911.6}),
        ("ndv2:nodes=2", "allreduce", "msccl", {KIB: 11.93, 64 * KIB: 26.26, 64 * MIB: 5_614.9}),
        ("dgx-h100", "allreduce", "executor", {KIB: 7.342, 64 * KIB: 8.353, 64 * MIB: 329.03}),
        ("dgx-h100:nodes=2", "allreduce", "executor", {KIB: 14.80, 64 * MIB: 314.72}),
        ("mi250:nodes=2", "reduce_scatter", "rccl", {KIB: 22.6, MIB: 28.5, 64 * MIB: 279.8}),
        ("torus:4x4", "allreduce", "msccl", {16 * MIB: 324}),
    ],
)
def test_values_that_are_known(name: str, kind: str, runtime: str, known: dict[int, float]) -> None:
    machine = topology(name)
    for size, us in known.items():
        assert least(machine, kind, size, runtime) == pytest.approx(us, rel=3e-3)


def test_each_protocol_has_its_own() -> None:
    machine = topology("dgx-h100:nodes=2")
    known = {"Simple": 314.72, "LL128": 343.97, "LL": 809.28}
    slow = {"Simple": "start.Simple=900", "LL128": "start.LL128=900", "LL": "start.LL=900"}
    for protocol, us in known.items():
        others = tuple(given_number(text) for name, text in slow.items() if name != protocol)
        asked = (machine, make("allreduce", 16), 64 * MIB, "executor", ModelChoice(given=others))
        found = runtime_bound(*asked)
        assert (found.protocol, found.us) == (protocol, pytest.approx(us, abs=0.01))


@pytest.mark.parametrize("runtime", TIMED)
@pytest.mark.parametrize("name", ["dgx1", "dgx-a100:nodes=2", "torus:3x3"])
def test_by_the_data_sheet_it_is_the_bound_of_schedules(name: str, runtime: str) -> None:
    machine = topology(name)
    collective = make("allgather", machine.ranks)
    for size in (KIB, MIB, GIB):
        found = runtime_bound(machine, collective, size, runtime, ModelChoice(DATASHEET))
        assert found.us == float(lower_bound_us(bounds(machine, collective), size))
        assert (found.protocol, found.start_us) == ("Simple", 0)


def program_us(schedule: Schedule, target: Target, size: int, **form: object) -> float:
    options = CompileOptions(target, pairing=Pairing.NONE, **form)  # type: ignore[arg-type]
    machine = schedule.topology
    clock = ProgramClock(
        lower_schedule(schedule, options), machine, named_model(machine, target.name)
    )
    return clock.time_us(size)


@pytest.mark.parametrize(
    ("name", "kind", "engine", "target", "size", "form"),
    [
        ("mi300x", "allgather", "packing", RCCL, MIB, (Protocol.LL128, 8, 1)),
        (
            *("dgx-a100:nodes=2", "alltoall", "classic{algorithm=two_step}", EXECUTOR, 64 * MIB),
            (Protocol.SIMPLE, 2, 2),
        ),
    ],
)
def test_programs_attain_it(
    name: str, kind: str, engine: str, target: Target, size: int, form: tuple[Protocol, int, int]
) -> None:
    machine = topology(name)
    collective = make(kind, machine.ranks)
    asked = Problem(machine, collective, None, Objective.TIME, size)
    schedule = synthesize(asked, engine).points[0].schedule
    protocol, instances, segments = form
    us = program_us(
        schedule, target, size, protocol=protocol, instances=instances, segments=segments
    )
    bound = runtime_bound(machine, collective, size, target.name)
    assert us == pytest.approx(bound.us, rel=1e-12)
    assert bound.beside(us)["optimal_in_runtime"]
    assert "optimal in this runtime" in bound.verdict(us)
    assert "optimal" not in bound.verdict(us * 1.01)


@settings(max_examples=examples(60, 400), deadline=None)
@given(st.integers(0, 1 << 30))
def test_no_program_is_quicker(seed: int) -> None:
    if form := random_form(random.Random(seed)):
        asked = (form.topology, form.collective, form.size, form.runtime, form.choice)
        assert runtime_bound(*asked).us <= form.time_us * (1 + 1e-9), form.told


def test_the_last_message_need_not_wait_for_the_port_of_its_nic() -> None:
    """A port passes 16 KiB every 2 µs under LL, and one message of them leaves it sooner."""
    machine = topology("mi250:nodes=2,fabric=star").restricted_to((0, 16))
    collective = make("broadcast", 2, roots=[0])
    schedule = tree_schedule(machine, collective)
    how = named_model(machine, RCCL.name).protocol(Protocol.LL)
    wire = min(one.bandwidth for one in machine.links)
    assert how.payload / (wire * 1000) < how.message_us
    for count in (1, 2, 5):
        size = count * how.payload
        us = program_us(schedule, RCCL, size, protocol=Protocol.LL)
        least = runtime_bound(machine, collective, size, RCCL.name).us
        assert least <= us * (1 + 1e-9)
        waits = float((count - 1) * how.message_us)
        assert us >= waits + least - float(count * how.message_us)


def test_thread_blocks_and_sums_bind_where_they_are_slow() -> None:
    machine = topology("mi300x")
    collective = make("allreduce", 8)

    def argument(*numbers: str) -> tuple[str, float]:
        choice = ModelChoice(given=tuple(map(given_number, numbers)))
        found = runtime_bound(machine, collective, 64 * MIB, RCCL.name, choice)
        return found.argument, found.us

    usual = argument()
    assert argument("local=0.001") == ("sums", pytest.approx(17 + 7 / 8 * 64 * MIB / 64, rel=0.01))
    assert usual[0] != "sums"
    assert argument("cap.send=0.5")[1] > 5 * usual[1]
    assert runtime_bound(machine, make("allgather", 8), MIB, "rccl").argument != "sums"


def test_plans_in_which_switches_compute_are_not_below() -> None:
    machine = topology("dgx-h100:nvls=on")
    collective = make("allreduce", 8)
    for size in (64 * KIB, MIB, 64 * MIB):
        asked = Problem(machine, collective, None, Objective.TIME, size)
        schedule = synthesize(asked, "classic").points[0].schedule
        with_casts, without = (
            runtime_bound(machine, collective, size, one).us for one in ("mscclpp", "executor")
        )
        assert with_casts < without
        if len(schedule.casts):
            timer = cast_timer(schedule, ("mscclpp", CALIBRATED), 1)
            assert timer is not None
            assert with_casts <= timer.clock.time_us(size)


@pytest.mark.parametrize("name", ["dgx1", "dgx-a100:nodes=2", "dgx-h100", "mi300x"])
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "alltoall"])
def test_kernels_of_the_runtime_itself_are_not_below(name: str, kind: str) -> None:
    machine = topology(name)
    library = "rccl" if name == "mi300x" else "nccl"
    capable = topology(f"{name}:nvls=on") if name == "dgx-h100" else machine
    for one in nccl_baselines(machine, make(kind, machine.ranks).kind, library):
        for size in (256 * KIB, 64 * MIB):
            on = capable if isinstance(one, SwitchSums) else machine
            assert one.time(size).us >= least(on, kind, size, "nccl") * (1 - 1e-9)


def test_symmetries_of_the_machine_stay() -> None:
    for name in ("dgx1", "dgx-h100:nodes=2", "mi250:nodes=2", "torus:4x4"):
        machine = topology(name)
        runtime = "rccl" if "mi" in name else "executor"
        model = named_model(machine, runtime)
        for protocol in Protocol:
            made = program_machine(machine, runtime, model, protocol)
            assert verified(made) == verified(machine)


def test_a_route_costs_no_more_than_the_model_says() -> None:
    """Links of hosts and of the network share α of a message by what the data sheet gives them."""
    machine = topology("dgx-h100:nodes=2")
    model = named_model(machine, "executor")
    made = program_machine(machine, "executor", model, Protocol.LL)
    inside = [one.latency for one in made.links[:2]]
    assert sum(inside) == Fraction(6, 10) * Fraction("1.15")
    assert max(one.latency for one in made.links) == Fraction("7.5") / 2


def test_numbers_at_best_stand_only_where_the_machine_has_none_of_its_own() -> None:
    machine = topology("dgx1")
    more = {one.key: one.value for one in at_best(ModelChoice(), machine, "msccl").given}
    assert more == {
        "efficiency.LL": Fraction(1, 2),
        "efficiency.LL128": Fraction(15, 16),
        "reach.nvlink": Fraction(83, 100),
    }
    own = machine.timing.with_numbers((given_number("reach.nvlink=0.7"),))
    for measured in (replace(machine, timing=own), topology("dgx2")):
        assert any(one.key == "reach.nvlink" for one in measured.timing.numbers)
        keys = [one.key for one in at_best(ModelChoice(), measured, "msccl").given]
        assert keys == ["efficiency.LL", "efficiency.LL128"]
    assert at_best(ModelChoice(DATASHEET), machine, "msccl") == ModelChoice(DATASHEET)
    for runtime in ("msccl", "nccl", "p2p"):
        for size in (KIB, GIB):
            most = least(machine, "allreduce", size, runtime)
            assert least(machine, "allreduce", size, runtime, best=True) <= most
    rccl = at_best(ModelChoice(), topology("mi300x"), "rccl").given
    assert {one.key: float(one.value) for one in rccl} == {"efficiency.LL": 0.5, "reach.xgmi": 0.78}


def test_a_runtime_without_a_model_is_refused() -> None:
    machine = topology("dgx1")
    with pytest.raises(UserError, match="expected a runtime with a model, got 'gloo'"):
        runtime_bound(machine, make("allgather", 8), MIB, "gloo")
    assert {*TARGETS} < {*TIMED}
