"""The sets of nodes whose composite bounds are computed: near the tight cut, ranks and hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.topology import Topology


def sides(
    topology: Topology,
    ends: tuple[int, int],
    given: Sequence[int] | None,
    speakers: Ints,
    most: int,
) -> Iterator[Bools]:
    """Sets S such that something may have to leave S, as masks over the nodes.

    ``ends`` are the two farthest ranks, ``speakers`` one of each orbit, of which the first ``most``
    are used; ``given`` is the tight cut, if the bound is one.
    """
    seen: set[bytes] = set()
    for inside in _candidates(topology, ends, given, speakers[:most]):
        ranks = inside[: topology.ranks]
        if inside.tobytes() not in seen and ranks.any() and not ranks.all():
            seen.add(inside.tobytes())
            yield inside


def _candidates(
    topology: Topology, ends: tuple[int, int], given: Sequence[int] | None, speakers: Ints
) -> Iterator[Bools]:
    count = len(topology.nodes)
    if given is not None:
        yield _mask(count, given)
    host = np.array([-1 if x.host is None else x.host for x in topology.nodes])
    for rank in dict.fromkeys([*ends, *speakers.tolist()]):
        own = [_mask(count, [rank])]
        if host[rank] >= 0:
            own.append(host == host[rank])
        for inside in own:
            yield ~inside
            yield inside


def _mask(count: int, nodes: Sequence[int]) -> Bools:
    inside = np.zeros(count, bool)
    inside[list(nodes)] = True
    return inside
