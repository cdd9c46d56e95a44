"""Sketch rules about paths and peers as arrays of the search: limits on paths, fixed sends.

* *max hops*, *max steps*: a limit on the way to every rank. Steps are counted along
  dependences, so a chunk arrives in the step of its last hop.
* *max detour*: a limit for each rank that the chunk reaches, in hops or in α.
* *peers over a switch*: chosen before chunks are placed, since they concern all of them. Each GPU
  sends to the GPUs at fixed distances, modulo their number: so each receives from as many as it
  sends to, and rotations preserve the choice. The distances reach all GPUs in the fewest hops, and
  then with the least sum of path lengths; where there are too many choices to try, they are
  1, b, b², …, with which n GPUs are about L · n^(1/L) hops apart for L peers.
* *fixed sends*: a chunk that must go from u to v comes to v by no other hop, and v has to get it;
  one that must not has one hop less.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.shortest import distances
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.sketch import (
    FixedSend,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    Rule,
    Sketch,
    SwitchPolicy,
)
from weft.dsl.nouns.topology import Topology

from ...fabric.allowed import chunks_meant, hop_lengths, passing
from ...fabric.hop_table import HopTable
from ...judge.paths import longest_paths

UNLIMITED = 1 << 30


def refusal_of(rule: Rule, problem: Problem) -> str | None:
    """Return the reason why the search cannot obey a rule about single chunks; None if it can."""
    sums = problem.collective.combining
    if isinstance(rule, MaxHops) and sums and rule.count < 2:
        return "a sum that goes to one rank and back takes two hops"
    if isinstance(rule, MaxDetour) and sums:
        return "all parts of a sum go by its root, which is a detour for most"
    if isinstance(rule, FixedSend) and sums and (rule.must or rule.step is not None):
        return "what must be sent of a sum may be on its way up or down"
    if isinstance(rule, FixedSend) and rule.step is not None:
        first = rule.pair[0] == rule.owner and (rule.step == 1 or not rule.must)
        return None if first else "it plans times; only what leaves its owner has a step, the first"
    return None


# --- how far --------------------------------------------------------------------------------------


def limits_of(
    topology: Topology, sketch: Sketch, machine: HopTable, holds: Bools
) -> tuple[Ints, Ints]:
    """The length of hops (measures, hops), and of the longest ways (measures, jobs, ranks)."""
    tables: dict[Measure, list[Ints]] = {measure: [] for measure in Measure}
    for rule in sketch.rules:
        if isinstance(rule, MaxHops | MaxSteps):
            most = np.full((topology.ranks, topology.ranks), rule.count, np.int64)
            tables[Measure.HOPS].append(most)
        if isinstance(rule, MaxDetour):
            tables[rule.measure].append(longest_paths(topology, rule))
    limited = {m: np.minimum.reduce(found) for m, found in tables.items() if found}
    if not limited:
        return np.zeros((0, machine.hops), np.int64), np.zeros((0, *holds.shape), np.int64)
    routes = [hop.route for hop in machine.each_hop()]
    lengths = [hop_lengths(topology, routes, measure) for measure in limited]
    # Of equal copies that start on several ranks the nearest one counts.
    nearest = [[table[row].min(axis=0) for row in holds] for table in limited.values()]
    return np.array(lengths, np.int64), np.array(nearest, np.int64).reshape(-1, *holds.shape)


def hops_down(machine: HopTable, allowed: Bools, root: Ints) -> Ints:
    """Hops from the root of each sum to the farthest rank, over the hops that it may take."""
    found = np.zeros(len(root), np.int64)
    for j, (open_hops, start) in enumerate(zip(allowed, root.tolist(), strict=True)):
        src, dst = machine.src[open_hops], machine.dst[open_hops]
        ones = np.ones(len(src), np.int64)
        far = distances(machine.ranks, src, dst, ones, np.array([start])).max()
        found[j] = int(far) if np.isfinite(far) else UNLIMITED
    return found


# --- fixed sends ----------------------------------------------------------------------------------


def fixed_sends(
    collective: Collective, sketch: Sketch, holds: Bools, wants: Bools, machine: HopTable
) -> tuple[Bools, Bools] | None:
    """Which hops are open for each chunk, and by which ranks it must come; None: no such rules.

    Raises:
        UserError: no chunk is meant, or it is there at the start.
    """
    rules = [r for r in sketch.rules if isinstance(r, FixedSend)]
    if not rules:
        return None
    open_for = np.ones((collective.chunks, machine.hops), bool)
    through = np.zeros((collective.chunks, collective.ranks), bool)
    for rule in rules:
        u, v = rule.pair
        sums, pieces = collective.combining, collective.factor
        meant = chunks_meant(rule, holds, wants, pieces, combining=sums)
        this = (machine.src == u) & (machine.dst == v)
        if rule.must:
            if not meant.any() or holds[meant, v].any():
                what = "is there already" if meant.any() else "does not exist"
                raise UserError(
                    f"{rule.label!r} asks for a send of what {what}",
                    where=str(rule.span or rule.label),
                )
            through[meant, v] = True
            open_for[np.ix_(meant, (machine.dst == v) & ~this)] = False
        elif rule.step in (None, 1):
            open_for[np.ix_(meant, this)] = False
    return open_for, through


# --- peers ---------------------------------------------------------------------------------------


def beyond_peers(
    topology: Topology, sketch: Sketch, machine: HopTable, moved: Ints, most_sets: int
) -> Bools:
    """The hops that no chunk may take, since they lead to others than the chosen peers.

    Up to ``most_sets`` sets of distances are compared.

    Raises:
        UserError: the symmetry of the sketch does not keep the choice.
    """
    barred = np.zeros(machine.hops, bool)
    for rule in sketch.rules:
        if isinstance(rule, SwitchPolicy) and rule.limit is not None:
            through = passing(topology, [hop.route for hop in machine.each_hop()], rule.switch)
            barred |= through & ~_chosen(machine, through, rule.limit, most_sets)
            if (barred[moved] != barred).any():
                raise UserError(
                    f"the peers that {rule.label!r} leaves are not mapped to each other by the "
                    "symmetry of the sketch",
                    where=str(rule.span or rule.label),
                    hint="rotations in the order of the ranks keep them; or another engine: exact",
                )
    return barred


def _chosen(machine: HopTable, through: Bools, limit: int, most_sets: int) -> Bools:
    members = distinct_values(np.concatenate([machine.src[through], machine.dst[through]]))
    place = np.searchsorted(members, np.arange(machine.ranks))
    ahead = (place[machine.dst] - place[machine.src]) % max(1, len(members))
    found: Bools = np.isin(ahead, _distances(len(members), limit, most_sets))
    return found


@lru_cache(maxsize=64)
def _distances(count: int, limit: int, most_sets: int) -> tuple[int, ...]:
    """Return the distances (modulo ``count``) from each of ``count`` GPUs to its peers."""
    if limit >= count - 1:
        return tuple(range(1, count))
    if math.comb(count - 1, limit) <= most_sets:
        return min(combinations(range(1, count), limit), key=lambda d: _hop_sums(count, d))
    found = [1]
    for power in range(1, limit):
        found.append(max(found[-1] + 1, round(count ** (power / limit))))
    return tuple(found)


def _hop_sums(count: int, distances: tuple[int, ...]) -> tuple[int, int]:
    """The hops to the farthest GPU and to all of them in sum; sets of GPUs are bits."""
    everyone = (1 << count) - 1
    reached, hops, total = 1, 0, 0
    while reached != everyone:
        wider = reached
        for d in distances:
            wider |= (reached << d | reached >> (count - d)) & everyone
        if wider == reached:
            return count, count * count
        hops, total = hops + 1, total + (everyone ^ reached).bit_count()
        reached = wider
    return hops, total
