"""A topology as sketches see it: boxes with local ranks, hops as a matrix, nodes by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.arrays import Bools, Ints
from ..nouns.hops import gpu_neighbours
from ..nouns.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """Some ordered pairs of ranks, shape (ranks, ranks), and some links, shape (links,)."""

    pairs: Bools
    links: Bools

    def __or__(self, other: Selected) -> Selected:
        return Selected(self.pairs | other.pairs, self.links | other.links)

    def __sub__(self, other: Selected) -> Selected:
        return Selected(self.pairs & ~other.pairs, self.links & ~other.links)

    def meets(self, other: Selected) -> bool:
        """Whether anything is in both."""
        return bool((self.pairs & other.pairs).any() or (self.links & other.links).any())

    @property
    def empty(self) -> bool:
        """Whether nothing is selected."""
        return not (self.pairs.any() or self.links.any())

    def pair_set(self) -> frozenset[tuple[int, int]]:
        """The pairs as a rule holds them."""
        return frozenset((int(a), int(b)) for a, b in np.argwhere(self.pairs))

    def link_set(self) -> frozenset[int]:
        """The links as a rule holds them."""
        return frozenset(np.flatnonzero(self.links).tolist())


@dataclass(frozen=True, eq=False)
class Machine:
    """A topology with the tables that elaboration asks for, each computed when first used.

    GPUs whose host is not known are together in one box.
    """

    topology: Topology

    @cached_property
    def ranks(self) -> int:
        """Number of GPUs."""
        return self.topology.ranks

    @cached_property
    def boxes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each box, in order; a rank's place in its box is its local rank."""
        found: dict[int | None, list[int]] = {}
        for rank, host in enumerate(self.topology.host_of):
            found.setdefault(host, []).append(rank)
        return tuple(map(tuple, found.values()))

    @cached_property
    def box_of(self) -> Ints:
        """The box of each rank."""
        table = np.empty(self.ranks, np.int64)
        for box, members in enumerate(self.boxes):
            table[list(members)] = box
        return table

    @cached_property
    def place_of(self) -> Ints:
        """The local rank of each rank."""
        table = np.empty(self.ranks, np.int64)
        for members in self.boxes:
            table[list(members)] = np.arange(len(members))
        return table

    @cached_property
    def same_box(self) -> Bools:
        """Which pairs are within one box."""
        same: Bools = self.box_of[:, None] == self.box_of[None, :]
        return same

    @cached_property
    def same_place(self) -> Bools:
        """Which pairs have the same local rank."""
        same: Bools = self.place_of[:, None] == self.place_of[None, :]
        return same

    @cached_property
    def hops(self) -> Bools:
        """Which ordered pairs are one hop apart: at[src, dst]."""
        table = np.zeros((self.ranks, self.ranks), np.bool_)
        for src, near in enumerate(gpu_neighbours(self.topology)):
            table[src, list(near)] = True
        return table

    @cached_property
    def link_ends(self) -> Ints:
        """Source and destination node of every link, shape (links, 2)."""
        return self.topology.link_ends()

    @cached_property
    def numbers(self) -> dict[str, int]:
        """What every sketch may call by name: ``ranks``, ``nodes`` and, if equal, ``gpus``."""
        sizes = {len(box) for box in self.boxes}
        found = {"ranks": self.ranks, "nodes": len(self.boxes)}
        return found | ({"gpus": sizes.pop()} if len(sizes) == 1 else {})

    @cached_property
    def _names(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self.topology.nodes)}

    def nodes_named(self, name: str) -> tuple[int, ...]:
        """The node of that name, or the family of that name: ``nvswitch`` is nvswitch0, 1, …"""
        if name in self._names:
            return (self._names[name],)
        family = re.compile(re.escape(name) + r"\d+(?:\.\d+)*")
        return tuple(i for text, i in self._names.items() if family.fullmatch(text))

    def is_gpu(self, node: int) -> bool:
        """Whether a node is a GPU, and so its own rank."""
        return node < self.ranks

    def nothing(self) -> Selected:
        """The empty selection."""
        return Selected(np.zeros_like(self.hops), np.zeros(len(self.topology.links), np.bool_))
