"""What two things have apart: nothing for equal ones, and every change of any column."""

import random
from dataclasses import replace

import numpy as np
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import planned_schedules, topologies
from timed_programs import ring_allgather, ring_allreduce

from weft.backends.cli.nouns.schedule_noun import schedule_sheets
from weft.backends.cli.verbs.diff import Change, differences, differences_text
from weft.backends.formats.listings import program_sheets
from weft.backends.report.sheets import text_sheets, topology_sheets
from weft.dsl.nouns.schedule import Schedule, dump, load
from weft.dsl.nouns.topology import Topology


@settings(max_examples=examples(30, 60), deadline=None)
@given(planned_schedules(), st.integers(0, 2**16))
def test_a_schedule_differs_from_every_other_and_not_from_itself(s: Schedule, seed: int) -> None:
    mine = schedule_sheets(s)
    assert differences(mine, schedule_sheets(load(dump(s)))) == []
    assert differences(mine, schedule_sheets(s.with_provenance(weft="0.0"))) == []
    rng = random.Random(seed)
    if not len(s):
        return
    column = rng.choice(["chunk", "src", "dst", "step", "reduce"])
    at = rng.randrange(len(s))
    changed = getattr(s, column).copy()
    changed[at] = (not changed[at]) if column == "reduce" else changed[at] + 1
    if column in ("chunk", "src", "dst"):
        top = s.collective.chunks if column == "chunk" else s.topology.ranks
        changed[at] %= top
        if (changed == getattr(s, column)).all():
            return
    other = replace(s, **{column: changed})
    assert differences(mine, schedule_sheets(other))
    assert differences(mine, schedule_sheets(replace(s, segments=s.segments + 1)))


@settings(max_examples=examples(60), deadline=None)
@given(topologies(), st.integers(0, 2**16))
def test_a_topology_differs_where_a_link_or_resource_does(t: Topology, seed: int) -> None:
    mine = topology_sheets(t)
    assert differences(mine, topology_sheets(t)) == []
    rng = random.Random(seed)
    at = rng.randrange(len(t.links))
    one = t.links[at]
    for other, sheet in (
        (replace(one, bandwidth=one.bandwidth * 2), "GB/s"),
        (replace(one, latency=one.latency + 1), "α µs"),
        (replace(one, lanes=one.lanes + 1), "lanes"),
    ):
        links = tuple(other if i == at else x for i, x in enumerate(t.links))
        found = {c.name: c for c in differences(mine, topology_sheets(replace(t, links=links)))}
        assert set(found) == {"facts", sheet}
        (row,) = found[sheet].rows
        assert f"{t.nodes[one.src].name} -> {t.nodes[one.dst].name}" in row.what
        assert [r.what for r in found["facts"].rows] == ["digest"]
    if t.resources:
        first = t.resources[0]
        other = replace(
            t, resources=(replace(first, bandwidth=first.bandwidth * 3), *t.resources[1:])
        )
        found = {c.name: c for c in differences(mine, topology_sheets(other))}
        (row,) = found["shared GB/s"].rows
        assert row.words == "+200.00%"


@settings(max_examples=examples(20, 40), deadline=None)
@given(planned_schedules(), planned_schedules())
def test_it_is_the_same_the_other_way_round(a: Schedule, b: Schedule) -> None:
    there = differences(schedule_sheets(a), schedule_sheets(b))
    back = differences(schedule_sheets(b), schedule_sheets(a))
    assert {c.name: {(r.what, r.before, r.after) for r in c.rows} for c in there} == {
        c.name: {(r.what, r.after, r.before) for r in c.rows} for c in back
    }


def test_the_load_of_links_is_in_bytes() -> None:
    p = ring_allgather(4)
    assert differences(program_sheets(p), program_sheets(p)) == []
    found = {c.name: c for c in differences(program_sheets(p), program_sheets(ring_allreduce(4)))}
    kinds = {r.what: (r.before, r.after) for r in found["instructions of a kind"].rows}
    assert kinds == {"rrs": (None, 8), "rrcs": (None, 4)}


def test_rows_are_listed_by_how_much_they_changed() -> None:
    before = {"t": {"a": 1.0, "b": 2.0, "gone": 5, "c": 3, "same": 1, "word": "x"}}
    after = {"t": {"a": 1.1, "b": 4.0, "new": 5, "c": 3.0, "same": 1, "word": "y"}}
    (found,) = differences(before, after)
    assert [row.what for row in found.rows] == ["gone", "new", "b", "a", "word"]
    assert [row.words for row in found.rows] == ["gone", "new", "+100.00%", "+10.00%", ""]
    assert found.same == 2
    text = differences_text([found], ("A", "B"))
    assert text.splitlines()[0].split() == ["t", "A", "B", "change"]
    assert text.endswith("(2 rows the same)")


def test_a_long_list_is_cut_and_says_so() -> None:
    (found,) = differences({"t": {str(i): i for i in range(30)}}, {})
    lines = differences_text([found], ("A", "B")).splitlines()
    assert (len(lines), lines[-1]) == (22, "… and 10 more")


def test_rounding_is_no_difference() -> None:
    assert differences({"t": {"a": 0.1 + 0.2}}, {"t": {"a": 0.3}}) == []
    assert Change("a", 0.0, 1.0).size == 1
    assert Change("a", 1, 20).words == "20x"


def test_lines_that_moved_are_told_by_the_digest() -> None:
    (found,) = differences(text_sheets("a\nb\n"), text_sheets("b\na\n"))
    assert found.name == "all"
    assert np.isfinite(found.rows[0].size)
    (lines, _) = differences(text_sheets("a\nb\n"), text_sheets("a\nb\nb\n"))
    assert [(r.what, r.words) for r in lines.rows] == [("b (2)", "new")]
