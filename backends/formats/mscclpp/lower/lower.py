"""Lower two-sided instructions to one-sided operations.

=======  =====================================  ============================================
         plain                                  packets (LL)
=======  =====================================  ============================================
``s``    put; signal                            ppkt
``r``    wait (; copy, if it lands elsewhere)   upkt
``rcs``  wait; put on (and copy)                upkt; rppkt
``rrc``  wait; re                               repkt
``rrcs`` wait; res; signal                      respkt
``rrs``  wait; res; signal                      respkt
``cpy``  copy                                   copy
``re``   re (consecutive ones at once)          re
=======  =====================================  ============================================

Across nodes ``put; signal`` is one ``pws``, fused sums are done first and sent then, and packets
are made in scratch of the sender's own and put from there.

Threads of a block run apart: an operation may begin in one thread while another still does the one
before. A ``nop`` synchronizes them. It is needed before anything that publishes that earlier work
is done (a signal, packets, a release), after anything that waits, and between two operations on one
place.

Before::

    wait 0 | copy s[0] -> o[1] | put o[1] -> peer | signal 1

After::

    wait 0 | nop | copy s[0] -> o[1] | nop | put o[1] -> peer | nop | signal 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer, Instr, Op, Slice

from ..plan.model import FACTS, Channel, LocalChunks, Operation, PlanOp, RemoteChunks


@dataclass(frozen=True, slots=True)
class End:
    """A block's end of a connection: the channel by its type and place in the block's list."""

    channel: Channel
    id: int

    def signal(self) -> Operation:
        """Signal to the peer, with everything written before."""
        return Operation(PlanOp.SIGNAL, self.channel, (self.id,))

    def wait(self) -> Operation:
        """For the peer's next signal."""
        return Operation(PlanOp.WAIT, self.channel, (self.id,))

    def tell_ready(self) -> Operation:
        """Signal to the peer that this launch has begun."""
        return Operation(PlanOp.RELAXED_SIGNAL, self.channel, (self.id,))

    def wait_ready(self) -> Operation:
        """For the peer's launch to begin."""
        return Operation(PlanOp.RELAXED_WAIT, self.channel, (self.id,))


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message to be received: where it lands, and whether that is where it is wanted."""

    end: End
    place: Slice
    direct: bool


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent: where it lands on the peer, and the copy it is sent from, if any.

    ``remote`` gives the number of a peer's buffer in the block's list.
    """

    end: End
    place: Slice
    stage: Slice | None
    remote: Callable[[Buffer], int]

    def operand(self, count: int) -> RemoteChunks:
        """Return the landing place as an operand."""
        return RemoteChunks(self.remote(self.place.buffer), self.place.offset, count)


@dataclass(frozen=True, slots=True)
class Lowering:
    """Lowering of one instruction: its messages, scratch for a sum, late operand."""

    instr: Instr
    into: Incoming | None
    out: Outgoing | None
    temp: Slice | None = None
    guarded: bool = False

    def _own(self, where: Slice) -> LocalChunks:
        return LocalChunks(where.buffer, where.offset, self.instr.count)

    @property
    def _src(self) -> LocalChunks:
        return self._own(self.instr.src)

    @property
    def _dst(self) -> LocalChunks:
        return self._own(self.instr.dst)

    # --- plain data -----------------------------------------------------------------------------

    def plain(self) -> Iterator[Operation]:
        """Yield the operations under Simple."""
        if self.instr.op in _LOCAL:
            yield from self._local()
        elif self.into is None:
            yield from self._put(self._src)
        else:
            yield self.into.end.wait()
            if self.instr.op in _SUMS:
                yield from self._sum(self._own(self.into.place))
            else:
                yield from self._take(self._own(self.into.place), self.into.direct)

    def _local(self) -> Iterator[Operation]:
        if self.instr.op is Op.COPY and self._src != self._dst:
            yield Operation(PlanOp.COPY, src=(self._src,), dst=(self._dst,))
        elif self.instr.op is Op.REDUCE:
            yield Operation(PlanOp.REDUCE, src=(self._dst, self._src), dst=(self._dst,))

    def _take(self, landed: LocalChunks, direct: bool) -> Iterator[Operation]:
        if not direct:
            yield Operation(PlanOp.COPY, src=(landed,), dst=(self._dst,))
        if self.out:
            yield from self._put(landed)

    def _sum(self, landed: LocalChunks) -> Iterator[Operation]:
        """Yield the sum, into its destination, or over the message if it is not kept."""
        keeps = self.instr.op is not Op.RECV_REDUCE_SEND
        result, sources = self._dst if keeps else landed, (self._src, landed)
        if self.out is None or self.out.end.channel is Channel.PORT:
            yield Operation(PlanOp.REDUCE, src=sources, dst=(result,))
            if self.out:
                yield from self._put(result)
            return
        yield Operation(
            PlanOp.REDUCE_SEND,
            Channel.MEMORY,
            src=sources,
            dst=(result, self.out.operand(self.instr.count)),
        )
        yield self.out.end.signal()

    def _put(self, source: LocalChunks) -> Iterator[Operation]:
        assert self.out
        end, target = self.out.end, self.out.operand(self.instr.count)
        if end.channel is Channel.MEMORY:
            yield Operation(PlanOp.PUT, Channel.MEMORY, src=(source,), dst=(target,))
            yield end.signal()
            return
        if self.out.stage:
            staged = self._own(self.out.stage)
            yield Operation(PlanOp.COPY, src=(source,), dst=(staged,))
            source = staged
        yield Operation(PlanOp.PUT_SIGNAL, Channel.PORT, (end.id,), (source,), (target,))

    # --- packets --------------------------------------------------------------------------------

    def packets(self) -> Iterator[Operation]:
        """Yield the operations under LL."""
        if self.instr.op in _LOCAL:
            yield from self._local()
        elif self.into is None:
            yield from self._send_packets(self._src)
        elif self.instr.op in _SUMS:
            yield from self._sum_packets(self._own(self.into.place))
        else:
            landed = self._own(self.into.place)
            yield Operation(PlanOp.UNPACK, src=(landed,), dst=(self._dst,))
            if self.out and self.out.stage:
                yield from self._send_packets(self._dst)
            elif self.out:
                yield Operation(
                    PlanOp.READ_PUT_PACKETS,
                    Channel.MEMORY,
                    src=(landed,),
                    dst=(self.out.operand(self.instr.count),),
                )

    def _sum_packets(self, landed: LocalChunks) -> Iterator[Operation]:
        keeps = self.instr.op is not Op.RECV_REDUCE_SEND
        result = self._dst if keeps else self._own(self._temporary())
        if self.guarded:
            # The operand may still be in the making when the sum would read it: only the
            # packets show it. They are taken first.
            spare = self._own(self._temporary())
            yield Operation(PlanOp.UNPACK, src=(landed,), dst=(spare,))
            yield Operation(PlanOp.REDUCE, src=(self._src, spare), dst=(result,))
            if self.out:
                yield from self._send_packets(result)
        elif self.out is None:
            yield Operation(PlanOp.REDUCE_PACKETS, src=(self._src, landed), dst=(result,))
        elif self.out.stage:
            staged = self._own(self.out.stage)
            yield Operation(
                PlanOp.REDUCE_COPY_PACKETS, src=(self._src, landed), dst=(result, staged)
            )
            yield self._post(staged)
        else:
            yield Operation(
                PlanOp.REDUCE_SEND_PACKETS,
                Channel.MEMORY,
                src=(self._src, landed),
                dst=(result, self.out.operand(self.instr.count)),
            )

    def _temporary(self) -> Slice:
        assert self.temp
        return self.temp

    def _send_packets(self, source: LocalChunks) -> Iterator[Operation]:
        assert self.out
        if self.out.stage is None:
            yield Operation(
                PlanOp.PUT_PACKETS,
                Channel.MEMORY,
                src=(source,),
                dst=(self.out.operand(self.instr.count),),
            )
            return
        staged = self._own(self.out.stage)
        yield Operation(PlanOp.COPY_PACKETS, src=(source,), dst=(staged,))
        yield self._post(staged)

    def _post(self, staged: LocalChunks) -> Operation:
        """Own packets, through a port channel: it waits for them by itself."""
        assert self.out
        return Operation(
            PlanOp.READ_PUT_PACKETS,
            Channel.PORT,
            (self.out.end.id,),
            (staged,),
            (self.out.operand(self.instr.count),),
        )


_LOCAL = frozenset({Op.COPY, Op.REDUCE, Op.NOP})
_SUMS = frozenset({Op.RECV_REDUCE_COPY, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND})


def chained(one: Operation, other: Operation) -> Operation | None:
    """Two sums into one place at once, or None if they are not that."""
    if one.op is not PlanOp.REDUCE or other.op is not PlanOp.REDUCE or one.dst != other.dst:
        return None
    if other.src[0] != other.dst[0] or other.dst[0] in other.src[1:]:
        return None
    if len(one.src) + len(other.src) - 1 > FACTS.operands:
        return None
    return Operation(PlanOp.REDUCE, src=one.src + other.src[1:], dst=one.dst)


NOP = Operation(PlanOp.NOP)

_TELLS = frozenset(
    {
        PlanOp.SIGNAL,
        PlanOp.RELAXED_SIGNAL,
        PlanOp.RELEASE,
        PlanOp.PUT_SIGNAL,
        PlanOp.PUT_SIGNAL_FLUSH,
        PlanOp.PUT_PACKETS,
        PlanOp.READ_PUT_PACKETS,
        PlanOp.REDUCE_SEND_PACKETS,
        PlanOp.REDUCE_COPY_SEND_PACKETS,
    }
)
_ONLY_TELLS = frozenset({PlanOp.SIGNAL, PlanOp.RELAXED_SIGNAL, PlanOp.RELEASE})
_ONLY_WAITS = frozenset({PlanOp.WAIT, PlanOp.RELAXED_WAIT, PlanOp.ACQUIRE})
_POSTS = frozenset({PlanOp.PUT, PlanOp.PUT_SIGNAL, PlanOp.PUT_SIGNAL_FLUSH})
_LEARNS = _ONLY_WAITS | {
    PlanOp.READ_PUT_PACKETS,
    PlanOp.REDUCE_SEND_PACKETS,
    PlanOp.REDUCE_COPY_SEND_PACKETS,
    PlanOp.UNPACK,
    PlanOp.REDUCE_PACKETS,
    PlanOp.REDUCE_COPY_PACKETS,
}


@dataclass(frozen=True, slots=True)
class OperationGroup:
    """Operations that stay together: semaphores to acquire first, and to release after."""

    ops: tuple[Operation, ...]
    acquires: tuple[int, ...] = ()
    releases: tuple[int, ...] = ()

    def operations(self) -> tuple[Operation, ...]:
        """With its semaphores, at most 16 in one operation."""
        return (
            *_semaphores(PlanOp.ACQUIRE, self.acquires),
            *self.ops,
            *_semaphores(PlanOp.RELEASE, self.releases),
        )


def _semaphores(op: PlanOp, ids: Sequence[int]) -> Iterator[Operation]:
    return (Operation(op, ids=tuple(ids[k : k + 16])) for k in range(0, len(ids), 16))


def arrange(
    groups: Sequence[OperationGroup],
    semaphore: Callable[[], int],
    longest: int = FACTS.operations,
) -> list[tuple[Operation, ...]]:
    """Thread blocks of at most ``longest`` operations, one after another through a semaphore each.

    ``semaphore`` makes a new one.
    """
    parts: list[tuple[Operation, ...]] = []
    current: list[Operation] = []
    for group in groups:
        longer = with_nops(current, group.operations())
        if len(longer) > longest - 2 and current:
            link = semaphore()
            parts.append(tuple(with_nops(current, (Operation(PlanOp.RELEASE, ids=(link,)),))))
            longer = with_nops([Operation(PlanOp.ACQUIRE, ids=(link,))], group.operations())
        current = longer
    if current:
        parts.append(tuple(current))
    return parts


def with_nops(before: Sequence[Operation], ops: Sequence[Operation]) -> list[Operation]:
    """``before``, which has its nops, followed by ``ops`` and those they need."""
    made = list(before)
    for op in ops:
        apart: list[Operation] = []
        for earlier in reversed(made):
            if earlier.op is PlanOp.NOP:
                break
            apart.append(earlier)
        if any(_must_meet(earlier, op) for earlier in apart):
            made.append(NOP)
        made.append(op)
    return made


def _must_meet(earlier: Operation, later: Operation) -> bool:
    if _alone(earlier) and _alone(later):
        return False
    if earlier.op is later.op is PlanOp.ACQUIRE:
        return True  # another thread must not take what an earlier acquire waits for
    tells = later.op in _TELLS or (later.op is PlanOp.PUT and later.channel is Channel.PORT)
    if tells and earlier.op not in _ONLY_TELLS:
        return True
    if earlier.op in _LEARNS and later.op not in _ONLY_WAITS:
        return True
    return _overlap(earlier.dst, later.src + later.dst) or _overlap(earlier.src, later.dst)


def _alone(op: Operation) -> bool:
    """Test if thread 0 does it alone."""
    posts = op.op in _POSTS and op.channel is Channel.PORT
    return len(op.ids) == 1 and (posts or op.op in _ONLY_TELLS | _ONLY_WAITS)


def _overlap(one: Sequence[object], other: Sequence[object]) -> bool:
    return any(
        a.buffer is b.buffer and a.index < b.index + b.size and b.index < a.index + a.size
        for a in one
        if isinstance(a, LocalChunks)
        for b in other
        if isinstance(b, LocalChunks)
    )
