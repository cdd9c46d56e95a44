"""Members of a race: which engines take part in which problem, in which order; its limits, and the
turns of members.

An engine of ours joins with one line in :data:`PROFILES`, under sketches with ``sketch=True``;
those of other packages run last.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from weft.dsl.base.errors import (
    BrokenPlugin,
    Missing,
    PluginFault,
    UserError,
    WeftError,
)
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import warn
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import needed_options
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Objective, Problem

from ...base.effort import Effort, setting, share
from ...base.engine import Engine
from ...base.meter import STEPS
from ..packing.trees.demands import moves_pairs

LADDER = (1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30)
"""Message sizes in bytes that the frontier of a large machine is judged at; answers name them."""


@dataclass(frozen=True, slots=True)
class PortfolioEffort(Effort):
    """Which engines take part, and their shares of the budget."""

    exact_ranks: int = setting(
        16, "ranks up to which the frontier in steps and rounds is searched with proofs"
    )
    exact_pairs: int = setting(
        8,
        "ranks up to which exact schedules compete at one message size; beyond, they cost more "
        "time than they save",
    )
    few_ranks: int = setting(
        16,
        "ranks up to which matching and the search of sketches compete at one message size, and "
        "under a sketch copies in epochs",
    )
    greedy_ranks: int = setting(
        512,
        "ranks from which matching competes in all rounds, below only in the first and for copies; "
        "and from which classic algorithms, which would take minutes to simulate, do not",
    )
    greedy_chunks: int = setting(
        100_000,
        "chunks from one rank to one other beyond which matching, which looks at each of them, "
        "does not compete with paths",
    )
    flow_ranks: int = setting(
        64,
        "ranks up to which paths of the message's own size compete; beyond, packing needs the time",
    )
    worth: float = setting(
        0.999, "a schedule joins a frontier if it takes less than this part of the others' time"
    )
    near: float = setting(
        1.02,
        "from greedy_ranks on, matching and phases are not asked where a packing of the best rate "
        "takes less than this times the bound; no engine is, where switches that compute made a "
        "schedule that near and quicker than any without them",
    )
    greedy_near: float = setting(1.0005, "the same for matching below greedy_ranks")
    classic_ranks: int = setting(
        96,
        "ranks from which classic algorithms for chunks from one rank to one other, which take "
        "seconds each there, are asked only if the best so far takes more than classic_near times "
        "the bound",
    )
    classic_near: float = setting(1.1, "see classic_ranks")
    halves_near: float = setting(
        1.01,
        "halves of an allreduce are not asked where the best takes less than this times the bound: "
        "their pieces have unequal shares, which runtimes round, and programs lose more than that",
    )
    first_steps: int = setting(
        300_000, "work that every engine does in the first round of the race, at least"
    )
    steps_per_pair: int = setting(
        30, "the same for each pair of ranks: on large machines less leads to nothing"
    )
    slow: float = setting(
        1.5, "a member whose answer takes this many times the best after a round is not asked again"
    )
    far: float = setting(
        1.05,
        "where the best of the first round takes more than this times the bound, a member whose "
        "rate is within rate_near of it gets all of the effort in one piece",
    )
    rate_near: float = setting(
        1.1, "see far; and such a member is never too slow to be asked again"
    )
    rate_part: float = share(
        0.5, "part of the bound that its rate makes at least where a member's rate counts"
    )
    rest_near: float = setting(
        1.01, "that piece is not for one where the best takes less than this times the bound"
    )
    behind: float = setting(
        1.1,
        "at the end the best unfinished member gets such a piece, up to this times the best answer",
    )
    deeper: int = setting(3, "how many times the work grows from one round to the next")
    patience: int = setting(2, "rounds without a gain that end the race")
    gain: float = setting(1e-3, "part of the value by which a round gains, at least")


@dataclass(frozen=True, slots=True)
class Profile:
    """Problems in whose race an engine takes part."""

    engine: str  # its text: engines are loaded when their turn comes
    # Of machines, by the effort
    ranks: Callable[[PortfolioEffort], range] = lambda _: range(sys.maxsize)
    # sketch, at_a_size, custom: with or without a sketch, for the objectives time and bandwidth or
    # the others, for custom collectives or the others; None: for both
    sketch: bool | None = False
    at_a_size: bool | None = None
    custom: bool | None = None
    # Only for collectives whose chunks are copied to all ranks, or that reversed
    copies: bool = False
    # Only for the objective time
    timed: bool = False
    # Only for chunks from one rank to one other: paths for that size may beat those for all sizes
    pairs: bool = False

    def takes(self, problem: Problem, effort: PortfolioEffort) -> bool:
        """Return True for a problem in whose race the engine takes part."""
        for asked, fact in (
            (self.sketch, problem.sketch is not None),
            (self.at_a_size, problem.objective in (Objective.TIME, Objective.BANDWIDTH)),
            (self.custom, problem.collective.kind is Kind.CUSTOM),
        ):
            if asked not in (None, fact):
                return False
        if problem.topology.ranks not in self.ranks(effort):
            return False
        if self.copies and problem.collective.kind not in COPIES:
            return False
        if self.timed and problem.objective is not Objective.TIME:
            return False
        return not self.pairs or moves_pairs(problem.collective)


ONE_TRY = "greedy{seeds=1}"
"""Matching that runs in the first round only."""

SMALL_MODEL = "intervals{patience=0}"
"""CP-SAT over whole chunks, without the local search, which is beside it under a sketch."""

SMALL_PROGRAM = "flow{effort.good_starts=2000,effort.most_starts=2000}"
"""Copies in epochs where the program is small: larger ones prove little, and the search of sketches
is better at them."""

COPIES = (Kind.ALLGATHER, Kind.BROADCAST, Kind.REDUCE_SCATTER, Kind.REDUCE)
"""Collectives that matching is quick for: copies to all ranks, and their reverse."""

PROFILES = (
    Profile(SMALL_MODEL, lambda e: range(e.exact_ranks + 1), sketch=True, at_a_size=True),
    Profile("exact", lambda e: range(e.exact_pairs + 1), sketch=True, at_a_size=True),
    Profile("exact", lambda e: range(e.exact_ranks + 1), sketch=None, at_a_size=False),
    Profile("sketched", sketch=True),
    Profile(SMALL_PROGRAM, lambda e: range(e.few_ranks + 1), sketch=True, timed=True),
    Profile("packing", sketch=None),
    Profile("classic", sketch=True),
    Profile("flow", lambda e: range(e.flow_ranks + 1), timed=True, pairs=True),
    Profile("classic", lambda e: range(e.greedy_ranks)),
    Profile("exact", lambda e: range(e.exact_pairs + 1), at_a_size=True),
    Profile(
        "exact", lambda e: range(e.exact_pairs + 1, e.exact_ranks + 1), at_a_size=True, custom=True
    ),
    Profile(SMALL_MODEL, lambda e: range(e.exact_ranks + 1), at_a_size=True),
    Profile("greedy", custom=True),
    Profile("greedy", lambda e: range(e.greedy_ranks, sys.maxsize), custom=False),
    Profile(ONE_TRY, lambda e: range(e.few_ranks + 1, e.greedy_ranks), at_a_size=True, copies=True),
    Profile("greedy", lambda e: range(e.few_ranks + 1), custom=False, timed=True),
    Profile("sketched", lambda e: range(e.few_ranks + 1), timed=True),
    Profile("exact", lambda e: range(e.exact_ranks + 1, sys.maxsize), custom=True),
)
"""The engines of a race in their order, the likeliest to win first."""

FOR_SKETCHES = ("sketched", "intervals")
"""Engines whose proofs are about the schedules that a sketch leaves."""

WITH_CASTS = ("packing", "classic")
"""Engines that let switches copy and sum."""

NEAR = {
    "classic": ("classic_near", "classic_ranks", True),
    "halves": ("halves_near", "", False),
    "phases": ("near", "greedy_ranks", False),
}
"""Engines that do not run where the best takes less than a setting times the bound: from a
setting of ranks on, and for chunks from one rank to one other only, or for all."""


@dataclass(frozen=True, eq=False)
class DeferredEngine:
    """An engine of the race. Ours are made, and their modules loaded, when their turn comes."""

    name: str
    make: Callable[[], Engine]
    once: bool = False

    @classmethod
    def of(cls, engine: Engine) -> DeferredEngine:
        """One that is made already."""
        return cls(engine.name, lambda: engine)

    @cached_property
    def engine(self) -> Engine | None:
        """The engine; None if it cannot run here."""
        made = self.make()
        return made if agrees(made.availability) else None


def likely(problem: Problem, effort: PortfolioEffort) -> Iterator[str]:
    """Yield the engines that take part in a problem's race, in their order."""
    return (one.engine for one in PROFILES if one.takes(problem, effort))


def plugins() -> Iterator[Engine]:
    """The engines of other packages, after our own, with default options.

    One that needs an option takes part only where it is named; those that cannot be made stay out.
    """
    for name in ENGINES.plugins():
        try:
            if not needed_options(ENGINES.load(name)):
                yield ENGINES.make(name)
        except (UserError, Missing, PluginFault) as error:
            leave_out(error, f"the engine {name!r}: ")


def agrees(reason: Callable[[], str | None]) -> bool:
    """Return True if an engine can run; one whose answer fails stays out."""
    try:
        return reason() is None
    except PluginFault as error:
        leave_out(error)
        return False


def leave_out(error: WeftError, which: str = "") -> None:
    """Warn that an engine of another package takes no part; ``which``: where the error does not
    name it."""
    named = isinstance(error, BrokenPlugin | PluginFault)
    text = error.message if named else f"{which}{error.message}"
    warn(f"{text}; left out of the race", error.__cause__)


# --- turns ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """One time that a member was asked; work in steps.

    ``value``: the member's best so far, in the unit of the objective (µs, rounds per chunk);
    infinite without an answer, NaN of a frontier. ``then``: how it ended.
    """

    engine: str
    got: int
    spent: int
    value: float
    why: str
    then: str


def turns_json(turns: Sequence[Turn], dropped: dict[str, float]) -> list[dict[str, Any]]:
    """Return the turns for reports, work in units of effort.

    ``dropped``: members that were not asked again, by how many times the best their answer was.
    """
    last = {turn.engine: turn for turn in turns}
    rows = []
    for turn in turns:
        behind = dropped.get(turn.engine) if turn is last[turn.engine] else None
        ending = turn.then
        if behind is not None:
            ending = f"{behind:.3g} times the best: not asked again"
        rows.append(
            {
                "engine": turn.engine,
                "got": round(turn.got / STEPS, 3),
                "spent": round(turn.spent / STEPS, 3),
                "value": turn.value if math.isfinite(turn.value) else None,
                "why": turn.why,
                "then": ending,
            }
        )
    return rows
