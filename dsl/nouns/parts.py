"""The parts of a topology: nodes, directed links, and resources that links share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class NodeKind(StrEnum):
    """What a node is; only GPUs hold data, the others forward."""

    GPU = "gpu"
    SWITCH = "switch"
    NIC = "nic"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Node:
    """A vertex. ``host`` groups nodes into boxes; a switch may ``multicast`` or ``reduce``."""

    name: str
    kind: NodeKind = NodeKind.GPU
    host: int | None = None
    multicast: bool = False
    reduces: bool = False

    @property
    def stores(self) -> bool:
        """Whether chunks can rest here between steps: GPUs only."""
        return self.kind is NodeKind.GPU


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link: α in µs, bandwidth in GB/s over all its parallel ``lanes``."""

    src: int
    dst: int
    bandwidth: Fraction
    latency: Fraction = Fraction(0)
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Resource:
    """Links that share one bandwidth (GB/s): a NIC, a PCIe switch, a port."""

    name: str
    links: tuple[int, ...]
    bandwidth: Fraction
