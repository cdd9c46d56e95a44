"""Simulation of programs by the runtime's model, for ``weft simulate`` and ``weft diff``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange, format_bytes, parse_size_range
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCL
from weft.dsl.nouns.timing import TimingNumber
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import BOUND_EFFORT, RuntimeBound, runtime_bound
from weft.synth.fabric.occupancy import resource_name
from weft.synth.time.calibrated import DATASHEET
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import RuntimeModel
from weft.synth.time.schedule_time import SimulatedTime, bus_factor

from ...formats.format import FileTiming, ProgramContent, Requirements
from ...formats.listings import Sheets
from ...report.model_numbers import assumed_json, assumed_text, start_remark
from ...report.sheets import times
from ..flags.files import DiffFlags, SimulateFlags
from ..inputs.inputs import restricted
from ..inputs.machines import read_topology
from ..inputs.models import chosen_model
from .noun import (
    MODEL_FLAGS,
    USUAL_SIZES,
    SimulationSetup,
    Subject,
    asked_of,
    compared_sizes,
    refuse_flags,
)

RULE_FLAGS = ("alpha_occupies", "store_and_forward", "barrier")


def simulation_of(
    subject: Subject, args: SimulateFlags, held_for: Callable[[Requirements], ProgramContent]
) -> SimulationSetup:
    """Return the simulation by the runtime's model, on the machine of ``-t``.

    ``held_for``: the verified program of the file, for the requests of flags.
    """
    refuse_flags(args, RULE_FLAGS, "is for schedules; programs have one rule", subject)
    if not args.topology:
        raise no_machine(subject)
    topology = read_topology(args.topology)
    topology = restricted(topology, args.group)
    held = held_for(asked_of(args, target=args.target, protocol=args.protocol, may_hang=True))
    program = held.program
    require_ranks(topology, len(program.ranks), subject)
    model = _model(args, topology)
    protocol = Protocol(args.protocol) if args.protocol else program.protocol

    def evaluate(message_bytes: int, least: float) -> Any:
        return simulate_program(
            program, topology, message_bytes, model, protocol=protocol, bound_us=least
        )

    facts: dict[str, Any] = {"protocol": str(protocol), "target": model.name}
    facts |= {
        "model": chosen_model(args).name,
        "start_us": float(model.protocol(protocol).start_us),
        **assumed_json(model),
    }
    explain = partial(_explain, topology)
    told = assumed_text(model, f".{protocol}")
    return SimulationSetup(
        topology,
        program.collective,
        evaluate,
        facts,
        sizes_of(held),
        explain,
        told,
        start_remark(model, protocol),
        _least(args, topology, program.collective),
    )


def file_simulation(subject: Subject, args: SimulateFlags, timing: FileTiming) -> SimulationSetup:
    """Return the replay of an artefact by the rule of the simulator that it is for.

    Raises:
        UserError: no machine, one of another size, or a flag that the rule does not know.
    """
    flags = (*RULE_FLAGS, "overhead", "local_bandwidth", "protocol", "target", *MODEL_FLAGS)
    refuse_flags(args, flags, f"says nothing about {timing.rule}", subject)
    if not args.topology:
        raise no_machine(subject)
    topology = read_topology(args.topology)
    topology = restricted(topology, args.group)
    require_ranks(topology, timing.ranks, subject)
    collective = timing.collective
    if collective is None and args.size:
        raise UserError(
            "the file does not say for which collective and size it is: it has one time",
            where="--size",
        )

    def evaluate(message_bytes: int, least: float | None) -> SimulatedTime:
        return SimulatedTime(
            message_bytes=message_bytes,
            time_us=timing.time_us(message_bytes, topology),
            bus_factor=bus_factor(collective) if collective else 1.0,
            bound_us=least,
        )

    sizes = SizeRange(timing.sizes[0], timing.sizes[-1]) if collective else None
    return SimulationSetup(topology, collective, evaluate, {"rule": timing.rule}, sizes)


def require_ranks(topology: Topology, ranks: int, subject: Subject) -> None:
    """Refuse a machine with another number of ranks than a file is for.

    Raises:
        UserError: it has.
    """
    if topology.ranks != ranks:
        raise UserError(
            f"the program is for {ranks} ranks, {topology.name} has {topology.ranks}",
            where=subject.where,
            hint=f"--group 0..{ranks - 1} names those to use" if topology.ranks > ranks else "",
        )


def program_times(
    subject: Subject, args: DiffFlags, held_for: Callable[[Requirements], ProgramContent]
) -> Sheets:
    """Return the sheet of times on the machine of ``-t`` or the file's own; none without one."""
    machine = read_topology(args.topology) if args.topology else subject.machine()
    if machine is None:
        refuse_flags(args, MODEL_FLAGS, "is of times on a machine, which -t names", subject)
        return {}
    program = held_for(Requirements(may_hang=True)).program
    model = chosen_model(args).on(machine)
    return times(
        compared_sizes(args),
        lambda size: simulate_program(program, machine, size, model).time_us,
        float(model.protocol(program.protocol).start_us),
    )


def _model(args: SimulateFlags, topology: Topology) -> RuntimeModel:
    model = replace(chosen_model(args).on(topology, args.target), name=args.target or "msccl")
    if args.local_bandwidth is not None:
        model = replace(model, local_GBps=args.local_bandwidth)
    return replace(model, overhead_us=args.overhead)


def _least(
    args: SimulateFlags, topology: Topology, collective: Collective
) -> Callable[[int], RuntimeBound] | None:
    """Return the least time of any program of the runtime by size; None on a large machine, with a
    local bandwidth that no machine has, and by data sheets, by which it is the bound of schedules.
    """
    choice = chosen_model(args)
    if topology.ranks > BOUND_EFFORT.program_ranks or choice.name == DATASHEET:
        return None
    if args.local_bandwidth is not None:
        try:
            local = TimingNumber("local", Fraction(args.local_bandwidth), "given")
        except UserError:
            return None
        choice = replace(choice, given=(*choice.given, local))
    runtime = args.target or MSCCL.name
    return lambda size: runtime_bound(topology, collective, size, runtime, choice)


def _explain(topology: Topology, run: Any) -> str:
    """Return a line on the use of time: activities of thread blocks, and the busiest resource."""
    total = float(run.spent_us.sum()) or 1.0
    shares = [(float(run.spent_us[:, a].sum()) / total, a) for a in Activity if a != Activity.DONE]
    doing = ", ".join(
        f"{a.words} {share:.0%}" for share, a in sorted(shares, reverse=True) if share
    )
    told = (
        f"{format_bytes(run.message_bytes)}: {count(run.cut.iterations, 'iteration')}, at most "
        f"{count(run.cut.merge, 'chunk')} per operation; thread blocks: {doing}"
    )
    if run.time_us and len(run.busy_us):
        row = int(run.busy_us.argmax())
        told += f"; {resource_name(topology, row)} busy {run.busy_us[row] / run.time_us:.0%}"
    return told


def sizes_of(held: ProgramContent) -> SizeRange:
    """Return the usual message sizes for which a program is valid."""
    usual = parse_size_range(USUAL_SIZES)
    low, high = max(usual.low, held.low or 0), min(usual.high, held.high or usual.high)
    return SizeRange(low, high) if low <= high else usual


def no_machine(subject: Subject) -> UserError:
    """Return the error for a program whose machine is neither named nor known."""
    return UserError(
        "a program does not state its machine",
        where=subject.where,
        hint="-t TOPO names it",
    )
