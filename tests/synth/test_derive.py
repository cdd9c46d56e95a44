"""Sketches derived from machines: each is text of the language, fits, and leads to a schedule."""

from dataclasses import replace

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.format import format
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.synth.base.engine import Budget
from weft.synth.explain.feasibility import Feasibility
from weft.synth.planning.derive import derive_sketches, derived_text, drafts, sketch_text

IDEAS = {
    ("ndv2:nodes=2", "allgather"): {"rails_in_phases", "relays", "relays_own_first", "direct"},
    ("dgx2:nodes=2", "allgather"): {"rails_in_phases", "relays", "direct", "moves"},
    ("dgx-a100:nodes=4", "allreduce"): {"rails_in_phases", "rails", "ring_of_hosts"},
    ("dgx1", "allgather"): {"moves", "wide_links", "ring"},
    ("torus:4x4", "allreduce"): {"dimensions", "moves", "ring"},
    ("ring:5", "broadcast"): {"ring"},
    ("star:4", "allgather"): set(),
}


@pytest.mark.parametrize(("machine", "kind"), IDEAS)
def test_ideas_for_a_machine(machine: str, kind: str) -> None:
    there = topology(machine)
    collective = make(kind, there.ranks)
    found = {draft.name: draft for draft in drafts(there, collective)}
    assert found.keys() >= IDEAS[machine, kind]
    for name in IDEAS[machine, kind]:
        text = sketch_text(found[name], machine, collective)
        assert format(parse(text, name)) == text
        rules = elaborate(parse(text, name), there).rules
        assert rules
        assert not Feasibility(there, collective).obstacle(rules)


def test_shared_nics_get_a_sender_and_a_receiver() -> None:
    there = topology("dgx2:nodes=2")
    found = {draft.name: draft for draft in drafts(there, make("allgather", there.ranks))}
    assert "    relay (0, 1) through 0 -> 1" in found["relays"].lines
    assert len([line for line in found["relays"].lines if "relay" in line]) == 8


def test_the_quickest_comes_first_and_the_others_as_comments() -> None:
    there = topology("dgx1")
    budget = Budget(0.5)
    found = derive_sketches(there, make("allgather", 8), 1 << 20, budget, machine="dgx1")
    times = [one.us for one in found.sketches]
    assert times == sorted(times)
    assert min(times) >= found.bound_us * (1 - 1e-9)
    assert found.plain_us is not None
    text = derived_text(found)
    assert parse(text, "derived").name == found.sketches[0].draft.name
    assert elaborate(parse(text, "derived"), there).rules
    for one in found.sketches[1:]:
        assert f"# sketch {one.draft.name}\n" in text


def test_hosts_that_no_link_joins_get_no_relays() -> None:
    line = topology("line:6")
    hosted = [replace(node, host=i // 2) for i, node in enumerate(line.nodes)]
    links = tuple(x for x in line.links if x.src // 2 == x.dst // 2)
    there = replace(line, nodes=tuple(hosted), links=links, symmetries=())
    names = {draft.name for draft in drafts(there, make("allgather", 6))}
    assert names.isdisjoint({"relays", "direct", "chain_of_hosts"})
