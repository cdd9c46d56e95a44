"""One packing problem: the families of trees, the resources they load, the bound on their rate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_of, without_symmetry

from ....base.engine import Certificate
from ....bounds.bounds import bandwidth_bound, fewest_steps
from ....bounds.effort import BOUND_EFFORT
from ....fabric.fabric import ResourceOrbits
from .effort import TREE_EFFORT, TreeEffort
from .machine import TreeMachine, few_peers

REDUCING = frozenset({Kind.REDUCE, Kind.REDUCE_SCATTER})
SYMMETRIC = frozenset({Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLREDUCE})
TREES = REDUCING | SYMMETRIC | {Kind.BROADCAST, Kind.MULTIROOT_BROADCAST}
"""Collectives that are packed as trees; pairwise collectives are packed as paths."""


@dataclass(frozen=True, eq=False)
class Under:
    """Restrictions of a sketch: a group of symmetries, and the allowed (sender, receiver) pairs,
    shape (ranks, ranks).
    """

    orbits: Orbits
    pairs: Bools

    @property
    def allowed(self) -> Bools:
        """Ranks that each representative may send to."""
        found: Bools = self.pairs[self.orbits.representatives]
        return found


@dataclass(frozen=True, eq=False)
class TreeTask:
    """Trees to pack.

    Attributes:
        topology, collective: as given; the collective is plain.
        orbits: the group under which templates are multiplied.
        machines: forwards, or turned for reductions, or both for allreduce.
        resources: the resource orbits.
        families: those that trees are wanted for; see :mod:`.pool`.
        chunks: the chunk of each of ``families`` (those of the representatives).
        joint: allreduce: the shares of the roots are free, both directions have the same.
        bound: chunks per GB/s that no packing beats; ``certificate`` says why.
        narrowed: trees may not use every hop, so what their prices say holds for such trees only.
    """

    topology: Topology
    collective: Collective
    orbits: Orbits
    machines: tuple[TreeMachine, ...]
    resources: ResourceOrbits
    families: Ints
    chunks: Ints
    joint: bool
    bound: Fraction
    certificate: Certificate
    narrowed: bool = False

    @staticmethod
    def of(
        topology: Topology,
        collective: Collective,
        peers: int = 0,
        *,
        alike: bool = True,
        under: Under | None = None,
        effort: TreeEffort = TREE_EFFORT,
    ) -> TreeTask:
        """The task of a plain collective, with its proved bound; ``peers`` as in :mod:`.peers`.

        ``alike``: roots that a symmetry maps to each other have trees that it maps to each other.
        ``under``: what a sketch leaves.

        Raises:
            BadTopology: ranks that cannot reach each other.
            UserError: too few peers.
        """

        kind = collective.kind
        fewest_steps(topology, collective)  # raises where ranks cannot reach each other
        found = bandwidth_bound(topology, collective, BOUND_EFFORT)
        per_chunk = collective.message_chunks * BYTES_PER_US_PER_GBPS
        symmetric = alike and kind in SYMMETRIC
        orbits = orbits_of(topology) if symmetric else without_symmetry(topology)
        if under is not None:
            orbits = under.orbits
        joint = kind is Kind.ALLREDUCE
        turned = (False, True) if joint else (kind in REDUCING,)
        allowed = None if under is None else under.allowed
        if peers:
            allowed = few_peers(topology, orbits, peers, effort.detour)
        machines = tuple(
            TreeMachine.of(topology, orbits, turned=t, allowed=allowed, detour=effort.detour)
            for t in turned
        )
        if joint:
            families = np.arange(2 * len(orbits.representatives))
            chunks = np.zeros(len(families), np.int64)
        else:
            families, chunks = _roots(collective, orbits)
        return TreeTask(
            topology,
            collective,
            orbits,
            machines,
            ResourceOrbits.of(topology, orbits),
            families,
            chunks,
            joint,
            found.us_per_byte * per_chunk,
            found.certificate,
            allowed is not None,
        )

    @property
    def copies(self) -> int:
        """Images of one template that load the machine, per unit of a family's weight."""
        return 1 if self.joint else self.orbits.order

    @property
    def room(self) -> tuple[Fraction, ...]:
        """Uses of each resource orbit per unit of weight and of time (chunks per GB/s)."""
        each = zip(self.resources.size, self.resources.bandwidth, strict=True)
        return tuple(int(size) * bandwidth / self.copies for size, bandwidth in each)

    @property
    def increments(self) -> Floats:
        """Congestion that one use of a resource orbit adds, per unit of weight; 1 is the bound."""
        return self.copies / (self.resources.room * float(self.bound))

    @property
    def anchor(self) -> int:
        """The single root, or -1."""
        roots = distinct_values(self.families)
        return int(self.machines[0].net.sources[roots[0]]) if len(roots) == 1 else -1

    def us_per_byte(self, time: Fraction) -> Fraction:
        """From chunks per GB/s to µs per byte of M."""
        return time / (self.collective.message_chunks * BYTES_PER_US_PER_GBPS)

    def roots_of(self, families: Ints) -> Ints:
        """The ranks that the trees of these families grow from."""
        sources: Ints = self.machines[0].net.sources
        return sources[families % len(sources)]


def _roots(collective: Collective, orbits: Orbits) -> tuple[Ints, Ints]:
    """Families and chunks: chunk c grows from its owner, or is summed up there."""
    ends = collective.post if collective.kind in REDUCING else collective.pre
    owner = np.zeros(collective.chunks, np.int64)
    owner[ends.chunks] = ends.ranks
    place = {int(rank): k for k, rank in enumerate(orbits.representatives)}
    chunks = [c for c in range(collective.chunks) if int(owner[c]) in place]
    return np.array([place[int(owner[c])] for c in chunks]), np.array(chunks)
