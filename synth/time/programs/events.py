"""The event loop: thread blocks that run their operations, messages that queue for links.

Times are integers (ticks). See :mod:`.simulate` for the rule. A message that
waits sits in the queue of *one* busy row of its route, as in :mod:`.serve`; so each turn
costs a few heap operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from heapq import heapify, heappop, heappush

from .costs import Costs
from .operations import Operations


class Activity(IntEnum):
    """What a thread block is doing, or waiting for."""

    MESSAGE = 0  #: waits for a message to arrive
    SLOT = 1  #: waits for a free slot of the FIFO it sends into
    BLOCK = 2  #: waits for another block of its rank
    LINK = 3  #: queues for the links of its message
    SENDING = 4
    LOCAL = 5  #: copies, reduces, overheads
    DONE = 6

    @property
    def words(self) -> str:
        """As a person says it."""
        return _WORDS[self]


_WORDS = (
    "wait for messages",
    "wait for slots",
    "wait for blocks",
    "queue for links",
    "send",
    "work locally",
    "are done",
)


# Conditions not met yet; extra time over; busy until an event comes; until another block is done.
_FRESH, _PAID, _BUSY, _ASLEEP = range(4)


class Machine:
    """The state of a run.

    Attributes:
        now: the clock. ``turn``, ``at``: the iteration and the operation each block is at.
        stage: how far it is with that operation.
        inbox, credit: per connection, messages that wait to be received, and free slots.
        spent: ticks of each activity per block, up to ``since``; ``doing`` what it does then.
        busy: ticks each row was held. ``finished``: when each block ended.
    """

    def __init__(
        self, operations: Operations, costs: Costs, order: list[int], *, slots: int, turns: int
    ) -> None:
        o, count = operations, operations.blocks
        self.operations, self.costs, self.order, self.turns = o, costs, order, turns
        self.first: list[int] = o.first.tolist()
        self.out, self.into = o.out.tolist(), o.into.tolist()
        self.sender, self.receiver = o.sender.tolist(), o.receiver.tolist()
        self.sends, self.receives = bytearray(o.sends), bytearray(o.receives)
        self.waits = o.waits
        self.now = 0
        self.turn, self.at, self.stage = [0] * count, self.first[:-1].copy(), bytearray(count)
        self.inbox = [0] * len(o.connections)
        self.credit = [slots] * len(o.connections)
        self.sleepers: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        self.taken = bytearray(costs.rows)
        self.queue: list[list[tuple[int, int, int]]] = [[] for _ in range(costs.rows)]
        self.busy = [0] * costs.rows
        self.ready: list[tuple[int, int, int]] = []
        self.times: list[int] = []
        # What happens at a time: a row is freed (row), the message of a block has left
        # (rows + block), its extra time is over (rows + blocks + block), a message has arrived
        # (rows + 2 blocks + connection).
        self.agenda: dict[int, list[int]] = {}
        self.left = count
        self.doing, self.since = [int(Activity.DONE)] * count, [0] * count
        self.spent = [[0] * count for _ in Activity]
        self.finished = [0] * count
        self.stack = list(range(count - 1, -1, -1))
        self._skip_idle()

    def _skip_idle(self) -> None:
        """Blocks that do nothing which takes time, or waits, are done at once."""
        o, c = self.operations, self.costs
        for block in range(o.blocks):
            code = range(self.first[block], self.first[block + 1])
            if not any(
                self.sends[i] or self.receives[i] or i in o.waits or c.extra[i] or c.last_extra[i]
                for i in code
            ):
                self.turn[block] = self.turns
                self.left -= 1

    def start(self) -> None:
        """Everything that can happen at time 0 happens."""
        self._settle(())

    def state(self) -> tuple[object, ...]:
        """What decides the future, but for the turns; times relative to now."""
        now = self.now
        agenda = [(t - now, tuple(sorted(e))) for t, e in self.agenda.items()]
        queued = [(b, now - self.since[b]) for b, a in enumerate(self.doing) if a == Activity.LINK]
        return (
            self.at.copy(),
            bytes(self.stage),
            self.inbox.copy(),
            self.credit.copy(),
            sorted(agenda),
            queued,
        )

    def spent_so_far(self) -> list[list[int]]:
        """``spent`` up to now."""
        spent = [row.copy() for row in self.spent]
        for block, activity in enumerate(self.doing):
            spent[activity][block] += self.now - self.since[block]
        return spent

    def shift(self, later: int, turn: list[int]) -> None:
        """Go to the same state at a later time, with the blocks in other turns."""
        self.now += later
        self.turn = turn
        self.times = [t + later for t in self.times]
        self.agenda = {t + later: events for t, events in self.agenda.items()}
        self.queue = [[(t + later, place, b) for t, place, b in row] for row in self.queue]
        self.since = [t + later for t in self.since]
        self.sleepers = [[] for _ in self.at]
        self.stack = [b for b, stage in enumerate(self.stage) if stage == _ASLEEP]
        for block in self.stack:  # they fall asleep again
            self.stage[block] = _FRESH
        self._settle(())

    def advance(self) -> bool:
        """All that happens at the next time; False if nothing ever will."""
        if not self.times:
            return False
        self.now = now = heappop(self.times)
        rows, blocks = self.costs.rows, len(self.at)
        freed = []
        for event in self.agenda.pop(now):
            if event < rows:
                self.taken[event] = 0
                freed.append(event)
            elif event < rows + blocks:
                self._complete(event - rows)
                self.stack.append(event - rows)
            elif event < rows + 2 * blocks:
                self.stage[event - rows - blocks] = _PAID
                self.stack.append(event - rows - blocks)
            else:
                connection = event - rows - 2 * blocks
                self.inbox[connection] += 1
                self._wake(self.receiver[connection])
        self._settle(freed)
        return True

    # -- blocks --

    def _settle(self, freed: Iterable[int]) -> None:
        """Run all blocks that can go on, then serve who waits for links, until nothing moves."""
        while self.stack or freed:
            while self.stack:
                self._run(self.stack.pop())
            if freed:
                self._serve_queues(freed)
                freed = ()
            if self.ready:
                ready, self.ready = sorted(self.ready), []
                for entry in ready:
                    self._try(entry)

    def _wake(self, block: int) -> None:
        if block >= 0 and self.stage[block] == _FRESH:
            self.stack.append(block)

    def _run(self, block: int) -> None:
        """Go on with a block until it has to wait."""
        stage = self.stage
        while self.turn[block] < self.turns and stage[block] < _BUSY:
            op = self.at[block]
            if stage[block] == _FRESH:
                blocked = self._blocked(block, op)
                if blocked is not None:
                    self._does(block, blocked)
                    return
                last = self.turn[block] == self.turns - 1
                extra = (self.costs.last_extra if last else self.costs.extra)[op]
                if extra:
                    stage[block] = _BUSY
                    self._does(block, Activity.LOCAL)
                    self._note(self.now + extra, self.costs.rows + len(self.at) + block)
                    return
            if self.sends[op]:
                stage[block] = _BUSY
                self._does(block, Activity.LINK)
                self.ready.append((self.now, self.order[op], block))
                return
            if self.receives[op]:
                self._take(block)
            self._complete(block)

    def _blocked(self, block: int, op: int) -> Activity | None:
        """What keeps an operation from starting."""
        for other, need in self.waits.get(op, ()):
            if not self.reached(other, self.turn[block], need):
                heappush(self.sleepers[other], (self.turn[block], need, block))
                self.stage[block] = _ASLEEP
                return Activity.BLOCK
        if self.receives[op] and not self.inbox[self.into[block]]:
            return Activity.MESSAGE
        if self.sends[op] and not self.credit[self.out[block]]:
            return Activity.SLOT
        return None

    def reached(self, block: int, turn: int, need: int) -> bool:
        """Whether a block has done so many operations of a turn."""
        mine = self.turn[block]
        return mine > turn or (mine == turn and self.at[block] - self.first[block] >= need)

    def _take(self, block: int) -> None:
        """Receive: the slot is free for the sender's next message."""
        connection = self.into[block]
        self.inbox[connection] -= 1
        self.credit[connection] += 1
        self._wake(self.sender[connection])

    def _complete(self, block: int) -> None:
        """The operation is done: go to the next, wake who waits for it."""
        self.stage[block] = _FRESH
        self.at[block] += 1
        if self.at[block] == self.first[block + 1]:
            self.at[block] = self.first[block]
            self.turn[block] += 1
            if self.turn[block] == self.turns:
                self._does(block, Activity.DONE)
                self.finished[block] = self.now
                self.left -= 1
        sleepers = self.sleepers[block]
        while sleepers and self.reached(block, sleepers[0][0], sleepers[0][1]):
            sleeper = heappop(sleepers)[2]
            self.stage[sleeper] = _FRESH
            self.stack.append(sleeper)

    def _does(self, block: int, activity: Activity) -> None:
        """Account for the time since the last change."""
        if (passed := self.now - self.since[block]) > 0:
            self.spent[self.doing[block]][block] += passed
        self.since[block], self.doing[block] = self.now, activity

    # -- rows --

    def _serve_queues(self, freed: Iterable[int]) -> None:
        """Those who waited for a freed row, all rows together in order of precedence."""
        heads = [(self.queue[row][0], row) for row in freed if self.queue[row]]
        heapify(heads)
        while heads:
            entry, row = heappop(heads)
            if self.taken[row]:
                continue
            waiting = self.queue[row]
            heappop(waiting)
            self._try(entry)
            if waiting and not self.taken[row]:
                heappush(heads, (waiting[0], row))

    def _try(self, entry: tuple[int, int, int]) -> None:
        """Start a message if all its rows are free, else let it wait for one that is not."""
        block = entry[2]
        op, costs = self.at[block], self.costs
        last = self.turn[block] == self.turns - 1
        leg = costs.legs[(costs.last_leg if last else costs.leg)[op]]
        for row in leg.rows:
            if self.taken[row]:
                heappush(self.queue[row], entry)
                return
        for row, hold in zip(leg.rows, leg.holds, strict=True):
            self.taken[row] = 1
            self.busy[row] += hold
            self._note(self.now + hold, row)
        out = self.out[block]
        self.credit[out] -= 1
        if self.receives[op]:
            self._take(block)
        self._does(block, Activity.SENDING)
        blocks = len(self.at)
        self._note(self.now + leg.leaves, costs.rows + block)
        self._note(self.now + leg.arrives, costs.rows + 2 * blocks + out)

    def _note(self, time: int, event: int) -> None:
        events = self.agenda.get(time)
        if events is None:
            self.agenda[time] = [event]
            heappush(self.times, time)
        else:
            events.append(event)
