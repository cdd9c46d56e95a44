"""The event loop of programs: thread blocks that run their operations, messages that queue.

A kernel over one memory (:mod:`.queue_kernel`). A **block** goes through its operations turn after
turn (a turn is an iteration of the runtime's loop) and is a client of the queues while it has to
send. A **connection** is a FIFO: messages that have arrived, and slots that are free. Blocks that
sleep until another one has done enough are a pairing heap as well, by what they wait for.

Events are about a resource (it is free), a block (its extra time is over, its message has left), or
a connection (a message has arrived).
"""

from __future__ import annotations

from weft.dsl.base.jit import Array, kernel

from .queue_kernel import (
    ARRIVES,
    CLIENT_COLUMNS,
    EVENT_COLUMNS,
    EVENTS,
    EVENTS_AT,
    HEADS,
    HEADS_AT,
    KEY,
    LEAVES,
    LEG,
    NOW,
    PLACE,
    QUEUE,
    QUEUE_COUNTS,
    TIME,
    add_head,
    meld,
    next_started,
    pop,
    push,
    without_first,
)

# Words after those of the queues. STACK: the address behind the last block on the stack of those to
# be looked at. LEFT: blocks that are not done. TURNS: of the loop. MOST_ADDED: events that one time
# may add. BLOCKS_AT, ENDS_AT, LEGS_AT, STACK_AT: where tables begin; rows come first, so that a
# record is a row, a block or a connection by its address. LIMIT: the tick after which a run is
# given up, -1: never.
STACK, LEFT, TURNS, MOST_ADDED = range(QUEUE_COUNTS, QUEUE_COUNTS + 4)
BLOCKS_AT, ENDS_AT, LEGS_AT, STACK_AT = range(QUEUE_COUNTS + 4, QUEUE_COUNTS + 8)
LIMIT = QUEUE_COUNTS + 8
COUNTS = QUEUE_COUNTS + 9

# Of connections. SENDER, RECEIVER: blocks at its ends, -1: none. INBOX: messages that have arrived
# and are not received; CREDIT: free slots. Both with the messages on their way are all slots.
SENDER, RECEIVER, INBOX, CREDIT = range(4)
END_COLUMNS = 4
# Of operations. SENDS, RECEIVES: 1 or 0. RANK: the order among those ready at one time, each once.
# WAIT_BEGIN, WAIT_END: its waits. FULL_LEG, LAST_LEG: the leg of its message in a full turn and in
# the last one, -1: it sends none. EXTRA, LAST_EXTRA: ticks before it sends or is done, likewise.
SENDS, RECEIVES, RANK, WAIT_BEGIN, WAIT_END, FULL_LEG, LAST_LEG, EXTRA, LAST_EXTRA = range(9)
OPERATION_COLUMNS = 9
OTHER, NEED = range(2)  # of waits: the block, and operations of a turn it must have done (times 9)
WAIT_COLUMNS = 2
# Of blocks, after the columns of a client (of one asleep KEY is the number of operations of all
# turns, times 9, that the other block must have done). FIRST, END: its operations. OUT, INTO: the
# connections it sends to and receives from, -1: none. TURN: from 0 to TURNS; AT: the operation.
FIRST, END, OUT, INTO, TURN, AT = range(CLIENT_COLUMNS, CLIENT_COLUMNS + 6)
# STAGE: how far it is with that. DOING: an activity, SINCE which tick. FINISHED: the tick at which
# it was done with all.
STAGE, SINCE, DOING, FINISHED = range(CLIENT_COLUMNS + 6, CLIENT_COLUMNS + 10)
# SLEEPERS: the first block that waits for this one, a pairing heap, -1: none. ON_STACK: 1 if it is
# to be looked at. SPENT: ticks of each activity, up to SINCE.
SLEEPERS, ON_STACK, SPENT = range(CLIENT_COLUMNS + 10, CLIENT_COLUMNS + 13)

# Stages of an operation: conditions not met yet; extra time over; busy until an event comes;
# until another block is done.
FRESH, PAID, BUSY_NOW, ASLEEP = range(4)
# Activities, as :class:`~.program_machine.Activity` has them.
MESSAGE, SLOT, WAITS, LINK, SENDING, LOCAL, DONE = range(7)
BLOCK_COLUMNS = SPENT + 7

NAMED = (
    ("blocks", FIRST, "operations"),
    ("blocks", END, "operations"),
    ("blocks", AT, "operations"),
    ("blocks", OUT, "ends"),
    ("blocks", INTO, "ends"),
    ("ends", SENDER, "blocks"),
    ("ends", RECEIVER, "blocks"),
    ("operations", WAIT_BEGIN, "waits"),
    ("operations", WAIT_END, "waits"),
    ("operations", FULL_LEG, "legs"),
    ("operations", LAST_LEG, "legs"),
    ("waits", OTHER, "blocks"),
)
"""Columns that name records of another table (:func:`.queue_kernel.placed`)."""

BEGINS = {
    BLOCKS_AT: "blocks",
    ENDS_AT: "ends",
    LEGS_AT: "legs",
    STACK_AT: "stack",
    HEADS_AT: "heads",
    EVENTS_AT: "events",
}
"""Words that say where a table begins; the first one is of rows, behind all such words."""

ENDED, STUCK, TURNED, FULL, LATE = range(5)
"""Why the loop came back: all is done; nothing will ever happen; the watched block is in another
turn; without room for more events; the next one is after the limit."""


@kernel
def advance(m: Array, watched: int, seen: int) -> int:
    """Process events until all is done or the watched block has left the turn ``seen``."""
    heap = m[EVENTS_AT]
    while m[LEFT] > 0:
        if m[EVENTS] == 0:
            return STUCK
        if heap + EVENT_COLUMNS * (m[EVENTS] + m[MOST_ADDED]) > len(m):
            return FULL
        now = m[heap + TIME]
        if 0 <= m[LIMIT] < now:
            return LATE
        m[NOW] = now
        while m[EVENTS] > 0 and m[heap + TIME] == now:
            what = pop(m)
            if what < m[BLOCKS_AT]:  # a resource is free that a client queues for
                add_head(m, m[what + QUEUE], what)
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


@kernel
def settle(m: Array) -> None:
    """Run all blocks that can go on, then the queues, until nothing changes at this time."""
    while m[STACK] > m[STACK_AT] or m[HEADS] > 0:
        while m[STACK] > m[STACK_AT]:
            m[STACK] -= 1
            block = m[m[STACK]]
            m[block + ON_STACK] = 0
            go_on(m, block)
        while m[HEADS] > 0:
            block = next_started(m)
            if block >= 0:
                send(m, block)


# --- blocks ---


@kernel
def put(m: Array, block: int) -> None:
    """Add a block to those that are examined next."""
    if m[block + ON_STACK] == 0:
        m[block + ON_STACK] = 1
        m[m[STACK]] = block
        m[STACK] += 1


@kernel
def wake(m: Array, block: int) -> None:
    """Examine a block again: something that it may wait for has happened."""
    if block >= 0 and m[block + STAGE] == FRESH:
        put(m, block)


@kernel
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
            last = m[block + TURN] == turns - 1
            m[block + LEG] = m[op + LAST_LEG] if last else m[op + FULL_LEG]
            m[block + KEY], m[block + PLACE] = m[NOW], m[op + RANK]
            add_head(m, block, -1)
            return
        if m[op + RECEIVES]:
            take(m, block)
        complete(m, block)


@kernel
def what_blocks(m: Array, block: int, op: int) -> int:
    """The activity that an operation must wait for before it starts; -1: none."""
    for need in range(m[op + WAIT_BEGIN], m[op + WAIT_END], 2):
        other = m[need + OTHER]
        length = m[other + END] - m[other + FIRST]
        goal = m[block + TURN] * length + m[need + NEED]
        if done_so_far(m, other) < goal:
            m[block + STAGE] = ASLEEP
            m[block + KEY], m[block + PLACE] = goal, 0
            first = m[other + SLEEPERS]
            m[other + SLEEPERS] = block if first < 0 else meld(m, first, block)
            return WAITS
    if m[op + RECEIVES] and m[m[block + INTO] + INBOX] == 0:
        return MESSAGE
    if m[op + SENDS] and m[m[block + OUT] + CREDIT] == 0:
        return SLOT
    return -1


@kernel
def done_so_far(m: Array, block: int) -> int:
    """The operations of all turns that a block has done, times their columns."""
    first, end = m[block + FIRST], m[block + END]
    so_far: int = m[block + TURN] * (end - first) + m[block + AT] - first
    return so_far


@kernel
def take(m: Array, block: int) -> None:
    """Receive: the slot is free for the sender's next message."""
    connection = m[block + INTO]
    m[connection + INBOX] -= 1
    m[connection + CREDIT] += 1
    wake(m, m[connection + SENDER])


@kernel
def complete(m: Array, block: int) -> None:
    """Finish an operation: go to the next one, and wake the blocks that wait for it."""
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
    while sleeper >= 0 and m[sleeper + KEY] <= done_so_far(m, block):
        m[block + SLEEPERS] = without_first(m, sleeper)
        m[sleeper + STAGE] = FRESH
        put(m, sleeper)
        sleeper = m[block + SLEEPERS]


@kernel
def does(m: Array, block: int, activity: int) -> None:
    """Change a block's activity; account for the time since the last change."""
    now = m[NOW]
    m[block + SPENT + m[block + DOING]] += now - m[block + SINCE]
    m[block + SINCE] = now
    m[block + DOING] = activity


@kernel
def send(m: Array, block: int) -> None:
    """A message starts: it takes a slot, leaves, and arrives."""
    op, leg, out = m[block + AT], m[block + LEG], m[block + OUT]
    m[out + CREDIT] -= 1
    if m[op + RECEIVES]:
        take(m, block)
    does(m, block, SENDING)
    push(m, m[NOW] + m[leg + LEAVES], block)
    push(m, m[NOW] + m[leg + ARRIVES], out)


# --- precedence ---


@kernel
def in_order(start: Array, after: Array, missing: Array, order: Array) -> int:
    """Operations in an order in which each comes after those it needs; how many there are."""
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


@kernel
def tails(
    order: Array,
    start: Array,
    after: Array,
    meets: Array,
    leaves: Array,
    arrives: Array,
    tail: Array,
) -> None:
    """Ticks from the start of each operation to the end of all that needs it, without queues.

    ``leaves``, ``arrives``: from the start of each to its end, and to where its message is.
    ``start``, ``after``: CSR of what comes after each; ``meets``: what receives its message.
    """
    for at in range(len(order) - 1, -1, -1):
        node = order[at]
        longest = leaves[node]
        for k in range(start[node], start[node + 1]):
            other = after[k]
            way = tail[other] + (arrives[node] if other == meets[node] else leaves[node])
            if way > longest:
                longest = way
        tail[node] = longest
