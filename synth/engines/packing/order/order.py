"""Priority rules of list scheduling: one number per hop and one stride per slice.

Of the waiting transfers, the one of least ``priority + slice · stride`` is served first. With a
stride of 0 the hop alone decides; with one above all priorities the slice comes first; between
them lie deadlines: slice k of n is due at k/n of the total time, less the time of its successors.

Ties are broken by the *shift* (dst - src) mod ranks: where all tails are equal, as through a
switch, every rank then sends to its k-th successor at the same time, and no port gets two.

Orders of sums from runs of the reverse: what arrives last there starts first here.

Sums meet where copies part. List scheduling starts whatever is ready, and of sums that is the
wrong half: those without waiters delay those that many wait for. Run backwards the sums are
copies, which list scheduling orders well; its run, mirrored, is a run of the sums. On 64 hosts of
MI250 the sums of trees at the bound took 17 % more than it in the best order of any rule, and 1 %
in this one. An allreduce is put together from such sums, then the copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.jit import fast
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of

from . import plan_kernel
from .plan import PlanQuotient, tails, work_of
from .plan_kernel import FOREVER, SliceWork

_TICKS = 1 << 28  # of the longest tail: priorities are 32-bit numbers


@dataclass(frozen=True, eq=False)
class TransferOrder:
    """Order of transfers: one distinct priority per hop, and the stride of the slices."""

    rule: str
    priority: Ints
    stride: int


@dataclass(frozen=True, eq=False)
class Urgency:
    """Input of the priority rules, one number per hop.

    Attributes:
        tail: ticks from its start until all hops that depend on it have arrived.
        shift: (dst - src) mod ranks.
        tree: its template; ``turn``: its position in the template.
        copies: 1 for hops that copy, 0 for those that sum.
        hold: ticks that the hop itself takes.
        whole: ticks that the busiest resource takes for a whole message.
        slices: number of slices.
    """

    tail: Ints
    shift: Ints
    tree: Ints
    turn: Ints
    copies: Ints
    hold: Ints
    whole: int
    slices: int

    @staticmethod
    def of(quotient: PlanQuotient, message_bytes: int, segments: int) -> Urgency:
        """For messages of M bytes in ``segments`` slices."""
        hops = quotient.plan.hops
        first = np.searchsorted(hops.tree, hops.tree)
        return Urgency(
            quotient.tails(message_bytes, segments),
            (hops.dst - hops.src) % quotient.plan.packing.topology.ranks,
            hops.tree,
            np.arange(len(hops)) - first,
            (~hops.reduce).astype(np.int64),
            quotient.work.leaves,
            quotient.busiest * segments,
            segments,
        )


def _positions(*keys: Ints) -> Ints:
    position = np.empty(len(keys[0]), np.int64)
    position[np.lexsort(keys[::-1])] = np.arange(len(position))
    return position


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The hop of the least first key first, then of the second, …; a minus means the greatest.

    ``by_slice``: slice after slice; else slices in any order.
    """

    name: str
    keys: tuple[str, ...]
    by_slice: bool = True

    def __call__(self, u: Urgency) -> TransferOrder:
        """The order for ``u.slices`` slices."""
        keys = [-getattr(u, k[1:]) if k[0] == "-" else getattr(u, k) for k in self.keys]
        return TransferOrder(self.name, _positions(*keys), len(u.tail) if self.by_slice else 0)


critical_path = KeyRule("cp", ("-tail", "shift", "tree"), by_slice=False)
"""For small messages."""

slice_first = KeyRule("seg-cp", ("-tail", "shift", "tree"))
"""For large messages."""

rotation = KeyRule("seg-rot", ("shift", "-tail", "tree"))
"""All ranks send to their next, then to their second next, …."""

turns = KeyRule("turns", ("turn", "-tail", "shift", "tree"))
"""The trees alternate."""

longest_first = KeyRule("long", ("-hold", "-tail", "shift", "tree"))
"""Hops that occupy their resources longest come first."""


def as_listed(u: Urgency) -> TransferOrder:
    """All slices of the first, then of the second, …: for rounds, listed one after the other."""
    return TransferOrder("listed", np.arange(len(u.tail)), 0)


def sums_first(u: Urgency) -> TransferOrder:
    """The sums of all slices, slice by slice, then the copies of all slices."""
    place, stride = _positions(u.copies, -u.tail, u.shift, u.tree), len(u.tail)
    return TransferOrder("sums", place + u.copies * stride * u.slices, stride)


def deadlines(u: Urgency) -> TransferOrder:
    """The earliest deadline first, if slices end evenly over the time of the busiest resource."""
    return _due(u, "edf", u.whole)


def tail_deadlines(u: Urgency) -> TransferOrder:
    """The earliest deadline first, if slices end evenly over the longest tail."""
    return _due(u, "cp-seg", int(u.tail.max(initial=1)))


def _due(u: Urgency, rule: str, period: int) -> TransferOrder:
    longest = int(u.tail.max(initial=1))
    due = _TICKS - (u.tail.astype(np.float64) * (_TICKS / longest)).astype(np.int64)
    stride = max(1, period * _TICKS // longest // u.slices)
    return TransferOrder(rule, _distinct(due, u), stride)


def as_started(rule: str, u: Urgency, starts: Ints, whole: int) -> TransferOrder:
    """The earliest first, of known starts of each hop and slice (ticks, shape (slices, hops)) in a
    run of ``whole`` ticks; slices follow each other as they do on the average."""
    unit = _TICKS / max(1, whole)
    stride = float((starts[-1] - starts[0]).mean()) * unit / max(1, u.slices - 1)
    first = (starts * unit).mean(axis=0) - stride * (u.slices - 1) / 2
    due = np.rint(np.maximum(first, 0)).astype(np.int64)
    return TransferOrder(rule, _distinct(due, u), max(1, round(stride)))


def _distinct(due: Ints, u: Urgency) -> Ints:
    """Priorities by these numbers; distinct, so that the images of one hop stay together."""
    order = np.lexsort((u.tree, u.shift, due))
    place = np.arange(len(order))
    priority = np.empty(len(order), np.int64)
    priority[order] = np.maximum.accumulate(due[order] - place) + place
    return priority


Rule = Callable[[Urgency], TransferOrder]

FIRST: tuple[Rule, ...] = (critical_path, slice_first)
"""Basic rules: for any size one of them is good."""

OTHERS: tuple[Rule, ...] = (rotation, deadlines, tail_deadlines, turns, longest_first)
"""Further rules, tried around the best result of the basic ones."""


def shaken(rule: Rule, u: Urgency, rng: np.random.Generator, noise: float) -> TransferOrder:
    """Return a rule with tails perturbed by random factors of about 1 + noise."""
    wrong = u.tail * np.exp(noise * rng.standard_normal(len(u.tail)))
    tail = np.rint(wrong).astype(np.int64)
    return rule(replace(u, tail=tail))


RUNS = (slice_first, rotation)
"""Rules of the runs that are mirrored: the quicker run is taken."""


@dataclass(frozen=True, eq=False)
class Mirrored:
    """Rule for messages of a size: sums as a mirrored run of copies, then the copies."""

    quotient: PlanQuotient
    message_bytes: int

    @property
    def runs(self) -> int:
        """Runs of all hops that the rule makes itself."""
        return len(RUNS)

    def __call__(self, u: Urgency) -> TransferOrder:
        """The order for ``u.slices`` slices."""
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
        ranks = self.quotient.plan.packing.topology.ranks
        seen = replace(
            u,
            tail=tails(work, order),
            shift=-u.shift[which] % ranks if turned else u.shift[which],
            tree=u.tree[which],
            turn=u.turn[which],
            copies=u.copies[which],
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
        w = self.quotient.work
        ends = (w.target, w.source) if turned else (w.source, w.target)
        first, at = rows_of(w.first_resource, which)
        held = first, w.resources[at], w.holds[at], w.leaves[which], last[which], w.resource_count
        return work_of(ends[0][which], ends[1][which], held)
