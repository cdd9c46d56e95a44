"""Allreduce as schedules that both compilers get: ours, and the published rules."""

from collections.abc import Callable, Iterator

import patterns
from msccl_rules import ChunkOp, Outcome, Slot, published

from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice
from weft.dsl.nouns.schedule import Schedule


def binary_tree(n: int) -> list[tuple[int, int]]:
    return patterns.both([(r, (r - 1) // 2) for r in range(1, n)])


def tree_allreduce(n: int, k: int) -> Schedule:
    """Up and down one binary tree, chunk after chunk."""
    edges = binary_tree(n)
    down = patterns.tree(n, edges, 0)
    last = max(d for _, _, d in down)
    rows = [(j, v, u, last - d + j, 1) for u, v, d in down for j in range(k)]
    rows += [(j, u, v, last + 1 + d + j, 0) for u, v, d in down for j in range(k)]
    return patterns.schedule(n, edges, make("allreduce", n, chunks=k), rows)


def all_pairs_allreduce(n: int, k: int) -> Schedule:
    """Everybody's chunk r to rank r, which adds them, then back."""
    rows = [(d * k + j, s, d, 0, 1) for s, d in patterns.full(n) for j in range(k)]
    rows += [(s * k + j, s, d, 1, 0) for s, d in patterns.full(n) for j in range(k)]
    return patterns.schedule(n, patterns.full(n), make("allreduce", n, chunks=n * k), rows)


def hierarchical_allreduce(nodes: int, gpus: int, inside: str = "pairs") -> Schedule:
    """Reduce-scatter in the node, a ring across nodes, allgather in the node.

    Chunk (g, m) ends its way through the node on local rank g, which rings with its like.
    """
    n, rows = nodes * gpus, []
    spread = gpus - 1 if inside == "ring" else 1

    def rank(node: int, local: int) -> int:
        return node % nodes * gpus + local % gpus

    for node in range(nodes):
        for g in range(gpus):
            for m in range(nodes):
                chunk = g * nodes + m
                if inside == "ring":
                    rows += [
                        (chunk, rank(node, g + 1 + t), rank(node, g + 2 + t), t, 1)
                        for t in range(gpus - 1)
                    ]
                else:
                    rows += [
                        (chunk, rank(node, q), rank(node, g), 0, 1) for q in range(gpus) if q != g
                    ]
    for g in range(gpus):
        for m in range(nodes):
            rows += [
                (
                    g * nodes + m,
                    rank(m + 1 + t, g),
                    rank(m + 2 + t, g),
                    spread + t,
                    int(t < nodes - 1),
                )
                for t in range(2 * nodes - 2)
            ]
    late = spread + 2 * nodes - 2
    for node in range(nodes):
        for g in range(gpus):
            for m in range(nodes):
                chunk = g * nodes + m
                if inside == "ring":
                    rows += [
                        (chunk, rank(node, g + t), rank(node, g + 1 + t), late + t, 0)
                        for t in range(gpus - 1)
                    ]
                else:
                    rows += [
                        (chunk, rank(node, g), rank(node, q), late, 0)
                        for q in range(gpus)
                        if q != g
                    ]
    edges = sorted({(s, d) for _, s, d, *_ in rows})
    return patterns.schedule(n, edges, make("allreduce", n, chunks=n), rows)


CASES: dict[str, Callable[[], Schedule]] = {
    "ring 4": lambda: patterns.ring_allreduce(4, 1),
    "ring 8": lambda: patterns.ring_allreduce(8, 1),
    "ring 8, 2 chunks": lambda: patterns.ring_allreduce(8, 2),
    "ring 16": lambda: patterns.ring_allreduce(16, 1),
    "tree 7": lambda: tree_allreduce(7, 1),
    "tree 8": lambda: tree_allreduce(8, 1),
    "tree 8, 4 chunks": lambda: tree_allreduce(8, 4),
    "tree 16": lambda: tree_allreduce(16, 1),
    "all-pairs 4": lambda: all_pairs_allreduce(4, 1),
    "all-pairs 8": lambda: all_pairs_allreduce(8, 1),
    "all-pairs 8, 2 chunks": lambda: all_pairs_allreduce(8, 2),
    "hierarchical 2x4": lambda: hierarchical_allreduce(2, 4),
    "hierarchical 2x8": lambda: hierarchical_allreduce(2, 8),
    "hierarchical 4x4": lambda: hierarchical_allreduce(4, 4),
    "hierarchical 2x4, rings": lambda: hierarchical_allreduce(2, 4, "ring"),
    "hierarchical 4x4, rings": lambda: hierarchical_allreduce(4, 4, "ring"),
}


def chunk_ops(schedule: Schedule, together: int = 1) -> Iterator[ChunkOp]:
    """The transfers of an allreduce in place, as the published language would write them.

    Up to ``together`` neighbouring chunks of one step and pair are one reference. The language
    runs one after another what a schedule does at once: no slot may be both read and written in
    one step, which is asserted.
    """
    rows = sorted(
        (t.step, t.src, t.dst, t.reduce, t.chunk)
        for t in (schedule[i] for i in range(len(schedule)))
    )
    reads = {(t, s, c) for t, s, _, _, c in rows}
    assert not reads & {(t, d, c) for t, _, d, _, c in rows}
    at = 0
    while at < len(rows):
        step, src, dst, adds, chunk = rows[at]
        size = 1
        while (
            size < together
            and at + size < len(rows)
            and rows[at + size] == (step, src, dst, adds, chunk + size)
        ):
            size += 1
        yield ChunkOp(adds, (src, "i", chunk), (dst, "i", chunk), size)
        at += size


def as_program(outcome: Outcome, collective: Collective) -> Program:
    """What the rules give, as a program of ours, so that it can be proved and simulated."""
    size = collective.message_chunks

    def part(slot: Slot) -> Slice:
        return Slice(Buffer(slot[1]), slot[2])

    def peer(rank: int) -> int | None:
        return None if rank < 0 else rank

    ranks = []
    for own in outcome.code:
        blocks = tuple(
            Block(
                b.channel,
                peer(b.send),
                peer(b.recv),
                tuple(Instr(Op(x.op), part(x.src), part(x.dst), x.size, x.waits) for x in b.code),
            )
            for b in own
        )
        ranks.append(RankProgram(blocks, size, size, 0))
    return Program.of("published rules", collective, tuple(ranks), size, True)


def by_the_rules(schedule: Schedule, together: int = 1) -> Program | None:
    """The program that the published rules make; None where they reach no assignment."""
    try:
        outcome = published(chunk_ops(schedule, together), schedule.collective.ranks)
    except AssertionError:
        return None
    return as_program(outcome, schedule.collective)
