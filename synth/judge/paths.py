"""The paths that data takes in a schedule: how long they are, and through which phases they lead.

Everything here follows contributions from where they start: transfers of one step read what held
before it, and what brings nothing new (``redundant``) changes nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.hops import hop_distances, latency_distances, latency_units
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import MaxDetour, Measure, Phase
from weft.dsl.nouns.topology import Topology

from ..fabric.occupancy import step_runs, transfer_of_link

UNREACHED = np.int64(1 << 60)


def hops_travelled(s: Schedule, redundant: Bools) -> Ints:
    """For each transfer: the most transfers that any of its data has taken, itself too.

    A sum has travelled as far as its farthest part.
    """
    ranks = s.topology.ranks
    depth = np.full(s.collective.chunks * ranks, -1, np.int64)
    depth[s.collective.pre.chunks.astype(np.int64) * ranks + s.collective.pre.ranks] = 0
    place = s.chunk.astype(np.int64) * ranks
    source, target = place + s.src, place + s.dst
    travelled = np.zeros(len(s), np.int64)
    for begin, end in step_runs(s):
        arrives = depth[source[begin:end]] + 1
        travelled[begin:end] = arrives
        _settle(depth, target[begin:end], arrives, s.reduce[begin:end], redundant[begin:end])
    return travelled


def _settle(held: Ints, at: Ints, arrives: Ints, adds: Bools, redundant: Bools) -> None:
    """Apply the arrivals of one step: a copy replaces the value, a sum keeps the larger one."""
    stores = ~adds & ~redundant
    held[at[stores]] = arrives[stores]
    np.maximum.at(held, at[adds], arrives[adds])


# --- phases ---------------------------------------------------------------------------------------


def out_of_phase(s: Schedule, phases: tuple[Phase, ...], redundant: Bools) -> Bools:
    """Transfers that no phase allows after those that brought their data.

    Each gets the first phase, not before that of its data, whose groups join its ranks and whose
    collective does such a thing: allgather and alltoall never sum, and reduce_scatter, where the
    data is summed on its way, does nothing else.
    """
    fits = np.stack([_fits(s, phase) for phase in phases])
    # first[k, i]: the first phase from k on that allows transfer i.
    first = np.full((len(phases) + 1, len(s)), len(phases), np.int64)
    for k in reversed(range(len(phases))):
        first[k] = np.where(fits[k], k, first[k + 1])
    ranks = s.topology.ranks
    reached = np.zeros(s.collective.chunks * ranks, np.int64)
    place = s.chunk.astype(np.int64) * ranks
    source, target = place + s.src, place + s.dst
    bad = np.zeros(len(s), bool)
    for begin, end in step_runs(s):
        now = first[reached[source[begin:end]], np.arange(begin, end)]
        bad[begin:end] = now == len(phases)
        # An error is reported once: its data goes on as if from the last phase.
        now = np.minimum(now, len(phases) - 1)
        _settle(reached, target[begin:end], now, s.reduce[begin:end], redundant[begin:end])
    return bad


def _fits(s: Schedule, phase: Phase) -> Bools:
    group = np.empty(s.topology.ranks, np.int64)
    for number, members in enumerate(phase.groups):
        group[list(members)] = number
    inside: Bools = group[s.src] == group[s.dst]
    if phase.kind in (Kind.ALLGATHER, Kind.ALLTOALL):
        return inside & ~s.reduce
    summed_on_the_way = s.collective.combining and not s.collective.local_reduce
    return inside & s.reduce if phase.kind is Kind.REDUCE_SCATTER and summed_on_the_way else inside


# --- detours --------------------------------------------------------------------------------------


def detours(s: Schedule, rule: MaxDetour, redundant: Bools) -> Bools:
    """Transfers that bring a contribution by a path longer than the rule allows."""
    lengths, most = _lengths(s, rule.measure), longest_paths(s.topology, rule)
    bad = np.zeros(len(s), bool)
    by_chunk = np.argsort(s.chunk, kind="stable")
    edges = np.searchsorted(s.chunk[by_chunk], np.arange(s.collective.chunks + 1))
    pre = s.collective.pre
    placed = np.argsort(pre.chunks, kind="stable")
    starts = np.searchsorted(pre.chunks[placed], np.arange(s.collective.chunks + 1))
    owners = pre.ranks[placed].astype(np.int64)
    for chunk in range(s.collective.chunks):
        rows = by_chunk[edges[chunk] : edges[chunk + 1]]
        if len(rows):
            own = owners[starts[chunk] : starts[chunk + 1]]
            _follow(s, rows, own, lengths, most, redundant, bad)
    return bad


def _follow(
    s: Schedule, rows: Ints, owners: Ints, lengths: Ints, most: Ints, redundant: Bools, bad: Bools
) -> None:
    """One chunk: ``away[rank]`` is how far the rank's data came from each of its owners.

    Copies of the same data may start on several ranks; then the nearest is what counts.
    """
    away = np.full((s.topology.ranks, len(owners)), UNREACHED)
    away[owners, np.arange(len(owners))] = 0
    limit = most[owners].T  # (ranks, owners)
    if not s.collective.combining:
        limit = np.broadcast_to(limit.min(axis=1, keepdims=True), limit.shape)
    for run in np.split(rows, np.flatnonzero(np.diff(s.step[rows])) + 1):
        arrives = np.minimum(away[s.src[run]] + lengths[run, None], UNREACHED)
        late = (arrives < UNREACHED) & (arrives > limit[s.dst[run]])
        bad[run] |= late.any(axis=1) & ~redundant[run]
        for i, row in zip(run.tolist(), arrives, strict=True):
            if s.reduce[i]:
                away[s.dst[i]] = np.where(row < UNREACHED, row, away[s.dst[i]])
            elif not redundant[i]:
                away[s.dst[i]] = row


def _lengths(s: Schedule, measure: Measure) -> Ints:
    """The length of each transfer: one hop, or its α in units of the machine."""
    if measure is Measure.HOPS:
        return np.ones(len(s), np.int64)
    alpha, _ = latency_units(s.topology)
    lengths = np.zeros(len(s), np.int64)
    np.add.at(lengths, transfer_of_link(s), alpha[s.route_links])
    return lengths


def longest_paths(topology: Topology, rule: MaxDetour) -> Ints:
    """The longest path that a rule allows from rank to rank, in hops or units of latency."""
    scale = 1
    if rule.measure is Measure.HOPS:
        shortest = hop_distances(topology).astype(np.int64)
    else:
        shortest, (_, scale) = latency_distances(topology), latency_units(topology)
    kinds, which = np.unique(shortest, return_inverse=True)
    most = [
        UNREACHED if d < 0 else math.floor(rule.longest(Fraction(int(d), scale)) * scale)
        for d in kinds
    ]
    allowed: Ints = np.array(most, np.int64)[which].reshape(shortest.shape)
    return allowed
