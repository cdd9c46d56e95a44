"""Models of CP-SAT and their answers; the solver itself runs in another process.

Literals are numbers of Boolean variables, ``~x`` is the negation of ``x``. Terms of a sum are
pairs of variable and coefficient.

>>> model = CpModel()
>>> x, y = model.boolean(), model.boolean()
>>> model.linear([(x, 1), (y, 1)], least=1)
>>> model.implies(x, ~y)
>>> model.minimize([(x, 1), (y, 2)])
>>> answer = solve(model, steps=1_000_000)
>>> answer.verdict, answer.values
(<CpVerdict.OPTIMAL: 'OPTIMAL'>, (1, 0))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass

from ..base.meter import STEPS
from .pool import SILENT, Listener, solvers

STEPS_PER_TERM = 6
"""Steps per variable and term of a model: to write, read and presolve it is not in that time."""

INTERLEAVED = "interleave_search:true interleave_batch_size:6"
"""A race in turns; it exchanges results after as many tasks as OR-Tools takes for two
workers."""

Term = tuple[int, int]


class CpModel:
    """A model; variables are numbered in the order of their creation."""

    def __init__(self) -> None:
        self._variables: list[str] = []
        self._constraints: list[str] = []
        self._objective = self._hint = ""
        self.terms = 0

    @property
    def text(self) -> str:
        """The model in the text format of OR-Tools' ``CpModelProto``."""
        return "".join([*self._variables, *self._constraints, self._objective, self._hint])

    def boolean(self) -> int:
        """Return a new variable of 0 or 1."""
        return self.integer(0, 1)

    def integer(self, least: int, most: int) -> int:
        """Return a new variable with a range; one without any value makes the model impossible."""
        self.terms += 1
        if least > most:
            self.any_of(())
            most = least
        self._variables.append(f"variables{{domain:[{least},{most}]}}")
        return len(self._variables) - 1

    def linear(
        self,
        terms: Iterable[Term],
        *,
        least: int = -(1 << 63),
        most: int = (1 << 63) - 1,
        only_if: int | None = None,
    ) -> None:
        """Require a sum between limits, at least where the literal ``only_if`` holds."""
        numbers, factors = self._sum(terms)
        rule = f"linear{{vars:{numbers} coeffs:{factors} domain:[{least},{most}]}}"
        self._add(rule if only_if is None else f"enforcement_literal:{only_if} {rule}")

    def implies(self, x: int, y: int) -> None:
        """Require literal y where literal x holds."""
        self.terms += 2
        self._add(f"enforcement_literal:{x} bool_and{{literals:{y}}}")

    def all_of(self, literals: Sequence[int]) -> None:
        """Require all literals."""
        self._literals("bool_and", literals)

    def any_of(self, literals: Sequence[int]) -> None:
        """Require one literal or more; of none this is impossible."""
        self._literals("bool_or", literals)

    def one_of(self, literals: Sequence[int]) -> None:
        """Require exactly one literal."""
        self._literals("exactly_one", literals)

    def at_most_one(self, literals: Sequence[int]) -> None:
        """Allow one literal at most."""
        self._literals("at_most_one", literals)

    def circuit(self, arcs: Sequence[tuple[int, int, int]]) -> None:
        """Require that the arcs (tail, head, literal) that hold are one ring through all nodes."""
        self.terms += len(arcs)
        tails, heads, literals = (list(column) for column in zip(*arcs, strict=True))
        self._add(f"circuit{{tails:{tails} heads:{heads} literals:{literals}}}")

    def interval(self, start: int, length: int, end: int) -> int:
        """Return the number of an interval of fixed length between two variables."""
        self.linear([(end, 1), (start, -1)], least=length, most=length)
        self.terms += 2
        self._add(
            f"interval{{start{{vars:{start} coeffs:1}} end{{vars:{end} coeffs:1}} "
            f"size{{offset:{length}}}}}"
        )
        return len(self._constraints) - 1

    def optional(self, start: int, length: int, present: int) -> int:
        """Return the number of an interval of fixed length that exists where a literal holds."""
        self.terms += 3
        self._add(
            f"enforcement_literal:{present} interval{{start{{vars:{start} coeffs:1}} "
            f"end{{vars:{start} coeffs:1 offset:{length}}} size{{offset:{length}}}}}"
        )
        return len(self._constraints) - 1

    def no_overlap(self, intervals: Sequence[int]) -> None:
        """Require that no two intervals run at one time."""
        self.terms += len(intervals)
        self._add(f"no_overlap{{intervals:{list(intervals)}}}")

    def cumulative(self, users: Sequence[tuple[int, int]], capacity: int) -> None:
        """Require that the demands of the intervals that run at one time fit into a capacity."""
        self.terms += 2 * len(users)
        demands = "".join(f" demands{{offset:{demand}}}" for _, demand in users)
        intervals = [interval for interval, _ in users]
        self._add(f"cumulative{{capacity{{offset:{capacity}}} intervals:{intervals}{demands}}}")

    def minimize(self, terms: Iterable[Term]) -> None:
        """Minimize a sum."""
        numbers, factors = self._sum(terms)
        self._objective = f"objective{{vars:{numbers} coeffs:{factors} scaling_factor:1}}"

    def hint(self, values: Mapping[int, int]) -> None:
        """Suggest values of variables; a hint of one that cannot vary makes the model invalid."""
        self._hint = f"solution_hint{{vars:{list(values)} values:{list(values.values())}}}"

    def _sum(self, terms: Iterable[Term]) -> tuple[list[int], list[int]]:
        """Return variables in order, each once, and their coefficients."""
        factors: defaultdict[int, int] = defaultdict(int)
        for variable, factor in terms:
            factors[variable] += factor
        numbers = sorted(factors)
        self.terms += len(numbers)
        return numbers, [factors[i] for i in numbers]

    def _literals(self, rule: str, literals: Sequence[int]) -> None:
        self.terms += len(literals)
        self._add(f"{rule}{{literals:{list(literals)}}}")

    def _add(self, rule: str) -> None:
        self._constraints.append(f"constraints{{{rule}}}")


class CpVerdict(StrEnum):
    """Verdict of CP-SAT, by OR-Tools' names."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class CpAnswer:
    """Answer of CP-SAT: the values of all variables, none without a solution, the steps of work
    that it took, and a bound on the objective (None: none is proved)."""

    verdict: CpVerdict
    values: tuple[int, ...] = ()
    steps: int = 0
    bound: int | None = None

    @property
    def found(self) -> bool:
        """True if there is a solution."""
        return self.verdict in (CpVerdict.OPTIMAL, CpVerdict.FEASIBLE)


def solve(
    model: CpModel,
    *,
    steps: int,
    seed: int = 0,
    race: Sequence[str] = (),
    listener: Listener = SILENT,
    heard: Callable[[tuple[int, ...]], None] = lambda _: None,
    solutions: int = 0,
) -> CpAnswer:
    """Solve a model within ``steps``; where it is stopped, the best solution until then.

    ``race``: patterns of the subsolvers that take turns; none: CP-SAT's default search. There is
    always one thread: the answer depends on the model, the steps and the seed only, and what
    aborts OR-Tools under load are races of its threads. ``heard`` receives every solution of an
    optimization on the way; ``solutions``: the number that ends the search, 0 for no limit.

    Raises:
        UserError: ``$WEFT_SOLVER_MEMORY`` is not a size.
    """
    heavy = STEPS_PER_TERM * model.terms
    # A unit of CP-SAT's deterministic time is 0.7 to 1.4 CPU seconds on models of ours.
    time = max(0.01, (steps - heavy) / STEPS)
    parameters = (
        f"num_workers:1 random_seed:{seed} max_deterministic_time:{time} catch_sigint_signal:false"
    )
    if race:
        names = ",".join(f'"{name}"' for name in race)
        parameters += f" {INTERLEAVED} filter_subsolvers:[{names}]"
    found: list[tuple[int, ...]] = []
    question = {
        "solver": "cp-sat",
        "model": model.text,
        "parameters": parameters,
        "solutions": solutions,
    }

    def keep(values: Sequence[int]) -> None:
        found.append(tuple(values))
        heard(found[-1])

    answer: Any = solvers().ask(question, listener, keep)
    if answer is None:
        verdict = CpVerdict.FEASIBLE if found else CpVerdict.UNKNOWN
        return CpAnswer(verdict, found[-1] if found else (), steps)
    spent = heavy + round(answer["time"] * STEPS)
    return CpAnswer(CpVerdict(answer["status"]), tuple(answer["values"]), spent, answer["bound"])
