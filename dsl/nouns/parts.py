"""Parts of a topology: nodes, directed links, and shared resources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class NodeKind(StrEnum):
    """Kind of a node; only GPUs store data, the others forward."""

    GPU = "gpu"
    SWITCH = "switch"
    NIC = "nic"
    HOST = "host"


class Medium(StrEnum):
    """Class of a link: decides what a message costs beside the link's α and bandwidth."""

    NVLINK = "nvlink"
    XGMI = "xgmi"
    PCIE = "pcie"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Node:
    """A node; ``host`` is the number of its server; a switch may ``multicast`` or ``reduce``."""

    name: str
    kind: NodeKind = NodeKind.GPU
    host: int | None = None
    multicast: bool = False
    reduces: bool = False

    @property
    def stores(self) -> bool:
        """Return True if chunks can stay here between steps: GPUs only."""
        return self.kind is NodeKind.GPU


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link: α in µs, bandwidth in GB/s over all its parallel ``lanes``.

    ``medium``: its class where a file or an importer names it; no schedule depends on it.
    """

    src: int
    dst: int
    bandwidth: Fraction
    latency: Fraction = Fraction(0)
    lanes: int = 1
    medium: Medium | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """Links that share one bandwidth (GB/s): a NIC, a PCIe switch, a port."""

    name: str
    links: tuple[int, ...]
    bandwidth: Fraction
