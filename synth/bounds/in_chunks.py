"""Bounds beside those of any schedule: for schedules that forward chunks of one size whole."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, number
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from .demand import copying_demand
from .effort import BOUND_EFFORT, BoundEffort
from .whole_chunks import ROUTES_LEFT, left_out, whole_chunk_bound


@dataclass(frozen=True, slots=True)
class ChunkBound:
    """No schedule of transfers takes less than ``us`` µs that cuts each unit of the collective into
    ``pieces`` of equal size and forwards a piece only when all of it has arrived."""

    pieces: int
    us: Fraction
    certificate: Certificate
    casts: bool = False  # True if switches can copy or sum, which it does not count

    @property
    def holds_for(self) -> str:
        """Return which schedules it holds for."""
        kind = "schedules of transfers" if self.casts else "schedules"
        return f"{kind} that forward {count(self.pieces, 'equal piece')} of each unit whole"

    def gap(self, us: float) -> float:
        """Return the part by which a time in µs is above the bound."""
        return max(0.0, us / float(self.us) - 1) if self.us else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        one = self.certificate
        return {
            "pieces": self.pieces,
            "holds_for": self.holds_for,
            "us": number(float(self.us)),
            "exact_us": str(self.us),
            "certificate": {"kind": one.kind, "text": one.text, "data": one.data},
        }


def chunk_bound(
    topology: Topology,
    collective: Collective,
    message_bytes: int,
    effort: BoundEffort = BOUND_EFFORT,
) -> ChunkBound | None:
    """Return the bound for schedules that forward the chunks of a collective whole.

    None where it is not known: chunks that differ in size, sums for several ranks, machines beyond
    the limits of ``effort``, and those with more routes between two GPUs than are looked at.

    Raises:
        UserError: a chunk cannot reach a rank that wants it.
    """
    if topology.ranks > effort.chunk_ranks or collective.chunks > effort.whole_chunks:
        return None
    if collective.sizes or not len(collective.post):
        return None
    if collective.combining and copying_demand(collective) is None:
        return None
    beyond = left_out(topology)
    if ROUTES_LEFT in beyond:
        return None
    grain = Fraction(message_bytes, collective.message_chunks)
    found = whole_chunk_bound(topology, collective, grain, effort=effort)
    return ChunkBound(collective.factor, found.us, found.certificate, bool(beyond))


def own_chunk_bound(
    schedule: Schedule, message_bytes: int, effort: BoundEffort = BOUND_EFFORT
) -> ChunkBound | None:
    """Return :func:`chunk_bound` for the pieces, and slices of these, that a schedule forwards;
    None also where switches copy or sum in it."""
    collective, slices = schedule.collective, schedule.segments
    if len(schedule.casts) or collective.sizes:
        return None
    if collective.chunks * slices > effort.whole_chunks:
        return None
    return chunk_bound(schedule.topology, collective.split(slices), message_bytes, effort)
