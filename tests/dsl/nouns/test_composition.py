"""Which phases make a collective, judged against data that is followed from rank to rank."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.composition import NoComposition, composed
from weft.dsl.nouns.sketch import Phase

RS, AR, AG, A2A = Kind.REDUCE_SCATTER, Kind.ALLREDUCE, Kind.ALLGATHER, Kind.ALLTOALL
ROWS = ((0, 1, 2), (3, 4, 5))
COLUMNS = ((0, 3), (1, 4), (2, 5))
ALL = ((0, 1, 2, 3, 4, 5),)
ALONE = tuple((r,) for r in range(6))


def phases(*steps: tuple[Kind, tuple[tuple[int, ...], ...]]) -> tuple[Phase, ...]:
    return tuple(Phase(kind, groups) for kind, groups in steps)


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([(RS, ROWS), (AR, COLUMNS), (AG, ROWS)], AR),
        ([(RS, ROWS), (RS, COLUMNS), (AG, COLUMNS), (AG, ROWS)], AR),
        ([(RS, ALL), (AG, ALL)], AR),
        ([(AR, ROWS), (AR, COLUMNS)], AR),
        ([(RS, ROWS), (RS, COLUMNS)], RS),
        ([(AG, COLUMNS), (AG, ROWS)], AG),
        ([(AG, ROWS), (AG, COLUMNS)], AG),
        ([(A2A, ROWS), (A2A, COLUMNS)], A2A),
        ([(AR, ALONE), (AR, ALL)], AR),
        ([(RS, ALL), (AR, ALONE), (AG, ALL)], AR),  # one node: nobody is across
        # Another column than by local rank will do: who takes which part is free.
        ([(RS, ROWS), (AR, ((0, 4), (1, 5), (2, 3))), (AG, ROWS)], AR),
    ],
)
def test_what_phases_make(steps: list, kind: Kind) -> None:
    assert composed(phases(*steps)) is kind


@pytest.mark.parametrize(
    ("steps", "phase", "message"),
    [
        ([(RS, ROWS), (AG, COLUMNS)], 0, "never bring together ranks 0 and 3"),
        (
            [(AG, ROWS), (RS, ROWS)],
            1,
            "no collective consists of these phases: reduce_scatter after allgather",
        ),
        ([(RS, ROWS), (AR, COLUMNS)], 1, "no collective consists of these phases: allreduce after"),
        ([(A2A, ROWS), (AR, COLUMNS)], 1, "allreduce after alltoall"),
        ([(RS, ROWS), (AR, COLUMNS), (AG, COLUMNS)], 2, "in other groups than the reduce_scatter"),
        ([(RS, ROWS), (RS, COLUMNS), (AG, COLUMNS)], 2, "2 phases reduce_scatter, 1 allgather"),
        ([(RS, ALL), (RS, ROWS)], 0, "ranks 0 and 1 are in one group here and come together"),
        ([(AG, ROWS), (AG, ALL)], 1, "ranks 0 and 1 are in one group here"),
        (
            [(RS, ((0, 1, 2, 3), (4, 5))), (RS, ((0, 4), (1, 5), (2,), (3,)))],
            0,
            "the group of rank 4 has 2 ranks, where the phases join 4 blocks",
        ),
    ],
)
def test_what_makes_none_names_the_phase(steps: list, phase: int, message: str) -> None:
    with pytest.raises(NoComposition, match=message) as caught:
        composed(phases(*steps))
    assert caught.value.phase == phase


# ---- against the definition: follow the parts of a vector of N blocks


def run(steps: tuple[Phase, ...], ranks: int) -> bool:
    """Whether reduce_scatter and allgather phases, done as they are, make an allreduce.

    A rank holds blocks with contributions. A member of a group takes the blocks that its later
    reduce_scatter groups can still spread to: every assignment that is even is tried by the order
    of the ranks (grids are numbered row by row here).
    """
    held = [{b: {r} for b in range(ranks)} for r in range(ranks)]
    for phase in steps:
        fresh = [dict(h) for h in held]
        for group in phase.groups:
            blocks = sorted(held[group[0]])
            if phase.kind is RS:
                if any(sorted(held[r]) != blocks for r in group) or len(blocks) % len(group):
                    return False
                share = len(blocks) // len(group)
                for i, r in enumerate(group):
                    mine = blocks[i * share : (i + 1) * share]
                    parts = [[held[q][b] for q in group] for b in mine]
                    if any(sum(map(len, p)) != len(set().union(*p)) for p in parts):
                        return False
                    fresh[r] = {b: set().union(*p) for b, p in zip(mine, parts, strict=True)}
            else:
                union: dict[int, set[int]] = {}
                for q in group:
                    union |= held[q]
                for r in group:
                    fresh[r] = {b: set(s) for b, s in union.items()}
        held = fresh
    return all(len(h) == ranks and all(len(s) == ranks for s in h.values()) for h in held)


@given(st.permutations(range(3)), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_grids_of_any_shape_make_an_allreduce(order: list[int], shape: list[int]) -> None:
    a, b, c = shape
    rank = {p: i for i, p in enumerate(product(range(a), range(b), range(c)))}

    def lines(axis: int) -> tuple[tuple[int, ...], ...]:
        found: dict[tuple[int, ...], list[int]] = {}
        for place, r in rank.items():
            found.setdefault((*place[:axis], *place[axis + 1 :]), []).append(r)
        return tuple(map(tuple, found.values()))

    down = [Phase(RS, lines(i)) for i in order]
    up = [Phase(AG, lines(i)) for i in reversed(order)]
    assert composed([*down, *up]) is AR
    assert run((*down, *up), len(rank))


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_what_is_accepted_reaches_every_rank_once(one: list[int], two: list[int]) -> None:
    rows = tuple(tuple(one[i : i + 3]) for i in (0, 3))
    columns = tuple(tuple(two[i : i + 2]) for i in (0, 2, 4))
    paths = [[0] * 6 for _ in range(6)]
    for row in rows:
        for a, b in product(row, row):
            for column in columns:
                for d in column if b in column else ():
                    paths[a][d] += 1
    exact = all(n == 1 for row in paths for n in row)
    try:
        accepted = composed(phases((RS, rows), (RS, columns))) is RS
    except NoComposition:
        accepted = False
    assert accepted == exact
