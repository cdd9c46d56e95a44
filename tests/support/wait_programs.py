"""Random programs of copies and waits inside ranks, and their order by brute force."""

from hypothesis import strategies as st

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice

COPY = (Op.COPY, Slice(Buffer.INPUT, 0), Slice(Buffer.OUTPUT, 0))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Two ranks of copies with random waits that go upwards in some order, so without a cycle."""
    ranks = []
    for _ in range(2):
        sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
        # A random interleaving of the blocks; waits point back in it.
        tokens = draw(st.permutations([b for b, size in enumerate(sizes) for _ in range(size)]))
        done: list[tuple[int, int]] = []
        code: list[list[Instr]] = [[] for _ in sizes]
        for b in tokens:
            waits = draw(st.lists(st.sampled_from(done), max_size=2, unique=True)) if done else []
            code[b].append(Instr(*COPY, 1, tuple(sorted(w for w in waits if w[0] != b))))
            done.append((b, len(code[b]) - 1))
        blocks = tuple(Block(0, None, None, tuple(c)) for c in code)
        ranks.append(RankProgram(blocks, 1, 2, 0))
    return Program.of("random", make("allgather", 2), tuple(ranks), 2)


Node = tuple[int, int, int]
"""Rank, block, index."""


def local_edges(program: Program) -> list[tuple[Node, Node]]:
    """Program order and waits."""
    edges = []
    for r, rank in enumerate(program.ranks):
        for b, block in enumerate(rank):
            for i, instr in enumerate(block.code):
                if i:
                    edges.append(((r, b, i - 1), (r, b, i)))
                edges += [((r, *wait), (r, b, i)) for wait in instr.waits]
    return edges


def message_edges(program: Program) -> list[tuple[Node, Node]]:
    """The k-th send of a connection before its k-th receive."""
    ends: dict[tuple[int, int, int], tuple[list[Node], list[Node]]] = {}
    for r, rank in enumerate(program.ranks):
        for b, block in enumerate(rank):
            for i, instr in enumerate(block.code):
                if instr.op.sends:
                    ends.setdefault((r, block.send, block.channel), ([], []))[0].append((r, b, i))
                if instr.op.receives:
                    ends.setdefault((block.recv, r, block.channel), ([], []))[1].append((r, b, i))
    return [pair for sides in ends.values() for pair in zip(*sides, strict=True)]


def after(edges: list[tuple[Node, Node]]) -> dict[Node, set[Node]]:
    """Everything that must come after each node; the edges have no cycle."""
    following: dict[Node, set[Node]] = {}
    for a, b in edges:
        following.setdefault(a, set()).add(b)
        following.setdefault(b, set())
    found: dict[Node, set[Node]] = {}

    def visit(node: Node) -> set[Node]:
        if node not in found:
            own = set(following[node])
            for other in following[node]:
                own |= visit(other)
            found[node] = own
        return found[node]

    for node in following:
        visit(node)
    return found


def longest(edges: list[tuple[Node, Node]]) -> int:
    """The longest path, in edges."""
    followers: dict[Node, list[Node]] = {}
    for a, b in edges:
        followers.setdefault(a, []).append(b)
    height: dict[Node, int] = {}

    def visit(node: Node) -> int:
        if node not in height:
            height[node] = 1 + max(map(visit, followers.get(node, [])), default=-1)
        return height[node]

    return max(map(visit, followers), default=0)
