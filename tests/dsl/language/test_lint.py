"""What lint finds, where, and that it is silent about sound sketches."""

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
