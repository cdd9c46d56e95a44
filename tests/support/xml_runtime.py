"""A reader and runtime for MSCCL XML made for these tests only, straight from the runtimes' rules.

It knows nothing of the compiler's classes: it reads the text as the parsers do (one transfer per
chain of ``re``, dependences by the running counter), runs it with bounded FIFOs, one chunk per
operation, in a random order, and proves with happens-before sets that no two unordered
instructions touch the same chunk.
"""

import random
import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict, deque
from dataclasses import dataclass, field

LINE = re.compile(r'( {2}| {4}| {6})?<(/?[a-z]+)((?: [A-Za-z_]+="[^"\']*")*)(/?)>')
SENDS, RECEIVES = ("s", "rcs", "rrs", "rrcs"), ("r", "rcs", "rrs", "rrc", "rrcs")
READS, WRITES = ("s", "rrs", "rrc", "rrcs", "cpy", "re"), ("r", "rcs", "rrc", "rrcs", "cpy", "re")


@dataclass
class Transfer:
    rank: int
    tb: int
    kind: str
    src: tuple[str, int]
    dst: tuple[str, int]
    count: int
    needs: list[tuple[int, int]]
    publishes: bool
    more: list[tuple[str, int]] = field(default_factory=list)
    flag: int = -1


@dataclass
class Machine:
    """One file, all ranks: ``blocks[rank][tb] = (send, recv, chan, transfers)``."""

    algo: dict[str, str]
    gpus: list[dict[str, str]]
    blocks: list[list[tuple[int, int, int, list[Transfer]]]]

    @property
    def depth(self) -> int:
        return 2 if self.algo["proto"] == "Simple" else 8


def read(text: str) -> Machine:
    for line in text.removesuffix("\n").split("\n"):
        assert LINE.fullmatch(line), line
        assert len(re.findall(r'="', line)) <= 16
    root = ElementTree.fromstring(text)
    blocks = []
    for at, gpu in enumerate(root):
        assert int(gpu.get("id")) == at
        blocks.append([])
        for index, tb in enumerate(gpu):
            assert int(tb.get("id")) == index
            steps = [dict(s.attrib) for s in tb]
            assert [int(s["s"]) for s in steps] == list(range(len(steps)))
            peers = (int(tb.get("send")), int(tb.get("recv")), int(tb.get("chan")))
            blocks[-1].append((*peers, transfers(at, index, steps)))
    return Machine(dict(root.attrib), [dict(g.attrib) for g in root], blocks)


def transfers(rank: int, tb: int, steps: list[dict[str, str]]) -> list[Transfer]:
    found: list[Transfer] = []
    pending: list[tuple[int, int]] = []
    chain: Transfer | None = None
    for s in steps:
        assert len(s) == 10
        if int(s["depid"]) >= 0:
            pending.append((int(s["depid"]), int(s["deps"])))
        if s["type"] == "nop":
            continue
        src, dst = (s["srcbuf"], int(s["srcoff"])), (s["dstbuf"], int(s["dstoff"]))
        t = Transfer(rank, tb, s["type"], src, dst, int(s["cnt"]), pending, s["hasdep"] == "1")
        if (
            t.kind == "re"
            and chain
            and chain.dst == dst
            and chain.src[0] == src[0]
            and s["depid"] == "-1"
        ):
            assert chain.count == t.count, "the last count would win"
            chain.more.append(src)
            assert len(chain.more) <= 14, "more than 15 fused reductions"
            chain.publishes = t.publishes
        else:
            assert not t.needs or int(s["depid"]) >= 0
            found.append(t)
            pending, chain = [], t if t.kind == "re" else None
        if t.publishes:
            chain = None
    assert not pending, "trailing nops"
    counter = 0
    for t in found:
        counter += max(0, len(t.needs) - 1) + len(t.more)
        t.flag = counter
        counter += 1
    return found


def check_shape(m: Machine, limits: dict[str, int]) -> None:
    """Connections are symmetric and unshared, everything is in bounds and within the limits."""
    sends, receives = set(), set()
    assert len(m.gpus) == int(m.algo["ngpus"])
    for rank, blocks in enumerate(m.blocks):
        assert 0 < len(blocks) <= limits["tbs"]
        sizes = {b: int(m.gpus[rank][f"{b}_chunks"]) for b in "ios"}
        per_channel = defaultdict(int)
        for send, recv, chan, code in blocks:
            assert rank not in (send, recv)
            assert chan < int(m.algo["nchannels"]) <= 32
            for peer, side, key in (
                (send, sends, (rank, send, chan)),
                (recv, receives, (recv, rank, chan)),
            ):
                if peer >= 0:
                    assert key not in side, "two blocks on one connection"
                    side.add(key)
            per_channel["s", chan] += send >= 0
            per_channel["r", chan] += recv >= 0
            assert (code[-1].flag + 1 if code else 0) <= limits["steps"]
            for t in code:
                assert t.kind in limits["ops"]
                assert 1 <= t.count <= 71
                assert t.kind not in SENDS or send >= 0
                assert t.kind not in RECEIVES or recv >= 0
                for used, kinds in ((t.src, READS), (t.dst, WRITES)):
                    if t.kind in kinds:
                        assert 0 <= used[1] <= sizes[used[0]] - t.count, (t, sizes)
                for tb, step in t.needs:
                    assert tb <= limits["depid"]
                    assert any(o.flag == step and o.publishes for o in blocks[tb][3]), t
        assert all(v <= 32 for v in per_channel.values())
    assert sends == receives


def alias(m: Machine, collective: str, rank: int, buffer: str, offset: int) -> tuple[str, int]:
    """One name per piece of memory: in place, input chunks that are output chunks are called so."""
    n, chunks = int(m.algo["ngpus"]), int(m.algo["nchunksperloop"])
    if buffer != "i" or m.algo["inplace"] != "1":
        return buffer, offset
    if collective == "allgather":
        return "o", offset + rank * chunks // n
    if collective == "reduce_scatter":
        at = offset - rank * chunks // n
        return ("o", at) if 0 <= at < chunks // n else ("i", offset)
    return "o", offset


def run(m: Machine, collective: str, memory: list[dict[tuple[str, int], int]], seed: int) -> None:
    """Execute all operations, chunk by chunk, in a random order; ``memory`` is changed."""
    dice = random.Random(seed)
    queues: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    flags: dict[tuple[int, int], int] = {}
    threads = [
        _thread(m, collective, rank, tb, memory[rank], queues, flags)
        for rank, blocks in enumerate(m.blocks)
        for tb in range(len(blocks))
    ]
    idle = 0
    while threads:
        at = dice.randrange(len(threads))
        progressed = False
        for k in range(len(threads)):
            thread = threads[(at + k) % len(threads)]
            state = next(thread, "end")
            if state == "end":
                threads.remove(thread)
            if state != "blocked":
                progressed = True
                break
        assert progressed, "deadlock"
        idle += 1
    assert not any(queues.values()), "messages nobody received"


def _thread(m, collective, rank, tb, memory, queues, flags):
    send, recv, chan, code = m.blocks[rank][tb]
    out, inbox = queues[rank, send, chan], queues[recv, rank, chan]
    at = lambda part, k: alias(m, collective, rank, part[0], part[1] + k)  # noqa: E731
    for t in code:
        while any(flags.get((rank, b), -1) < step for b, step in t.needs):
            yield "blocked"
        for k in range(t.count):
            while (t.kind in RECEIVES and not inbox) or (t.kind in SENDS and len(out) >= m.depth):
                yield "blocked"
            value = inbox.popleft() if t.kind in RECEIVES else 0
            if t.kind in ("s", "cpy", "rrs", "rrc", "rrcs"):
                value += memory[at(t.src, k)]
            if t.kind == "re":
                value = memory[at(t.dst, k)] + sum(memory[at(s, k)] for s in (t.src, *t.more))
            if t.kind in WRITES:
                memory[at(t.dst, k)] = value
            if t.kind in SENDS:
                out.append(value)
            yield "ran"
        if t.publishes:
            flags[rank, tb] = t.flag
        yield "ran"


def check_races(m: Machine, collective: str) -> None:
    """Every two accesses to one chunk, one of them a write, are ordered without FIFO credit."""
    nodes = [t for blocks in m.blocks for *_, code in blocks for t in code]
    index = {id(t): i for i, t in enumerate(nodes)}
    before: list[set[int]] = [set() for _ in nodes]
    ends = defaultdict(lambda: ([], []))
    for rank, blocks in enumerate(m.blocks):
        for send, recv, chan, code in blocks:
            for k, t in enumerate(code):
                if k:
                    before[index[id(t)]].add(index[id(code[k - 1])])
                for b, step in t.needs:
                    target = next(o for o in blocks[b][3] if o.flag == step)
                    before[index[id(t)]].add(index[id(target)])
                if t.kind in SENDS:
                    ends[rank, send, chan][0].append(t)
                if t.kind in RECEIVES:
                    ends[recv, rank, chan][1].append(t)
    for there, here in ends.values():
        assert [t.count for t in there] == [t.count for t in here]
        for a, b in zip(there, here, strict=True):
            before[index[id(b)]].add(index[id(a)])
    past = _closure(before)
    touched = defaultdict(list)
    for i, t in enumerate(nodes):
        for kinds, parts, writes in ((READS, (t.src, *t.more), False), (WRITES, (t.dst,), True)):
            for part in parts if t.kind in kinds else ():
                for k in range(t.count):
                    touched[t.rank, alias(m, collective, t.rank, part[0], part[1] + k)].append(
                        (i, writes)
                    )
    for place, uses in touched.items():
        for x, (i, w) in enumerate(uses):
            for j, v in uses[:x]:
                if (w or v) and i != j:
                    assert past[i] >> j & 1 or past[j] >> i & 1, (place, nodes[i], nodes[j])


def _closure(before: list[set[int]]) -> list[int]:
    past, left, after = [0] * len(before), [len(b) for b in before], defaultdict(list)
    for i, b in enumerate(before):
        for j in b:
            after[j].append(i)
    ready = [i for i, n in enumerate(left) if n == 0]
    done = 0
    while ready:
        i = ready.pop()
        done += 1
        for j in before[i]:
            past[i] |= past[j] | 1 << j
        for j in after[i]:
            left[j] -= 1
            if left[j] == 0:
                ready.append(j)
    assert done == len(before), "a cycle"
    return past
