"""Elaborated rules against pairs and permutations written out by hand."""

from itertools import product
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate, machine_text
from weft.dsl.language.parse import parse
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.sketch import Chunks, Forbid, Only, Rule, Sketch, Symmetry

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


# Two DGX-1 whose GPUs share NICs in pairs: 0,2 | 1,3 | 4,6 | 5,7 reach the same pair over there.
TWO = "dgx1:nodes=2"
INSIDE = DGX1 | {(a + 8, b + 8) for a, b in DGX1}
NIC = [0, 1, 0, 1, 2, 3, 2, 3]
BETWEEN = {
    (a, b)
    for a, b in product(range(16), range(16))
    if a // 8 != b // 8 and NIC[a % 8] == NIC[b % 8]
}


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


# ---- symmetries


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


# ---- errors


def test_parameters_without_value_or_unknown() -> None:
    tree = parse("sketch x(k)\nchunks k\n")
    with pytest.raises(UserError, match="expected a value of the parameter 'k', got none"):
        elaborate(tree, topology("dgx1"))
    with pytest.raises(UnknownName) as caught:
        elaborate(tree, topology("dgx1"), {"kk": 1})
    assert caught.value.hint == "did you mean 'k'?"
