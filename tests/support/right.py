"""Right XML files of several shapes, from which mistakes and mutations are made."""

from msccl_files import Gpu, Tb, algo, exchange, pairs_allreduce, ring_allgather, ring_allreduce


def broadcast(n: int, root: int = 1) -> str:
    """A star: the root sends to everybody."""
    gpus = []
    for rank in range(n):
        if rank != root:
            gpus.append(Gpu(2, 2, 0, [Tb(-1, root).step("r", "i0", "o0", 2)]))
            continue
        tbs = [Tb(r, -1).step("s", "i0", "o0", 2) for r in range(n) if r != root]
        gpus.append(Gpu(2, 2, 0, [*tbs, Tb().step("cpy", "i0", "o0", 2)]))
    return algo(gpus, "broadcast", 2, proto="LL")


def alltoall(n: int, **changes: object) -> str:
    """Each pair a block that sends and receives; the own chunk is copied."""
    gpus = []
    for rank in range(n):
        tbs = [
            Tb(p, p).step("s", f"i{p}", f"o{rank}").step("r", f"i{rank}", f"o{p}")
            for p in range(n)
            if p != rank
        ]
        gpus.append(Gpu(n, n, 0, [*tbs, Tb().step("cpy", f"i{rank}", f"o{rank}")]))
    return algo(gpus, "alltoall", n, **changes)


def relayed(n: int = 3, **changes: object) -> str:
    """Out of place allreduce over a chain: sums go up in scratch, the result comes down.

    Two blocks a rank that wait for each other: a receiver, which sums, and a sender.
    """
    gpus = []
    for rank in range(n):
        up, down = (rank + 1 if rank < n - 1 else -1), rank - 1
        # Block 0 takes from below and above; block 1 sends up and down; channels tell them apart.
        low = Tb(up, down, 0)
        if down >= 0:
            low.step("r", "i0", "s0").step("re", "i0", "s0", hasdep=1)
        if up >= 0:
            low.step("s", "s0" if down >= 0 else "i0", "s0")
        high = Tb(down, up, 1)
        if up >= 0:
            high.step("r", "o0", "o0")
        else:
            high.step("cpy", "s0", "o0", dep=(0, 1))
        if down >= 0:
            high.step("s", "o0", "o0")
        gpus.append(Gpu(1, 1, 1, [low, high]))
    return algo(gpus, "allreduce", 1, nchannels=2, **changes)


def fused_reduce(sources: int, **changes: object) -> str:
    """One rank sums what others sent to its scratch with a chain of ``re``; reduce to rank 0."""
    tbs = [Tb(-1, k + 1).step("r", "i0", f"s{k}", hasdep=1) for k in range(sources)]
    adder = Tb().step("cpy", "i0", "o0")
    for k in range(sources - 1):
        adder.step("nop", dep=(k, 0))
    for k in range(sources):
        adder.step("re", f"s{k}", "o0", dep=(sources - 1, 0) if k == 0 else (-1, -1))
    gpus = [Gpu(1, 1, sources, [*tbs, adder])]
    gpus += [Gpu(1, 1, 0, [Tb(0, -1).step("s", "i0", "s0")]) for _ in range(sources)]
    return algo(gpus, "reduce", 1, **changes)


RIGHT = {
    "exchange": exchange(),
    "exchange both": exchange(inplace=1),
    "ring allgather": ring_allgather(4),
    "ring allreduce": ring_allreduce(4),
    "pairs": pairs_allreduce(3),
    "pairs LL": pairs_allreduce(4, proto="LL"),
    "broadcast": broadcast(4),
    "alltoall": alltoall(3),
    "relayed": relayed(3),
    "fused reduce": fused_reduce(4),
}
