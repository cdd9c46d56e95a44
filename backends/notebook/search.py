"""``weft.problem``, ``synthesize``, ``time_frontier``, ``simulate`` and ``compile``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, ClassVar, overload

from weft.dsl.base.errors import UnknownName, UserError, WrongType, require_type
from weft.dsl.base.integers import integer, plain
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.views import Tabled
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Sketch
from weft.synth.api import synthesize as solve
from weft.synth.base.engine import Budget, Engine, Observer, Outcome
from weft.synth.bounds import Bounds, lower_bound_us
from weft.synth.bounds import bounds as bounds_on
from weft.synth.bounds.effort import BOUND_EFFORT, BoundEffort
from weft.synth.engines.intervals.engine import Intervals
from weft.synth.engines.intervals.frontier import TimedSize
from weft.synth.engines.intervals.frontier import time_frontier as timed_cuts
from weft.synth.joint.rails import RailPlanner
from weft.synth.joint.rails import rail_planner as planner_of
from weft.synth.time.program_time import ProgramSimulation, simulate_program
from weft.synth.time.schedule_tables import CostModel
from weft.synth.time.schedule_time import SimulatedTime, Simulation
from weft.synth.time.schedule_time import simulate as simulate_schedule

from ..compile.compile import CompileOptions
from ..compile.prepare import CompileResult, artefact
from .arguments import (
    Machine,
    Movement,
    Size,
    collective_of,
    machine_of,
    positive,
    range_of,
    seconds_of,
    size_of,
    sizes_of,
    sketch_of,
)


def problem(
    topology: Machine,
    collective: Movement,
    sketch: Sketch | str | None = None,
    *,
    size: Size | None = None,
    objective: Objective | str | None = None,
    message_us: Fraction | float | None = None,
) -> Problem:
    """Return a problem from nouns or their names; with a size, the least time at it is wanted.

    ``message_us``: the cost of each message beside its bytes, where slices, orders and schedules
    are chosen, in µs (0.01); with 0 the least simulated time wins, in any number of messages.

    >>> problem("dgx1", "allgather", size="1MiB")
    <Problem allgather on dgx1: time at 1MiB>

    Raises:
        UserError: an unknown name, or nouns that do not fit each other.
    """
    machine = machine_of(topology)
    usual = Objective.FRONTIER if size is None else Objective.TIME
    if objective is not None and objective not in set(Objective):
        raise UnknownName("objective", str(objective), Objective)
    wanted = collective_of(collective, machine.ranks)
    return Problem(
        machine,
        wanted,
        sketch_of(sketch, machine, wanted),
        usual if objective is None else Objective(objective),
        None if size is None else size_of(size),
        message_us=None if message_us is None else Fraction(str(message_us)),
    )


def bounds(topology: Machine, collective: Movement, effort: BoundEffort = BOUND_EFFORT) -> Bounds:
    """Return all lower bounds of a collective on a machine, each by noun or name.

    ``effort`` limits the search for them.

    Raises:
        BadTopology: different numbers of ranks, or no path from a rank to one that needs its data.
    """
    machine = machine_of(topology)
    return bounds_on(machine, collective_of(collective, machine.ranks), effort)


def rail_planner(topology: Machine) -> RailPlanner | None:
    """Return a planner of alltoallv; None unless the hosts are alike and joined by rails.

    Raises:
        UserError: no such machine.
    """
    return planner_of(machine_of(topology))


def synthesize(
    problem: Problem,
    engine: str | Engine = "portfolio",
    budget: Budget | float | None = None,
    observer: Observer | None = None,
    *,
    effort: float | None = None,
    time: float | str | None = None,
    seed: int | None = None,
) -> Outcome:
    """Solve a problem with one engine; every schedule is verified.

    ``effort`` is work, counted, 1 being about a CPU second (20); ``time`` cuts the search off
    after seconds of CPU, and the answer says so (never). ``budget`` has all of them, or is a
    number: the effort. More in :func:`weft.synth.api.synthesize`.

    Raises:
        UserError: a wrong argument, or the engine refuses the problem. Missing: its solver is not
            installed.
    """
    require_type(problem, Problem, "problem", 'weft.problem("dgx1", "allgather")')
    if not isinstance(budget, Budget):
        given = Budget() if budget is None else Budget(positive(budget, "budget", "an effort, 20"))
    else:
        given = budget
    if effort is not None:
        given = replace(given, effort=positive(effort, "effort", "a number, 20"))
    if time is not None:
        given = replace(given, seconds=seconds_of(time))
    if seed is not None:
        given = replace(given, seed=integer(seed, "seed"))
    return solve(problem, engine, given, observer)


def time_frontier(
    problem: Problem,
    sizes: Size | Iterable[Size],
    engine: Intervals | None = None,
    *,
    effort: float | None = None,
) -> tuple[TimedSize, ...]:
    """Return the least times in µs at message sizes, by the number of pieces of every unit.

    As ``weft synth --sizes``: each has ``best``, ``cuts``, ``least_us`` (proved for these pieces),
    ``bound_us`` (for any pieces) and ``proved``. ``effort`` is counted work (20).

    Raises:
        UserError: a wrong argument, or the engine ``intervals`` refuses the problem.
    """
    require_type(problem, Problem, "problem", 'weft.problem("dgx1", "allgather")')
    budget = Budget() if effort is None else Budget(positive(effort, "effort", "a number, 20"))
    return timed_cuts(problem, sizes_of(sizes), engine, budget)


@dataclass(frozen=True)
class Simulations(Tabled, Sequence[SimulatedTime]):
    """Simulated times of one thing at several message sizes."""

    _frame: ClassVar = "simulations"

    times: tuple[SimulatedTime, ...]

    def __repr__(self) -> str:
        lines = "\n".join(f"  {one!r}" for one in self.times)
        return f"<Simulations of {len(self.times)} sizes:\n{lines}>"

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[SimulatedTime]:
        return iter(self.times)

    @overload
    def __getitem__(self, at: int) -> SimulatedTime: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[SimulatedTime, ...]: ...
    def __getitem__(self, at: int | slice) -> SimulatedTime | tuple[SimulatedTime, ...]:
        return self.times[at]


def simulate(
    what: Schedule | Program | Outcome,
    size: Any,
    model: CostModel | None = None,
    *,
    bound: Bounds | None = None,
    bound_us: float | None = None,
    topology: Machine | None = None,
) -> Any:
    """Return the simulated time at a size (``"1MiB"``, or bytes), or at each size of a range
    (``"1KiB:1GiB"``) or list; of an outcome that of its fastest schedule at each size.

    ``bound``: of ``weft.bounds``, to be compared with. A program needs its ``topology``; by
    default it is timed by the calibrated model (:func:`weft.simulate_program`).

    Raises:
        UserError: a wrong argument, or a size below one byte.
    """

    def at(m: int) -> Simulation | ProgramSimulation:
        least = plain(bound_us) if bound is None else float(lower_bound_us(bound, m))
        if isinstance(what, Program):
            if topology is None:
                raise UserError("a program is simulated on a machine", hint="topology=…")
            return simulate_program(what, machine_of(topology), m, bound_us=least)
        several = [one.schedule for one in what.points] if isinstance(what, Outcome) else [what]
        times = (simulate_schedule(one, m, model, bound_us=least) for one in several)
        return min(times, key=lambda one: one.time_us)

    if not isinstance(what, Schedule | Program | Outcome):
        raise WrongType(
            f"a value of type {type(what).__name__} cannot be simulated",
            hint="it takes a schedule, an outcome of weft.synthesize, or a program",
        )
    if isinstance(what, Outcome) and not what.points:
        raise UserError("expected schedules, got none", hint="outcome.statements says why")
    size = plain(size)
    many = not isinstance(size, int | float | str) or (
        isinstance(size, str) and (":" in size or ".." in size)
    )
    return Simulations(tuple(map(at, sizes_of(size)))) if many else at(size_of(size))


def compile(
    what: Schedule | Algorithm | Program,
    to: str = "msccl-xml",
    options: CompileOptions | None = None,
    *,
    sizes: Size | Iterable[Size] | None = None,
    topology: Machine | None = None,
    **fields_of_options: Any,
) -> CompileResult:
    """Compile to a format as ``weft compile`` does; the result has ``text``, ``program``
    and ``write``.

    Further arguments are fields of ``CompileOptions``: ``instances=2, protocol="LL"``.

    Raises:
        CheckFailed: the noun is wrong, or a checker rejects a program on the way, or the text.
        UserError: a wrong argument, or the format or the target cannot express it.
    """
    if not isinstance(what, Schedule | Algorithm | Program):
        raise WrongType(
            f"a value of type {type(what).__name__} cannot be compiled",
            hint="it takes a schedule, such as outcome.points[0].schedule, an algorithm or a "
            "program",
        )
    known = [field.name for field in fields(CompileOptions)]
    for name in fields_of_options:
        if name not in known:
            raise UnknownName("option of compiling", name, known)
    chosen = options or CompileOptions()
    return artefact(
        what,
        to,
        replace(chosen, **fields_of_options),
        sizes=None if sizes is None else range_of(sizes),
        topology=None if topology is None else machine_of(topology),
    )
