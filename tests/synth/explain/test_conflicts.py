"""Infeasible sketches explained: the smallest set of rules, and that it is the smallest."""

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate, machine_of
from weft.dsl.language.load import catalogue_names, load_sketch
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.sketch import Rule, Sketch
from weft.dsl.nouns.topology import Topology
from weft.synth.base.engine import Budget
from weft.synth.explain.conflicts import Conflict, find_conflict, prove_conflict, statements
from weft.synth.explain.feasibility import Feasibility

RINGS = "0 <-> 1, 1 <-> 3, 3 <-> 2, 2 <-> 6, 6 <-> 7, 7 <-> 5, 5 <-> 4, 4 <-> 0"
RAILS = (
    "phases:\n    reduce_scatter within node\n    allreduce across nodes by local rank\n"
    "    allgather within node"
)

INFEASIBLE = {
    "links": (
        "dgx1",
        "allgather",
        [f"*only links {RINGS}", "*forbid links 0 -> 1, 0 -> 4", "max hops 7"],
    ),
    "steps": ("ring:6", "allgather", ["*max steps 2", "max hops 5", "chunks 2"]),
    "loop": (
        "ring:8",
        "allgather",
        ["*for p in 0..7: forbid links (p+1)%8 -> p", "*max hops 6", "max steps 9"],
    ),
    "symmetry": (
        "ring:6",
        "allgather",
        ["*symmetry: rotate 1", "*forbid links 0 -> 1", "*forbid links 1 -> 0", "chunks 1"],
    ),
    "relay": (
        "ndv2:nodes=2",
        "allgather",
        ["*between nodes: relay any through 0 -> 1", "chunks 2", "*forbid links 0 -> 9"],
    ),
    "relay and hops": (
        "ndv2:nodes=2",
        "alltoall",
        ["*max hops 2", "chunks 1", "*between nodes: relay any through 0 -> 1"],
    ),
    "root": ("ring:4", "broadcast", ["chunks 2", "*symmetry: rotate 1"]),
    "no such chunk": (
        "dgx1",
        "allgather",
        ["max hops 4", "*chunks 2", "*send chunk 3 of rank 0 over 0 -> 1"],
    ),
    "must and must not": (
        "dgx1",
        "allgather",
        [
            "*send chunk 1 of rank 0 over 0 -> 1 at step 1",
            "*never send any chunk of rank 0 over 0 -> 1",
            "chunks 2",
        ],
    ),
    "twice": (
        "dgx1",
        "allgather",
        [
            "max hops 3",
            "*send chunk 0 of rank 0 over 0 -> 1",
            "*send chunk 0 of rank 0 over 3 -> 1",
        ],
    ),
    "detour": ("ring:8", "allgather", ["*max detour 1 hops", "max hops 7", "*forbid links 0 -> 1"]),
    "latency": ("ring:8", "allgather", ["*max detour 50% of alpha", "*forbid links 0 -> 1"]),
    "peers": (
        "dgx2",
        "allgather",
        ["*switch nvswitch: at most 2 peers", "*max hops 2", "chunks 1"],
    ),
    "late": (
        "ring:4",
        "gather",
        ["*send chunk 0 of rank 2 over 2 -> 1 at step 6", "max hops 3", "*max steps 5"],
    ),
    "phases": (
        "ndv2:nodes=2",
        "allreduce",
        [f"*{RAILS}", "chunks 16", "*forbid links same local rank"],
    ),
    "sum": ("ring:6", "allreduce", ["*max hops 4", "*forbid links 2 -> 3", "chunks 6"]),
}
"""Machine, collective, lines; those in the way have a star."""


def problem(machine: str, collective: str, lines: list[str]) -> tuple[Topology, Collective, Sketch]:
    box = topology(machine)
    text = "sketch test\n" + "\n".join(line.removeprefix("*") for line in lines) + "\n"
    return box, make(collective, box.ranks), elaborate(parse(text), box)


def explained(case: str) -> tuple[Feasibility, Sketch, Conflict]:
    box, collective, sketch = problem(*INFEASIBLE[case])
    found = find_conflict(box, collective, sketch)
    assert found is not None
    return Feasibility(box, collective), sketch, found


def written(rules: tuple[Rule, ...]) -> set[str]:
    return {rule.span.text for rule in rules if rule.span is not None}


@pytest.mark.parametrize("case", INFEASIBLE)
def test_the_rules_that_exclude_each_other_are_named(case: str) -> None:
    _, _, found = explained(case)
    guilty = [x.removeprefix("*") for x in INFEASIBLE[case][2] if x.startswith("*")]
    # Of a line with a block, the rule in it.
    assert len(written(found.rules)) == len(guilty)
    assert all(any(text in line for line in guilty) for text in written(found.rules))
    assert found.why


@pytest.mark.parametrize("case", INFEASIBLE)
def test_the_set_is_minimal(case: str) -> None:
    feasible, _, found = explained(case)
    assert feasible.obstacle(found.rules) == found.why
    for unit in statements(found.rules):
        rest = [rule for rule in found.rules if rule not in unit]
        assert feasible.obstacle(rest) == "", unit


@pytest.mark.parametrize("case", INFEASIBLE)
def test_a_cure_cures_the_whole_sketch(case: str) -> None:
    feasible, sketch, found = explained(case)
    for rule in found.rules:
        rest = [r for r in sketch.rules if r is not rule]
        cured = feasible.obstacle(rest) == ""
        assert cured == (rule in found.cures)


def test_two_conflicts_leave_no_cure() -> None:
    box, collective, sketch = problem(
        "ring:6",
        "allgather",
        ["forbid links 0 -> 1", "max steps 1", "chunks 1", "max hops 4", "max hops 1"],
    )
    found = find_conflict(box, collective, sketch)
    assert found is not None
    assert len(found.rules) <= 2
    assert found.cures == ()


@pytest.mark.parametrize(
    ("machine", "collective", "lines"),
    [
        ("dgx1", "allgather", ["max hops 2", "chunks 6"]),
        ("dgx1", "allgather", [f"only links {RINGS}", "max hops 4"]),
        ("dgx1", "allgather", ["only links 0 <-> (1, 2, 3, 4)", "only links 4 <-> (5, 6, 7)"]),
        ("ring:8", "allgather", ["symmetry: rotate 1", "max hops 4"]),
        ("dgx2", "allgather", ["switch nvswitch: at most 2 peers", "max hops 4"]),
        ("ring:4", "gather", ["send chunk 0 of rank 2 over 2 -> 1 at step 6"]),
        ("dgx1:nodes=2", "allreduce", [RAILS]),
        ("ring:6", "allreduce", ["max hops 5", "forbid links 2 -> 3"]),
    ],
)
def test_what_is_possible_is_no_conflict(machine: str, collective: str, lines: list[str]) -> None:
    assert find_conflict(*problem(machine, collective, lines)) is None


@pytest.mark.parametrize("name", catalogue_names())
def test_no_sketch_of_the_catalogue_has_a_conflict(name: str) -> None:
    tree = load_sketch(name)
    box = machine_of(tree, {})
    assert box is not None
    sketch = elaborate(tree, box)
    collective = make(sketch.collective or "allgather", box.ranks)
    assert find_conflict(box, collective, sketch.at(1 << 20)) is None


def test_only_rules_are_left_out_together() -> None:
    box, collective, sketch = problem(
        "dgx1",
        "allgather",
        ["only links 0 <-> (1, 2, 3)", "only links 4 <-> (5, 6, 7)", "max hops 5"],
    )
    found = find_conflict(box, collective, sketch)
    assert found is not None
    assert written(found.rules) == {"only links 0 <-> (1, 2, 3)", "only links 4 <-> (5, 6, 7)"}
    assert found.cures == found.rules


def test_what_only_a_search_sees() -> None:
    # Each chunk by itself has a way of five hops; a rank that sends to one and receives from one
    # makes a ring, in which no schedule has only these links at both of its ends.
    box, collective, sketch = problem(
        "hub:4",
        "allgather",
        [
            "switch hub: at most 1 peers",
            "forbid links 0 -> (1, 2)",
            "forbid links 1 -> (0, 2)",
            "max hops 3",
        ],
    )
    assert find_conflict(box, collective, sketch) is None
    found = prove_conflict(box, collective, sketch, Budget(20))
    assert found is not None
    assert "max hops 3" not in written(found.rules)
    assert len(found.rules) == 3
