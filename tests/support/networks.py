"""Random XML files: blocks with matching messages in random orders, and random dependences."""

import random

from hypothesis import strategies as st
from msccl_files import Gpu, Tb, algo


@st.composite
def networks(draw: st.DrawFn) -> str:
    """Random blocks with matching messages in random orders, and random dependences."""
    n, per_rank = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    queues: dict[tuple[int, int], list[list[tuple[str, int]]]] = {}
    peers: dict[tuple[int, int], list[int]] = {}
    for block in range(per_rank):
        for sender, receiver in enumerate(rng.sample(range(n), n)):
            if sender == receiver or rng.random() < 0.15:
                continue
            counts = [rng.choice([1, 1, 1, 2, 3]) for _ in range(rng.randint(1, 4))]
            for rank, other, kind in ((sender, receiver, "s"), (receiver, sender, "r")):
                queues.setdefault((rank, block), []).append([(kind, c) for c in counts])
                peers.setdefault((rank, block), [-1, -1])[kind == "r"] = other
    gpus = []
    for rank in range(n):
        tbs = []
        for block in range(per_rank):
            tb = Tb(*peers.get((rank, block), (-1, -1)), chan=block)
            mine = [*queues.get((rank, block), []), [("cpy", 1)] * rng.randint(0, 2)]
            fill(tb, mine, [b for b in range(per_rank) if b != block], rng)
            tbs.append(tb)
        gpus.append(Gpu(8, 8, 8, tbs))
    proto = rng.choice(["Simple", "LL"])
    return algo(gpus, "allreduce", 8, nchannels=per_rank, proto=proto)


def fill(
    tb: Tb, queues: list[list[tuple[str, int]]], others: list[int], rng: random.Random
) -> None:
    """Merge queues of steps at random; some wait for another block, most publish."""
    while any(queues):
        kind, count = rng.choice([q for q in queues if q]).pop(0)
        dep = (-1, -1)
        if others and rng.random() < 0.3:
            dep = (rng.choice(others), rng.randint(0, 3))
        src, dst = f"i{rng.randint(0, 3)}", f"s{rng.randint(0, 5)}"
        tb.step(kind, src, dst, count, dep, int(rng.random() < 0.8))
