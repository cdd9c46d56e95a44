"""The event loop of :mod:`.events`, compiled, on 64-bit ticks.

The same rule, the same order and the same result to the last tick. What differs is how little
happens per operation: a row has an event only if somebody queues for it, and a message queues for
that one of its rows which is free last. Who queues for a row, and who waits for a block, are
pairing heaps (Fredman, Sedgewick, Sleator, Tarjan 1986) linked through the records of blocks: a
block is in one of them at most.

Everything lies in one array *m*, the memory: what is counted, then records of rows, blocks,
connections and so on (:mod:`.memory` lays them out), named by where they begin, so that
``m[block + TURN]`` is the turn of a block. One array because numba counts the references of every
array that a function is given, which took most of the time. Loaded lazily by :mod:`.simulate`,
since numba takes its time to load.
"""

from __future__ import annotations

from typing import Any

from weft.dsl.base.jit import Array, compiled

# What is counted: the clock, events, heads, where the stack ends, blocks that are not done, turns,
# events that one time may add; then where stack, heads, events, blocks and connections begin.
NOW, EVENTS, HEADS, STACK, LEFT, TURNS, MOST_ADDED = range(7)
STACK_AT, HEADS_AT, EVENTS_AT, BLOCKS_AT, ENDS_AT = range(7, 12)
COUNTS = 12
FREE_AT, QUEUE, BUSY = range(3)  # of rows: when it is free, who waits first (-1), ticks held
SENDER, RECEIVER, INBOX, CREDIT = range(4)  # of connections
# Of operations. PLACE: in the order among those ready at one time; legs and extra ticks for a full
# turn, and for the last one.
SENDS, RECEIVES, PLACE, WAIT_BEGIN, WAIT_END, LEG, LAST_LEG, EXTRA, LAST_EXTRA = range(9)
OPERATION_COLUMNS = 9
OTHER, NEED = range(2)  # of waits: the block, and operations of a turn it must have done (times 9)
HOLD_BEGIN, HOLD_END, LEAVES, ARRIVES = range(4)  # of legs
ROW, TICKS = range(2)  # of holds
# Of blocks: the operations FIRST:END; what they are at, as in the machine of Python; GOAL: how many
# operations of all turns another block must have done, while this one is asleep; SLEEPERS: who
# waits for this block first; ON_STACK: whether it is to be looked at; SPENT: of each activity.
FIRST, END, OUT, INTO, TURN, AT, STAGE, SINCE, DOING, FINISHED = range(10)
GOAL, SLEEPERS, CHILD, SIBLING, ON_STACK, SPENT = range(10, 16)
BLOCK_COLUMNS = 23
TIME, WHAT = range(2)  # of events: a row, a block, or a connection
KEY, AMONG, BLOCK, FREED = range(4)  # of heads: since when, its place, whose, the row or -1

FRESH, PAID, BUSY_NOW, ASLEEP = range(4)
MESSAGE, SLOT, WAITS, LINK, SENDING, LOCAL, DONE = range(7)  # as Activity

ENDED, STUCK, TURNED, FULL = range(4)
"""Why the loop came back: all is done; nothing will ever happen; the watched block is in another
turn; there is no room for more events."""


@compiled
def advance(m: Array, watched: int, seen: int) -> int:
    """Time after time, until all is done or the watched block is not in the turn ``seen``."""
    heap = m[EVENTS_AT]
    while m[LEFT] > 0:
        if m[EVENTS] == 0:
            return STUCK
        if heap + 2 * (m[EVENTS] + m[MOST_ADDED]) > len(m):
            return FULL
        now = m[heap + TIME]
        m[NOW] = now
        while m[EVENTS] > 0 and m[heap + TIME] == now:
            what = pop(m)
            if what < m[BLOCKS_AT]:  # a row is free, and somebody queues for it
                look_at(m, m[what + QUEUE], what)
            elif what >= m[ENDS_AT]:  # a message has arrived
                m[what + INBOX] += 1
                wake(m, m[what + RECEIVER])
            elif m[what + DOING] == LOCAL:  # extra time is over
                m[what + STAGE] = PAID
                put(m, what)
            else:  # a message has left
                complete(m, what)
                put(m, what)
        settle(m)
        if watched >= 0 and m[watched + TURN] != seen:
            return TURNED
    return ENDED


@compiled
def settle(m: Array) -> None:
    """Run all blocks that can go on, then serve who waits for links, until nothing moves."""
    now = m[NOW]
    while m[STACK] > m[STACK_AT] or m[HEADS] > 0:
        while m[STACK] > m[STACK_AT]:
            m[STACK] -= 1
            block = m[m[STACK]]
            m[block + ON_STACK] = 0
            go_on(m, block)
        while m[HEADS] > 0:
            block, row = m[m[HEADS_AT] + BLOCK], m[m[HEADS_AT] + FREED]
            drop_head(m)
            if row >= 0:
                if m[row + FREE_AT] > now:
                    continue
                m[row + QUEUE] = without_first(m, block)
            attempt(m, block)
            if row >= 0 and m[row + QUEUE] >= 0 and m[row + FREE_AT] <= now:
                look_at(m, m[row + QUEUE], row)


# --- blocks ---


@compiled
def put(m: Array, block: int) -> None:
    """A block is to be looked at."""
    if m[block + ON_STACK] == 0:
        m[block + ON_STACK] = 1
        m[m[STACK]] = block
        m[STACK] += 1


@compiled
def wake(m: Array, block: int) -> None:
    """Something has come that a block may wait for."""
    if block >= 0 and m[block + STAGE] == FRESH:
        put(m, block)


@compiled
def go_on(m: Array, block: int) -> None:
    """Go on with a block until it has to wait."""
    turns = m[TURNS]
    while m[block + TURN] < turns and m[block + STAGE] < BUSY_NOW:
        op = m[block + AT]
        if m[block + STAGE] == FRESH:
            blocked = what_blocks(m, block, op)
            if blocked >= 0:
                does(m, block, blocked)
                return
            last = m[block + TURN] == turns - 1
            extra = m[op + LAST_EXTRA] if last else m[op + EXTRA]
            if extra > 0:
                m[block + STAGE] = BUSY_NOW
                does(m, block, LOCAL)
                push(m, m[NOW] + extra, block)
                return
        if m[op + SENDS]:
            m[block + STAGE] = BUSY_NOW
            does(m, block, LINK)
            look_at(m, block, -1)
            return
        if m[op + RECEIVES]:
            take(m, block)
        complete(m, block)


@compiled
def what_blocks(m: Array, block: int, op: int) -> int:
    """What keeps an operation from starting; -1: nothing."""
    for need in range(m[op + WAIT_BEGIN], m[op + WAIT_END], 2):
        other = m[need + OTHER]
        length = m[other + END] - m[other + FIRST]
        goal = m[block + TURN] * length + m[need + NEED]
        if done_so_far(m, other) < goal:
            m[block + STAGE] = ASLEEP
            m[block + GOAL] = goal
            first = m[other + SLEEPERS]
            m[other + SLEEPERS] = block if first < 0 else meld(m, first, block)
            return WAITS
    if m[op + RECEIVES] and m[m[block + INTO] + INBOX] == 0:
        return MESSAGE
    if m[op + SENDS] and m[m[block + OUT] + CREDIT] == 0:
        return SLOT
    return -1


@compiled
def done_so_far(m: Array, block: int) -> int:
    """The operations of all turns that a block has done, times their columns."""
    first, end = m[block + FIRST], m[block + END]
    so_far: int = m[block + TURN] * (end - first) + m[block + AT] - first
    return so_far


@compiled
def take(m: Array, block: int) -> None:
    """Receive: the slot is free for the sender's next message."""
    connection = m[block + INTO]
    m[connection + INBOX] -= 1
    m[connection + CREDIT] += 1
    wake(m, m[connection + SENDER])


@compiled
def complete(m: Array, block: int) -> None:
    """The operation is done: go to the next, wake who waits for it."""
    m[block + STAGE] = FRESH
    m[block + AT] += OPERATION_COLUMNS
    if m[block + AT] == m[block + END]:
        m[block + AT] = m[block + FIRST]
        m[block + TURN] += 1
        if m[block + TURN] == m[TURNS]:
            does(m, block, DONE)
            m[block + FINISHED] = m[NOW]
            m[LEFT] -= 1
    sleeper = m[block + SLEEPERS]
    while sleeper >= 0 and m[sleeper + GOAL] <= done_so_far(m, block):
        m[block + SLEEPERS] = without_first(m, sleeper)
        m[sleeper + STAGE] = FRESH
        put(m, sleeper)
        sleeper = m[block + SLEEPERS]


@compiled
def does(m: Array, block: int, activity: int) -> None:
    """Account for the time since the last change."""
    now = m[NOW]
    m[block + SPENT + m[block + DOING]] += now - m[block + SINCE]
    m[block + SINCE] = now
    m[block + DOING] = activity


# --- rows ---


@compiled
def attempt(m: Array, block: int) -> None:
    """Start a message if all its rows are free, else let it wait for the one that is free last."""
    now = m[NOW]
    op = m[block + AT]
    last = m[block + TURN] == m[TURNS] - 1
    leg = m[op + LAST_LEG] if last else m[op + LEG]
    begin, end = m[leg + HOLD_BEGIN], m[leg + HOLD_END]
    latest, taken = now, -1
    for hold in range(begin, end, 2):
        free = m[m[hold + ROW] + FREE_AT]
        if free > latest:
            latest, taken = free, m[hold + ROW]
    if taken >= 0:
        first = m[taken + QUEUE]
        if first < 0:
            push(m, latest, taken)
            m[taken + QUEUE] = block
        else:
            m[taken + QUEUE] = meld(m, first, block)
        return
    for hold in range(begin, end, 2):
        row = m[hold + ROW]
        m[row + BUSY] += m[hold + TICKS]
        m[row + FREE_AT] = now + m[hold + TICKS]
        if m[row + QUEUE] >= 0:
            push(m, m[row + FREE_AT], row)
    out = m[block + OUT]
    m[out + CREDIT] -= 1
    if m[op + RECEIVES]:
        take(m, block)
    does(m, block, SENDING)
    push(m, now + m[leg + LEAVES], block)
    push(m, now + m[leg + ARRIVES], out)


# --- heaps ---


@compiled
def push(m: Array, time: int, what: int) -> None:
    """An event into the binary heap."""
    heap, at = m[EVENTS_AT], 2 * m[EVENTS]
    m[EVENTS] += 1
    while at > 0:
        above = ((at >> 1) - 1) >> 1 << 1
        if m[heap + above + TIME] <= time:
            break
        m[heap + at + TIME], m[heap + at + WHAT] = m[heap + above + TIME], m[heap + above + WHAT]
        at = above
    m[heap + at + TIME], m[heap + at + WHAT] = time, what


@compiled
def pop(m: Array) -> Any:
    """What the earliest event is about; it is taken out."""
    heap, at, below = m[EVENTS_AT], 0, 2
    first = m[heap + WHAT]
    m[EVENTS] -= 1
    size = 2 * m[EVENTS]
    time, what = m[heap + size + TIME], m[heap + size + WHAT]
    while below < size:
        if below + 2 < size and m[heap + below + 2 + TIME] < m[heap + below + TIME]:
            below += 2
        if m[heap + below + TIME] >= time:
            break
        m[heap + at + TIME], m[heap + at + WHAT] = m[heap + below + TIME], m[heap + below + WHAT]
        at, below = below, 2 * below + 2
    m[heap + at + TIME], m[heap + at + WHAT] = time, what
    return first


@compiled
def look_at(m: Array, block: int, row: int) -> None:
    """Put a message among those that are tried now: for a freed row, or (-1) as it got ready."""
    heap, at = m[HEADS_AT], 4 * m[HEADS]
    m[HEADS] += 1
    key, among = m[block + SINCE], m[m[block + AT] + PLACE]
    while at > 0:
        above = ((at >> 2) - 1) >> 1 << 2
        if not later(m, heap + above, key, among):
            break
        move(m, heap + above, heap + at)
        at = above
    fill(m, heap + at, key, among, block, row)


@compiled
def drop_head(m: Array) -> None:
    """Without the first of those that are tried now."""
    heap, at, below = m[HEADS_AT], 0, 4
    m[HEADS] -= 1
    size = 4 * m[HEADS]
    last = heap + size
    key, among, block, row = m[last + KEY], m[last + AMONG], m[last + BLOCK], m[last + FREED]
    while below < size:
        one, other = heap + below, heap + below + 4
        if below + 4 < size and later(m, one, m[other + KEY], m[other + AMONG]):
            below, one = below + 4, other
        if later(m, one, key, among):
            break
        move(m, one, heap + at)
        at, below = below, 2 * below + 4
    fill(m, heap + at, key, among, block, row)


@compiled
def fill(m: Array, head: int, key: int, among: int, block: int, row: int) -> None:
    """Write a head."""
    m[head + KEY], m[head + AMONG], m[head + BLOCK], m[head + FREED] = key, among, block, row


@compiled
def move(m: Array, source: int, target: int) -> None:
    """Put a head at another place of the heap."""
    fill(m, target, m[source + KEY], m[source + AMONG], m[source + BLOCK], m[source + FREED])


@compiled
def later(m: Array, head: int, key: int, among: int) -> bool:
    """Whether a head comes after one with this key."""
    return bool(m[head + KEY] > key or (m[head + KEY] == key and m[head + AMONG] > among))


@compiled
def meld(m: Array, one: Any, other: Any) -> Any:
    """Two pairing heaps, made one: of sleepers by their goal, else of messages by precedence."""
    if m[one + STAGE] == ASLEEP:
        swap = m[other + GOAL] < m[one + GOAL]
    elif m[one + SINCE] == m[other + SINCE]:
        swap = m[m[other + AT] + PLACE] < m[m[one + AT] + PLACE]
    else:
        swap = m[other + SINCE] < m[one + SINCE]
    if swap:
        one, other = other, one
    m[other + SIBLING] = m[one + CHILD]
    m[one + CHILD] = other
    return one


@compiled
def without_first(m: Array, first: Any) -> Any:
    """A pairing heap without its first: the children melded in pairs, then from the last one."""
    one = m[first + CHILD]
    m[first + CHILD] = -1
    pairs = one * 0 - 1
    while one >= 0:
        other, following = m[one + SIBLING], one * 0 - 1
        m[one + SIBLING] = -1
        if other >= 0:
            following = m[other + SIBLING]
            m[other + SIBLING] = -1
            one = meld(m, one, other)
        m[one + SIBLING] = pairs
        pairs, one = one, following
    merged = pairs * 0 - 1
    while pairs >= 0:
        following = m[pairs + SIBLING]
        m[pairs + SIBLING] = -1
        merged = pairs if merged < 0 else meld(m, merged, pairs)
        pairs = following
    return merged


# --- precedence ---


@compiled
def in_order(start: Array, after: Array, missing: Array, order: Array) -> int:
    """Operations in an order in which each comes after what it needs; how many there are."""
    size = 0
    for node in range(len(missing)):
        if missing[node] == 0:
            order[size] = node
            size += 1
    at = 0
    while at < size:
        node = order[at]
        at += 1
        for k in range(start[node], start[node + 1]):
            other = after[k]
            missing[other] -= 1
            if missing[other] == 0:
                order[size] = other
                size += 1
    return size


@compiled
def tails(
    order: Array,
    start: Array,
    after: Array,
    meets: Array,
    operations: Array,
    legs: Array,
    tail: Array,
) -> None:
    """Ticks from the start of each operation to the end of all that needs it, without queues."""
    for at in range(len(order) - 1, -1, -1):
        node = order[at]
        leg = operations[node, LEG]
        leaves = arrives = operations[node, EXTRA]
        if leg >= 0:
            leaves += legs[leg, LEAVES]
            arrives += legs[leg, ARRIVES]
        longest = leaves
        for k in range(start[node], start[node + 1]):
            other = after[k]
            way = tail[other] + (arrives if other == meets[node] else leaves)
            longest = max(longest, way)
        tail[node] = longest
