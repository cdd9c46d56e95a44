"""Parts of a topology: nodes, directed links, and shared resources."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from ..base.lazy_dataclass import dataclass
from .capabilities import CAPABILITIES, NO_LIMITS, CastLimits


class NodeKind(StrEnum):
    """Kind of a node; only GPUs store data, the others forward."""

    GPU = "gpu"
    SWITCH = "switch"
    NIC = "nic"
    HOST = "host"


class Medium(StrEnum):
    """Class of a link: decides the cost of a message beside the link's α and bandwidth."""

    NVLINK = "nvlink"
    XGMI = "xgmi"
    PCIE = "pcie"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Node:
    """A node; ``host`` is the number of its server.

    ``names``: those in the machine's own tools (``mlx5_3``, a PCI bus id), without the host; no
    schedule depends on them. ``multicast``, ``reduces``, ``turns``, ``issuer_in_group``: what a
    switch does beside forwarding (:mod:`.capabilities`), within its ``limits``. ``copy_of``: the
    name of the part that this node is a further copy of (:mod:`weft.dsl.machines.confined`).
    """

    name: str
    kind: NodeKind = NodeKind.GPU
    host: int | None = None
    multicast: bool = False
    reduces: bool = False
    names: tuple[str, ...] = ()
    turns: bool = False
    issuer_in_group: bool = False
    limits: CastLimits = NO_LIMITS
    copy_of: str = ""

    @property
    def stores(self) -> bool:
        """Return True if chunks can stay here between steps: GPUs only."""
        return self.kind is NodeKind.GPU

    @property
    def computes(self) -> bool:
        """Return True if the node copies or sums data that passes through it."""
        return self.multicast or self.reduces

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Return its capabilities beside forwarding in words."""
        return tuple(word for word in CAPABILITIES if getattr(self, word))


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link: α in µs, bandwidth in GB/s over all its parallel ``lanes``.

    ``medium``: its class where a file or an importer names it. ``names``: those of the NIC that the
    link is, if that is not a node, as of :class:`Node`; of a link between two hosts with the host
    (``host1.mlx5_3``). No schedule depends on either.
    """

    src: int
    dst: int
    bandwidth: Fraction
    latency: Fraction = Fraction(0)
    lanes: int = 1
    medium: Medium | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """Links that share one bandwidth (GB/s): a NIC, a PCIe switch, a port."""

    name: str
    links: tuple[int, ...]
    bandwidth: Fraction
