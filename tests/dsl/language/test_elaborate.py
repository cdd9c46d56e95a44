"""Elaborated rules against pairs and permutations written out by hand."""

from __future__ import annotations

from itertools import product
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import SeveralErrors, UnknownName, UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate, machine_text
from weft.dsl.language.parse import parse
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.sketch import (
    CastPolicy,
    Chunks,
    FixedSend,
    Forbid,
    MaxHops,
    MaxSteps,
    Only,
    Peers,
    Relay,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)

# DGX-1V (SCCL): quads 0-3 and 4-7 are cliques; 0-4, 1-5, 2-6, 3-7 join them.
QUADS = [{0, 1, 2, 3}, {4, 5, 6, 7}]
DGX1 = {(a, b) for q in QUADS for a, b in product(q, q) if a != b}
DGX1 |= {(a, a + 4) for a in range(4)} | {(a + 4, a) for a in range(4)}


def sketch(lines: str, machine: str = "dgx1", **arguments: int) -> Sketch:
    return elaborate(parse(f"sketch x\n{dedent(lines)}\n", "f"), topology(machine), arguments)


def rule(lines: str, machine: str = "dgx1") -> Rule:
    (one,) = sketch(lines, machine).rules
    return one


def pairs(lines: str, machine: str = "dgx1") -> set[tuple[int, int]]:
    one = rule(lines, machine)
    assert isinstance(one, Only | Forbid)
    return set(one.pairs)


# ---- links


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ("0 -> 3", {(0, 3)}),
        ("0 <-> 3", {(0, 3), (3, 0)}),
        ("0 -> 3, 4 -> 0", {(0, 3), (4, 0)}),
        ("gpu0 -> gpu3", {(0, 3)}),
        ('"gpu0" -> 3', {(0, 3)}),
        # A range or a group selects the hops there are, and no GPU sends to itself.
        ("0..3 -> 4..7", {(0, 4), (1, 5), (2, 6), (3, 7)}),
        ("(0, 5) -> (1, 4)", {(0, 1), (0, 4), (5, 1), (5, 4)}),
        ("0..1 -> 0..1", {(0, 1), (1, 0)}),
        ("any -> 6", {(a, b) for a, b in DGX1 if b == 6}),
        ("any -> any", DGX1),
        ("any -> any except 0..3 <-> 4..7", {(a, b) for a, b in DGX1 if (a < 4) == (b < 4)}),
        ("0..3 <-> 4..7 except 0 <-> 4, 2 <-> 6", {(1, 5), (5, 1), (3, 7), (7, 3)}),
        ("within node", DGX1),
        ("7-4 -> (7*3)%2+2*0+1", {(3, 2)}),
    ],
)
def test_links_of_one_box(links: str, expected: set[tuple[int, int]]) -> None:
    assert pairs(f"forbid links {links}") == expected
    assert pairs(f"only links {links}") == expected


# Two DGX-1 whose GPUs share NICs in pairs: 0,2 | 1,3 | 4,6 | 5,7 reach the same pair over there.
TWO = "dgx1:nodes=2"
INSIDE = DGX1 | {(a + 8, b + 8) for a, b in DGX1}
NIC = [0, 1, 0, 1, 2, 3, 2, 3]
BETWEEN = {
    (a, b)
    for a, b in product(range(16), range(16))
    if a // 8 != b // 8 and NIC[a % 8] == NIC[b % 8]
}


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ("between nodes", BETWEEN),
        ("within node", INSIDE),
        ("same local rank", {(a, (a + 8) % 16) for a in range(16)}),
        ("between nodes except same local rank", {(a, b) for a, b in BETWEEN if a % 8 != b % 8}),
        ("0 -> 8..15", {(0, 8), (0, 10)}),
    ],
)
def test_links_of_two_boxes(links: str, expected: set[tuple[int, int]]) -> None:
    assert pairs(f"forbid links {links}", TWO) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("within node: forbid links 0 -> 3", {(0, 3), (8, 11)}),
        ("within node: forbid links any -> 3", {(a, b) for a, b in INSIDE if b % 8 == 3}),
        ("between nodes: forbid links 0 -> 2", {(0, 10), (8, 2)}),
        ("between nodes: forbid links 0 <-> 2", {(0, 10), (8, 2), (2, 8), (10, 0)}),
        ("between nodes: forbid links any -> 2..7", {(a, b) for a, b in BETWEEN if b % 8 > 1}),
        ("between nodes: forbid links gpu0 -> any", {(0, 8), (0, 10)}),
        ("within node: forbid links between nodes", set()),
    ],
)
def test_in_a_block_numbers_are_local_ranks(block: str, expected: set[tuple[int, int]]) -> None:
    assert pairs(block, TWO) == expected


def test_a_link_to_a_switch_is_a_link_of_the_topology() -> None:
    machine = topology("dgx2")
    (one,) = sketch("forbid links 0..2 -> nvswitch, nvswitch -> gpu5", "dgx2").rules
    assert isinstance(one, Forbid)
    ends = {(machine.links[i].src, machine.links[i].dst) for i in one.links}
    assert ends == {(0, 16), (1, 16), (2, 16), (16, 5)}
    assert one.pairs == frozenset()


def test_a_family_name_means_the_nodes_of_the_box_in_a_block() -> None:
    machine = topology("dgx2:nodes=2")
    (one,) = sketch("within node: forbid links 0 -> nvswitch", machine.name).rules
    assert isinstance(one, Forbid)
    names = {
        (machine.nodes[machine.links[i].src].name, machine.nodes[machine.links[i].dst].name)
        for i in one.links
    }
    assert names == {("gpu0", "nvswitch0"), ("gpu16", "nvswitch1")}


def test_only_in_a_block_leaves_other_links_alone() -> None:
    one = sketch("between nodes: only links 0 -> 2", TWO)
    assert allowed(one, TWO) == INSIDE | {(0, 10), (8, 2)}
    both = sketch("between nodes: only links 0 -> 2\nwithin node: only links 0 <-> 1", TWO)
    assert allowed(both, TWO) == {(0, 10), (8, 2), (0, 1), (1, 0), (8, 9), (9, 8)}


def test_only_at_the_margin_and_in_a_block_add_up() -> None:
    one = sketch("only links within node\nbetween nodes: only links 0 -> 2", TWO)
    assert allowed(one, TWO) == INSIDE | {(0, 10), (8, 2)}


def allowed(one: Sketch, machine: str) -> set[tuple[int, int]]:
    return {(h.src, h.dst) for h in find_hops(topology(machine)).hops if one.allows(h)}


def test_only_and_forbid_of_links_hold_for_whole_routes() -> None:
    both = "only links 0..3 -> nvswitch, nvswitch -> 0..3\nforbid links nvswitch -> 2"
    expected = {(a, b) for a in range(4) for b in (0, 1, 3) if a != b}
    assert allowed(sketch(both, "dgx2"), "dgx2") == expected


# ---- relays, switches, sends


def test_the_relays_of_taccls_dgx2_sketch() -> None:
    block = """\
        between nodes:
            for p in 0..7: relay (2p, 2p+1) through 2p+1 -> 2p, own data first
        """
    rules = sketch(block, "dgx2:nodes=2").rules
    assert len(rules) == 8
    for p, one in enumerate(rules):
        assert isinstance(one, Relay)
        assert one.sources == {2 * p, 2 * p + 1, 16 + 2 * p, 17 + 2 * p}
        assert one.through == ((2 * p + 1, 16 + 2 * p), (17 + 2 * p, 2 * p))
        assert one.own_first
        text = "relay (2p, 2p+1) through 2p+1 -> 2p, own data first"
        assert one.label == f"{text}, p = {p} (line 3)"


def test_a_relay_of_all_ranks_over_three_nodes() -> None:
    one = rule("between nodes: relay any through 0 -> 1", "ndv2:nodes=3")
    assert isinstance(one, Relay)
    assert one.sources == frozenset(range(24))
    assert set(one.through) == {(0, 9), (0, 17), (8, 1), (8, 17), (16, 1), (16, 9)}
    assert not one.own_first


def test_a_relay_at_the_margin_names_ranks_of_the_machine() -> None:
    one = rule("relay 0..7 through 0 -> 10", TWO)
    assert isinstance(one, Relay)
    assert (one.sources, one.through) == (frozenset(range(8)), ((0, 10),))


def test_switch_policies() -> None:
    few, many, limit = sketch(
        "switch nvswitch0: few peers\nswitch nvswitch: many peers\nswitch any: at most 4 peers",
        "dgx2",
    ).rules
    assert isinstance(few, SwitchPolicy)
    assert isinstance(many, SwitchPolicy)
    assert isinstance(limit, SwitchPolicy)
    assert (few.switch, few.peers, few.limit) == (16, Peers.FEW, None)
    assert (many.switch, many.peers, many.limit) == (16, Peers.MANY, None)
    assert (limit.switch, limit.peers, limit.limit) == (16, None, 4)


def test_what_switches_may_compute() -> None:
    machine = "dgx-h100:nodes=2,nvls=on,sharp=fabric"
    text = """switch nvswitch0: reduce
switch nvswitch1: multicast
switch rail7: off
switch nvswitch: groups at most 1
switch any: off"""
    rules = sketch(text, machine).rules
    assert all(isinstance(r, CastPolicy) for r in rules)
    found = [(r.switch, r.allowed, r.groups) for r in rules if isinstance(r, CastPolicy)]
    assert found[:5] == [
        (16, {"reduces"}, None),
        (17, {"multicast"}, None),
        (25, frozenset(), None),
        (16, None, 1),
        (17, None, 1),
    ]
    assert [switch for switch, _, _ in found[5:]] == list(range(16, 26))


def test_a_family_of_switches_is_one_rule_each() -> None:
    rules = sketch('switch nvswitch: few peers as "calm"', "dgx2:nodes=2").rules
    assert [r.label for r in rules] == ["calm, nvswitch0", "calm, nvswitch1"]


def test_numbers() -> None:
    chunks, hops, steps = sketch("chunks 2\nmax hops 3\nmax steps 4").rules
    assert isinstance(chunks, Chunks)
    assert isinstance(hops, MaxHops)
    assert isinstance(steps, MaxSteps)
    assert (chunks.count, hops.count, steps.count) == (2, 3, 4)


def test_sends() -> None:
    must, never = sketch(
        "send chunk 0 of rank 2 to rank 5 over 2 -> 3 at step 1\n"
        "never send any chunk of rank 2 over 2 -> 6"
    ).rules
    assert isinstance(must, FixedSend)
    assert isinstance(never, FixedSend)
    assert (must.owner, must.pair, must.must, must.step, must.piece, must.target) == (
        2,
        (2, 3),
        True,
        1,
        0,
        5,
    )
    assert (never.owner, never.pair, never.must, never.step, never.piece, never.target) == (
        2,
        (2, 6),
        False,
        None,
        None,
        None,
    )


def test_a_send_in_every_node() -> None:
    rules = sketch("within node: send every chunk of rank 1 over 1 -> 5", TWO).rules
    sends = [(r.owner, r.pair) for r in rules if isinstance(r, FixedSend)]
    assert sends == [(1, (1, 5)), (9, (9, 13))]


# ---- symmetries


@pytest.mark.parametrize(
    ("move", "machine", "image"),
    [
        ("rotate 1", "ring:5", [1, 2, 3, 4, 0]),
        ("rotate 7", "ring:5", [2, 3, 4, 0, 1]),
        ("rotate 1 in blocks of 3", "torus:3x2", [1, 2, 0, 4, 5, 3]),
        ("rotate 2 within node", "dgx2", [*range(2, 16), 0, 1]),
        ("rotate nodes", "ndv2:nodes=2", [*range(8, 16), *range(8)]),
        ("rotate nodes by 2", "ndv2:nodes=3", [*range(16, 24), *range(16)]),
        ("permute (0 4)(1 5)(2 6)(3 7)", "dgx1", [4, 5, 6, 7, 0, 1, 2, 3]),
        ("permute (1 3 2)", "star:4", [0, 3, 1, 2]),
        (
            "permute (0 4)(1 5)(2 6)(3 7) within node",
            "ndv2:nodes=2",
            [4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11],
        ),
    ],
)
def test_moves(move: str, machine: str, image: list[int]) -> None:
    one = rule(f"symmetry: {move}", machine)
    assert isinstance(one, Symmetry)
    assert list(one.image) == image
    assert one.label == f"symmetry: {move} (line 2)"


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_rotation_in_blocks_is_taccls_symmetry_offset(count: int, size: int, by: int) -> None:
    """TACCL: π(r) = (r mod k + o) mod k + k·⌊r/k⌋ for [o, k]."""
    ranks = max(2, count * size)
    if ranks % size:
        return
    one = rule(f"symmetry: rotate {by} in blocks of {size}", f"full:{ranks}")
    assert isinstance(one, Symmetry)
    r = np.arange(ranks)
    assert list(one.image) == ((r % size + by) % size + size * (r // size)).tolist()


# ---- names, loops, parameters, labels


def test_labels_name_the_line_or_what_as_says() -> None:
    labels = [
        r.label
        for r in sketch(
            """\
            forbid links 0->3
            max hops 2 as "near"
            for p in (0, 2): forbid links p -> 1 as "no"
            symmetry: permute (0 4)(1 5)(2 6)(3 7), rotate 0 as "all alike"
            """
        ).rules
    ]
    assert labels == [
        "forbid links 0 -> 3 (line 2)",
        "near",
        "no, p = 0",
        "no, p = 2",
        "all alike, permute (0 4)(1 5)(2 6)(3 7)",
        "all alike, rotate 0",
    ]


def test_spans_stand_at_the_rule() -> None:
    one, two = sketch("max hops 2\n\nsymmetry: rotate 0, rotate nodes").rules[::2]
    assert one.span is not None
    assert two.span is not None
    assert (str(one.span), one.span.text) == ("f:2:1", "max hops 2")
    assert (str(two.span), two.span.text) == ("f:4:21", "rotate nodes")


def test_the_machines_numbers_and_parameters() -> None:
    head = 'sketch x(k = 2, nodes = 9)\nmachine ndv2(nodes, nic_bw = "25GB/s")\n'
    tree = parse(head + "chunks k*nodes+gpus+ranks")
    one = elaborate(tree, topology("ndv2:nodes=2"), {"k": 3})
    (chunks,) = one.of(Chunks)
    assert isinstance(chunks, Chunks)
    assert chunks.count == 3 * 2 + 8 + 16
    assert one.machine == "ndv2:nodes=2,nic_bw=25GB/s"
    # Without a machine the default counts.
    assert machine_text(tree) == "ndv2:nodes=9,nic_bw=25GB/s"
    assert machine_text(tree, {"nodes": 4}) == "ndv2:nodes=4,nic_bw=25GB/s"


def test_headers_reach_the_sketch() -> None:
    one = sketch("machine dgx1\ncollective allgather\nsize 1KiB..1MiB")
    assert (one.name, one.machine, one.collective) == ("x", "dgx1", "allgather")
    assert one.size == (1024, 1 << 20)
    assert sketch("chunks 1").machine == ""


def test_loops_over_blocks_and_of_loops() -> None:
    one = sketch(
        """\
        for p in 0..3:
            for q in (p+1)..3: forbid links p -> q
        """
    )
    found = {pair for r in one.rules if isinstance(r, Forbid) for pair in r.pairs}
    assert found == {(p, q) for p in range(4) for q in range(p + 1, 4)}
    assert one.rules[-1].label == "forbid links p -> q, p = 2, q = 3 (line 3)"


# ---- errors


def test_all_errors_come_at_once() -> None:
    with pytest.raises(SeveralErrors) as caught:
        sketch(
            """\
            forbid links 0 -> 5
            max hops 1-1
            for p in 0..3: forbid links p -> p+3
            symmetry: rotate 1, rotate 3 in blocks of 5
            """
        )
    assert [str(e.where) for e in caught.value.errors] == [
        "f:2:14",
        "f:3:10",
        "f:4:29",
        "f:4:29",
        "f:4:29",
        "f:5:11",
        "f:5:43",
    ]


def test_parameters_without_value_or_unknown() -> None:
    tree = parse("sketch x(k)\nchunks k\n")
    with pytest.raises(UserError, match="the parameter 'k' has no value"):
        elaborate(tree, topology("dgx1"))
    with pytest.raises(UnknownName) as caught:
        elaborate(tree, topology("dgx1"), {"kk": 1})
    assert caught.value.hint == "did you mean 'k'?"


def test_a_flood_of_rules_is_refused() -> None:
    text = "for p in 0..999:\n  for q in 0..999:\n    max hops p+q+1"
    with pytest.raises(UserError, match="run more than 20000 times"):
        sketch(text)
