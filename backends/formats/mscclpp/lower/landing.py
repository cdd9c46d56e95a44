"""Landing of every message: the part of a plan that a FIFO does for a program.

A ``put`` goes wherever the sender says, whenever the sender is ready. It may go straight to where
the receiver wants the data only if everything that touched that place before is known to be over
when the put begins: because the launch has begun (the ready handshake shows it), or because of
earlier messages. Otherwise it lands in scratch of its own, and the receiver takes it from there.
The same holds for the source of a put through a port channel, which is read some time later: an
overwriting block must know that the message has arrived, or it is sent from a copy.

Under LL every message is packets in scratch of its own, written once per launch: stale packets
carry an older launch's number, and two halves of scratch alternate.

Before (rank 0 sends i[0], rank 1 reduces it into o[0])::

    rank 0: s i[0]                      rank 1: rrc src=i[0] dst=o[0]

After::

    rank 0: put i[0] -> rank 1 s[0]     rank 1: wait; o[0] = i[0] + s[0]
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import field

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer, Instr, Op, Program, Slice

from ..plan.model import LIMITS
from ..plan.order import GOT, START, HappensBefore

_PLAIN = frozenset({Op.RECV, Op.RECV_COPY_SEND})


@dataclass(eq=False)
class Landing:
    """Landing places of messages, as the lowering needs them.

    Attributes:
        target: per message, where it lands on the receiver.
        direct: whether that is where the receiver wants it.
        stage: the messages that are sent from a copy, and where in the sender's scratch.
        temp: blocks (rank, block) that need scratch for a sum, and where.
        guarded: instructions whose operand is only ready once their own packets have come.
        ready: per connection, whether the sender must know that the receiver's launch has begun.
        scratch: chunks of scratch per rank.
    """

    target: list[Slice]
    direct: list[bool]
    ready: list[bool]
    scratch: list[int]
    stage: dict[int, Slice] = field(default_factory=dict)
    temp: dict[tuple[int, int], Slice] = field(default_factory=dict)
    guarded: set[int] = field(default_factory=set)


def land(program: Program, order: HappensBefore, ports: list[bool], *, packets: bool) -> Landing:
    """Decide for every message; ``ports`` says which connections cross nodes."""
    count = len(order.messages)
    place = Landing(
        [Slice(Buffer.SCRATCH, -1)] * count,
        [False] * count,
        [True] * len(order.connections),
        program.chunks[:, 2].tolist(),
    )
    if packets:
        _packets(order, ports, place)
    else:
        _plain(order, ports, place)
    return place


def chunks_of(where: Slice, count: int) -> Iterator[tuple[Buffer, int]]:
    """Every chunk of a slice."""
    return ((where.buffer, where.offset + k) for k in range(count))


# --- plain data ---------------------------------------------------------------------------------

_Touch = dict[tuple[int, Buffer, int], list[int]]


def _touching(order: HappensBefore) -> tuple[_Touch, _Touch]:
    """Return the instructions that read, and that write, each chunk: by (rank, buffer, chunk)."""
    reads: _Touch = defaultdict(list)
    writes: _Touch = defaultdict(list)
    for i, instr in enumerate(order.instrs):
        if instr.op.reads_src:
            for buffer, k in chunks_of(instr.src, instr.count):
                reads[order.rank[i], buffer, k].append(i)
        if instr.op.writes_dst:
            for buffer, k in chunks_of(instr.dst, instr.count):
                writes[order.rank[i], buffer, k].append(i)
    return reads, writes


def _plain(order: HappensBefore, ports: list[bool], place: Landing) -> None:
    reads, writes = _touching(order)
    # A connection's messages leave in order; what leaves through a port is read late.
    late = {m.send: k for k, m in enumerate(order.messages) if ports[m.connection]}
    for k, m in sorted(enumerate(order.messages), key=lambda x: order.rank[x[1].recv]):
        if ports[m.connection] and _overwritten(order, m.send, m.recv, writes):
            place.stage[k] = _take(place, order.rank[m.send], order.instrs[m.send].count)
            late.pop(m.send)
    arrival = {send: order.messages[k].recv for send, k in late.items()}
    free: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
    by_time = sorted(
        range(len(order.messages)),
        key=lambda k: (
            order.rank[order.messages[k].recv],
            order.level[3 * order.messages[k].send + GOT],
        ),
    )
    for k in by_time:
        m = order.messages[k]
        instr, rank = order.instrs[m.recv], order.rank[m.recv]
        if instr.op in _PLAIN and _is_free(order, m.send, m.recv, reads, writes, arrival):
            place.target[k], place.direct[k] = instr.dst, True
            continue
        offset = _reuse(order, free[rank, instr.count], m.send)
        if offset is None:
            offset = _take(place, rank, instr.count).offset
        free[rank, instr.count].append((offset, arrival.get(m.recv, m.recv)))
        place.target[k] = Slice(Buffer.SCRATCH, offset)


def _take(place: Landing, rank: int, count: int) -> Slice:
    place.scratch[rank] += count
    return Slice(Buffer.SCRATCH, place.scratch[rank] - count)


def _source(instr: Instr) -> Slice:
    """Return the slice that a sending instruction sends from, where the program names it."""
    return instr.src if instr.op is Op.SEND else instr.dst


def _overwritten(order: HappensBefore, send: int, recv: int, writes: _Touch) -> bool:
    """Test if a message's source may be written again before it is known to have arrived."""
    instr, rank = order.instrs[send], order.rank[send]
    if instr.op is Op.RECV_REDUCE_SEND:
        return False  # it leaves from its own landing place
    for buffer, k in chunks_of(_source(instr), instr.count):
        for x in writes[rank, buffer, k]:
            later = x != send and not order.ended(x, send, GOT)
            if later and not order.ended(recv, x, GOT):
                return True
    return False


def _is_free(
    order: HappensBefore,
    send: int,
    recv: int,
    reads: _Touch,
    writes: _Touch,
    arrival: dict[int, int],
) -> bool:
    """Test if the receiver's destination is free from the launch on, or at the send."""
    instr, rank = order.instrs[recv], order.rank[recv]
    for buffer, k in chunks_of(instr.dst, instr.count):
        for x in {*reads[rank, buffer, k], *writes[rank, buffer, k]} - {recv}:
            earlier = order.ended(x, recv, GOT)
            if earlier and not order.ended(x, send, GOT):
                return False
            if earlier and x in arrival and not order.ended(arrival[x], send, GOT):
                return False
    return True


def _reuse(order: HappensBefore, free: deque[tuple[int, int]], send: int) -> int | None:
    """Return a place whose last message has been taken when ``send`` begins."""
    for k in range(min(LIMITS.reused_places, len(free))):
        offset, last = free[k]
        if order.ended(last, send, GOT):
            del free[k]
            return offset
    return None


# --- packets ------------------------------------------------------------------------------------


def _packets(order: HappensBefore, ports: list[bool], place: Landing) -> None:
    """Raw scratch first, then packets: chunk k of packets lies where raw chunks 2k, 2k+1 would."""
    _, writes = _touching(order)
    longest: dict[tuple[int, int], int] = {}
    for i, instr in enumerate(order.instrs):
        if not instr.op.receives or not instr.op.reads_src:
            continue
        if not _readable(order, i, writes):
            place.guarded.add(i)
        if i in place.guarded or instr.op is Op.RECV_REDUCE_SEND:
            key = order.rank[i], order.block[i]
            longest[key] = max(longest.get(key, 0), instr.count)
    for key, count in longest.items():
        place.temp[key] = _take(place, key[0], count)
    raw = list(place.scratch)
    place.scratch = [-(-chunks // 2) for chunks in raw]
    for k, m in enumerate(order.messages):
        count = order.instrs[m.send].count
        place.target[k] = _take(place, order.rank[m.recv], count)
        if ports[m.connection]:
            place.stage[k] = _take(place, order.rank[m.send], count)
    place.scratch = [max(a, b) for a, b in zip(place.scratch, raw, strict=True)]
    known = order.heard()
    place.ready = [not known[a] >> b & 1 for a, b, _ in order.connections]


def _readable(order: HappensBefore, i: int, writes: _Touch) -> bool:
    """Test if the operand of a receive-reduce is ready before its message has come."""
    instr, rank = order.instrs[i], order.rank[i]
    for buffer, k in chunks_of(instr.src, instr.count):
        for x in writes[rank, buffer, k]:
            if x != i and order.ended(x, i, GOT) and not order.ended(x, i, START):
                return False
    return True
