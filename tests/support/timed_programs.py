"""Programs written by hand, instruction by instruction, for tests that know what they take."""

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice

Code = tuple[Instr, ...]


def at(place: str) -> Slice:
    """``i3`` is chunk 3 of the input."""
    return Slice(Buffer(place[0]), int(place[1:]))


def instr(op: str, place: str, count: int = 1, waits: tuple[tuple[int, int], ...] = ()) -> Instr:
    return Instr(Op(op), at(place), at(place), count, waits)


def program(
    kind: str, ranks: list[list[Block]], chunks: int, message_chunks: int | None = None
) -> Program:
    """``chunks``: of the collective (per rank for allgather); buffers are large enough."""
    collective = make(kind, len(ranks), chunks=chunks)
    total = message_chunks or collective.message_chunks
    bodies = tuple(RankProgram(tuple(blocks), total, total, total) for blocks in ranks)
    return Program.of(kind, collective, bodies, total)


def stream(count: int, pieces: int = 1) -> Program:
    """Rank 0 sends ``pieces`` messages of ``count`` chunks each to rank 1."""
    sends = tuple(instr("s", f"o{i * count}", count) for i in range(pieces))
    receives = tuple(instr("r", f"o{i * count}", count) for i in range(pieces))
    ranks = [[Block(0, 1, None, sends)], [Block(0, None, 0, receives)]]
    return program("broadcast", ranks, count * pieces)


def ring_allgather(n: int) -> Program:
    ranks = []
    for r in range(n):
        middle = tuple(instr("rcs", f"o{(r - k) % n}") for k in range(1, n - 1))
        code = (instr("s", f"o{r}"), *middle, instr("r", f"o{(r + 1) % n}"))
        ranks.append([Block(0, (r + 1) % n, (r - 1) % n, code)])
    return program("allgather", ranks, 1)


def ring_allreduce(n: int) -> Program:
    """One send, n-2 reducing ones, one that stores and sends, n-2 copies, one receive."""
    ranks = []
    for r in range(n):
        own = (instr("s", f"i{r}"),)
        adds = tuple(instr("rrs", f"i{(r - k) % n}") for k in range(1, n - 1))
        turn = (instr("rrcs", f"i{(r + 1) % n}"),)
        copies = tuple(instr("rcs", f"i{(r - k) % n}") for k in range(n - 2))
        last = (instr("r", f"i{(r + 2) % n}"),)
        ranks.append([Block(0, (r + 1) % n, (r - 1) % n, (*own, *adds, *turn, *copies, *last))])
    return program("allreduce", ranks, n)


def chain_broadcast(n: int, chunks: int) -> Program:
    ranks = []
    for r in range(n):
        op = "s" if r == 0 else "r" if r == n - 1 else "rcs"
        code = tuple(instr(op, f"o{k}") for k in range(chunks))
        ranks.append([Block(0, r + 1 if r < n - 1 else None, r - 1 if r else None, code)])
    return program("broadcast", ranks, chunks)


def all_pairs(n: int, order: list[list[int]] | None = None) -> Program:
    """Every rank sends its chunk to every other one, each by a block of its own."""
    ranks = []
    for r in range(n):
        peers = order[r] if order else [p for p in range(n) if p != r]
        ranks.append([Block(0, p, p, (instr("s", f"o{r}"), instr("r", f"o{p}"))) for p in peers])
    return program("allgather", ranks, 1)


def binomial_broadcast(n: int) -> Program:
    """Rank r sends to r + k for k = …, 2, 1 once it has the data; blocks nearest child first."""
    top = 1 << (n - 1).bit_length()
    ranks = []
    for r in range(n):
        lowest = r & -r or top
        kids = [r + k for k in (1 << i for i in range(20)) if k < lowest and r + k < n]
        first = [Block(0, None, r - lowest, (instr("r", "o0"),))] if r else []
        waits = ((0, 0),) if r else ()
        ranks.append([*first, *(Block(0, k, None, (instr("s", "o0", 1, waits),)) for k in kids)])
    return program("broadcast", ranks, 1)
