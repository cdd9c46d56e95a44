"""Algorithms as schedules: verified by the independent verifier, in as few steps as they have."""

import pytest

from weft.dsl.author.builder import Builder
from weft.dsl.author.standard import Allgather, Allreduce, Alltoall, Broadcast
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.synth.engines.classic.flat import FLAT, classic_algorithm
from weft.synth.engines.classic.model import Flat
from weft.synth.engines.classic.schedule import to_schedule
from weft.synth.judge.verify import verify

EACH = pytest.mark.parametrize("one", FLAT, ids=lambda c: f"{c.name}-{c.kind}")


@EACH
@pytest.mark.parametrize("in_place", [False, True])
def test_every_flat_classic_is_a_schedule(one: Flat, in_place: bool) -> None:
    for ranks in (2, 3, 5, 8):
        if one.defined(ranks):
            continue
        made = classic_algorithm(one.name, one.kind, ranks, in_place=in_place, chunks=2)
        found = verify(to_schedule(made, topology(f"full:{ranks}")))
        assert found.ok, found.problems[:2]


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "steps"),
    [
        ("ring", "allreduce", 6, 10),
        ("ring", "allgather", 6, 5),
        ("biring", "allgather", 8, 4),
        ("recursive_doubling", "allreduce", 8, 3),
        ("halving_doubling", "allreduce", 8, 6),
        ("one_shot", "allreduce", 5, 1),
        ("two_shot", "allreduce", 5, 2),
        ("swing", "allreduce", 8, 6),
    ],
)
def test_exchanges_share_a_step(name: str, kind: str, ranks: int, steps: int) -> None:
    """The steps that the papers count: both directions of an exchange are one."""
    made = classic_algorithm(name, kind, ranks)
    assert to_schedule(made, topology(f"full:{ranks}")).steps == steps


def test_scratch_copies_that_are_summed_become_arrivals() -> None:
    """Everybody's buffer lands beside the own one; all are added at the end."""
    p = Builder(Allreduce(3))
    landed = [
        [p.chunk(src, 0).copy_to(rank=dst, buffer="scratch") for src in range(3) if src != dst]
        for dst in range(3)
    ]
    for parcels in landed:
        parcels[0].reduce_into(buffer="scratch", index=1)
    for dst in range(3):
        p.chunk(dst, 1, buffer="scratch").reduce_into()
    found = to_schedule(p.algorithm(), topology("full:3"))
    assert found.steps == 1
    assert found.reduce.all()
    assert verify(found).ok


def test_a_partial_sum_kept_apart_is_refused() -> None:
    """Rank 1 passes on what came from 0 and 2 without its own part, which it adds later."""
    p = Builder(Allreduce(4))
    apart = p.chunk(0, 0).copy_to(rank=1, buffer="scratch")
    p.chunk(2, 0).reduce_into(rank=1, buffer="scratch", index=0)
    apart = p.chunk(1, 0, buffer="scratch")
    apart.copy_to(rank=3, buffer="scratch")
    p.chunk(1, 0).reduce_into(rank=3)
    whole = p.chunk(3, 0, buffer="scratch").reduce_into(rank=3)
    for rank in range(3):
        whole.copy_to(rank=rank)
    with pytest.raises(UserError, match="rank 1 keeps two partial sums of chunk 0 apart"):
        to_schedule(p.algorithm(), topology("full:4"))


def test_messages_without_a_direct_way_go_over_others() -> None:
    p = Builder(Alltoall(4))
    for src in range(4):
        for dst in range(4):
            p.chunk(src, src * 4 + dst).copy_to(rank=dst)
    found = to_schedule(p.algorithm(), topology("ring:4"))
    assert verify(found).ok
    assert len(found) == 4 * (1 + 1 + 2)
    assert found.steps == 2


def test_other_machines_are_refused() -> None:
    p = Builder(Broadcast(2))
    p.chunk(0, 0).copy_to(rank=1)
    with pytest.raises(UserError, match="is for 2 ranks, ring:3 has 3"):
        to_schedule(p.algorithm(), topology("ring:3"))


def test_equally_quick_routes_are_shared_out() -> None:
    """Eight GPUs below two spines: no link up carries more than its share."""
    machine = topology("fat-tree:k=4")
    n = machine.ranks
    p = Builder(Allgather(n))
    for src in range(n):
        p.chunk(src, src).copy_to(rank=(src + n // 2) % n)
    for src in range(n):
        for dst in range(n):
            if dst not in (src, (src + n // 2) % n):
                p.chunk(src, src).copy_to(rank=dst)
    found = to_schedule(p.algorithm(), machine)
    assert verify(found).ok
    first = [
        found.route(i)[1] for i in range(len(found)) if found.dst[i] == (found.src[i] + 8) % 16
    ]
    assert max(first.count(link) for link in first) <= 2
