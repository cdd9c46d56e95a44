"""The engine packing counts its work: effort says where it ends, and nothing else."""

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import dumps
from weft.synth.base.engine import Budget, Outcome, Silent
from weft.synth.base.meter import STEPS, Meter
from weft.synth.engines.packing.engine import Packer
from weft.synth.engines.packing.hosts.hosts import pack_hosts
from weft.synth.engines.packing.order.order_search import OrderLimits, Planned, quickest
from weft.synth.engines.packing.order.plan import PackingPlan, PlanQuotient
from weft.synth.engines.packing.trees.trees import pack

PLENTY = 10**12


def solved(name: str, kind: str, budget: Budget) -> Outcome:
    machine = topology(name)
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, 1 << 20)
    return Packer().solve(problem, budget, Silent())


def texts(outcome: Outcome) -> list[str]:
    return [dumps(point.schedule) for point in outcome.points]


@pytest.mark.parametrize("effort", [0.02, 0.3])
@pytest.mark.parametrize(
    ("name", "kind"),
    [("dgx1", "allreduce"), ("ndv2:nodes=2", "allgather"), ("ring:6", "broadcast")],
)
def test_the_same_effort_is_the_same_answer(name: str, kind: str, effort: float) -> None:
    spent, answers = [], []
    for threads in (1, 4):
        outer = Meter(PLENTY)
        answers.append(solved(name, kind, Budget(effort, threads, seed=3, outer=outer)))
        spent.append(outer.done)
    assert texts(answers[0]) == texts(answers[1])
    assert answers[0].statements == answers[1].statements
    assert spent[0] == spent[1] > 0


def test_a_search_that_has_tried_everything_is_not_cut() -> None:
    first, second = Meter(PLENTY), Meter(PLENTY)
    converged = solved("dgx1", "allgather", Budget(30, outer=first))
    assert first.done < 30 * STEPS
    assert not first.cut
    assert texts(solved("dgx1", "allgather", Budget(90, outer=second))) == texts(converged)
    assert first.done == second.done


@pytest.mark.parametrize("effort", [0.02, 0.3])
def test_a_search_cut_short_says_so(effort: float) -> None:
    outer = Meter(PLENTY)
    outcome = solved("dgx1", "allreduce", Budget(effort, outer=outer))
    assert outer.cut
    assert outcome.statements[-1].startswith("stopped before all")


def test_more_work_on_a_packing_is_never_slower() -> None:
    machine = topology("dgx1")
    packings = pack(machine, make("allreduce", machine.ranks))
    quotients = [PlanQuotient.of(PackingPlan.of(packing)) for packing in packings]

    def planned(steps: int) -> Planned:
        return quickest(quotients, 1 << 20, OrderLimits(Meter(steps), seed=1))

    found = [planned(steps) for steps in (0, 10_000, 50_000, 200_000, 10**6, PLENTY)]
    times = [plan.finer_us for plan in found]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]
    assert all(plan.time_us <= 1.1 * plan.finer_us for plan in found)  # fewer messages


def test_more_work_on_trees_is_never_a_lower_rate() -> None:
    machine = topology("mi250")
    wanted = make("allgather", machine.ranks)
    rates = [
        pack(machine, wanted, meter=Meter(steps))[0].us_per_byte for steps in (0, 10**4, PLENTY)
    ]
    assert rates == sorted(rates, reverse=True)


def test_hosts_without_work_left_have_an_answer() -> None:
    machine = topology("dgx-a100:nodes=2,nics=8,4")
    wanted = make("allgather", machine.ranks)
    hurried, spent = pack_hosts(machine, wanted, meter=Meter(0)), Meter(PLENTY)
    patient = pack_hosts(machine, wanted, meter=spent)
    assert hurried is not None
    assert patient is not None
    assert patient.us_per_byte <= hurried.us_per_byte
    assert spent.done


def test_trees_do_not_take_the_work_of_orders() -> None:
    machine = topology("dragonfly:a=4,h=2,p=2")
    problem = Problem(machine, make("allgather", machine.ranks), None, Objective.TIME, 1 << 30)
    (point,) = Packer().solve(problem, Budget(1), Silent()).points
    assert "1 segment," not in point.words
