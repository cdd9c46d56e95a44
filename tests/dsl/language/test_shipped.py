"""The sketches that come with weft: every machine has one, and TACCL's say what TACCL's say."""

from itertools import product
from typing import Any

import pytest
from taccl_files import SKETCHES

from weft.dsl.catalogue import names, topology
from weft.dsl.language.elaborate import elaborate, machine_text
from weft.dsl.language.lint import allowed_pairs, lint
from weft.dsl.language.load import catalogue_names, load_sketch
from weft.dsl.language.machine import SketchMachine
from weft.dsl.nouns.sketch import Chunks, Phases, Relay, Sketch, SwitchPolicy, Symmetry

SCALING = sorted(
    name for name in catalogue_names() if "nodes" in {p.name for p in load_sketch(name).parameters}
)

# TACCL's name, ours, and our parameters.
TACCL = {
    "sk1-ndv2-n1": ("ndv2_plain", {}),
    "sk-ndv2-n1-cUp6": ("ndv2_plain", {"pieces": 6}),
    "sk1-ndv2-n2": ("ndv2_relay", {}),
    "sk1-ndv2-n4": ("ndv2_relay", {"nodes": 4}),
    "sk2-ndv2-n2": ("ndv2_any_to_any", {}),
    "sk2-ndv2-n4": ("ndv2_any_to_any", {"nodes": 4}),
    "sk3-ndv2-n2": ("ndv2_direct", {}),
    "sk1-dgx2-n1": ("dgx2_few_peers", {}),
    "sk-dgx2-n1": ("dgx2_few_peers", {"pieces": 2}),
    "sk1-dgx2-n2": ("dgx2_relay", {}),
    "sk2-dgx2-n2": ("dgx2_direct", {}),
}


def test_every_machine_of_the_catalogue_has_a_sketch() -> None:
    machines = {machine_text(load_sketch(name)).partition(":")[0] for name in catalogue_names()}
    assert machines == {entry.name for entry in names()}


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [n for n in SCALING if not n.startswith("gb200")])
def test_a_sketch_for_two_nodes_is_one_for_more(name: str, nodes: int) -> None:
    tree = load_sketch(name)
    machine = topology(machine_text(tree, {"nodes": nodes}))
    assert machine.hosts == nodes
    found = lint(tree, machine)
    assert nodes == 1 or found == ()
    assert all(f.concern == "matches nothing" for f in found)  # one node has no other


@pytest.mark.parametrize(
    "name", ["dgx2_relay", "ndv2_relay", "ndv2_ring_of_nodes", "dgx_h100_rails"]
)
def test_a_sketch_for_two_nodes_is_one_for_sixteen(name: str) -> None:
    tree = load_sketch(name)
    machine = topology(machine_text(tree, {"nodes": 16}))
    sketch = elaborate(tree, machine)
    assert machine.hosts == 16
    for phases in sketch.of(Phases):
        assert isinstance(phases, Phases)
        assert {len(p.groups) for p in phases.phases} == {8, 16}


# ---- against TACCL's sketches


def ours(name: str) -> tuple[Sketch, SketchMachine]:
    mine, arguments = TACCL[name]
    tree = load_sketch(mine)
    machine = topology(machine_text(tree, arguments))
    return elaborate(tree, machine, arguments), SketchMachine(machine)


def test_every_sketch_of_taccl_has_ours() -> None:
    assert set(TACCL) == set(SKETCHES)


@pytest.mark.parametrize("name", TACCL)
def test_machine_chunks_and_symmetry_are_taccls(name: str) -> None:
    theirs, (sketch, machine) = SKETCHES[name], ours(name)
    assert len(machine.hosts) == theirs["nnodes"]
    assert [r.count for r in sketch.rules if isinstance(r, Chunks)] == [
        theirs["hyperparameters"]["input_chunkup"]
    ]
    # An offset (by, size) moves rank r to (r + by) mod size inside each block of so many ranks.
    images = {
        tuple(r - r % size + (r % size + by) % size for r in range(machine.ranks))
        for by, size in theirs["symmetry_offsets"]
    }
    assert {r.image for r in sketch.rules if isinstance(r, Symmetry)} == images


@pytest.mark.parametrize("name", TACCL)
def test_switch_policies_are_taccls(name: str) -> None:
    theirs, (sketch, machine) = SKETCHES[name], ours(name)
    wanted = theirs["intranode_sketch"].get("switch_hyperedge_strategy", [])
    told = [r.peers for r in sketch.rules if isinstance(r, SwitchPolicy)]
    assert told == [{"uc-min": "few", "uc-max": "many"}[w] for w in wanted] * len(machine.hosts)


@pytest.mark.parametrize("name", [n for n in TACCL if not n.endswith(("n1", "cUp6"))])
def test_senders_to_other_nodes_are_those_of_taccl(name: str) -> None:
    theirs, (sketch, machine) = SKETCHES[name], ours(name)
    between = theirs["internode_sketch"]
    size = len(machine.hosts[0])
    pairs: Any = between["internode_conn"]
    if pairs == "fully-connected":
        local = set(product(range(size), repeat=2))
    elif pairs == "direct-map":
        local = {(i, i) for i in range(size)}
    else:
        local = {(int(a), b) for a, targets in pairs.items() for b in targets}
    senders = {int(s): of for s, of in between.get("gpus_to_sender_rev_map", {}).items()}
    allowed = allowed_pairs(sketch, machine)
    for box, other in product(range(len(machine.hosts)), repeat=2):
        if box == other:
            continue
        for owner in range(size):
            # The senders that may take this owner's data out of its node.
            mine = {s for s, of in senders.items() if owner in of} or {a for a, _ in local}
            wanted = {(a, b) for a, b in local if a in mine}
            assert ways_out(sketch, machine, allowed, owner, box, other) == wanted
    relays = [r for r in sketch.rules if isinstance(r, Relay)]
    assert any(r.own_first for r in relays) == between.get("enforce_ordering", False)


def ways_out(
    sketch: Sketch, machine: SketchMachine, allowed: Any, owner: int, box: int, other: int
) -> set[tuple[int, int]]:
    """The local ranks of the hops by which a rank's data may go from its box to another one."""
    home, there = machine.hosts[box], machine.hosts[other]
    found = {(a, b) for a, b in product(home, there) if allowed[a, b]}
    for rule in sketch.rules:
        if isinstance(rule, Relay) and home[owner] in rule.sources:
            found &= set(rule.through)
    return {(a - home[0], b - there[0]) for a, b in found}
