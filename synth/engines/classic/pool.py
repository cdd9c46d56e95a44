"""Pools of a switch that sums packets: so many slots of one packet each bound the rate.

A host has at most as many packets on their way as the switch has slots: it sends the next one into
a slot when the sum of the last one in it has come back, a round trip later. So it sends
slots · packet ÷ round-trip time at most, whatever its port carries (SwitchML, NSDI 2021).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology

from ...steiner.packing import RoutedTree

BothWays = tuple[RoutedTree, RoutedTree]
"""The tree of a chunk to its root, and from it."""


@dataclass(frozen=True, slots=True)
class SlotPool:
    """What a switch keeps of sums that are not complete.

    Attributes:
        slots: of each switch. packet: bytes of one.
        rtt: µs from a packet to its sum; 0: the α of the way to the root of the tree and back.
    """

    slots: int = 512
    packet: int = 1024
    rtt: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for name, value in (("slots", self.slots), ("packet", self.packet)):
            if value < 1:
                raise UserError(f"classic: {name} is {value}", hint="1 or more")
        if self.rtt < 0:
            raise UserError(f"classic: rtt is {self.rtt}", hint="µs; 0 takes the machine's α")

    def GBps(self, topology: Topology, trees: Sequence[BothWays]) -> Fraction:
        """Return what each of some trees has at most; those through one switch share its slots.

        Raises:
            UserError: a way without α, and no rtt.
        """
        rtt = self.rtt or max(round_trip_us(topology, both) for both in trees)
        if not rtt:
            raise UserError(
                f"links of {topology.name} have no α, so slots bound nothing",
                hint="classic{algorithm=switchml,rtt=10} says µs from a packet to its sum",
            )
        ranks, through = topology.ranks, Counter[int]()
        for forth, _ in trees:
            through.update({v for a in forth.arcs for v in (a.tail, a.head) if v >= ranks})
        shared = max(through.values(), default=1)
        return Fraction(self.slots * self.packet, shared) / (rtt * BYTES_PER_US_PER_GBPS)


def round_trip_us(topology: Topology, both: BothWays) -> Fraction:
    """Return the α of the longest way from a rank to the root of a tree and back."""
    there, back = (_alpha_from_root(topology, tree) for tree in both)
    return max(there[r] + back[r] for r in range(topology.ranks))


def _alpha_from_root(topology: Topology, tree: RoutedTree) -> dict[int, Fraction]:
    found, queue = {tree.root: Fraction(0)}, [tree.root]
    for node in queue:
        for arc in (a for a in tree.arcs if a.tail == node):
            found[arc.head] = found[node] + _alpha(topology, arc.links)
            queue.append(arc.head)
    return found


def _alpha(topology: Topology, links: Iterable[int]) -> Fraction:
    return sum((topology.links[k].latency for k in links), Fraction(0))
