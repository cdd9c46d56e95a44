"""Phases, detours, orders, engines and sizes: from their lines to rules on a machine."""

from __future__ import annotations

from fractions import Fraction
from textwrap import dedent

import pytest

from weft.dsl.base.errors import SeveralErrors
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.sketch import (
    Chunks,
    ChunksBySize,
    MaxDetour,
    Measure,
    OwnFirst,
    Phase,
    Phases,
    Relay,
    Rule,
    Sketch,
)

TWO = "dgx1:nodes=2"


def sketch(lines: str, machine: str = TWO) -> Sketch:
    return elaborate(parse(f"sketch x\n{dedent(lines)}\n", "f"), topology(machine))


def rule(lines: str, machine: str = TWO) -> Rule:
    (one,) = sketch(lines, machine).rules
    return one


def phases(*lines: str, machine: str = TWO) -> tuple[Phase, ...]:
    one = rule("\n".join(["phases:", *(f"    {line}" for line in lines)]), machine)
    assert isinstance(one, Phases)
    return one.phases


def test_inside_across_inside_is_an_allreduce() -> None:
    one = sketch("""
        phases as "rails":
            reduce_scatter within node
            allreduce across nodes by local rank
            allgather within node
    """)
    boxes = (tuple(range(8)), tuple(range(8, 16)))
    rails = tuple((r, r + 8) for r in range(8))
    (found,) = one.rules
    assert isinstance(found, Phases)
    assert found.label == "rails"
    assert found.kind is Kind.ALLREDUCE
    assert found.phases == (
        Phase(Kind.REDUCE_SCATTER, boxes),
        Phase(Kind.ALLREDUCE, rails),
        Phase(Kind.ALLGATHER, boxes),
    )
    assert one.collective == "allreduce"


def test_groups_in_blocks_along_a_dimension_and_written_out() -> None:
    rows, columns = phases("allgather in blocks of 3", "allgather along y", machine="torus:3x2")
    assert rows.groups == ((0, 1, 2), (3, 4, 5))
    assert columns.groups == ((0, 3), (1, 4), (2, 5))
    across, inside = phases("alltoall in (0 3)(1 2)", "alltoall in (0 1)(2 3)", machine="ring:4")
    assert across.groups == ((0, 3), (1, 2))
    assert inside.groups == ((0, 1), (2, 3))
    inside, across = phases(
        "alltoall in blocks of 2", "alltoall across blocks of 2", machine="full:6"
    )
    assert inside.groups == ((0, 1), (2, 3), (4, 5))
    assert across.groups == ((0, 2, 4), (1, 3, 5))
    one = phases("allgather in (1 0)(2 3)", "allgather in (2 0)(3 1)", machine="full:4")
    assert one[0].groups == ((1, 0), (2, 3))


def test_a_wrong_engine_is_told_with_the_other_errors() -> None:
    with pytest.raises(SeveralErrors) as caught:
        sketch("engine none\nforbid links 0 -> 99")
    assert [str(e.where) for e in caught.value.errors] == ["f:2:8", "f:3:19"]


def test_an_engine_is_kept_as_its_text() -> None:
    assert sketch("engine packing{ trees = 4 }").engine == "packing{trees=4}"
    assert sketch("max hops 2").engine == ""


def test_detours() -> None:
    hops, share = rule("max detour 2 hops"), rule("max detour 50% of alpha")
    assert isinstance(hops, MaxDetour)
    assert isinstance(share, MaxDetour)
    assert (hops.measure, hops.longest(3)) == (Measure.HOPS, 5)
    assert (share.measure, share.longest(Fraction(7, 10))) == (Measure.ALPHA, Fraction(21, 20))


def test_an_order_holds_for_a_block_or_for_some_links() -> None:
    everywhere, inside, some = (
        rule("own data first"),
        rule("within node 1: own data first"),
        rule("own data first over same local rank"),
    )
    assert isinstance(everywhere, OwnFirst)
    assert isinstance(inside, OwnFirst)
    assert isinstance(some, OwnFirst)
    assert inside.pairs == {(a, b) for a, b in everywhere.pairs if min(a, b) >= 8}
    assert some.pairs == {(a, (a + 8) % 16) for a in range(16)}


def test_chunks_by_size_are_a_number_once_the_size_is_known() -> None:
    one = sketch("chunks 1 up to 64KiB, 2 up to 1MiB, 8 beyond", "ring:4")
    (by_size,) = one.rules
    assert isinstance(by_size, ChunksBySize)
    machine, collective = topology("ring:4"), make("allgather", 4)
    for size, count in [(1, 1), (65536, 1), (65537, 2), (1 << 20, 2), (1 << 21, 8), (None, 8)]:
        problem = Problem(machine, collective, one, bytes=size)
        assert problem.sketch is not None
        (chunks,) = problem.sketch.rules
        assert chunks == Chunks(count, label=by_size.label, span=by_size.span)


# ---- nodes by number


def test_a_relay_between_two_nodes_leaves_other_nodes_alone() -> None:
    relay, order = sketch(
        "between nodes 0 -> 1: relay any through 0 -> 1, own data first", "ndv2:nodes=3"
    ).rules
    assert isinstance(relay, Relay)
    assert isinstance(order, OwnFirst)
    assert relay.sources == set(range(8))
    to_one = {p for p in relay.through if p[1] // 8 == 1}
    assert to_one == {(0, 9)}
    assert {p for p in relay.through if p[1] // 8 == 2} == {
        (a, b) for a in range(8) for b in range(16, 24)
    }
    assert not {p for p in relay.through if p[0] >= 8}
    assert (relay.own_first, order.pairs) == (False, {(0, 9)})


def test_a_ring_of_nodes() -> None:
    one = sketch(
        "for i in 0..nodes-1: only links within node i, between nodes i -> (i+1)%nodes",
        "dgx1:nodes=3",
    )
    allowed = {p for r in one.rules for p in r.pairs}  # type: ignore[attr-defined]
    across = {(a // 8, b // 8) for a, b in allowed if a // 8 != b // 8}
    assert across == {(0, 1), (1, 2), (2, 0)}


def test_numbers_in_a_block_about_two_nodes_are_local_ranks() -> None:
    (only,) = sketch("between nodes 0 <-> 2: forbid links 3 -> 4", "ndv2:nodes=3").rules
    assert only.pairs == {(3, 20), (19, 4)}  # type: ignore[attr-defined]
    (switch,) = sketch("within node 1: forbid links any -> nvswitch", "dgx-a100:nodes=2").rules
    machine = topology("dgx-a100:nodes=2")
    hosts = {machine.nodes[machine.links[i].src].host for i in switch.links}  # type: ignore[attr-defined]
    assert hosts == {machine.nodes[8].host}
