"""Machines whose switches compute, and schedules of casts for them, written by hand."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.catalogue import topology
from weft.dsl.nouns.capabilities import as_fields
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.parts import Node, NodeKind
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, both_ways, gpu, switch

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
    return replace(made, nodes=tuple(draw(_able(node)) for node in made.nodes), symmetries=())


@st.composite
def able_fabrics(draw: st.DrawFn, max_ranks: int = 5) -> Topology:
    """Ranks on leaf switches and these on spines or on each other, one switch or more computing;
    some ranks are on a second leaf, or joined to another rank."""
    n, leaves = draw(st.integers(2, max_ranks)), draw(st.integers(1, 3))
    spines = draw(st.integers(0 if leaves == 1 else 1, 2))
    inner = [n + k for k in range(leaves)]
    ends = [(r, draw(st.sampled_from(inner))) for r in range(n)]
    ends += [(v, n + leaves + s) for v in inner for s in range(spines)]
    others = st.tuples(st.integers(0, n - 1), st.integers(0, n + leaves - 1))
    even = draw(st.booleans())  # all ports bind then, and capabilities gain
    ends += [(a, b) for a, b in draw(st.lists(others, max_size=0 if even else 3)) if a != b]
    widths, waits = st.sampled_from((50,) if even else (25, 50, 100)), st.sampled_from(("0", "1"))
    links = [x for a, b in ends for x in both_ways(a, b, draw(widths), draw(waits))]
    switches = [draw(_able(switch(f"sw{k}"))) for k in range(leaves + spines)]
    if not any(node.computes for node in switches):
        switches[0] = replace(switches[0], multicast=True, reduces=True)
    return Topology("fabric", (*map(gpu, range(n)), *switches), tuple(links))


@st.composite
def lacking_fabrics(draw: st.DrawFn, max_ranks: int = 5) -> Topology:
    """Ranks on one leaf switch, or on two below a spine, all of which compute but for one
    capability of one leaf, or for groups without their issuer: what is lacking often gains."""
    n, leaves = draw(st.integers(4, max_ranks)), draw(st.sampled_from((1, 1, 2)))
    ends = [(r, n + r % leaves, 50) for r in range(n)]
    up = draw(st.sampled_from((50, 100)))
    ends += [(n + k, n + leaves, up) for k in range(leaves) if leaves > 1]
    links = [x for a, b, width in ends for x in both_ways(a, b, width, 1)]
    able = st.sampled_from((NVLS, FREE))
    words = [set(draw(able).split("+")) for _ in range(leaves)]
    words[0] -= {draw(st.sampled_from(("multicast", "reduces", "")))}
    if leaves > 1:
        words.append(set(draw(st.sampled_from((TURNING, FREE, "multicast"))).split("+")))
    switches = [replace(switch(f"sw{k}"), **as_fields(w)) for k, w in enumerate(words)]
    return Topology("lacking", (*map(gpu, range(n)), *switches), tuple(links))


@st.composite
def _able(draw: st.DrawFn, node: Node) -> Node:
    """A node, which if it is a switch may do something."""
    if node.kind is not NodeKind.SWITCH:
        return node
    copies, sums = draw(st.booleans()), draw(st.booleans())
    turns, grouped = sums and draw(st.booleans()), draw(st.booleans())
    return replace(node, multicast=copies, reduces=sums, turns=turns, issuer_in_group=grouped)


def boxes(each: int, hosts: int = 2) -> Topology:
    """Hosts of GPUs on a switch that sums and copies; GPUs of equal places are joined across."""
    ranks = each * hosts
    able = replace(switch(""), multicast=True, reduces=True, issuer_in_group=True)
    nodes = [gpu(r, r // each) for r in range(ranks)]
    nodes += [replace(able, name=f"switch{h}", host=h) for h in range(hosts)]
    links = [x for r in range(ranks) for x in both_ways(r, ranks + r // each, 450)]
    rails = [(a, b) for a in range(ranks) for b in range(a) if a % each == b % each]
    links += [x for a, b in rails for x in both_ways(a, b, 50)]
    return Topology("boxes", tuple(nodes), tuple(links))


def way(t: Topology, a: int, b: int) -> int:
    """The link from one node to another."""
    return next(k for k, one in enumerate(t.links) if (one.src, one.dst) == (a, b))


def gathered(t: Topology, chunk: int, v: int, members: Sequence[int], step: int) -> Cast:
    """A load-reduce: the sum of all members goes to one of them."""
    s = t.ranks + v_host(t, v)
    ups = tuple(way(t, r, s) for r in members)
    return Cast(chunk, tuple(members), (v,), (*ups, way(t, s, v)), step, False, v)


def spread(t: Topology, chunk: int, v: int, members: Sequence[int], step: int) -> Cast:
    """A multicast store: what one member holds goes to all."""
    s = t.ranks + v_host(t, v)
    downs = tuple(way(t, s, r) for r in members)
    return Cast(chunk, (v,), tuple(members), (way(t, v, s), *downs), step, False, v)


def v_host(t: Topology, v: int) -> int:
    """The number of a rank's host; of a star 0."""
    return t.host_of[v] or 0


def two_level(each: int) -> Schedule:
    """Allreduce of two boxes: sums in the boxes, across, in the box of the root, and back."""
    t = boxes(each)
    c = make("allreduce", 2 * each, chunks=2 * each)
    casts, transfers = [], []
    for chunk in range(2 * each):
        there = (chunk + each) % (2 * each)
        own, other = (
            [r for r in range(2 * each) if r // each == v // each] for v in (chunk, there)
        )
        casts += [gathered(t, chunk, there, other, 0), gathered(t, chunk, chunk, own, 2)]
        casts += [spread(t, chunk, chunk, own, 3), spread(t, chunk, there, other, 4)]
        transfers += [
            Transfer(chunk, there, chunk, (way(t, there, chunk),), 1, True),
            Transfer(chunk, chunk, there, (way(t, chunk, there),), 3),
        ]
    return Schedule.of(t, c, transfers, casts=casts)


def spread_all(ranks: int, kind: str = "allgather") -> Schedule:
    """Allgather or broadcast of a star: every rank, or the root, stores its chunk on all."""
    t = star(ranks, NVLS)
    c = make(kind, ranks)
    casts = [
        spread(t, k, k if kind == "allgather" else 0, range(ranks), 0) for k in range(c.chunks)
    ]
    return Schedule.of(t, c, [], casts=casts)


def sums_alone(ranks: int, kind: str = "reduce_scatter") -> Schedule:
    """Reduce_scatter or reduce of a star: every rank, or the root, gets the sum of all."""
    t = star(ranks, NVLS)
    c = make(kind, ranks)
    casts = [gathered(t, k, k, range(ranks), 0) for k in range(c.chunks)]
    return Schedule.of(t, c, [], casts=casts)
