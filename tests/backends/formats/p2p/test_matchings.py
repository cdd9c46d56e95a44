"""Messages as matchings: as few as there can be, and shifts along the axes of a torus."""

from collections import Counter

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.formats.p2p.matchings import grid_of, matchings
from weft.dsl.catalogue import topology


@st.composite
def messages(draw):
    ranks = draw(st.integers(2, 9))
    ends = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1))
    pairs = draw(st.sets(ends.filter(lambda pair: pair[0] != pair[1]), min_size=1))
    return {pair: draw(st.integers(1, 20)) for pair in sorted(pairs)}


@settings(max_examples=examples(150, 300), deadline=None)
@given(messages())
def test_as_many_sets_as_the_busiest_rank_has_messages(lengths):
    sets = matchings(lengths)
    assert sorted(pair for one in sets for pair in one) == sorted(lengths)
    for one in sets:
        for side in (0, 1):
            assert len({pair[side] for pair in one}) == len(one)
    busiest = max(max(Counter(pair[side] for pair in lengths).values()) for side in (0, 1))
    assert len(sets) == busiest


def test_messages_of_like_length_are_together():
    ring = {(r, (r + 1) % 4): 8 for r in range(4)} | {(r, (r - 1) % 4): 1 for r in range(4)}
    assert [sorted({ring[pair] for pair in one}) for one in matchings(ring)] == [[8], [1]]


@pytest.mark.parametrize(
    ("machine", "shape"),
    [
        ("torus:4x4", (4, 4)),
        ("torus:2x4", (4, 2)),
        ("torus:4x4,dead=0-1", (4, 4)),
        ("mesh:5x3", (3, 5)),
        ("torus:3x3x3", (3, 3, 3)),
        ("ring:8", ()),
        ("dgx1", ()),
        ("full:6", ()),
        ("hub:4", ()),
    ],
)
def test_grids_are_found_by_their_links(machine, shape):
    assert grid_of(topology(machine)) == shape


def test_on_a_torus_a_set_is_a_shift_along_one_axis():
    east = {(r, r // 4 * 4 + (r + 1) % 4): 3 for r in range(16)}
    south = {(r, (r + 4) % 16): 1 for r in range(0, 16, 5)}
    far = {(0, 5): 2, (15, 10): 2}
    sets = matchings(east | south | far, (4, 4))
    assert sorted(map(sorted, sets)) == sorted([sorted(east), sorted(south), sorted(far)])
