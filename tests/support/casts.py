"""Machines whose switches compute, and schedules of casts for them, written by hand."""

from __future__ import annotations

from collections.abc import Iterator

from weft.dsl.catalogue import topology
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

NVLS = "multicast+reduces+issuer_in_group"
FREE = "multicast+reduces"
TURNING = "multicast+reduces+turns"


def star(ranks: int, able: str, bandwidth: str = "450GB/s") -> Topology:
    """Ranks on one switch that can do something; link 2r leads from rank r to it, 2r + 1 back."""
    return topology(f"hub:{ranks},bw={bandwidth},capable=hub:{able}")


def up(rank: int) -> int:
    """The link from a rank of a star to its switch."""
    return 2 * rank


def down(rank: int) -> int:
    """The link from the switch of a star to a rank."""
    return 2 * rank + 1


def two_shot(ranks: int, able: str = NVLS) -> Schedule:
    """Allreduce in a star: every rank sums its chunk in the switch, then copies it to all."""
    c = make("allreduce", ranks, chunks=ranks)
    every = range(ranks)
    in_group = "issuer_in_group" in able
    turning = "turns" in able

    def casts() -> Iterator[Cast]:
        for r in every:
            others = tuple(q for q in every if in_group or q != r)
            if turning:
                ways = (*map(up, every), *map(down, every))
                yield Cast(r, tuple(every), tuple(every), ways)
                continue
            ups = tuple(map(up, others))
            yield Cast(r, others, (r,), (*ups, down(r)), 0, not in_group, r)
            yield Cast(r, (r,), others, (up(r), *map(down, others)), 1, False, r)

    return Schedule.of(star(ranks, able), c, [], casts=casts())
