"""Limits of the search for lower bounds: sizes and effort of its linear programs, sets it tries.

Every bound that is found holds whatever these numbers are; smaller ones find weaker bounds sooner.
"""

from __future__ import annotations

from dataclasses import astuple

from weft.dsl.base.lazy_dataclass import dataclass

from ..base.effort import Effort, setting, share
from ..base.meter import STEPS, Meter


@dataclass(frozen=True, slots=True)
class BoundEffort(Effort):
    """Limits of :func:`weft.synth.bounds.bounds.bounds`.

    >>> from weft.dsl.catalogue import topology
    >>> from weft.dsl.nouns.collective import make
    >>> from weft.synth.bounds import bounds
    >>> torus, alltoall = topology("torus:4x3"), make("alltoall", 12)
    >>> bounds(torus, alltoall).certificate.kind
    'prices'
    >>> bounds(torus, alltoall, BoundEffort(flow_columns=0, price_sources=0)).certificate.kind
    'cut'
    """

    program_effort: float = setting(20.0, "effort that one linear program may take")
    program_ranks: int = setting(
        64, "ranks up to which verbs set times of programs beside the least time of any"
    )
    flow_columns: int = setting(
        400_000,
        "columns of a multi-commodity flow program (alltoall), at most, before symmetry is used; "
        "prices of trees bound larger ones",
        least=0,
    )
    flow_kept: int = setting(
        6_000, "columns of such a program once it is shrunk by symmetry, at most", least=0
    )
    tree_columns: int = setting(
        20_000,
        "columns of the program of allreduce trees, at most; larger ones are not solved",
        least=0,
    )
    mix_links: int = setting(
        4_000, "links of a machine up to which several cuts are combined", least=0
    )
    mix_rounds: int = setting(
        40, "rounds in which violated cuts are added, at most one for every destination each"
    )
    price_rounds: int = setting(
        40,
        "rounds of column generation for prices of orbits; transitive machines need 2 or 3",
    )
    price_sources: int = setting(
        256, "ranks, one of each orbit, up to which prices of trees are computed", least=0
    )
    price_gap: float = setting(
        0.01, "part of the bound by which a flow of many sources may miss it"
    )
    weight_sources: int = setting(
        16, "ranks, one of each orbit, above which multiplicative weights make the first trees"
    )
    weight_steepness: float = setting(
        20.0, "least exponent: a resource loaded a tenth less costs exp(-2) of the worst at 20"
    )
    weight_phases: int = setting(50, "phases of multiplicative weights")
    weight_blocks: int = setting(
        8, "parts of the sources that see each others' new flows within a phase"
    )
    weight_memory: float = share(
        0.1, "part by which the newest prices enter the mean that proves a bound"
    )
    weight_trees: int = setting(
        40, "last trees of each source that the linear program after the weights mixes"
    )
    few_ranks: int = setting(8, "machines with fewer ranks are not searched for orbits of ranks")
    cut_ranks: int = setting(
        256, "ranks of a machine up to which the cut of each rank is computed", least=0
    )
    cut_pairs: int = setting(
        4096,
        "required pairs of a custom collective whose minimum cuts are computed, at most",
        least=0,
    )
    level_sources: int = setting(
        64, "ranks from which sets of price 0 are grown as cuts, at most", least=0
    )
    side_ranks: int = setting(
        8, "ranks with cuts of their own in composite bounds, at most", least=0
    )
    entries: int = setting(
        64,
        "GPUs behind a cut that are told apart; with more, composite bounds count no copies",
        least=0,
    )
    heads: int = setting(
        12, "distances from a cut for which its chunks are counted in composite bounds, at most"
    )

    chunk_ranks: int = setting(
        64, "ranks of a machine up to which verbs add bounds of whole chunks to others", least=0
    )
    whole_chunks: int = setting(
        1024, "whole chunks, slices of them counted, up to which they do so", least=0
    )
    wave_ranks: int = setting(
        256, "ranks of a machine up to which waves of whole chunks are counted", least=0
    )
    wave_sets: int = setting(
        64, "hosts, and sets that quicker hops join, whose waves are counted, at most", least=0
    )
    wave_receptions: int = setting(
        20_000, "receptions that are counted for the whole chunks of one host, at most", least=0
    )
    reach_ranks: int = setting(
        64, "ranks of a machine up to which pairs of ranks across cuts are counted", least=0
    )

    def anchors(self) -> tuple[object, ...]:
        """The values: part of the key of kept bounds (:mod:`weft.dsl.base.kept`)."""
        return astuple(self)

    def program_meter(self) -> Meter:
        """Return the meter of one linear program."""
        return Meter(round(self.program_effort * STEPS))


BOUND_EFFORT = BoundEffort()
"""Default limits."""
