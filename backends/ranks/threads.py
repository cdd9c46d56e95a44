"""Ranks that are threads of this process: nothing to install."""

from __future__ import annotations

import threading
import types

from ..formats.p2p.embedded.threads import Hub, Threads
from ..formats.p2p.execute import call_on, loaded
from .job import Done, Failure, RankJob, RankReport
from .rank import JobGroups, Loan, Member, attend, told


class ThreadMember(Member):
    """A thread of a hub."""

    def __init__(self, wire: Threads) -> None:
        self.wire, self.rank, self.ranks = wire, wire.rank, wire.ranks

    def call(self, program: types.ModuleType, function: str, loan: Loan, *, first: bool) -> None:
        """Run the file's own code on this transport."""
        call_on(self.wire, program, loan.send, loan.recv)

    def barrier(self) -> None:
        """Wait for all threads."""
        try:
            self.wire.barrier()
        except threading.BrokenBarrierError:
            text = f"rank {self.rank}: another rank did not come to the barrier"
            raise TimeoutError(text) from None


class _ThreadGroups(JobGroups):
    def __init__(self, rank: int, ranks: int, hubs: dict[int, Hub]) -> None:
        self.rank, self.ranks, self.hubs = rank, ranks, hubs

    def last(self, count: int) -> Member | None:
        number = self.rank - (self.ranks - count)
        return ThreadMember(Threads(self.hubs[count], number)) if number >= 0 else None


def run_threads(job: RankJob) -> dict[int, RankReport]:
    """Return the reports of all ranks of a job; of those that fail, the first only says why."""
    sizes = {piece.units.ranks for piece in job.pieces} | {job.ranks}
    hubs = {count: Hub(count, job.timeout) for count in sizes}
    programs = {number: loaded(piece.text) for number, piece in enumerate(job.pieces)}
    done: dict[int, tuple[Done | None, ...]] = {}
    reports: dict[int, RankReport] = {}

    def main(wire: Threads) -> None:
        try:
            done[wire.rank] = attend(
                job, _ThreadGroups(wire.rank, job.ranks, hubs), lambda _: None, programs
            )
        except Exception as error:
            if not any(hub.failed.is_set() for hub in hubs.values()):
                failure = Failure(type(error).__name__, told(error))
                reports[wire.rank] = RankReport(wire.rank, failure=failure)
            for hub in hubs.values():
                hub.failed.set()
                hub.meet.abort()

    hubs[job.ranks].run(main)
    return reports | {rank: RankReport(rank, one) for rank, one in done.items()}
