"""The event loop of the simulator: jobs that wait for data, then for everything they occupy.

Times are integers (ticks), so equal times are equal. See :mod:`.simulate` for the rule.
A waiting job sits in the queue of *one* busy row of its leg; it is looked at again when that row is
freed, which is when it could start at the earliest. So each turn costs a few heap operations,
and not a look at everybody who waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a route that is passed at once: ticks each row is held, until the message has left
    (the longest of them), and until it has arrived."""

    rows: tuple[int, ...]
    holds: tuple[int, ...]
    leaves: int
    arrives: int


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs in order of precedence, and the places they read and write.

    Attributes:
        route: for each job, which list of legs it passes.
        stride: job j + stride is the next slice of job j: it waits until that has left.
        source, target: the places a job reads and writes.
        needs: how many of the arrivals of its source, in their order, a job waits for.
        slot: the number of a job among all arrivals, sorted by place; -1 if nobody waits for it.
        first_slot: the first slot of each place, and the number of slots.
        planned: for each job its number in the planned order; None: first come, first served.
    """

    route: list[int]
    stride: int
    source: list[int]
    target: list[int]
    needs: list[int]
    slot: list[int]
    first_slot: list[int]
    planned: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """Ticks: start and arrival of each job, and how long each row was held in all."""

    start: list[int]
    end: list[int]
    busy: list[int]


def serve(jobs: Jobs, legs: list[tuple[Leg, ...]], rows: int) -> Served:
    """Run all jobs to the end."""
    return _Server(jobs, legs, rows).run()


class _Server:
    """The state of one run: the clock's agenda, what is free, who waits for what."""

    def __init__(self, jobs: Jobs, legs: list[tuple[Leg, ...]], rows: int) -> None:
        count = len(jobs.route)
        self.jobs, self.count, self.rows = jobs, count, rows
        self.legs = [legs[r] for r in jobs.route]
        self.leg = [0] * count
        self.start, self.end, self.busy = [0] * count, [0] * count, [0] * rows
        self.taken = bytearray(rows)
        self.queue: list[list[int]] = [[] for _ in range(rows)]
        self.times: list[int] = []
        # What happens at a time: a row is freed (row), a leg's message has left (rows + job) or has
        # arrived (rows + count + job).
        self.agenda: dict[int, list[int]] = {}
        self.known = jobs.first_slot[:-1].copy()  # per place: its first slot not yet arrived
        self.arrived = bytearray(jobs.first_slot[-1])
        # Readers of each place by how much they need; the next one to wake is the last.
        self.readers: list[list[int]] = [[] for _ in self.known]
        for job in sorted(range(count), key=jobs.needs.__getitem__, reverse=True):
            self.readers[jobs.source[job]].append(job)
        self.missing = bytearray(2 if job >= jobs.stride else 1 for job in range(count))

    def run(self) -> Served:
        ready: list[int] = []
        for place in range(len(self.known)):
            self._wake(place, ready)
        self._serve(0, [], ready)
        while self.times:
            now = heappop(self.times)
            self._advance(now)
        return Served(self.start, self.end, self.busy)

    def _advance(self, now: int) -> None:
        """All that happens at one time, then all that can start because of it."""
        freed: list[int] = []
        ready: list[int] = []
        for event in self.agenda.pop(now):
            if event < self.rows:
                self.taken[event] = 0
                freed.append(event)
            elif event < self.rows + self.count:
                self._left(event - self.rows, ready)
            else:
                self._arrive(event - self.rows - self.count, now, ready)
        self._serve(now, freed, ready)

    # -- data --

    def _left(self, job: int, ready: list[int]) -> None:
        """The first leg of a job has left: the next slice may follow."""
        following = job + self.jobs.stride
        if following < self.count:
            self._token(following, ready)

    def _arrive(self, job: int, now: int, ready: list[int]) -> None:
        self.leg[job] += 1
        if self.leg[job] < len(self.legs[job]):
            ready.append(job)
            return
        self.end[job] = now
        slot, place = self.jobs.slot[job], self.jobs.target[job]
        if slot < 0:
            return
        self.arrived[slot] = 1
        if slot == self.known[place]:
            stop = self.jobs.first_slot[place + 1]
            while slot < stop and self.arrived[slot]:
                slot += 1
            self.known[place] = slot
            self._wake(place, ready)

    def _wake(self, place: int, ready: list[int]) -> None:
        """Tell the readers of a place whose data is there now."""
        there = self.known[place] - self.jobs.first_slot[place]
        readers = self.readers[place]
        while readers and self.jobs.needs[readers[-1]] <= there:
            self._token(readers.pop(), ready)

    def _token(self, job: int, ready: list[int]) -> None:
        self.missing[job] -= 1
        if not self.missing[job]:
            ready.append(job)

    # -- rows --

    def _key(self, job: int, now: int) -> int:
        """The precedence of a job that gets ready now, which tells the job too."""
        planned = self.jobs.planned
        return (now if planned is None else planned[job]) * self.count + job

    def _serve(self, now: int, freed: list[int], ready: list[int]) -> None:
        """Who got ready and who waited for a freed row, all together in order of precedence."""
        heads = [(self.queue[row][0], row) for row in freed if self.queue[row]]
        heads += [(self._key(job, now), -1) for job in ready]
        heapify(heads)
        while heads:
            key, row = heappop(heads)
            if row < 0:
                self._try(key, key % self.count, now)
                continue
            if self.taken[row]:
                continue
            waiting = self.queue[row]
            heappop(waiting)
            self._try(key, key % self.count, now)
            if waiting and not self.taken[row]:
                heappush(heads, (waiting[0], row))

    def _try(self, key: int, job: int, now: int) -> None:
        """Start a job if all its rows are free, else let it wait for one that is not."""
        leg = self.legs[job][self.leg[job]]
        for row in leg.rows:
            if self.taken[row]:
                heappush(self.queue[row], key)
                return
        for row, hold in zip(leg.rows, leg.holds, strict=True):
            self.taken[row] = 1
            self.busy[row] += hold
            self._note(now + hold, row)
        if not self.leg[job]:
            self.start[job] = now
            if job + self.jobs.stride < self.count:
                self._note(now + leg.leaves, self.rows + job)
        self._note(now + leg.arrives, self.rows + self.count + job)

    def _note(self, time: int, event: int) -> None:
        events = self.agenda.get(time)
        if events is None:
            self.agenda[time] = [event]
            heappush(self.times, time)
        else:
            events.append(event)
