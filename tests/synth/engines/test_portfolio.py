"""The engine portfolio: who is asked, who wins, what is said, how it ends."""

from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from weft.dsl.base.errors import BadTopology, UnknownName, UserError
from weft.dsl.base.registry import ENGINES
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Collective, custom, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, dumps
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Observer, Outcome, Point, Silent, Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.portfolio.engine import Portfolio
from weft.synth.time.schedule_time import simulate

GB = 1 << 30


def solved(
    machine: str,
    what: str | Collective,
    objective: Objective = Objective.TIME,
    size: int | None = None,
    effort: float = 3,
) -> Outcome:
    where = topology(machine)
    wanted = make(what, where.ranks) if isinstance(what, str) else what
    return synthesize(Problem(where, wanted, None, objective, size), budget=Budget(effort))


def found_by(outcome: Outcome) -> set[str]:
    return {str(p.schedule.provenance["found_by"]) for p in outcome.points}


def best(outcome: Outcome, size: int) -> float:
    return min(simulate(p.schedule, size).time_us for p in outcome.points)


def plain(schedule: Schedule) -> str:
    """Its transfers and rounds, without its origin."""
    return dumps(schedule).rpartition('"provenance"')[0]


def test_a_small_frontier_is_that_of_exact() -> None:
    problem = Problem(topology("dgx1"), make("allgather", 8))
    own, exact = synthesize(problem), synthesize(problem, "exact")
    assert own.status is exact.status is Status.OPTIMAL
    assert own.statements == exact.statements
    assert [plain(p.schedule) for p in own.points] == [plain(p.schedule) for p in exact.points]
    assert found_by(own) == {"exact"}


def test_large_messages_go_by_packings() -> None:
    outcome = solved("dgx-a100:nodes=2", "allgather", size=GB)
    assert found_by(outcome) == {"packing"}
    machine = topology("dgx-a100:nodes=2")
    least = float(lower_bound_us(bounds(machine, make("allgather", 16)), GB))
    assert best(outcome, GB) <= 1.01 * least
    (point,) = outcome.points
    assert point.bandwidth_optimal
    assert "ForestColl" in point.schedule.provenance["cites"]


def test_small_messages_go_by_the_quickest_engine() -> None:
    """One step over the switch, 0.7 µs: two at packing's best rate would take 1.4."""
    outcome = solved("dgx-a100", "allreduce", size=1 << 10)
    assert found_by(outcome) == {"classic"}
    assert outcome.points[0].steps == 1
    assert any(line.startswith("no better: packing") for line in outcome.statements)


@pytest.mark.parametrize("size", [1000, 8000, 64_000, 10**6, 256 * 10**6])
def test_allreduce_switches_between_one_shot_and_two_shot(size: int) -> None:
    """G12: everything to everybody, or a share for each to add: whichever is quicker.

    One step of 7 M over 300 GB/s, or two that move 7/8 M each.
    """
    one, two = 0.7 + 7 * size / 300e3, 1.4 + 1.75 * size / 300e3
    outcome = solved("dgx-a100", "allreduce", size=size)
    assert best(outcome, size) <= 1.02 * min(one, two)
    assert (outcome.points[0].steps == 1) == (one < two)


@pytest.mark.parametrize(
    ("kind", "rounds"), [("allgather", "15/4"), ("alltoall", "8"), ("allreduce", "15/32")]
)
def test_bandwidth_stops_at_the_bound(kind: str, rounds: str) -> None:
    outcome = solved("torus:4x4", kind, Objective.BANDWIDTH)
    assert outcome.status is Status.OPTIMAL
    assert found_by(outcome) == {"packing"}
    assert outcome.points[0].rounds_per_chunk == Fraction(rounds)


def test_latency_stops_at_the_bound() -> None:
    outcome = solved("ring:6", "broadcast", Objective.LATENCY)
    assert outcome.status is Status.OPTIMAL
    assert outcome.points[0].steps == 3


@pytest.mark.parametrize("ranks", [4, 20])
def test_demands_of_ones_own_go_to_searches(ranks: int) -> None:
    """Pairs that swap, and one chunk that three others want."""
    pre = [(r, r, [r], 0) for r in range(ranks)]
    post = [(r, r ^ 1, [r ^ 1], 0) for r in range(ranks)]
    post += [(r, 0, [0], 1) for r in (2, 3)]
    outcome = solved(f"ring:{ranks}", custom("own", ranks, pre=pre, post=post), size=1 << 20)
    assert found_by(outcome) <= {"exact", "greedy", "packing", "sketched"}
    (point,) = outcome.points
    # Chunk 0 and the swap of 2 and 3 do not meet on a link: α of two hops, one chunk each.
    assert point.steps >= 2


def test_a_sketch_is_for_exact() -> None:
    machine = topology("ring:4")
    text = "sketch halves\nmax steps 2\nchunks 2\n"
    sketch = elaborate(parse(text, "halves"), machine)
    outcome = synthesize(Problem(machine, make("allgather", 4), sketch, Objective.BANDWIDTH))
    assert found_by(outcome) == {"exact"}
    impossible = elaborate(parse("sketch no\nmax steps 1\n", "no"), machine)
    for objective in (Objective.FRONTIER, Objective.LATENCY):
        outcome = synthesize(Problem(machine, make("allgather", 4), impossible, objective))
        assert outcome.status is Status.INFEASIBLE
        assert outcome.conflict


def test_refusals_in_words() -> None:
    swap = custom(
        "swap",
        2,
        pre=[(r, r, [r], 0) for r in (0, 1)],
        post=[(r, c, [c], c) for r in (0, 1) for c in (0, 1)],
    )
    problem = Problem(topology("ring:4").restricted_to((0, 1)), swap)
    with pytest.raises(UserError, match="classic lacks an algorithm for swap"):
        synthesize(problem, "portfolio{engines=classic}")
    with pytest.raises(UserError, match="cannot race itself"):
        Portfolio(engines=("exact", "portfolio"))
    with pytest.raises(UnknownName, match="exakt"):
        ENGINES.make("portfolio{engines=exakt}")


def test_a_wrong_question_is_told_as_such() -> None:
    ring = topology("ring:4")
    cut = replace(ring, symmetries=(), links=tuple(x for x in ring.links if x.dst != 3))
    with pytest.raises(BadTopology, match="3"):
        synthesize(Problem(cut, make("allgather", 4), None, Objective.BANDWIDTH))


def test_only_those_that_are_named_take_part() -> None:
    where = topology("ring:4")
    problem = Problem(where, make("allgather", 4), None, Objective.TIME, 1 << 20)
    outcome = synthesize(problem, "portfolio{engines=classic}")
    assert found_by(outcome) == {"classic"}
    assert outcome.points[0].schedule.provenance["engine"] == "portfolio{engines=classic}"


def test_the_same_seed_gives_the_same_answer() -> None:
    problem = Problem(topology("mesh:3x3"), make("allgather", 9), None, Objective.TIME, 1 << 16)
    first, again = (synthesize(problem, budget=Budget(0.5, seed=3)) for _ in range(2))
    assert dumps(first.points[0].schedule) == dumps(again.points[0].schedule)
    assert first.statements == again.statements


# --- endings --------------------------------------------------------------------------------------


class Cut:
    """Answers as ``classic`` does, but is interrupted before it can say so."""

    name: ClassVar[str] = "cut"
    cites: ClassVar[str] = "nobody"

    @classmethod
    def availability(cls) -> str | None:
        return None

    def refuses(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        ENGINES.make("classic").solve(problem, budget, observer)
        raise KeyboardInterrupt


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"cut": Cut}
    make_one = ENGINES.make

    def made(text: str, where: str | None = None) -> object:
        return kinds[text]() if text in kinds else make_one(text, where)

    monkeypatch.setattr(type(ENGINES), "make", lambda self, *args: made(*args))


@pytest.mark.usefixtures("cut")
def test_ctrl_c_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "weft.synth.engines.portfolio.engine.likely", lambda *_: iter(("cut", "exact"))
    )
    outcome = solved("ring:4", "allgather", size=1 << 20)
    assert found_by(outcome) == {"cut"}
    assert outcome.statements[-1] == "interrupted"
    assert len(outcome.points) == 1


def test_a_stop_at_once_finds_nothing() -> None:
    class Stopped(Silent):
        def cancelled(self) -> bool:
            return True

    problem = Problem(topology("ring:4"), make("allgather", 4), None, Objective.TIME, 1 << 20)
    outcome = Portfolio().solve(problem, Budget(30), Stopped())
    assert outcome.status is Status.NOTHING


def test_it_says_what_it_keeps() -> None:
    """The words are those of the kept schedule, and every size that was looked at has one."""
    machine = topology("dgx-a100:nodes=3")
    outcome = synthesize(
        Problem(machine, make("allgather", 24)),
        "portfolio{engines=packing+classic}",
        Budget(effort=30),
    )
    mine = [p for p in outcome.points if p.schedule.provenance["found_by"] == "packing"]
    assert mine
    for point in mine:
        (said,) = [s for s in outcome.statements if s == f"packing: {point.words}"]
        assert f" {point.schedule.segments} segment" in said
    sizes = sorted(s for p in outcome.points for s in p.sizes)
    assert sizes == [1 << k for k in (10, 15, 20, 25, 30)]


class Stages:
    """Observer that keeps the names of all stages."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def stage(self, name: str) -> None:
        self.names.append(name)

    def incumbent(self, point: Point) -> None:
        pass

    def cancelled(self) -> bool:
        return False


def test_phases_of_phases_and_halves_of_halves_are_not_raced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a fat tree a race at the least effort ran 93 races within, and 69 on half of it."""
    likely = "weft.synth.engines.portfolio.engine.likely"
    monkeypatch.setattr(likely, lambda *_: ("packing", "classic"))
    machine, stages = topology("fat-tree:k=4").restricted_to((0, 1, 4, 5)), Stages()
    problem = Problem(machine, make("allreduce", 4), None, Objective.TIME, 1 << 14)
    synthesize(problem, "portfolio", Budget(0.1), stages)
    assert {"engine phases", "engine halves"} <= set(stages.names)
    assert stages.names.count("engine packing") <= 11


# --- the cost of messages, and steady answers -----------------------------------------------------


def test_messages_cost_where_slices_are_chosen() -> None:
    """Sixteen slices of a small message are nearly as quick as 256, of which each is 32 bytes."""
    machine = topology("ring:8")
    problem = Problem(machine, make("allreduce", 8), None, Objective.TIME, 1 << 16)
    outcome = synthesize(problem, "portfolio{engines=packing+classic}")
    (point,) = outcome.points
    assert point.schedule.segments <= 16
    assert best(outcome, 1 << 16) <= 6.1
    assert point.finer_us is not None
    assert point.finer_us < best(outcome, 1 << 16)
    assert outcome.status is Status.FEASIBLE


def test_matching_is_asked_for_copies_and_the_others_are_named() -> None:
    """On a torus without five cables an order by matching is nearer to the bound than packings."""
    machine = topology("torus:8x8,dead=0-1,9-10,20-28,35-36,54-62")
    problem = Problem(machine, make("allgather", 64), None, Objective.TIME, GB)
    own, greedy = synthesize(problem), synthesize(problem, "greedy")
    assert best(own, GB) <= best(greedy, GB)
    told = " ".join(own.statements)
    assert "greedy" in told
    assert "not asked: " not in told or "greedy" not in told.partition("not asked: ")[2]


def test_those_that_were_not_asked_are_named() -> None:
    told = solved("ring:8", "allgather", size=1 << 20).statements
    (line,) = (line for line in told if line.startswith("not asked: "))
    assert "classic" in line


def test_a_quicker_schedule_that_was_passed_over_is_named() -> None:
    """Trees in many segments are quicker on the ring, by less than their messages take."""
    problem = Problem(topology("ring:8"), make("allreduce", 8), None, Objective.TIME, 64 << 10)
    us, said = {}, {}
    for cost in (None, 0):
        outcome = synthesize(replace(problem, message_us=cost), budget=Budget(2))
        us[cost] = simulate(outcome.points[0].schedule, 64 << 10).time_us
        said[cost] = "passed over" in " ".join(outcome.statements)
    assert us[0] < us[None] <= 1.01 * us[0] + 0.5
    assert not said[0]
    with pytest.raises(UserError, match="expected 0 µs"):
        replace(problem, message_us=-1)


def test_schedules_of_more_moves_than_the_runtime_takes_are_no_candidates() -> None:
    """Many trees are quicker, and too many transfers of a rank for its program."""
    machine, size = topology("mi250"), 64 << 20
    problem = Problem(machine, make("reduce_scatter", 16), None, Objective.TIME, size)
    most = [None, 20, 1]
    sent = []
    for moves in most:
        outcome = synthesize(replace(problem, most_moves=moves), budget=Budget(2))
        sent.append(int(np.bincount(outcome.points[0].schedule.src).max()))
    assert sent[0] > 20 >= sent[1] >= 15
    assert sent[2] >= 15  # none has fewer: each rank adds to what it passes on to 15 others
    with pytest.raises(UserError, match="expected 1 transfer"):
        replace(problem, most_moves=0)
