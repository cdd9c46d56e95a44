"""One operation of a workload by itself: what an engine solves for it, and its bound with latency.

No schedule of a whole workload is quicker than one of its operations alone, on the machine of the
ranks that may forward for it: the others only take bandwidth away. Joint bounds count rates only,
so that small messages, which wait for latency, need these.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.deliveries import shard_collective
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import Shard

from ..base.effort import Effort, setting
from ..base.engine import Certificate
from ..bounds.bounds import binding, bounds
from ..bounds.demand import copying_demand, representatives
from ..bounds.distance import latency_path, path_certificate, required_matrix
from ..bounds.effort import BOUND_EFFORT
from ..joint.carried import collective_of
from ..joint.demands import CollectiveDemand
from ..joint.partition import MachineShare, nameless, share_of


@dataclass(frozen=True, slots=True)
class AloneEffort(Effort):
    """When the bound of one operation alone is looked into."""

    latencies: float = setting(
        50.0, "times the latency; where rates alone take longer, latency is left out"
    )
    hops: float = setting(8.0, "links on the way of a message, to tell so without looking closer")


ALONE_EFFORT = AloneEffort()
"""Default limit."""


@dataclass(frozen=True, slots=True)
class AloneBound:
    """A lower bound on the time of one operation, and so of any workload with it.

    Attributes:
        name: of the operation.
        us: the bound in µs, latency counted.
        certificate: why.
    """

    name: str
    us: Fraction
    certificate: Certificate


def is_standard(demand: CollectiveDemand) -> bool:
    """Return True for a standard collective: no matrix, shards or transfer."""
    return demand.operation.kind in set(Kind)


def largest_alone(
    topology: Topology, demands: Sequence[CollectiveDemand], rates_us: Fraction
) -> AloneBound | None:
    """Return the largest bound of single operations; None: none is above ``rates_us``."""
    most = max((float(one.latency) for one in topology.links), default=0.0)
    if rates_us > most * ALONE_EFFORT.hops * ALONE_EFFORT.latencies:
        return None
    found: AloneBound | None = None
    known: set[object] = set()
    for demand in demands:
        if not demand.parts:
            continue
        one = AloneQuestion.of(topology, demand)
        if one.key in known:
            continue
        known.add(one.key)
        us, certificate = one.bound(rates_us)
        if us > (rates_us if found is None else found.us):
            found = AloneBound(demand.name, us, certificate)
    return found


@dataclass(frozen=True, eq=False)
class AloneQuestion:
    """An operation on the part of the machine that may forward for it.

    Attributes:
        share: that part.
        collective: on its ranks. Of demands of several shards: with a byte for each.
        bytes: its message size M; None where the sizes of shards are left out.
    """

    share: MachineShare
    collective: Collective
    bytes: int | None

    @staticmethod
    def of(topology: Topology, demand: CollectiveDemand) -> AloneQuestion:
        """Return the question of a demand."""
        one = demand.operation
        ranks = one.group if set(demand.forwarders) == set(one.group) else demand.forwarders
        if tuple(ranks) == tuple(range(topology.ranks)):
            share = MachineShare(topology, tuple(ranks), tuple(range(len(topology.links))))
        else:
            share = share_of(topology, ranks)
        if is_standard(demand):
            return AloneQuestion(share, _collective_on(demand, share.ranks), one.bytes)
        shards = one.deliveries
        size = shards[0].bytes if len(shards) == 1 else None
        return AloneQuestion(share, _of_shards(shards, share.ranks), size)

    @property
    def key(self) -> object:
        """Return what its bound depends on, equal for alike operations."""
        return nameless(self.share.topology).digest(), self.collective, self.bytes

    def waits(self, us: Fraction | float) -> bool:
        """Return True if latency may matter in a time of ``us`` µs."""
        return float(self._latency[0]) * ALONE_EFFORT.latencies >= us

    def bound(self, rates_us: Fraction = Fraction(0)) -> tuple[Fraction, Certificate]:
        """Return a lower bound in µs and its proof.

        All bounds count, unless latency hardly matters beside ``rates_us`` or sizes are left out:
        then the latency of the farthest pair.
        """
        if self.bytes is None or not self.waits(rates_us):
            return self._latency
        return binding(bounds(self.share.topology, self.collective), self.bytes)

    @cached_property
    def _latency(self) -> tuple[Fraction, Certificate]:
        machine = self.share.topology
        needs = required_matrix(self.collective, copying_demand(self.collective))
        path = latency_path(machine, needs, representatives(machine, BOUND_EFFORT.few_ranks))
        us = Fraction(0) if path is None else path.length
        return us, path_certificate(machine, path, "µs")


def _collective_on(demand: CollectiveDemand, ranks: Sequence[int]) -> Collective:
    """Return a standard collective on some ranks of the machine, numbered 0, 1, …; its group is
    among them."""
    one = demand.operation
    collective = collective_of(one)
    if tuple(ranks) == tuple(one.group):
        return collective
    place = {rank: i for i, rank in enumerate(ranks)}
    return collective.within([place[v] for v in one.group], len(ranks))


def _of_shards(shards: Sequence[Shard], ranks: Sequence[int]) -> Collective:
    """Return a demand with shards of one byte each: who needs what, not how much."""
    place = {rank: i for i, rank in enumerate(ranks)}
    small = [
        Shard(tuple(place[v] for v in x.holders), tuple(place[v] for v in x.receivers), 1)
        for x in shards
    ]
    return shard_collective(len(ranks), small, [[1]] * len(small))
