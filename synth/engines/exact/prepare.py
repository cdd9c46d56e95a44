"""A problem turned into arrays: demands, reach, spaces, symmetry, the bound for any steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.sketch import Rule
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry import symmetry

from ...base.engine import Observer
from ...bounds import bounds
from . import realize, rules
from .demands import Demand, demands, reach
from .effort import ExactEffort
from .frontier import Clock, Search, Solver
from .instance import Question, Space, build_space, with_symmetry
from .orbits import demand_image, find_orbits

Images = list[tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Prepared:
    """A problem turned into arrays, once: everything the phases of a solve share."""

    problem: Problem
    plain: Space
    rules: tuple[Rule, ...]
    search: Search

    @property
    def least_steps(self) -> int:
        """Fewer steps than this are too few for the machine, whatever the rules."""
        return self.search.least_steps

    def last_steps(self, wished: int) -> int:
        """Where the search over steps ends: the option, a rule, or four more than the least."""
        last = max(wished or self.least_steps + 4, rules.last_named_step(self.rules))
        limit = rules.step_limit(self.rules)
        return last if limit is None else min(last, limit)

    @property
    def most_steps(self) -> int:
        """No rule can need more steps than this: a simple path has fewer hops than there are
        ranks, before and after the last step that a rule names; or what a rule allows at most."""
        simple = self.problem.topology.ranks - 1
        most = max(simple, rules.last_named_step(self.rules) + simple)
        limit = rules.step_limit(self.rules)
        return most if limit is None else min(most, limit)

    def feasible(
        self, subset: Sequence[Rule], steps: int, clock: Clock, observer: Observer
    ) -> realize.Verdict:
        """Whether some schedule of S steps obeys a subset of the rules, rounds being no matter."""
        space = rules.apply_rules(self.plain, subset)
        question = Question(rules.fixed_factor(subset) or 1, steps, None)
        verdict = realize.solve(space, question, clock.share(0.3), observer).verdict
        if verdict is realize.Verdict.NO and not space.conclusive:
            return realize.Verdict.UNKNOWN
        return verdict

    def first_feasible(self, last: int, clock: Clock, observer: Observer) -> int | None:
        """The least number of steps, up to ``last``, with which all rules can be obeyed.

        Where that cannot be decided in time, the first number that was not excluded.
        """
        for steps in range(self.least_steps, last + 1):
            observer.stage(f"{steps} steps: can the rules be obeyed?")
            if clock.left() <= 0 or observer.cancelled():
                return steps
            if self.feasible(self.rules, steps, clock, observer) is not realize.Verdict.NO:
                return steps
        return None

    def impossible(self, clock: Clock, observer: Observer) -> Callable[[Sequence[Rule]], bool]:
        """Whether a subset of the rules excludes every schedule (proved, not guessed)."""
        free = self.problem.topology.ranks - 1 + rules.last_named_step(self.rules)

        def proved(subset: Sequence[Rule]) -> bool:
            limit = rules.step_limit(subset)
            steps = free if limit is None else min(free, limit)
            return self.feasible(subset, steps, clock, observer) is realize.Verdict.NO

        return proved


def prepare(
    problem: Problem,
    solver: Solver,
    chunks: int,
    max_chunks: int,
    symmetric: bool,
    effort: ExactEffort,
) -> Prepared:
    """Arrays, bounds and spaces of a problem; ``symmetric``: use the machine's symmetries."""
    topology, collective = problem.topology, problem.collective
    wanted = demands(collective)
    near = reach(topology)
    plain = build_space(topology, find_hops(topology), wanted, near, collective.factor)
    ruled = problem.sketch.rules if problem.sketch else ()
    images = _usable_images(topology, wanted, ruled) if symmetric else []
    spaces = (rules.apply_rules(plain, ruled),) if ruled else (*_invariant(plain, images), plain)
    # The flow LP sees the links that the rules leave; symmetry and prices are of that machine.
    left = topology.without_links(rules.unused_links(spaces[-1])) if ruled else topology
    nodes, links = [n for n, _ in images], [x for _, x in images]
    orbits = find_orbits(left, wanted, nodes, links, topology.round_units())
    static = bounds(topology, collective)
    close = reach(left)
    least = max(int(close.after[list(d.sources), t].min()) for d in wanted for t in d.targets)
    search = Search(
        topology,
        collective,
        wanted,
        left,
        close,
        orbits,
        spaces,
        solver,
        static.rounds_per_chunk * collective.factor,
        static.certificate,
        _fixed(rules.fixed_factor(ruled) or chunks or None, collective),
        max(1, max_chunks // collective.factor),
        least,
        effort,
    )
    return Prepared(problem, plain, tuple(ruled), search)


def _fixed(factor: int | None, collective: Collective) -> int | None:
    """Into how many pieces the collective as given is cut further, where the number is demanded."""
    if factor is None or factor % collective.factor == 0:
        return None if factor is None else factor // collective.factor
    raise UserError(
        f"{factor} chunks per unit are asked for, but the collective is cut in {collective.factor}"
    )


def _usable_images(topology: Topology, wanted: Sequence[Demand], ruled: Sequence[Rule]) -> Images:
    """Verified symmetries of the machine that map the demands to themselves."""
    if ruled:
        return []
    return [
        (image, symmetry.link_image(topology, image))
        for image in symmetry.verified(topology)
        if demand_image(wanted, image) is not None
    ]


def _invariant(plain: Space, images: Images) -> Iterator[Space]:
    """Spaces of invariant schedules: under the whole group, then under each generator alone."""
    groups = [images] if len(images) < 2 else [images, *([x] for x in images)]
    for group in groups:
        if group:
            yield with_symmetry(plain, group)
