"""MSCCL XML texts for tests, written from a few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from shared import samples


@dataclass
class Tb:
    """A thread block; steps are written by the methods, which return it."""

    send: int = -1
    recv: int = -1
    chan: int = 0
    steps: list[str] = field(default_factory=list)

    def step(
        self,
        kind: str,
        src: str = "i0",
        dst: str = "i0",
        cnt: int = 1,
        dep: tuple[int, int] = (-1, -1),
        hasdep: int = 0,
        s: int | None = None,
    ) -> Tb:
        """One step; ``src`` and ``dst`` are a letter and an offset."""
        number = len(self.steps) if s is None else s
        self.steps.append(
            f'<step s="{number}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" '
            f'dstbuf="{dst[0]}" dstoff="{dst[1:]}" cnt="{cnt}" depid="{dep[0]}" '
            f'deps="{dep[1]}" hasdep="{hasdep}"/>'
        )
        return self


@dataclass
class Gpu:
    """A rank: its declared chunks and its thread blocks."""

    i: int
    o: int
    s: int
    tbs: Sequence[Tb]


def algo(gpus: Sequence[Gpu], coll: str, chunks: int, **changes: object) -> str:
    """The text of a file; ``changes`` replace attributes of ``<algo>``, None drops one."""
    attributes: dict[str, object] = {
        "name": "test",
        "proto": "Simple",
        "nchannels": 1,
        "nchunksperloop": chunks,
        "ngpus": len(gpus),
        "coll": coll,
        "inplace": 0,
        "outofplace": 1,
        "minBytes": 0,
        "maxBytes": 1 << 30,
    }
    attributes |= changes
    head = " ".join(f'{k}="{v}"' for k, v in attributes.items() if v is not None)
    lines = [f"<algo {head}>"]
    for rank, gpu in enumerate(gpus):
        lines.append(
            f'  <gpu id="{rank}" i_chunks="{gpu.i}" o_chunks="{gpu.o}" s_chunks="{gpu.s}">'
        )
        for number, tb in enumerate(gpu.tbs):
            lines.append(
                f'    <tb id="{number}" send="{tb.send}" recv="{tb.recv}" chan="{tb.chan}">'
            )
            lines += [f"      {step}" for step in tb.steps]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def exchange(**changes: object) -> str:
    """Allgather of two ranks, out of place: each sends its chunk, receives, and copies its own."""
    gpus = []
    for rank in range(2):
        peer = 1 - rank
        move = Tb(peer, peer).step("s", "i0", f"o{rank}").step("r", "i0", f"o{peer}")
        gpus.append(Gpu(1, 2, 0, [move, Tb().step("cpy", "i0", f"o{rank}")]))
    return algo(gpus, "allgather", 2, **changes)


def ring_allgather(n: int, **changes: object) -> str:
    """The ring in place, in the output buffer; each block sends and receives in turn."""
    gpus = []
    for rank in range(n):
        tb = Tb((rank + 1) % n, (rank - 1) % n)
        tb.step("s", f"o{rank}", f"o{rank}")
        for k in range(1, n):
            chunk = (rank - k) % n
            tb.step("rcs" if k < n - 1 else "r", f"o{chunk}", f"o{chunk}")
        gpus.append(Gpu(1, n, 0, [tb]))
    return algo(gpus, "allgather", n, **{"inplace": 1, "outofplace": 0, **changes})


def ring_allreduce(n: int, **changes: object) -> str:
    """Reduce-scatter then allgather on a ring, in place, fused."""
    gpus = []
    for rank in range(n):
        tb = Tb((rank + 1) % n, (rank - 1) % n)
        tb.step("s", f"i{rank}", f"i{rank}")
        for k in range(1, 2 * n - 1):
            chunk = f"i{(rank - k) % n}"
            kind = "rrs" if k < n - 1 else "rrcs" if k == n - 1 else "rcs"
            tb.step(kind if k < 2 * n - 2 else "r", chunk, chunk)
        gpus.append(Gpu(n, n, 0, [tb]))
    return algo(gpus, "allreduce", n, **{"inplace": 1, "outofplace": 0, **changes})


def pairs_allreduce(n: int, **changes: object) -> str:
    """All-pairs: gather a chunk in scratch, reduce it with fused ``re``, send it to all."""
    gpus = []
    for rank in range(n):
        peers = [p for p in range(n) if p != rank]
        tbs = []
        for k, peer in enumerate(peers):
            there = sum(p != peer for p in range(rank))  # my slot in the peer's scratch
            tb = Tb(peer, peer)
            tb.step("s", f"i{peer}", f"s{there}")
            tb.step("r", f"i{rank}", f"s{k}", hasdep=1)
            tb.step("s", f"i{rank}", f"i{rank}", dep=(n - 1, 2 * (n - 1) - 2))
            tb.step("r", f"i{peer}", f"i{peer}")
            tbs.append(tb)
        reducer = Tb()
        for k in range(n - 2):
            reducer.step("nop", dep=(k, 1))
        for k in range(n - 1):
            first, last = k == 0, k == n - 2
            dep = (n - 2, 1) if first else (-1, -1)
            reducer.step("re", f"s{k}", f"i{rank}", dep=dep, hasdep=int(last))
        tbs.append(reducer)
        gpus.append(Gpu(n, 0, n - 1, tbs))
    return algo(gpus, "allreduce", n, **{"inplace": 1, "outofplace": 0, **changes})


def both_send_first(cnt: int, **changes: object) -> str:
    """Alltoall of two ranks that send all before they receive; right while few operations."""
    gpus = [
        Gpu(
            2 * cnt,
            2 * cnt,
            0,
            [
                Tb(1 - r, 1 - r)
                .step("s", f"i{cnt * (1 - r)}", "o0", cnt)
                .step("r", "i0", f"o{cnt * (1 - r)}", cnt),
                Tb().step("cpy", f"i{cnt * r}", f"o{cnt * r}", cnt),
            ],
        )
        for r in range(2)
    ]
    return algo(gpus, "alltoall", 2 * cnt, **changes)


def several_rings(n: int, rings: int, **changes: object) -> str:
    """Ring allreduce in place on several channels at once, fused."""
    gpus = []
    for rank in range(n):
        tbs = []
        for ring in range(rings):
            tb = Tb((rank + 1) % n, (rank - 1) % n, ring)
            tb.step("s", f"i{rank * rings + ring}", f"i{rank * rings + ring}")
            for k in range(1, 2 * n - 1):
                chunk = f"i{(rank - k) % n * rings + ring}"
                kind = "rrs" if k < n - 1 else "rrcs" if k == n - 1 else "rcs"
                tb.step(kind if k < 2 * n - 2 else "r", chunk, chunk)
            tbs.append(tb)
        gpus.append(Gpu(n * rings, n * rings, 0, tbs))
    return algo(
        gpus,
        "allreduce",
        n * rings,
        **{"nchannels": rings, "inplace": 1, "outofplace": 0, **changes},
    )


def direct_alltoall(n: int, cnt: int, **changes: object) -> str:
    """Each pair by a thread block of its own, ``cnt`` chunks at a time; one block copies."""
    gpus = []
    for rank in range(n):
        tbs = [Tb().step("cpy", f"i{rank * cnt}", f"o{rank * cnt}", cnt)]
        for peer in (p for p in range(n) if p != rank):
            tb = Tb(peer, peer)
            tb.step("s", f"i{peer * cnt}", f"o{rank * cnt}", cnt)
            tbs.append(tb.step("r", f"i{rank * cnt}", f"o{peer * cnt}", cnt))
        gpus.append(Gpu(n * cnt, n * cnt, 0, tbs))
    return algo(gpus, "alltoall", n * cnt, **changes)


def direct_allgather(n: int, **changes: object) -> str:
    """Each rank copies its chunk, then sends it to every other one from the output."""
    gpus = []
    for rank in range(n):
        tbs = [Tb().step("cpy", "i0", f"o{rank}", hasdep=1)]
        for peer in (p for p in range(n) if p != rank):
            tb = Tb(peer, peer)
            tb.step("s", f"o{rank}", f"o{rank}", dep=(0, 0))
            tbs.append(tb.step("r", f"o{peer}", f"o{peer}"))
        gpus.append(Gpu(1, n, 0, tbs))
    return algo(gpus, "allgather", n, **changes)


def two_hosts_allgather(**changes: object) -> str:
    """Hosts of two: chunks go across to the rank of the same place, and then beside, by scratch.

    The block that sends beside waits for what came across, and for a copy out of scratch.
    """
    gpus = []
    for rank in range(4):
        beside, across = rank ^ 1, rank ^ 2
        far = Tb(across, across).step("s", "i0", "s0").step("r", "i0", "s0", hasdep=1)
        near = Tb(beside, beside, 1).step("s", "i0", f"o{rank}").step("r", "i0", f"o{beside}")
        near.step("s", f"o{across}", f"o{across}", dep=(2, 1))
        near.step("r", f"o{across ^ 1}", f"o{across ^ 1}")
        local = Tb().step("cpy", "i0", f"o{rank}")
        local.step("cpy", "s0", f"o{across}", dep=(0, 1), hasdep=1)
        gpus.append(Gpu(1, 4, 1, [far, near, local]))
    return algo(gpus, "allgather", 4, **{"nchannels": 2, **changes})


def chain_allreduce(n: int, chunks: int, **changes: object) -> str:
    """Sums go down a line of ranks to rank 0 and back up, chunk after chunk, in place."""
    gpus = []
    for rank in range(n):
        down, up = (rank - 1 if rank else -1), (rank + 1 if rank + 1 < n else -1)
        first, second = Tb(down, up), Tb(up, down, 1)
        for k in range(chunks):
            here = f"i{k}"
            if up < 0:
                first.step("s", here, here)
                second.step("r", here, here)
            elif down < 0:
                first.step("rrc", here, here, hasdep=1)
                second.step("s", here, here, dep=(0, k))
            else:
                first.step("rrs", here, here)
                second.step("rcs", here, here)
        gpus.append(Gpu(chunks, chunks, 0, [first, second]))
    return algo(
        gpus, "allreduce", chunks, **{"nchannels": 2, "inplace": 1, "outofplace": 0, **changes}
    )


def hierarchical_allreduce(local: int, hosts: int, copies: int, **changes: object) -> str:
    """Allreduce in place on two levels, as msccl-tools writes them: rings in each host sum, a ring
    across hosts sums and spreads, rings in each host spread; ``copies`` side by side.

    Chunks are numbered (place in the host, host, copy). Each phase has blocks and channels of its
    own, which wait for those of the phase before.
    """

    def slot(of: int, at: int, copy: int) -> str:
        return f"i{(of % local * hosts + at % hosts) * copies + copy}"

    gpus = []
    for rank in range(local * hosts):
        host, place = divmod(rank, local)
        beside = [host * local + (place + step) % local for step in (1, -1)]
        across = [(host + step) % hosts * local + place for step in (1, -1)]
        tbs: list[Tb] = []
        for copy in range(copies):
            sums = len(tbs)  # the block that sums the chunks of host 0
            far = sums + hosts
            for at in range(hosts):
                tb = Tb(*beside, at * copies + copy)
                for k in range(local):
                    kind = "s" if not k else "rrs" if k < local - 1 else "rrc"
                    here = slot(place - 1 - k, at, copy)
                    tb.step(kind, here, here, hasdep=int(k == local - 1))
                tbs.append(tb)
            tb = Tb(*across, 2 * hosts * copies + copy)
            for k in range(2 * hosts - 1):
                at = (host - 1 - k) % hosts
                kind = "s" if not k else "rrs" if k < hosts - 1 else "rrcs"
                kind = kind if k < hosts else "rcs" if k < 2 * hosts - 2 else "r"
                here = slot(place, at, copy)
                wait = (sums + at, local - 1) if k < hosts else (-1, -1)
                tb.step(kind, here, here, dep=wait, hasdep=int(k >= hosts - 1))
            tbs.append(tb)
            for at in range(hosts):
                tb = Tb(*beside, (hosts + at) * copies + copy)
                for k in range(local):
                    kind = "s" if not k else "rcs" if k < local - 1 else "r"
                    here = slot(place - k, at, copy)
                    wait = (far, hosts - 1 + (host - at) % hosts) if not k else (-1, -1)
                    tb.step(kind, here, here, dep=wait)
                tbs.append(tb)
        chunks = local * hosts * copies
        gpus.append(Gpu(chunks, chunks, 0, tbs))
    channels = (2 * hosts + 1) * copies
    return algo(
        gpus,
        "allreduce",
        chunks,
        **{"nchannels": channels, "inplace": 1, "outofplace": 0, **changes},
    )


def hostile_texts(size: int) -> list[str]:
    """Texts of about so many words that no reader may take more than linear time for."""
    return [
        "<algo " * size,
        "<a>" * (4 * size),
        "<" * (6 * size),
        '<algo a="' * size,
        "<algo " + 'a="1" ' * (2 * size),
        "<!--" * (2 * size),
        "<algo a='\"" * size,
        exchange().replace('ngpus="2"', 'ngpus="' + "9" * (10 * size) + '"'),
    ]


def _theirs() -> dict[str, str]:
    """Files of other compilers, where somebody asked for them."""
    return {file.stem: file.read_text() for file in samples("msccl-xml", "*.xml")}


SAMPLES = {
    "alltoall": direct_alltoall(8, 2, proto="LL"),
    "allgather": direct_allgather(8, minBytes=1 << 10, maxBytes=1 << 19),
    "allgather of two hosts": two_hosts_allgather(proto="LL128"),
    "pairs": pairs_allreduce(8, proto="LL"),
    "chain": chain_allreduce(4, 12, proto="LL"),
    "rings": several_rings(8, 4, proto="LL"),
    **_theirs(),
}
"""Files of every shape: what other compilers write is among them only for ``make shared``."""

EACH = [pytest.param(n, marks=pytest.mark.shared if n in _theirs() else ()) for n in SAMPLES]
"""The names of the samples, to parametrize tests with."""
