"""Limit on peers over a switch: chosen before chunks are placed, since it concerns all of them.

Each GPU sends to the GPUs at fixed distances, modulo their number: so each receives from as many as
it sends to, and rotations preserve the choice. The distances reach all GPUs in the fewest hops, and
then with the least sum of path lengths; where there are too many choices to try, they are
1, b, b², …, with which n GPUs are about L · n^(1/L) hops apart for L peers.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.sketch import Sketch, SwitchPolicy
from weft.dsl.nouns.topology import Topology

from ...fabric.hop_table import HopTable


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
            through = _through(topology, machine, rule.switch)
            barred |= through & ~_chosen(machine, through, rule.limit, most_sets)
            if (barred[moved] != barred).any():
                raise UserError(
                    f"the peers that {rule.label!r} leaves are not mapped to each other by the "
                    "symmetry of the sketch",
                    where=str(rule.span or rule.label),
                    hint="rotations in the order of the ranks keep them; or another engine: exact",
                )
    return barred


def _through(topology: Topology, machine: HopTable, switch: int) -> Bools:
    """The hops that pass a switch."""
    enters = np.array([x.dst == switch for x in topology.links], bool)[machine.links]
    before = np.concatenate([[0], np.cumsum(enters)])
    found: Bools = before[machine.route[1:]] > before[machine.route[:-1]]
    return found


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
