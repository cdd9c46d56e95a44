"""Where the threads of a block must meet, and where a block must be cut in two.

Threads run apart: an operation may begin in one thread while another still does the one before. A
``nop`` makes them meet. It is needed before anything that tells others that earlier work is done
(a signal, packets, a release), after anything that waits, and between two operations on one place.

Before::

    wait 0 | copy s[0] -> o[1] | put o[1] -> peer | signal 1

After::

    wait 0 | nop | copy s[0] -> o[1] | nop | put o[1] -> peer | nop | signal 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft.dsl.nouns.program import Buffer

from ..plan.model import Channel, Local, Op, Operation

MAX_OPS = 64
"""Operations of a thread block."""

NOP = Operation(Op.NOP)

_TELLS = frozenset(
    {
        Op.SIGNAL,
        Op.RELAXED_SIGNAL,
        Op.RELEASE,
        Op.PUT_SIGNAL,
        Op.PUT_SIGNAL_FLUSH,
        Op.PUT_PACKETS,
        Op.READ_PUT_PACKETS,
        Op.REDUCE_SEND_PACKETS,
        Op.REDUCE_COPY_SEND_PACKETS,
    }
)
_ONLY_TELLS = frozenset({Op.SIGNAL, Op.RELAXED_SIGNAL, Op.RELEASE})
_ONLY_WAITS = frozenset({Op.WAIT, Op.RELAXED_WAIT, Op.ACQUIRE})
_POSTS = frozenset({Op.PUT, Op.PUT_SIGNAL, Op.PUT_SIGNAL_FLUSH})
_LEARNS = _ONLY_WAITS | {
    Op.READ_PUT_PACKETS,
    Op.REDUCE_SEND_PACKETS,
    Op.REDUCE_COPY_SEND_PACKETS,
    Op.UNPACK,
    Op.REDUCE_PACKETS,
    Op.REDUCE_COPY_PACKETS,
}


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that stay together: semaphores to acquire first, and to release after."""

    ops: tuple[Operation, ...]
    acquires: tuple[int, ...] = ()
    releases: tuple[int, ...] = ()

    def operations(self) -> tuple[Operation, ...]:
        """With its semaphores, at most 16 in one operation."""
        return (
            *_semaphores(Op.ACQUIRE, self.acquires),
            *self.ops,
            *_semaphores(Op.RELEASE, self.releases),
        )


def _semaphores(op: Op, ids: Sequence[int]) -> Iterator[Operation]:
    return (Operation(op, ids=tuple(ids[k : k + 16])) for k in range(0, len(ids), 16))


def arrange(groups: Sequence[Group], semaphore: Callable[[], int]) -> list[tuple[Operation, ...]]:
    """Thread blocks of at most 64 operations, one after another through a semaphore each.

    ``semaphore`` makes a new one.
    """
    parts: list[tuple[Operation, ...]] = []
    current: list[Operation] = []
    for group in groups:
        longer = with_nops(current, group.operations())
        if len(longer) > MAX_OPS - 2 and current:
            link = semaphore()
            parts.append(tuple(with_nops(current, (Operation(Op.RELEASE, ids=(link,)),))))
            longer = with_nops([Operation(Op.ACQUIRE, ids=(link,))], group.operations())
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
            if earlier.op is Op.NOP:
                break
            apart.append(earlier)
        if any(_must_meet(earlier, op) for earlier in apart):
            made.append(NOP)
        made.append(op)
    return made


def _must_meet(earlier: Operation, later: Operation) -> bool:
    if _alone(earlier) and _alone(later):
        return False
    if earlier.op is later.op is Op.ACQUIRE:
        return True  # another thread must not take what an earlier acquire waits for
    if _tells(later) and earlier.op not in _ONLY_TELLS:
        return True
    if earlier.op in _LEARNS and later.op not in _ONLY_WAITS:
        return True
    return _overlap(earlier.dst, later.src + later.dst) or _overlap(earlier.src, later.dst)


def _alone(op: Operation) -> bool:
    """Whether thread 0 does it alone."""
    posts = op.op in _POSTS and op.channel is Channel.PORT
    return len(op.ids) == 1 and (posts or op.op in _ONLY_TELLS | _ONLY_WAITS)


def _tells(op: Operation) -> bool:
    return op.op in _TELLS or (op.op is Op.PUT and op.channel is Channel.PORT)


def _overlap(one: Sequence[object], other: Sequence[object]) -> bool:
    return any(
        a.buffer is b.buffer and a.index < b.index + b.size and b.index < a.index + a.size
        for a in one
        if isinstance(a, Local)
        for b in other
        if isinstance(b, Local)
    )


def scratch(index: int, size: int) -> Local:
    """Chunks of the block's own GPU's scratch."""
    return Local(Buffer.SCRATCH, index, size)
