"""Topology tables for sketches: hosts with local ranks, hops as a matrix, nodes by name."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from ..base.arrays import Bools, Ints
from ..base.lazy_dataclass import Frozen
from ..base.spans import Span
from ..machines.names import Names, names_of
from ..nouns.hops import gpu_neighbours
from ..nouns.topology import Topology


class Selected(Frozen, eq=False):
    """Selected ordered pairs of ranks, shape (ranks, ranks), and links, shape (links,)."""

    pairs: Bools
    links: Bools

    def __or__(self, other: Selected) -> Selected:
        return Selected(self.pairs | other.pairs, self.links | other.links)

    def __sub__(self, other: Selected) -> Selected:
        return Selected(self.pairs & ~other.pairs, self.links & ~other.links)

    def meets(self, other: Selected) -> bool:
        """Return True if the selections intersect."""
        return bool((self.pairs & other.pairs).any() or (self.links & other.links).any())

    @property
    def empty(self) -> bool:
        """Return True if nothing is selected."""
        return not (self.pairs.any() or self.links.any())

    def pair_set(self) -> frozenset[tuple[int, int]]:
        """Return the pairs in the form of a rule."""
        return frozenset((int(a), int(b)) for a, b in np.argwhere(self.pairs))

    def link_set(self) -> frozenset[int]:
        """Return the links in the form of a rule."""
        return frozenset(np.flatnonzero(self.links).tolist())


class SketchMachine(Frozen, eq=False):
    """A topology with the tables needed for elaboration, each computed on first use.

    GPUs whose host is unknown form one host together.
    """

    topology: Topology

    @cached_property
    def ranks(self) -> int:
        """Return the number of GPUs."""
        return self.topology.ranks

    @cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """Return the ranks of each host, in order; a rank's position there is its local rank."""
        found: dict[int | None, list[int]] = {}
        for rank, host in enumerate(self.topology.host_of):
            found.setdefault(host, []).append(rank)
        return tuple(map(tuple, found.values()))

    @cached_property
    def host_of(self) -> Ints:
        """Return the host of each rank."""
        table = np.empty(self.ranks, np.int64)
        for host, members in enumerate(self.hosts):
            table[list(members)] = host
        return table

    @cached_property
    def place_of(self) -> Ints:
        """Return the local rank of each rank."""
        table = np.empty(self.ranks, np.int64)
        for members in self.hosts:
            table[list(members)] = np.arange(len(members))
        return table

    @cached_property
    def same_host(self) -> Bools:
        """Return the matrix of pairs within one host."""
        same: Bools = self.host_of[:, None] == self.host_of[None, :]
        return same

    @cached_property
    def same_place(self) -> Bools:
        """Return the matrix of pairs with the same local rank."""
        same: Bools = self.place_of[:, None] == self.place_of[None, :]
        return same

    @cached_property
    def hops(self) -> Bools:
        """Return the matrix [src, dst] of ordered pairs that are one hop apart."""
        table = np.zeros((self.ranks, self.ranks), np.bool_)
        for src, near in enumerate(gpu_neighbours(self.topology)):
            table[src, list(near)] = True
        return table

    @cached_property
    def link_ends(self) -> Ints:
        """Return source and destination node of every link, shape (links, 2)."""
        return self.topology.link_ends()

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Return the predefined names: ``ranks``, ``nodes`` and, if equal everywhere, ``gpus``."""
        sizes = {len(host) for host in self.hosts}
        found = {"ranks": self.ranks, "nodes": len(self.hosts)}
        return found | ({"gpus": sizes.pop()} if len(sizes) == 1 else {})

    @cached_property
    def _names(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self.topology.nodes)}

    @cached_property
    def _own_names(self) -> Names:
        return names_of(self.topology)

    def nodes_named(self, name: str, where: Span | None = None) -> tuple[int, ...]:
        """Return the node of a name, or the family: ``nvswitch`` is nvswitch0, nvswitch1, …

        Other names are those of the machine's own tools: ``host1.mlx5_3``, ``host1.GPU3``.

        Raises:
            UserError: several nodes have the name.
        """
        if name in self._names:
            return (self._names[name],)
        family = re.compile(re.escape(name) + r"\d+(?:\.\d+)*")
        found = tuple(i for text, i in self._names.items() if family.fullmatch(text))
        part = None if found else self._own_names.find(name, where)
        return found if part is None or part.node is None else (part.node,)

    def is_gpu(self, node: int) -> bool:
        """Return True if a node is a GPU; its index then is its rank."""
        return node < self.ranks

    def nothing(self) -> Selected:
        """Return the empty selection."""
        return Selected(np.zeros_like(self.hops), np.zeros(len(self.topology.links), np.bool_))
