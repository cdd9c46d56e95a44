"""Machines whose switches compute, and schedules of casts for them, written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.catalogue import topology
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.parts import Node, NodeKind
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology, both_ways, gpu

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


def racks(*able: str) -> Topology:
    """Four ranks below two leaf switches and these below two spines, all at 50 GB/s.

    Cable i has links 2i up and 2i + 1 down: ranks 0 to 3, then leaf0 and leaf1 to each spine.
    """
    nodes = [*map(gpu, range(4))]
    for name in ("leaf0", "leaf1", "spine0", "spine1"):
        can = name.rstrip("01") in able
        nodes.append(Node(name, NodeKind.SWITCH, multicast=can, reduces=can, turns=can))
    ends = [(r, 4 + r // 2) for r in range(4)] + [(4 + k, 6 + s) for k in (0, 1) for s in (0, 1)]
    links = [link for a, b in ends for link in both_ways(a, b, 50, 1)]
    return Topology("racks", tuple(nodes), tuple(links))


def up_and_down() -> Schedule:
    """Allreduce in one cast: up two leaves to spine0, where the sum turns, and down again."""
    every = (0, 1, 2, 3)
    links = (0, 2, 8, 4, 6, 12, 9, 1, 3, 13, 5, 7)
    c = make("allreduce", 4)
    return Schedule.of(racks("leaf", "spine"), c, [], casts=[Cast(0, every, every, links)])


@st.composite
def able_machines(draw: st.DrawFn, max_ranks: int = 5) -> Topology:
    """Random machines with random capabilities of their switches."""
    made = draw(topologies(max_ranks=max_ranks))
    nodes = []
    for node in made.nodes:
        if node.kind is NodeKind.SWITCH:
            copies, sums = draw(st.booleans()), draw(st.booleans())
            turns = sums and draw(st.booleans())
            grouped = not turns and draw(st.booleans())
            node = replace(
                node, multicast=copies, reduces=sums, turns=turns, issuer_in_group=grouped
            )
        nodes.append(node)
    return replace(made, nodes=tuple(nodes), symmetries=())
