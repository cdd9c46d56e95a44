"""Cut bound of a host under the rules of a sketch, for any sizes of chunks.

Every byte of a chunk that starts outside a host and is wanted inside enters over a hop that the
sketch allows to this chunk. Each such hop occupies all resources of its route for all its bytes;
the narrowest one is used here. So those resources together carry all these bytes, and the last
byte arrives no sooner than the hop's α after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import route_latency
from weft.dsl.nouns.topology import Hop, Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of


def ruled_cut(
    topology: Topology,
    collective: Collective,
    hops: tuple[Hop, ...],
    usable: Bools,
    message_bytes: int,
) -> tuple[Fraction, Certificate]:
    """Return the best bound of a host, in µs, for a copying collective; 0 if there is one host.

    ``usable``: the hops that each chunk may take, shape (chunks, hops). O(hosts · chunks · hops).
    """
    found = _cuts(topology, collective, hops, usable, message_bytes)
    return max(found, key=lambda x: x[0], default=(Fraction(0), Certificate("cut", "one host")))


def _cuts(
    topology: Topology,
    collective: Collective,
    hops: tuple[Hop, ...],
    usable: Bools,
    message_bytes: int,
) -> Iterator[tuple[Fraction, Certificate]]:
    hosts = np.array([str(h) for h in topology.host_of])
    held = np.zeros((collective.chunks, collective.ranks), bool)
    wanted = held.copy()
    held[collective.pre.chunks, collective.pre.ranks] = True
    wanted[collective.post.chunks, collective.post.ranks] = True
    for host in dict.fromkeys(hosts.tolist()):
        inside = hosts == host
        entering = (wanted & inside).any(axis=1) & ~(held & inside).any(axis=1)
        doors = [
            hop
            for hop, ok in zip(hops, usable[entering].any(axis=0), strict=True)
            if ok and inside[hop.dst] and not inside[hop.src]
        ]
        if not doors:
            continue
        rows = _narrowest(topology, doors)
        bytes_in = Fraction(message_bytes, collective.message_chunks) * int(
            collective.grains[entering].sum()
        )
        wide = sum((topology.capacities()[row] for row in rows), Fraction(0))
        alpha = min(route_latency(topology, hop.route) for hop in doors)
        us = bytes_in / (wide * BYTES_PER_US_PER_GBPS) + alpha
        count = int(entering.sum())
        text = (
            f"{count} chunk{'s' * (count > 1)} (M is {collective.message_chunks}) must enter the "
            f"host of rank {int(inside.argmax())} by {len(doors)} hop{'s' * (len(doors) > 1)}, "
            f"{float(wide):g} GB/s together"
            + (f"; the last byte takes an α of {float(alpha):g} µs" if alpha else "")
        )
        yield us, Certificate("cut", text)


def _narrowest(topology: Topology, doors: list[Hop]) -> set[int]:
    """The narrowest resource of each hop; of several the one that most hops share."""
    capacities, loaded = topology.capacities(), fabric_of(topology).loaded
    held = [{row for i in hop.route for row in loaded[i]} for hop in doors]
    often = Counter(row for rows in held for row in rows)
    return {min(rows, key=lambda r: (capacities[r], -often[r], r)) for rows in held}
