"""What lint finds, where, and that it is silent about sound sketches."""

from __future__ import annotations

from itertools import product
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.lint import Concern, LintWarning, allowed_pairs, lint
from weft.dsl.language.machine import SketchMachine
from weft.dsl.language.parse import parse
from weft.dsl.nouns.hops import find_hops

UNUSED, CONTRADICTION, MISFIT = Concern


def findings(lines: str, machine: str = "dgx1") -> list[LintWarning]:
    return list(lint(parse(f"sketch x\n{dedent(lines)}\n", "f"), topology(machine)))


def test_a_sound_sketch_has_no_findings() -> None:
    assert findings("machine dgx1\ncollective allgather\nmax hops 2\nforbid links 0 -> 3") == []


@pytest.mark.parametrize(
    ("lines", "machine", "concern", "message", "at"),
    [
        # ---- matches nothing
        ("forbid links 0..1 -> 6..7", "dgx1", UNUSED, "0..1 -> 6..7 matches no link", "f:2:14"),
        (
            "forbid links 0 -> 1, between nodes",
            "dgx1",
            UNUSED,
            "between nodes matches no link",
            "f:2:22",
        ),
        (
            "forbid links 0 -> 1 except 1 -> 2",
            "dgx1",
            UNUSED,
            "1 -> 2 excludes none of the links before 'except'",
            "f:2:28",
        ),
        ("for p in 3..2: max hops 2", "dgx1", UNUSED, "this loop has no values", "f:2:1"),
        (
            "between nodes: relay any through 0 -> 1",
            "dgx1",
            UNUSED,
            "there is only one node, so no links are between nodes",
            "f:2:16",
        ),
        (
            "max hops 2\nchunks 1\nmax hops 2",
            "dgx1",
            UNUSED,
            "this repeats the rule of line 2",
            "f:4:1",
        ),
        ("symmetry: rotate nodes", "dgx1", UNUSED, "this symmetry moves nothing", "f:2:1"),
        (
            "own data first over 0..1 -> 6..7",
            "dgx1",
            UNUSED,
            "0..1 -> 6..7 matches no link",
            "f:2:21",
        ),
        (
            "phases:\n    allgather within node\n    allgather across nodes by local rank",
            "dgx1",
            UNUSED,
            "no group of this phase has two ranks",
            "f:4:5",
        ),
        (
            "size 1MiB\nchunks 1 up to 64KiB, 2 beyond",
            "dgx1",
            UNUSED,
            "some of these counts are for sizes outside the sketch's range",
            "f:3:1",
        ),
        (
            "size 1KiB..64KiB\nchunks 1 up to 64KiB, 2 beyond",
            "dgx1",
            UNUSED,
            "some of these counts are for sizes outside the sketch's range",
            "f:3:1",
        ),
        (
            "for i in 0..nodes-1: between nodes i -> i//2: own data first",
            "dgx1",
            UNUSED,
            "there is only one node, so no links are between nodes",
            "f:2:47",
        ),
        # ---- contradictions
        (
            "collective allgather\nforbid links 0 -> 3\nmax detour 0 hops",
            "dgx1",
            CONTRADICTION,
            "with these links rank 3 is 2 hops from rank 0; the shortest path has 1",
            "f:4:1",
        ),
        (
            "phases:\n    allgather in (0 1)(2 3)\n    allgather in (0 2)(1 3)",
            "ring:4",
            CONTRADICTION,
            "phase 2 (allgather) stays in groups, and inside {0, 2} the links that are "
            "allowed do not lead from every rank to every other",
            "f:2:1",
        ),
        (
            "phases:\n    allgather in (0 1)(2 3)\n    allgather in (0 3)(1 2)\nsymmetry: rotate 1",
            "ring:4",
            CONTRADICTION,
            "this symmetry does not map the groups of the phases to each other",
            "f:5:11",
        ),
        (
            "chunks 1 up to 64KiB, 2 beyond\nsend chunk 2 of rank 0 over 0 -> 1",
            "dgx1",
            CONTRADICTION,
            "there is no chunk 2: each rank has 2, from 0",
            "f:3:1",
        ),
        (
            "forbid links 0 -> 1\nsend chunk 0 of rank 0 over 0 -> 1",
            "dgx1",
            CONTRADICTION,
            "0 -> 1 is not allowed: 'forbid links 0 -> 1 (line 2)'",
            "f:3:1",
        ),
        (
            'only links 0..3 <-> 0..3, 4..7 <-> 4..7, 0 <-> 4 as "one bridge"\n'
            "send chunk 0 of rank 1 over 1 -> 5",
            "dgx1",
            CONTRADICTION,
            "1 -> 5 is not allowed: no 'only' names it ('one bridge')",
            "f:3:1",
        ),
        (
            "send chunk 0 of rank 0 over 0 -> 1 at step 2\n"
            "never send any chunk of rank 0 over 0 -> 1",
            "dgx1",
            CONTRADICTION,
            "'never send any chunk of rank 0 over 0 -> 1 (line 3)' says that this "
            "must never be sent",
            "f:2:1",
        ),
        (
            "send chunk 0 of rank 0 over 1 -> 5 at step 1",
            "dgx1",
            CONTRADICTION,
            "a chunk of rank 0 is on rank 1 after step 1 at the earliest, "
            "so it leaves at step 2 or later",
            "f:2:1",
        ),
        (
            "max steps 2\nsend chunk 0 of rank 0 over 5 -> 6",
            "dgx1",
            CONTRADICTION,
            "there are at most 2 steps",
            "f:3:1",
        ),
        (
            "max steps 2\nsend chunk 0 of rank 0 over 0 -> 1 at step 3",
            "dgx1",
            CONTRADICTION,
            "there are at most 2 steps",
            "f:3:1",
        ),
        (
            "chunks 2\nsend chunk 2 of rank 0 over 0 -> 1",
            "dgx1",
            CONTRADICTION,
            "there is no chunk 2: each rank has 2, from 0",
            "f:3:1",
        ),
        (
            "max hops 3\nforbid links any -> 3",
            "dgx1",
            CONTRADICTION,
            "with these links, no data gets from rank 0 to rank 3 (nor 6 other pairs)",
            "f:3:1",
        ),
        (
            "only links within node",
            "ndv2:nodes=2",
            CONTRADICTION,
            "with these links, no data gets from rank 0 to rank 8 (nor 127 other pairs)",
            "f:2:1",
        ),
        (
            "collective gather\nforbid links 0 <-> any",
            "dgx1",
            CONTRADICTION,
            "with these links, no data gets from rank 0 to rank 1 (nor 6 other pairs)",
            "f:3:1",
        ),
        (
            "collective allgather\nmax hops 1",
            "dgx1",
            CONTRADICTION,
            "rank 5 is 2 hops from rank 0, more than 1",
            "f:3:1",
        ),
        (
            "collective alltoall\nmax steps 3",
            "ring:8",
            CONTRADICTION,
            "rank 4 is 4 hops from rank 0, more than 3",
            "f:3:1",
        ),
        (
            "symmetry: rotate 1\nforbid links 2 -> 3",
            "ring:8",
            CONTRADICTION,
            "the rules allow 1 -> 2, but not 2 -> 3, to which this symmetry moves it",
            "f:2:11",
        ),
        (
            "between nodes: relay 0 through 0 -> 0\nsymmetry: rotate 2 within node",
            "dgx2:nodes=2",
            CONTRADICTION,
            "this symmetry does not map the relays to each other",
            "f:3:11",
        ),
        (
            "between nodes: relay 0 through 0 -> 1\nforbid links 0 -> 8..15, 8 -> 0..7",
            "ndv2:nodes=2",
            CONTRADICTION,
            "the relay 0 -> 9 is not allowed: 'forbid links 0 -> 8..15, 8 -> 0..7 (line 3)'",
            "f:2:16",
        ),
        # ---- another machine
        ("machine dgx2", "dgx1", MISFIT, "the sketch is for dgx2 (16 GPUs); dgx1 has 8", "f:2:1"),
        (
            "machine ring:8",
            "dgx1",
            MISFIT,
            "the sketch is for ring:8; dgx1 connects its GPUs differently",
            "f:2:1",
        ),
        ("machine dgx3", "dgx1", MISFIT, "no machine is called 'dgx3'", "f:2:1"),
        (
            "machine ring:eight",
            "dgx1",
            MISFIT,
            "ring:eight: 'eight' is not an integer",
            "f:2:1",
        ),
    ],
)
def test_a_finding_says_what_and_where(
    lines: str, machine: str, concern: Concern, message: str, at: str
) -> None:
    found = findings(lines, machine)
    assert [(f.concern, f.message, str(f.span)) for f in found] == [(concern, message, at)]
    assert found[0].render().startswith(f"warning: {message}\n --> {at}\n")


def test_a_machine_with_the_same_hops_fits() -> None:
    assert findings("machine ndv2", "dgx1") == []
    assert findings("machine full:16", "hub:16") == []


def test_what_some_turn_of_a_loop_uses_is_used() -> None:
    assert findings("for p in 0..3:\n    for q in (p+1)..3: forbid links p -> q..3\n") == []


def test_a_one_way_machine_is_no_contradiction() -> None:
    # A gather tree needs one direction only.
    text = "collective gather\nforbid links 0 -> any, 1 -> 2..5, 2 -> 3..7, 3 -> 7"
    assert findings(text) == []


def test_the_first_rule_that_cuts_off_is_named() -> None:
    (found,) = findings(
        """\
        forbid links 0..1 -> 4..7 as "harmless"
        forbid links 2..3 -> 4..7 as "the last straw"
        """
    )
    assert found.hint == "cut off by 'the last straw'"


def test_an_error_of_elaboration_is_raised() -> None:
    with pytest.raises(UserError, match="not a hop"):
        findings("forbid links 0 -> 5")


PAIRS = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(
    st.sampled_from(["only", "forbid"]),
    st.lists(PAIRS, min_size=1, max_size=4),
    st.lists(st.sampled_from(["{} -> nvswitch", "nvswitch -> {}"]), max_size=2),
)
def test_allowed_pairs_agree_with_the_rules_own_definition(
    verb: str, named: list[tuple[int, int]], through: list[str]
) -> None:
    """The matrix that lint uses against ``Sketch.allows``, hop by hop."""
    machine = topology("dgx2")
    listed = [f"{a}..{a + 1} -> {b}..{b + 3}" for a, b in named]
    listed += [text.format(a) for text, (a, _) in zip(through, named, strict=False)]
    one = elaborate(parse(f"sketch x\n{verb} links {', '.join(listed)}\n"), machine)
    expected = np.zeros((16, 16), np.bool_)
    for hop in find_hops(machine).hops:
        expected[hop.src, hop.dst] = one.allows(hop)
    assert np.array_equal(allowed_pairs(one, SketchMachine(machine)), expected)
    if verb == "forbid":
        free = {(a, b) for a, b in product(range(16), range(16)) if a != b}
        gone = {(x, y) for a, b in named for x in (a, a + 1) for y in range(b, b + 4)}
        assert set(map(tuple, np.argwhere(expected).tolist())) <= free - gone
