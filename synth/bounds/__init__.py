"""Lower bounds on all schedules, each with a certificate to check by hand.

One file per argument: paths (:mod:`.distance`), cuts (:mod:`.cut`), link prices (:mod:`.flow`),
partitions (:mod:`.partition`), trees (both in :mod:`.trees`), latency before and after a cut
(:mod:`.composite`), pairs served in time (:mod:`.reach`). On all programs of a runtime:
:mod:`.programs`. On schedules that forward chunks whole: :mod:`.in_chunks`.

>>> from weft.dsl.nouns.collective import make
>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> ring = Topology("ring", tuple(gpu(i) for i in range(4)),
...     tuple(x for i in range(4) for x in both_ways(i, (i + 1) % 4, 25, "0.7")))
>>> found = bounds(ring, make("allgather", 4))
>>> found.steps, found.latency_us, found.rounds_per_chunk
(2, Fraction(7, 5), Fraction(3, 2))
>>> print(found.certificate.text)  # doctest: +NORMALIZE_WHITESPACE
3 chunks (M is 4) must go into {gpu0} over 2 links: 2·25 = 50 GB/s.
T >= 0.75·M / (50 GB/s), that is 15 ps per byte of M
"""

from __future__ import annotations

from .bounds import ROOTED, Bounds, binding, bounds, lower_bound_us
from .composite import Composite
from .effort import BOUND_EFFORT
from .in_chunks import ChunkBound, chunk_bound, own_chunk_bound
from .programs import RuntimeBound, program_machine, runtime_bound
from .trees import tree_prices
from .words import BandwidthBound

__all__ = [
    "BOUND_EFFORT",
    "ROOTED",
    "BandwidthBound",
    "Bounds",
    "ChunkBound",
    "Composite",
    "RuntimeBound",
    "binding",
    "bounds",
    "chunk_bound",
    "lower_bound_us",
    "own_chunk_bound",
    "program_machine",
    "runtime_bound",
    "tree_prices",
]
