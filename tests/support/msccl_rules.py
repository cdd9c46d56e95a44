"""What MSCCLang's compiler would make of a list of chunk operations: its rules, written once more.

Only the counts: blocks, channels, steps. The rules are those of ``msccl/language`` (instruction
DAG, fusion, thread-block assignment, XML): a remote copy is a send and a receive, a remote
reduction a send and a receive-reduce-copy; dependences by slot; first matching successor fuses;
channels to fused chains first; a thread block by (send peer, receive peer, channel), the one with
the smallest current step; dependences beyond one are nops. It shares no code with weft.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

CHANNELS = 32
Slot = tuple[int, str, int]
"""Rank, buffer, index."""


@dataclass(frozen=True)
class ChunkOp:
    """``chunk(*src, size).copy(*dst)``, or ``chunk(*dst, size).reduce(chunk(*src, size))``."""

    reduce: bool
    src: Slot
    dst: Slot
    size: int = 1


@dataclass(frozen=True)
class Step:
    """One instruction: (operation, source, destination, count) and (block, index) it waits for."""

    op: str
    src: Slot
    dst: Slot
    size: int
    waits: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BlockCode:
    channel: int
    send: int
    recv: int
    code: tuple[Step, ...]


@dataclass(frozen=True)
class Outcome:
    """The program's size: per rank the steps (nops included) of every block, and channels."""

    steps: tuple[tuple[int, ...], ...]
    channels: int
    instructions: int
    code: tuple[tuple[BlockCode, ...], ...]

    @property
    def blocks(self) -> int:
        return max(map(len, self.steps))

    @property
    def most_steps(self) -> int:
        return max(max(rank, default=0) for rank in self.steps)


@dataclass(eq=False)
class _Node:
    inst: str
    rank: int
    src: Slot
    dst: Slot
    size: int
    prev: list[_Node] = field(default_factory=list)
    next: list[_Node] = field(default_factory=list)
    sends_to: _Node | None = None  # the receive that takes what this sends
    receives_from: _Node | None = None
    chunk_step: int = 0
    priority: int = 0
    channel: int = 0
    block: int = -1
    step: int = -1

    @property
    def send_peer(self) -> int:
        return self.sends_to.rank if self.sends_to else -1

    @property
    def recv_peer(self) -> int:
        return self.receives_from.rank if self.receives_from else -1

    @property
    def fused(self) -> bool:
        return self.sends_to is not None and self.receives_from is not None


def published(ops: Iterable[ChunkOp], ranks: int) -> Outcome:
    """The outcome of the rules; AssertionError where they reach no assignment."""
    nodes = _graph(ops)
    _fuse(nodes)
    nodes = [n for n in nodes if n.inst != "gone"]
    _metadata(nodes)
    order = _emission_order(nodes)
    _channels(order)
    code = tuple(
        tuple(BlockCode(b.channel, b.send, b.recv, _written(b)) for b in own)
        for own in _blocks(order, ranks)
    )
    steps = tuple(
        tuple(sum(max(1, len(x.waits)) for x in block.code) for block in own) for own in code
    )
    return Outcome(steps, 1 + max(n.channel for n in order), len(order), code)


# --- 2: the instruction DAG -----------------------------------------------------------------------


class _Tracker:
    """Last writer and readers since then of every slot."""

    def __init__(self) -> None:
        self.writer: dict[Slot, _Node] = {}
        self.readers: dict[Slot, list[_Node]] = defaultdict(list)

    def read(self, at: Slot, node: _Node) -> None:
        for slot in _slots(at, node.size):
            if slot in self.writer:
                _edge(self.writer[slot], node)
            self.readers[slot].append(node)

    def write(self, at: Slot, node: _Node) -> None:
        for slot in _slots(at, node.size):
            before = self.readers[slot] or [w for w in [self.writer.get(slot)] if w]
            for one in before:
                _edge(one, node)
            self.writer[slot], self.readers[slot] = node, []


def _slots(at: Slot, size: int) -> list[Slot]:
    return [(at[0], at[1], at[2] + k) for k in range(size)]


def _edge(before: _Node, after: _Node) -> None:
    if before is not after and after not in before.next:
        before.next.append(after)
        after.prev.append(before)


def _graph(ops: Iterable[ChunkOp]) -> list[_Node]:
    nodes, slots = [], _Tracker()
    for op in ops:
        if op.src[0] == op.dst[0]:
            node = _Node("re" if op.reduce else "cpy", op.src[0], op.src, op.dst, op.size)
            slots.read(op.src, node)
            slots.write(op.dst, node)
            nodes.append(node)
            continue
        send = _Node("s", op.src[0], op.src, op.dst, op.size)
        recv = _Node("rrc" if op.reduce else "r", op.dst[0], op.src, op.dst, op.size)
        slots.read(op.src, send)
        slots.write(op.dst, recv)
        send.sends_to, recv.receives_from = recv, send
        nodes += [send, recv]
    return nodes


# --- 3: fusion ------------------------------------------------------------------------------------


def _fuse(nodes: Sequence[_Node]) -> None:
    for node in nodes:
        if node.inst == "rrc" and len(node.next) == 1 and _forwards(node, node.next[0]):
            after = node.next[0].next
            overwritten = len(after) == 1 and after[0].inst == "r"
            _join(node, node.next[0], "rrs" if overwritten else "rrcs")
    for node in nodes:
        if node.inst == "r":
            send = next((x for x in node.next if _forwards(node, x)), None)
            if send is not None:
                _join(node, send, "rcs")


def _forwards(node: _Node, send: _Node) -> bool:
    return send.inst == "s" and node.size == send.size and node.dst == send.src


def _join(node: _Node, send: _Node, inst: str) -> None:
    node.inst, node.sends_to, send.inst = inst, send.sends_to, "gone"
    assert node.sends_to is not None
    node.sends_to.receives_from = node
    for before in send.prev:
        before.next.remove(send)
    for after in send.next:
        after.prev.remove(send)
        for before in send.prev:
            _edge(before, after)


# --- 4: steps and priorities ----------------------------------------------------------------------


def _after(node: _Node) -> list[_Node]:
    return [*node.next, *([node.sends_to] if node.sends_to else [])]


def _metadata(nodes: Sequence[_Node]) -> None:
    missing = {n: len(n.prev) + (n.receives_from is not None) for n in nodes}
    ready, order = [n for n in nodes if not missing[n]], []
    while ready:
        node = ready.pop()
        order.append(node)
        for after in _after(node):
            after.chunk_step = max(after.chunk_step, node.chunk_step + 1)
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    assert len(order) == len(nodes), "a cycle"
    for node in reversed(order):
        node.priority = max((x.priority + 1 for x in _after(node)), default=0)


# --- 5: order, channels, thread blocks ------------------------------------------------------------


def _emission_order(nodes: Sequence[_Node]) -> list[_Node]:
    missing = {n: len(n.prev) + (n.receives_from is not None) for n in nodes}
    heap = [(*_key(n), k, n) for k, n in enumerate(nodes) if not missing[n]]
    heapq.heapify(heap)
    number, order = len(nodes), []
    while heap:
        node = heapq.heappop(heap)[-1]
        order.append(node)
        for after in _after(node):
            missing[after] -= 1
            if not missing[after]:
                number += 1
                heapq.heappush(heap, (*_key(after), number, after))
    return order


def _key(node: _Node) -> tuple[int, int, int]:
    return node.chunk_step, -node.priority, node.dst[2]


def _chain(first: _Node) -> list[_Node]:
    """A send and all that its message is fused with, to the last receive."""
    chain = [first]
    while chain[-1].sends_to is not None:
        chain.append(chain[-1].sends_to)
    return chain


def _channels(order: Sequence[_Node]) -> None:
    taken: dict[tuple[int, int], set[int]] = defaultdict(set)
    flows: dict[frozenset[tuple[int, int]], int] = {}
    for node in order:
        if node.inst != "s":
            continue
        chain = _chain(node)
        if len(chain) == 2:
            continue  # not fused: channel 0
        hops = frozenset((a.rank, b.rank) for a, b in pairwise(chain))
        if hops not in flows:
            free = [c for c in range(CHANNELS) if not any(c in taken[hop] for hop in hops)]
            assert free, "no channel is free on all hops"
            flows[hops] = free[0]
            for hop in hops:
                taken[hop].add(free[0])
        for one in chain:
            one.channel = flows[hops]
    while _out_of_order(order):
        pass


def _out_of_order(order: Sequence[_Node]) -> bool:
    """Move the first pair that is received out of turn to the next channel, if there is one."""
    pending: dict[tuple[int, int, int], list[_Node]] = defaultdict(list)
    for node in order:
        if node.receives_from is not None:
            waiting = pending[node.recv_peer, node.rank, node.channel]
            if waiting[0] is not node:
                first = node
                while first.receives_from is not None:
                    first = first.receives_from
                for one in _chain(first):
                    one.channel += 1
                return True
            waiting.pop(0)
        if node.sends_to is not None:
            pending[node.rank, node.send_peer, node.channel].append(node.sends_to)
    return False


@dataclass(eq=False)
class _Block:
    send: int
    recv: int
    channel: int
    nodes: list[_Node] = field(default_factory=list)

    def takes(self, send: int, recv: int) -> bool:
        return (send == -1 or self.send in (-1, send)) and (recv == -1 or self.recv in (-1, recv))

    def owns(self, send: int, recv: int) -> bool:
        return (send != -1 and self.send == send) or (recv != -1 and self.recv == recv)


def _blocks(order: Sequence[_Node], ranks: int) -> list[list[_Block]]:
    tables: list[list[_Block]] = [[] for _ in range(ranks)]
    for node in order:
        send, recv, own = node.send_peer, node.recv_peer, tables[node.rank]
        local = send == -1 and recv == -1
        same = [b for b in own if local or b.channel == node.channel]
        owner = [b for b in same if b.owns(send, recv)]
        options = owner or [b for b in same if b.takes(send, recv)]
        if options:
            block = min(options, key=lambda b: b.nodes[-1].chunk_step)
        else:
            block = _Block(send, recv, node.channel)
            own.append(block)
        assert len(owner) < 2, "two blocks own an end"
        assert block.takes(send, recv), "the block of an end has another peer already"
        block.send, block.recv = max(block.send, send), max(block.recv, recv)
        node.block, node.step = own.index(block), len(block.nodes)
        block.nodes.append(node)
    return tables


# --- 6: what is written ---------------------------------------------------------------------------


def _written(block: _Block) -> tuple[Step, ...]:
    """Dependences not yet waited for, the latest of each other block."""
    seen: dict[int, int] = {}
    steps = []
    for node in block.nodes:
        latest: dict[int, int] = {}
        for before in node.prev:
            if before.block != node.block and before.step > seen.get(before.block, -1):
                latest[before.block] = max(before.step, latest.get(before.block, -1))
        seen |= latest
        waits = tuple(sorted(latest.items()))
        # What is sent on was received into the own slot: a receive's source is its own too.
        src = node.src if node.src[0] == node.rank else node.dst
        dst = node.dst if node.dst[0] == node.rank else node.src
        steps.append(Step(node.inst, src, dst, node.size, waits))
    return tuple(steps)
