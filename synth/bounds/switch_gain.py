"""Gain of switches that compute, and which resources bind without and with them.

The bandwidth bound of the machine is compared with that of the same machine whose switches only
forward; what binds are the resources that the certificate of each counts, in the field's words:

* *NICs*: links of a host that leave it; *ports of GPUs*: links inside it, or of a GPU;
* *cables between switches*: all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import rounded
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.parts import NodeKind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of
from .bounds import bandwidth_bound, bounds, lower_bound_us
from .words import BandwidthBound

NIC, PORT, CABLE, SHARED = "NICs", "ports of GPUs", "cables between switches", "shared resources"


@dataclass(frozen=True, slots=True)
class SwitchGain:
    """Allreduce or another collective on a machine whose switches compute."""

    switches: tuple[str, ...]  # names of those that do
    # without, with_them: ps per byte of M: attained where known, else the bound; switches that only
    # forward come first
    without: Fraction
    with_them: Fraction
    # binds_without, binds_with: the binding resources, in words
    binds_without: str
    binds_with: str
    exact: bool  # both times are attained, and no schedule is below the second one
    # The effect is proved: the time with them is below the bound without, or the time
    # without is not above the bound with them
    sure: bool

    @property
    def helps(self) -> bool:
        """Return True if they raise the bandwidth of some schedule."""
        return self.with_them < self.without

    @property
    def words(self) -> str:
        """One sentence."""
        more = len(self.switches) - 1
        who = self.switches[0] + (f" and {more} more" if more else "")
        told = "" if self.sure else ", as far as is known"
        if not self.helps:
            return (
                f"no gain in bandwidth by {who}{told}: {rounded(self.without)} ps/B with and "
                f"without; {self.binds_with}"
            )
        ratio = f"{float(self.without / self.with_them):.4g}"
        return (
            f"{who}: {ratio} times the bandwidth{told}, {rounded(self.without)} -> "
            f"{rounded(self.with_them)} ps/B; without, {self.binds_without}; "
            f"with, {self.binds_with}"
        )

    def to_json(self) -> dict[str, object]:
        """Return the object ``switches`` of the command line."""
        return {
            "names": list(self.switches),
            "helps": self.helps,
            "without_seconds_per_byte": str(self.without / 10**12),
            "with_seconds_per_byte": str(self.with_them / 10**12),
            "binds_without": self.binds_without,
            "binds_with": self.binds_with,
            "exact": self.exact,
            "text": self.words,
        }


@kept(most=8)
def switch_gain(topology: Topology, collective: Collective) -> SwitchGain | None:
    """Return the gain of the switches that compute; None where none do, or nothing moves."""
    able = [i for i, node in enumerate(topology.nodes) if node.computes]
    if not able:
        return None
    machines = topology.without_capabilities(), topology
    off, on = (bandwidth_bound(one, collective) for one in machines)
    if not on.us_per_byte:
        return None
    if _best(on) < _best(off):
        sure = on.attainable is not None and on.attainable < off.us_per_byte
    else:
        sure = off.attainable is not None and off.attainable <= on.us_per_byte
    return SwitchGain(
        tuple(topology.nodes[i].name for i in able),
        _best(off) * 10**6,
        min(_best(on), _best(off)) * 10**6,
        binding_words(topology, off.certificate),
        binding_words(topology, on.certificate),
        on.attainable == on.us_per_byte and off.attainable == off.us_per_byte,
        sure,
    )


def beyond_transfers(problem: Problem, us: float) -> bool:
    """Return True if no schedule without casts takes so little time, so that none needs a search.

    Only switches that compute bring that about. A sketch may forbid them to: then False.
    """
    if problem.objective is not Objective.TIME or problem.sketch is not None:
        return False
    if not any(node.computes for node in problem.topology.nodes):
        return False
    return us < _least_us_without(problem.topology, problem.collective, problem.bytes or 1)


@kept(most=16)
def _least_us_without(topology: Topology, collective: Collective, message_bytes: int) -> float:
    plain = bounds(topology.without_capabilities(), collective)
    return float(lower_bound_us(plain, message_bytes))


def _best(found: BandwidthBound) -> Fraction:
    return found.us_per_byte if found.attainable is None else found.attainable


def binding_words(topology: Topology, certificate: Certificate) -> str:
    """Return a certificate's resources in words: ``the NICs bind: 50 GB/s × 8 out of host 0``."""
    rows = certificate.data.get("cover") or certificate.data.get("prices") or ()
    placed = [_placed(topology, int(row)) for row, _ in rows]
    kinds = [kind for kind in (NIC, PORT, CABLE, SHARED) if any(p.kind == kind for p in placed)]
    if not kinds:
        return "nothing binds"
    told = [_listed([p for p in placed if p.kind == kind]) for kind in kinds]
    return f"the {' and the '.join(kinds)} bind: {'; '.join(told)}"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A row of a certificate: its kind, its GB/s, and its direction and place."""

    kind: str
    width: Fraction
    way: str
    owner: str


def _placed(topology: Topology, row: int) -> _Placed:
    width = fabric_of(topology).bandwidth[row]
    if row >= len(topology.links):
        name = topology.resources[row - len(topology.links)].name
        return _Placed(SHARED, width, "of", name)
    link = topology.links[row]
    ends = [topology.nodes[link.src], topology.nodes[link.dst]]
    for way, node, other in (("out of", ends[0], ends[1]), ("into", ends[1], ends[0])):
        leaves = node.host is not None and other.host is None and topology.hosts > 1
        if leaves or (node.host != other.host and NodeKind.NIC in (node.kind, other.kind)):
            return _Placed(NIC, width, way, f"host {node.host}")
    for way, node in (("out of", ends[0]), ("into", ends[1])):
        if node.kind is NodeKind.GPU:
            return _Placed(PORT, width, way, node.name)
    return _Placed(CABLE, width, "out of", ends[0].name)


def _listed(rows: Sequence[_Placed]) -> str:
    """Return the rows of the first owner, and of how many others."""
    first = rows[0]
    mine = Counter(r.width for r in rows if (r.way, r.owner) == (first.way, first.owner))
    terms = [f"{rounded(w)} GB/s" + (f" × {k}" if k > 1 else "") for w, k in mine.items()]
    others = len({(r.way, r.owner) for r in rows}) - 1
    more = f" and {others} more" if others else ""
    return f"{' + '.join(terms)} {first.way} {first.owner}{more}"
