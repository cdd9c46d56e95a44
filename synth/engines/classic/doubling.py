"""Exchanges at doubling or halving distance: recursive doubling and halving, Bruck's, PAT, Swing.

==================================  ===============  ====================================
algorithm                           steps            share of M
==================================  ===============  ====================================
recursive doubling allgather        log2 n           (n-1)/n
recursive doubling allreduce        log2 n           log2 n
halving-doubling allreduce          2 log2 n         2(n-1)/n
recursive halving reduce_scatter    log2 n           (n-1)/n
Bruck allgather                     ⌈log2 n⌉         (n-1)/n
Bruck alltoall                      ⌈log2 n⌉         Σ over bits of (numbers below n with
                                                     this bit) / n; (1/2) log2 n on 2^k
PAT allgather, reduce_scatter       ⌈log2 n⌉         (n-1)/n
Swing allreduce                     2 ⌈log2 n⌉       2(n-1)/n
==================================  ===============  ====================================

Recursive doubling and halving: of a number of ranks that is not a power of two, q = 2^⌊log2 n⌋
exchange and each of the n-q others hands its data to one of them before and gets the result after:
two more steps, and the data twice more (of the reduce_scatter's result: a block). Allgather: powers
of two only. R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication
operations in MPICH, IJHPCA 19 (2005); R. Rabenseifner: Optimization of collective reduction
operations, ICCS 2004 (halving-doubling, with the largest messages at the smallest distance).

Bruck takes any number: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms
for all-to-all communications in multiport message-passing systems, IEEE TPDS 8 (1997).

PAT, parallel aggregated trees, makes Bruck's steps backwards, so that most data goes to neighbours:
S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale,
arXiv:2506.20252 (NCCL 2.23). Every block has a binomial tree of its own, shifted by its owner's
number; the far hops come first, with one block each, and all trees' messages of one step between
two ranks are one. reduce_scatter runs the trees backwards. ``aggregate`` bounds the blocks of one
message, and with them the buffers: longer ones go in pieces, one after the other.

Swing exchanges with partners that alternate sides and stay close on rings and tori. In step s, an
even rank r exchanges with r + ρ(s), an odd one with r - ρ(s), where ρ(s) is (1 - (-2)^(s+1)) / 3:
1, -1, 3, -5, 11 …, two thirds of the distances of recursive doubling. D. De Sensi, T. Bonato,
D. Saam, T. Hoefler: Swing: short-cutting rings for higher bandwidth allreduce, NSDI 2024. Any even
number of ranks: where two ways lead to one rank, a block takes the one that comes first; the
reduction uses the same trees backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import UserError

from .model import HockneyCost, is_power
from .phases import (
    Order,
    PackingWriter,
    Writer,
    apart,
    blocks_in_order,
    chunks_of,
    doubling_allgather,
    fold,
    half_cost,
    halving_reduce_scatter,
    make_contiguous,
    pieces,
    post,
    runs,
    settle,
    unfold,
)


def core(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (n.bit_length() - 1)


def power_of_two(ranks: int) -> str:
    """Defined on 2, 4, 8 … ranks."""
    return "" if ranks >= 2 and is_power(ranks) else "it needs a power of two of ranks"


def even_number(ranks: int) -> str:
    """Defined on 2, 4, 6 … ranks."""
    return "" if ranks >= 2 and ranks % 2 == 0 else "it needs an even number of ranks"


def allgather(p: Builder, order: Order) -> None:
    """Exchange all held data with a partner, at twice the distance each time."""
    settle(p)
    doubling_allgather(PackingWriter(p), order, blocks_in_order(p, order))


def allreduce(p: Builder, order: Order) -> None:
    """Exchange all held data and add it."""
    everything = range(p.chunks)
    w = Writer(p, apart)
    members = fold(w, order, everything)
    q, reach = len(members), 1
    while reach < q:
        PackingWriter(p).add_all([(members[i], members[i ^ reach], everything) for i in range(q)])
        reach *= 2
    unfold(w, order, everything)


def halving_doubling(p: Builder, order: Order) -> None:
    """Rabenseifner: halve the vector while the distance doubles, then back.

    Neighbours exchange the largest halves; a member ends the first part with the piece of its
    number read backwards in binary.
    """
    w = Writer(p, apart)
    members = fold(w, order, range(p.chunks))
    q = len(members)
    part: list[Sequence[int]] = [range(p.chunks)] * q
    taken = []
    reach = 1
    while reach < q:
        taken.append(part)
        halves = [pieces(chunks, 2) for chunks in part]
        for i in range(q):
            w.add(members[i], halves[i][0 if i & reach else 1], members[i ^ reach])
        part = [halves[i][1 if i & reach else 0] for i in range(q)]
        reach *= 2
    while reach > 1:
        reach //= 2
        for i in range(q):
            w.send(members[i], part[i], members[i ^ reach])
        part = taken.pop()
    unfold(w, order, range(p.chunks))


def reduce_scatter(p: Builder, order: Order) -> None:
    """Halve the data with a partner at half the distance, until the own block is left."""
    halving_reduce_scatter(PackingWriter(p), order, blocks_in_order(p, order))


def allgather_cost(n: int, chunks: int = 1) -> HockneyCost:
    """1, 2, 4 … blocks."""
    return HockneyCost(core(n).bit_length() - 1, Fraction(n - 1, n))


def allreduce_cost(n: int, chunks: int = 1) -> HockneyCost:
    """The whole message in every step."""
    steps = core(n).bit_length() - 1 + 2 * (n > core(n))
    return HockneyCost(steps, Fraction(steps), is_power(n))


def halving_doubling_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Halves, quarters … and back; the whole message to fold, and to unfold."""
    q = core(n)
    folds = 2 * (n > q)
    return HockneyCost(2 * (q.bit_length() - 1) + folds, Fraction(2 * (q - 1), q) + folds)


def halving_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Of the members, the first n-q have two blocks each: those halves are the longest way."""
    return HockneyCost(*half_cost("halving", n), chained=is_power(n))


# --- Bruck's --------------------------------------------------------------------------------------


def bruck_allgather(p: Builder, order: Order) -> None:
    """In step k each rank sends all it holds, 2^k blocks from its own on, to the rank 2^k before.

    They lie in scratch in that order, so that every message is one piece; the rotation is at the
    end.
    """
    n, factor = len(order), p.chunks // p.ranks
    for rank in order:
        p.chunk(rank, rank * factor, count=factor).copy_to(buffer="scratch", index=0)
    reach = 1
    while reach < n:
        size = min(reach, n - reach) * factor
        for i in range(n):
            parcel = p.chunk(order[i], 0, count=size, buffer="scratch")
            post(parcel, order[i - reach], "scratch", reach * factor)
        reach *= 2
    for i in range(n):
        for j in range(n):
            p.chunk(order[i], j * factor, count=factor, buffer="scratch").copy_to()


def bruck_alltoall(p: Builder, order: Order) -> None:
    """In step k, blocks whose way to go has bit k move on by 2^k, as one message.

    ``at[i][j]`` is the block on member i that has come from, and has to go, so far that both
    together are j; between steps it rests where it landed.
    """
    n, factor = len(order), p.chunks // p.ranks**2

    def number(i: int, j: int, reach: int) -> int:
        source = (i - j % reach) % n  # it has made the hops of the lower bits
        return (order[source] * n + order[(source + j) % n]) * factor

    at = [[p.chunk(order[i], number(i, j, 1), count=factor) for j in range(n)] for i in range(n)]
    reach = 1
    while reach < n:
        parcels = []
        for i in range(n):
            going = [j for _, j in sorted((number(i, j, reach), j) for j in range(n) if j & reach)]
            first, *others = (at[i][j] for j in going)
            parcels.append((make_contiguous(first.group(*others)), going))
        for i, (parcel, going) in enumerate(parcels):
            there = (i + reach) % n
            parts = post(parcel, order[there], "scratch").split(len(going))
            for j, part in zip(going, parts, strict=True):
                at[there][j] = part
        reach *= 2
    for i in range(n):  # at the end: in place, others were waiting for the output
        for j in range(n):
            at[i][j].copy_to(buffer="output", index=order[i - j] * factor)


def bruck_cost(n: int, chunks: int = 1) -> HockneyCost:
    """1, 2, 4 … blocks, and the rest in the last step."""
    return HockneyCost((n - 1).bit_length(), Fraction(n - 1, n), is_power(n))


def alltoall_cost(n: int, chunks: int = 1) -> HockneyCost:
    """In each step, the blocks whose distance has its bit."""
    steps = (n - 1).bit_length()
    return HockneyCost(steps, Fraction(sum(j.bit_count() for j in range(n)), n), is_power(n))


# --- PAT ------------------------------------------------------------------------------------------


def _pat_steps(n: int, aggregate: int, *, up: bool) -> Iterator[tuple[int, list[int]]]:
    """(hop, distances from the owner at which it is made in one message): down the trees the far
    hops come first."""
    if aggregate < 0:
        raise UserError(
            f"messages of {aggregate} blocks", hint="aggregate: 1, 2 …, 0 for any number"
        )
    hops = [1 << k for k in range((n - 1).bit_length())]
    for hop in hops if up else reversed(hops):
        distances = list(range(0, n - hop, 2 * hop))
        size = aggregate or len(distances)
        yield from ((hop, distances[i : i + size]) for i in range(0, len(distances), size))


def pat_allgather(p: Builder, order: Order, aggregate: int = 0) -> None:
    """Down all trees at once."""
    settle(p)
    n, blocks = len(order), blocks_in_order(p, order)
    for hop, distances in _pat_steps(n, aggregate, up=False):
        for i in range(n):
            chunks = chunks_of(blocks, [(i - j) % n for j in distances])
            PackingWriter(p).send(order[i], chunks, order[(i + hop) % n])


def pat_reduce_scatter(p: Builder, order: Order, aggregate: int = 0) -> None:
    """Up all trees at once."""
    n, blocks = len(order), blocks_in_order(p, order)
    for hop, distances in _pat_steps(n, aggregate, up=True):
        own = [chunks_of(blocks, [(i - j) % n for j in distances]) for i in range(n)]
        PackingWriter(p).add_all([(order[(i + hop) % n], order[i], own[i]) for i in range(n)])


def pat_cost(n: int, chunks: int = 1, aggregate: int = 0) -> HockneyCost:
    """1, 2, 4 … blocks, fewer where the tree is not full; the pieces of a step need no other."""
    whole = not 0 < aggregate < n // 2
    return HockneyCost((n - 1).bit_length(), Fraction(n - 1, n), is_power(n) and whole)


# --- Swing ----------------------------------------------------------------------------------------


def _swing_steps(n: int) -> list[dict[tuple[int, int], list[int]]]:
    """For every step of the allgather, (from, to) -> the blocks that go that way.

    The allgather runs the steps from the farthest on; a block goes where it has not been.
    """
    found = []
    have = [{i} for i in range(n)]
    for step in reversed(range((n - 1).bit_length())):
        rho = (1 - (-2) ** (step + 1)) // 3
        partners = [(i + (rho if i % 2 == 0 else -rho)) % n for i in range(n)]
        new = {(i, j): sorted(have[i] - have[j]) for i, j in enumerate(partners)}
        for (_, j), blocks in new.items():
            have[j] |= set(blocks)
        found.append(new)
    return found


def swing(p: Builder, order: Order) -> None:
    """Sum up all trees, then copy down."""
    w, blocks = PackingWriter(p), runs(p, p.ranks)
    steps = _swing_steps(len(order))
    for step in reversed(steps):
        w.add_all([(order[j], order[i], chunks_of(blocks, own)) for (i, j), own in step.items()])
    for step in steps:
        for (i, j), own in step.items():
            w.send(order[i], chunks_of(blocks, own), order[j])


def swing_cost(n: int, chunks: int = 1) -> HockneyCost:
    """Halves, quarters … and back."""
    return HockneyCost(2 * (n - 1).bit_length(), Fraction(2 * (n - 1), n), is_power(n))
