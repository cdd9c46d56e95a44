"""Schedules against the rules of a sketch: each rule kept, and broken."""

from dataclasses import replace

import pytest
from shares import in_pieces
from strategies import hub, ring

from weft.dsl.base.spans import Source, Span
from weft.dsl.nouns.collective import Kind, custom, make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.sketch import (
    Chunks,
    ChunksBySize,
    FixedSend,
    Forbid,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    Only,
    OwnFirst,
    Peers,
    Phase,
    Phases,
    Relay,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)
from weft.dsl.nouns.topology import Topology, both_ways, gpu, link, switch
from weft.synth.judge.verify import verify

SPAN = Span(Source("mine.sketch", "chunks 2\nforbid 0 -> 1\n"), 9, 22)


def told(s: Schedule, *rules: Rule) -> tuple[str, ...]:
    assert verify(s).ok
    return verify(s, Sketch("test", rules)).problems


def ring_allgather(n: int = 4, chunks: int = 1) -> Schedule:
    sends = [
        Transfer((r - s) % n * chunks + j, r, (r + 1) % n, (r,), s)
        for s in range(n - 1)
        for r in range(n)
        for j in range(chunks)
    ]
    return Schedule.of(ring(n), make("allgather", n, chunks=chunks), sends)


def two_boxes() -> Topology:
    """Boxes {0, 1} and {2, 3}; pairs inside, a cable 1 -> 2, 3 -> 0, and 0 -> 3."""
    nodes = (gpu(0, 0), gpu(1, 0), gpu(2, 1), gpu(3, 1))
    cables = (link(1, 2, 12), link(3, 0, 12), link(0, 3, 12))
    return Topology("boxes", nodes, (*both_ways(0, 1, 25), *both_ways(2, 3, 25), *cables))


def boxes_gather(late: bool = False) -> Schedule:
    """What 0 and 1 have goes to rank 2 over 1 -> 2, rank 1's own piece first, or late."""
    c = custom("two", 4, [(0, 0, [0], 0), (1, 1, [1], 0)], [(2, 0, [0], 0), (2, 1, [1], 1)])
    sends = [
        Transfer(0, 0, 1, (0,), 0),
        Transfer(0, 1, 2, (4,), 1),
        Transfer(1, 1, 2, (4,), 2 if late else 0),
    ]
    return Schedule.of(two_boxes(), c, sends)


def test_a_problem_names_the_rule_and_its_line() -> None:
    rule = Forbid(label="forbid 0 -> 1", span=SPAN, pairs=frozenset({(0, 1)}))
    assert told(ring_allgather(3), rule)[0] == (
        "transfer 0 (chunk 0, rank 0 -> 1, step 0): rule 'forbid 0 -> 1' (mine.sketch:2:1): "
        "forbidden"
    )


def test_forbidden_links_and_pairs() -> None:
    s = ring_allgather(4)
    assert not told(s, Forbid(label="f", pairs=frozenset({(1, 0), (2, 1)})))
    assert len(told(s, Forbid(label="f", pairs=frozenset(), links=frozenset({2})))) == 3


def test_only_rules_add_up() -> None:
    s = ring_allgather(4)
    some = Only(label="a", pairs=frozenset({(0, 1), (1, 2)}))
    rest = Only(label="b", pairs=frozenset(), links=frozenset({2, 3}))
    assert not told(s, some, rest)
    found = told(s, some)
    assert len(found) == 6
    assert "rule 'a': no such rule names this hop" in found[0]


def test_only_links_must_be_all_of_a_route() -> None:
    sends = [Transfer(u, u, v, (2 * u, 2 * v + 1)) for u in range(2) for v in range(2) if u != v]
    s = Schedule.of(hub(2), make("allgather", 2), sends)
    assert not told(s, Only(label="all", pairs=frozenset(), links=frozenset(range(4))))
    half = Only(label="half", pairs=frozenset(), links=frozenset({0, 1, 2}))
    assert len(told(s, half)) == 1  # 0 -> hub -> 1 needs link 3


def test_relay() -> None:
    rule = Relay(label="r", sources=frozenset({0}), through=((1, 2),))
    assert not told(boxes_gather(), rule)
    other = Relay(label="r", sources=frozenset({0}), through=((0, 3),))
    (only,) = told(boxes_gather(), other)
    assert only.endswith("rule 'r': the chunk leaves its host elsewhere")
    assert "chunk 0, rank 1 -> 2" in only  # chunk 1 starts on rank 1: no source
    assert not told(boxes_gather(), Relay(label="r", sources=frozenset({2}), through=()))


def test_own_data_first() -> None:
    rule = Relay(label="r", sources=frozenset({0, 1}), through=((1, 2),), own_first=True)
    assert not told(boxes_gather(), rule)
    (only,) = told(boxes_gather(late=True), rule)
    assert "chunk 1, rank 1 -> 2, step 2" in only
    assert "own chunk comes after another's" in only


@pytest.mark.parametrize(("limit", "count"), [(3, 0), (2, 2), (None, 0)])
def test_peers_through_a_switch(limit: int | None, count: int) -> None:
    c = make("gather", 4, roots=[0])
    sends = [Transfer(v, v, 0, (2 * v, 1)) for v in range(1, 4)]
    s = Schedule.of(hub(4), c, sends)
    found = told(s, SwitchPolicy(label="p", switch=4, peers=Peers.FEW, limit=limit))
    assert len(found) == count // 2
    assert not count or found[0] == "rule 'p': rank 0 receives from 3 peers through hub"


def test_peers_of_another_switch_do_not_count() -> None:
    plane = hub(4)
    two = replace(plane, nodes=(*plane.nodes, switch("spare")))
    sends = [Transfer(v, v, 0, (2 * v, 1)) for v in range(1, 4)]
    s = Schedule.of(two, make("gather", 4), sends)
    assert not told(s, SwitchPolicy(label="p", switch=5, limit=0))
    assert told(s, SwitchPolicy(label="p", switch=4, limit=0))


def test_symmetry() -> None:
    turn = Symmetry(label="turn", image=(1, 2, 3, 0))
    flip = Symmetry(label="flip", image=(3, 2, 1, 0))
    s = ring_allgather(4, chunks=2)
    assert not told(s, turn)
    first, *_ = told(s, flip)
    assert first == ("rule 'flip': the transfers of chunk 6 are not the images of those of chunk 0")
    assert told(s, Symmetry(label="x", image=(0, 0, 1, 2))) == (
        "rule 'x': it is not a permutation of the 4 ranks",
    )


def test_symmetry_keeps_the_numbers_of_pieces() -> None:
    """Two pieces go round opposite ways: the mirror would exchange them, which is no symmetry."""
    n = 4
    nodes = tuple(map(gpu, range(n)))
    links = tuple(x for r in range(n) for x in both_ways(r, (r + 1) % n, 25))
    up = [
        Transfer(2 * ((r - s) % n), r, (r + 1) % n, (2 * r,), s)
        for s in range(n - 1)
        for r in range(n)
    ]
    down = [
        Transfer(2 * ((r + s) % n) + 1, r, (r - 1) % n, (2 * ((r - 1) % n) + 1,), s)
        for s in range(n - 1)
        for r in range(n)
    ]
    s = Schedule.of(Topology("loop", nodes, links), make("allgather", n, chunks=2), up + down)
    turn, mirror = (1, 2, 3, 0), (0, 3, 2, 1)
    assert not told(s, Symmetry(label="turn", image=turn))
    assert told(s, Symmetry(label="mirror", image=mirror))


def test_symmetry_that_moves_the_root_is_none() -> None:
    sends = [Transfer(0, r, r + 1, (r,), r) for r in range(3)]
    s = Schedule.of(ring(4), make("broadcast", 4), sends)
    (only,) = told(s, Symmetry(label="turn", image=(1, 2, 3, 0)))
    assert "does not map broadcast root 0 on 4 ranks, 1 chunk to itself" in only


def test_chunks_and_steps() -> None:
    s = ring_allgather(4, chunks=2)
    assert not told(s, Chunks(label="c", count=2), MaxSteps(label="s", count=3))
    assert told(s, Chunks(label="c", count=1), MaxSteps(label="s", count=2)) == (
        "rule 'c': units are cut into 2 chunks",
        "rule 's': the schedule has 3 steps",
    )


def test_hops_of_copies_and_of_sums() -> None:
    s = ring_allgather(4)
    assert not told(s, MaxHops(label="h", count=3))
    assert len(told(s, MaxHops(label="h", count=2))) == 4
    chain = [Transfer(0, r, r + 1, (r,), r, True) for r in range(3)]
    s = Schedule.of(ring(4), make("reduce", 4, roots=[3]), chain)
    assert not told(s, MaxHops(label="h", count=3))
    (only,) = told(s, MaxHops(label="h", count=2))
    assert "rank 2 -> 3, step 2" in only
    assert "more than 2 hops" in only


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        (FixedSend(label="f", owner=0, pair=(0, 1), must=True), ""),
        (FixedSend(label="f", owner=0, pair=(0, 1), must=True, step=1), ""),
        (
            FixedSend(label="f", owner=0, pair=(0, 1), must=True, step=2),
            "chunk 0 is not sent 0 -> 1 in step 1",
        ),
        (FixedSend(label="f", owner=0, pair=(3, 0), must=True), "chunk 0 is not sent 3 -> 0"),
        (FixedSend(label="f", owner=0, pair=(3, 0), must=False), ""),
        (FixedSend(label="f", owner=0, pair=(2, 3), must=False), "this send is ruled out"),
        (FixedSend(label="f", owner=0, pair=(2, 3), must=False, step=2), ""),
        (FixedSend(label="f", owner=0, pair=(2, 3), must=False, piece=1), "this send"),
        (FixedSend(label="f", owner=0, pair=(0, 1), must=True, piece=2), "lacks the chunk"),
        (FixedSend(label="f", owner=9, pair=(0, 1), must=True), "lacks the chunk"),
    ],
)
def test_fixed_sends(rule: FixedSend, broken: str) -> None:
    found = told(ring_allgather(4, chunks=2), rule)
    assert bool(found) == bool(broken)
    assert broken in (found or ("",))[0]


def test_fixed_sends_to_one_target() -> None:
    """Scatter from 0 round the ring: what is for rank 2 passes 1 -> 2, what is for 1 does not."""
    c = make("scatter", 3)
    sends = [Transfer(1, 0, 1, (0,), 0), Transfer(2, 0, 1, (0,), 0), Transfer(2, 1, 2, (1,), 1)]
    s = Schedule.of(ring(3), c, sends)
    assert not told(s, FixedSend(label="f", owner=0, target=2, pair=(1, 2), must=True))
    assert not told(s, FixedSend(label="f", owner=0, target=1, pair=(1, 2), must=False))
    assert told(s, FixedSend(label="f", owner=0, target=1, pair=(1, 2), must=True))
    assert told(s, FixedSend(label="f", owner=0, target=2, pair=(1, 2), must=False))


def test_pieces_of_unequal_shares_are_counted_in_their_unit() -> None:
    s = in_pieces(ring_allgather(), [[3, 1], [4], [2, 2], [1, 3]])

    def never(owner: int, piece: int, pair: tuple[int, int]) -> FixedSend:
        return FixedSend(label="never", span=SPAN, owner=owner, pair=pair, must=False, piece=piece)

    assert not told(s, never(1, 1, (1, 2)))
    for owner in (0, 2, 3):
        (problem,) = told(s, never(owner, 1, (owner, (owner + 1) % 4)))
        assert f"chunk {(1, 2, 4, 6)[owner]}" in problem
    assert "unequal" in told(s, Chunks(label="two", span=SPAN, count=4))[0]


# ---- detours


def short_and_long() -> Topology:
    """A triangle: 0 -> 1 takes 3 µs, 0 -> 2 -> 1 takes 2 µs."""
    cables = (
        link(0, 1, 25, 3),
        link(0, 2, 25, 1),
        link(2, 1, 25, 1),
        link(1, 0, 25),
        link(2, 0, 25),
    )
    return Topology("triangle", (gpu(0), gpu(1), gpu(2)), cables)


def test_detours_in_hops_and_in_alpha() -> None:
    around = Schedule.of(
        short_and_long(),
        make("broadcast", 3, roots=[0]),
        [Transfer(0, 0, 2, (1,), 0), Transfer(0, 2, 1, (2,), 1)],
    )
    direct = Schedule.of(
        short_and_long(),
        make("broadcast", 3, roots=[0]),
        [Transfer(0, 0, 2, (1,), 0), Transfer(0, 0, 1, (0,), 0)],
    )
    hops, alpha = Measure.HOPS, Measure.ALPHA
    assert told(around, MaxDetour(hops, label="d"))[0].endswith("data comes here by a longer path")
    assert not told(around, MaxDetour(hops, more=1, label="d"))
    assert not told(around, MaxDetour(hops, percent=100, label="d"))
    assert not told(around, MaxDetour(alpha, label="d"))
    (only,) = told(direct, MaxDetour(alpha, percent=49, label="d"))
    assert "rank 0 -> 1" in only
    assert not told(direct, MaxDetour(alpha, percent=50, label="d"))
    assert not told(direct, MaxDetour(hops, label="d"))


def test_a_detour_of_any_part_of_a_sum_counts() -> None:
    n = 4
    sums = [Transfer(0, r, r + 1, (r,), r, reduce=True) for r in range(n - 1)]
    s = Schedule.of(ring(n), make("reduce", n, roots=[n - 1]), sums)
    assert not told(s, MaxDetour(Measure.HOPS, label="d"))
    # On a ring of both directions, 3 -> 0 is one hop, and 0's part took three.
    s = replace(s, topology=two_way_ring(n), route_links=2 * s.route_links)
    found = told(s, MaxDetour(Measure.HOPS, more=1, label="d"))
    assert len(found) == 1
    assert "rank 2 -> 3" in found[0]
    assert not told(s, MaxDetour(Measure.HOPS, more=2, label="d"))


def two_way_ring(n: int) -> Topology:
    return Topology(
        "two-way",
        tuple(map(gpu, range(n))),
        tuple(x for r in range(n) for x in both_ways(r, (r + 1) % n, 25)),
    )


def test_of_equal_copies_the_nearest_start_counts() -> None:
    c = custom("copies", 3, [(0, 0, [0], 0), (2, 0, [0], 0)], [(1, 0, [0], 0)])
    line = Topology("line", (gpu(0), gpu(1), gpu(2)), (*both_ways(0, 1, 25), *both_ways(1, 2, 25)))
    s = Schedule.of(line, c, [Transfer(0, 2, 1, (3,), 0)])
    assert not told(s, MaxDetour(Measure.HOPS, label="d"))


# ---- order


def test_own_data_first_over_any_hops() -> None:
    rule = OwnFirst(label="o", pairs=frozenset({(1, 2)}))
    assert not told(boxes_gather(), rule)
    (only,) = told(boxes_gather(late=True), rule)
    assert "own chunk comes after another's" in only
    assert not told(boxes_gather(late=True), OwnFirst(label="o", pairs=frozenset({(0, 1)})))


# ---- chunks by size


def test_chunks_by_size_are_one_of_the_numbers() -> None:
    rule = ChunksBySize(((64, 1), (1024, 2)), 4, label="c")
    assert not told(ring_allgather(3, chunks=2), rule)
    (only,) = told(ring_allgather(3, chunks=3), rule)
    assert only.endswith("units are cut into 3 chunks")


# ---- phases

BOXES, RAILS = ((0, 1), (2, 3)), ((0, 2), (1, 3))
RAILED = Phases(
    (Phase(Kind.REDUCE_SCATTER, BOXES), Phase(Kind.ALLREDUCE, RAILS), Phase(Kind.ALLGATHER, BOXES)),
    Kind.ALLREDUCE,
    label="rails",
)


def square() -> Topology:
    """0-1, 2-3 inside; 0-2, 1-3 across."""
    cables = [(0, 1), (2, 3), (0, 2), (1, 3)]
    return Topology(
        "square",
        tuple(gpu(r, r // 2) for r in range(4)),
        tuple(x for a, b in cables for x in both_ways(a, b, 25)),
    )


def allreduce(*sends: tuple[int, int, int, int, bool]) -> Schedule:
    """Of two chunks; sends are (chunk, src, dst, step, reduce)."""
    machine = square()
    where = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    rows = [Transfer(c, a, b, (where[a, b],), step, reduce=r) for c, a, b, step, r in sends]
    return Schedule.of(machine, make("allreduce", 4, chunks=2), rows)


def railed(skip: int = 0) -> list[tuple[int, int, int, int, bool]]:
    """Chunk c: summed on ranks c and c + 2, exchanged by them, handed to their neighbours."""
    found = []
    for c in (0, 1):
        found += [(c, 1 - c, c, 0, True), (c, 3 - c, 2 + c, 0, True)]
        found += [(c, c, c + 2, 1, True), (c, c + 2, c, 2, False)]
        found += [(c, c, 1 - c, 3, False), (c, c + 2, 3 - c, 2, False)]
    return found


def test_a_schedule_in_phases() -> None:
    assert not told(allreduce(*railed()), RAILED)


def test_phases_in_another_order_are_told() -> None:
    # Across first, then inside: right as an allreduce, but not so composed.
    sends = []
    for c in (0, 1):
        sends += [(c, 0, 2, 0, True), (c, 1, 3, 0, True), (c, 2, 3, 1, True)]
        sends += [(c, 3, 2, 2, False), (c, 2, 0, 3, False), (c, 3, 1, 3, False)]
    found = told(allreduce(*sends), RAILED)
    assert any("rank 2 -> 3, step 1" in line for line in found)
    assert all(line.endswith("no phase after that of its data allows it") for line in found)


def test_an_allgather_phase_sums_nothing_and_a_scatter_phase_copies_nothing() -> None:
    inside = tuple(Phase(k, ((0, 1, 2, 3),)) for k in (Kind.REDUCE_SCATTER, Kind.ALLGATHER))
    assert not told(allreduce(*railed()), Phases(inside, Kind.ALLREDUCE, label="all"))
    down = replace(RAILED, phases=(Phase(Kind.REDUCE_SCATTER, ((0, 1, 2, 3),)),))
    assert len(told(allreduce(*railed()), down)) == 6  # the copies
    up = replace(RAILED, phases=(Phase(Kind.ALLGATHER, ((0, 1, 2, 3),)),))
    assert len(told(allreduce(*railed()), up)) == 6  # the sums
