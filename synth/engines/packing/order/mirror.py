"""Orders of sums from runs of the reverse: what arrives last there starts first here.

Sums meet where copies part. List scheduling starts whatever is ready, and of sums that is the
wrong half: those that nobody waits for delay those that many wait for. Run backwards the sums are
copies, which list scheduling orders well; its run, mirrored, is a run of the sums. On 64 hosts of
MI250 the sums of trees at the bound took 17 % more than it in the best order of any rule, and 1 %
in this one. An allreduce is put together from such sums, then the copies.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.jit import fast
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of

from . import plan_kernel
from .order import TransferOrder, Urgency, as_started, rotation, slice_first
from .plan_kernel import FOREVER, SliceWork
from .plan_quotient import PlanQuotient

RUNS = (slice_first, rotation)
"""Rules of the runs that are mirrored: the quicker run is taken."""


@dataclass(frozen=True, eq=False)
class Mirrored:
    """Rule for messages of a size: sums as a mirrored run of copies, after them what is copied."""

    quotient: PlanQuotient
    message_bytes: int

    @property
    def runs(self) -> int:
        """Runs of all hops that the rule makes itself."""
        return len(RUNS)

    def __call__(self, u: Urgency) -> TransferOrder:
        """The order for so many slices."""
        reduce = self.quotient.plan.hops.reduce
        last = self.quotient.lasts(self.message_bytes, u.slices)
        starts = np.empty((u.slices, len(reduce)), np.int64)
        whole = 0
        if reduce.any():
            sums = np.flatnonzero(reduce)
            began, took = self._run(u, last, sums, turned=True)
            starts[:, sums] = took - began[::-1] - last[sums]
            whole += took
        if not reduce.all():
            copies = np.flatnonzero(~reduce)
            began, took = self._run(u, last, copies, turned=False)
            starts[:, copies] = whole + began
            whole += took
        return as_started("mirror", u, starts, whole)

    def _run(self, u: Urgency, last: Ints, which: Ints, *, turned: bool) -> tuple[Ints, int]:
        """Starts (slices, hops) and ticks of the quickest run of some hops.

        ``last``: ticks from start to arrival of each hop; ``turned``: backwards.
        """
        work = self._work(last, which, turned=turned)
        level = self.quotient.plan.hops.level[which]
        order = np.argsort(-level if turned else level, kind="stable")
        longest = np.zeros(len(work.arrivals), np.int64)
        tail = fast(plan_kernel).tails(order, work.source, work.target, work.lasts, longest)
        ranks = self.quotient.plan.packing.topology.ranks
        seen = replace(
            u,
            tail=tail,
            shift=-u.shift[which] % ranks if turned else u.shift[which],
            tree=u.tree[which],
            turn=u.turn[which],
            hold=u.hold[which],
        )
        best, least = np.zeros(0, np.int64), FOREVER
        for rule in RUNS:
            order_of = rule(seen)
            starts = np.zeros(len(which) * u.slices, np.int64)
            took = fast(plan_kernel).makespan(
                work,
                u.slices,
                order_of.priority,
                order_of.stride,
                least,
                starts,
                np.zeros(1, np.int64),
            )
            if took < least:
                best, least = starts, int(took)
        return best.reshape(u.slices, len(which)), least

    def _work(self, last: Ints, which: Ints, *, turned: bool) -> SliceWork:
        """Some hops alone; ``turned``: each from its target to its source."""
        q = self.quotient
        ends = (q.target, q.source) if turned else (q.source, q.target)
        places = np.concatenate([ends[0][which], ends[1][which]])
        known, number = np.unique(places, return_inverse=True)
        source, target = number[: len(which)], number[len(which) :]
        readers = np.argsort(source, kind="stable")
        first, held = rows_of(q.first_resource, which)
        return SliceWork(
            source,
            target,
            np.bincount(target, minlength=len(known)),
            np.searchsorted(source[readers], np.arange(len(known) + 1)),
            readers,
            first,
            q.resources[held],
            q.holds[held],
            q.leaves[which],
            last[which],
            q.resource_count,
        )
