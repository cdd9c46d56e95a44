"""What rules cost, where that can be reckoned by hand."""

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.load import load_sketch
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.explain.costs import SketchCosts, costs
from weft.synth.time.schedule_time import simulate

GIB = 1 << 30


def of(machine: str, collective: str, *lines: str, size: int = GIB) -> SketchCosts:
    box = topology(machine)
    sketch = elaborate(parse("sketch test\n" + "\n".join(lines) + "\n"), box)
    return costs(box, make(collective, box.ranks), sketch, size)


def saves(found: SketchCosts, text: str) -> float:
    (cost,) = (x for x in found.each if text in x.unit[0].label)
    return float(found.all_rules.us - cost.without.us)


def test_the_relay_of_ndv2_costs_only_by_its_whole_chunks() -> None:
    box = topology("ndv2:nodes=2")
    sketch = elaborate(load_sketch("ndv2_relay"), box)
    found = costs(box, make("allgather", 16), sketch, GIB)
    # Half of the message through a NIC of 12.5 GB/s, and one α; whole chunks then go on inside.
    cut = GIB / 2 / 12500 + 2.6
    assert float(found.no_rules.us) == pytest.approx(cut)
    assert saves(found, "relay") == 0
    assert saves(found, "symmetry") == 0
    assert saves(found, "chunks") == pytest.approx(float(found.all_rules.us) - cut)
    assert found.each[0].unit[0].label.startswith("chunks 1")


@pytest.mark.parametrize("gates", [1, 2, 4])
def test_a_relay_through_few_nics_costs_their_share(gates: int) -> None:
    through = ", ".join(f"{g} -> {g}" for g in range(gates))
    found = of("dgx-a100:nodes=2", "allgather", f"between nodes: relay any through {through}")
    assert float(found.all_rules.us) == pytest.approx(GIB / 2 / (25000 * gates) + 2.5)
    assert saves(found, "relay") == pytest.approx(
        float(found.all_rules.us) - float(found.no_rules.us)
    )
    assert "must enter the host" in found.all_rules.certificate.text


def test_forbidden_links_cost_what_the_bound_of_the_rest_says() -> None:
    # Seven chunks into a GPU: over 150 GB/s, or over 125 GB/s.
    box = topology("dgx1")
    found = costs(box, make("allgather", 8), elaborate(load_sketch("dgx1_double_links"), box), GIB)
    assert float(found.all_rules.us) == pytest.approx(7 / 8 * GIB / 125e3 + 0.7)
    assert float(found.no_rules.us) == pytest.approx(7 / 8 * GIB / 150e3 + 0.7)


def test_a_detour_costs_its_latency() -> None:
    found = of("ring:8", "allgather", "forbid links 0 -> 1", "max hops 7", size=1)
    assert saves(found, "forbid") == pytest.approx(3 * 0.7, rel=1e-3)
    assert saves(found, "max hops") == 0
    assert found.each[0].unit[0].label.startswith("forbid")


def test_the_first_is_the_dearest() -> None:
    found = of(
        "dgx-a100:nodes=2",
        "allgather",
        "between nodes: relay any through 0 -> 0",
        "chunks 1",
        "max hops 3",
    )
    assert found.each[0].unit[0].label.startswith("relay")
    assert [x.without.us for x in found.each] == sorted(x.without.us for x in found.each)
    assert all(found.no_rules.us <= x.without.us <= found.all_rules.us for x in found.each)


@pytest.mark.parametrize(
    ("machine", "lines"),
    [
        ("dgx-a100:nodes=2", ["chunks 1", "between nodes: relay any through 0 -> 0"]),
        ("ndv2:nodes=2", ["chunks 2", "between nodes: relay any through 0 -> 1", "max hops 5"]),
        ("dgx1", ["chunks 2", "forbid links 0..3 <-> 4..7 except 0 <-> 4"]),
    ],
)
def test_no_schedule_that_obeys_is_quicker(machine: str, lines: list[str]) -> None:
    box = topology(machine)
    sketch = elaborate(parse("sketch test\n" + "\n".join(lines) + "\n"), box)
    collective = make("allgather", box.ranks)
    for size in (1 << 10, 1 << 26):
        least = float(costs(box, collective, sketch, size).all_rules.us)
        problem = Problem(box, collective, sketch, Objective.TIME, size)
        outcome = synthesize(problem, "sketched{patience=50}", Budget(1.0))
        took = simulate(outcome.points[0].schedule, size).time_us
        assert least * (1 - 1e-9) <= took < 2 * least


def test_where_nothing_is_possible_nothing_has_a_cost() -> None:
    with pytest.raises(UserError, match="cannot come to rank"):
        of("ndv2:nodes=2", "allgather", "between nodes: relay any through 0 -> 1", "max hops 2")
