"""The programs of RCCL's files for allreduce in all pairs, as their text has them.

``allreduce-allpairs-8n-*-op.xml`` of ROCm/rccl (tools/msccl-algorithms), out of place. Of every
block of the message each channel has n chunks. On a channel a rank has a block of its own, which
copies its share of its block to the output, and one for each peer: that sends the peer its chunks
and receives its own into scratch. Then every one of these n blocks sums one chunk over all peers;
when all are done the sums go to the peers.
"""

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, Protocol, RankProgram, Slice

_IN, _OUT, _SCRATCH = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH


def allpairs(ranks: int, channels: int, protocol: Protocol) -> Program:
    """The program of a file with so many channels: 4 of 256 chunks, or 8 of 512."""
    chunks = channels * ranks * ranks
    return Program.of(
        f"allreduce allpairs x{channels}",
        make("allreduce", ranks, chunks=chunks),
        [_rank(rank, ranks, channels) for rank in range(ranks)],
        chunks,
        protocol=protocol,
    )


def _rank(rank: int, n: int, channels: int) -> RankProgram:
    peers = [peer for peer in range(n) if peer != rank]
    blocks = [Block(c, None, None, _own(rank, n, channels, c)) for c in range(channels)]
    blocks += [
        Block(c, peer, peer, _with(rank, peer, n, channels, c))
        for peer in peers
        for c in range(channels)
    ]
    return RankProgram(tuple(blocks), channels * n * n, channels * n * n, channels * n * (n - 1))


def _others(place: int, n: int, channels: int, c: int) -> list[int]:
    """The blocks of the other peers on a channel; place 0 is the rank's own."""
    return [channels * p + c for p in range(1, n) if p != place]


def _sums(rank: int, place: int, n: int, channels: int, c: int) -> tuple[Instr, ...]:
    """One chunk of the rank's block summed over all peers, once these have sent theirs."""
    waits = [(block, 1) for block in _others(place, n, channels, c)]
    if place:
        waits.append((c, 0))
    target = Slice(_OUT, (c * n + rank) * n + place)
    base = c * n * (n - 1) + place
    first, *rest = [Slice(_SCRATCH, base + k * n) for k in range(n - 1)]
    return (
        Instr(Op.REDUCE, first, target, waits=tuple(sorted(waits))),
        *(Instr(Op.REDUCE, source, target) for source in rest),
    )


def _own(rank: int, n: int, channels: int, c: int) -> tuple[Instr, ...]:
    start = (c * n + rank) * n
    copy = Instr(Op.COPY, Slice(_IN, start), Slice(_OUT, start), n)
    return (copy, *_sums(rank, 0, n, channels, c))


def _with(rank: int, peer: int, n: int, channels: int, c: int) -> tuple[Instr, ...]:
    place = 1 + [p for p in range(n) if p != rank].index(peer)
    mine, theirs = (c * n + rank) * n, (c * n + peer) * n
    landing = Slice(_SCRATCH, c * n * (n - 1) + (place - 1) * n)
    last = n - 1  # the index of the last sum in a block that also sends and receives: 2 + n - 2
    waits = [(block, last + 1) for block in _others(place, n, channels, c)]
    waits.append((c, last))
    return (
        Instr(Op.SEND, Slice(_IN, theirs), landing, n),
        Instr(Op.RECV, Slice(_IN, mine), landing, n),
        *_sums(rank, place, n, channels, c),
        Instr(Op.SEND, Slice(_OUT, mine), Slice(_OUT, mine), n, tuple(sorted(waits))),
        Instr(Op.RECV, Slice(_OUT, theirs), Slice(_OUT, theirs), n),
    )
