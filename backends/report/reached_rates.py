"""Bus bandwidth to expect of an allreduce in one box whose switches compute, from published shares.

A port has two bandwidths: what point-to-point traffic reaches of the data sheet's (``reach``), and
what multicasts and sums in the switch reach of that (``nvls``). Optima are those of the bounds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import number
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds.switch_gain import switch_gain
from weft.synth.time.calibrated import link_media, model_number


@dataclass(frozen=True, slots=True)
class ReachedRates:
    """Bandwidths of a port, and bus bandwidths of long messages, in GB/s.

    Attributes:
        port: of the data sheet.
        sends, casts: what point-to-point traffic and NVLS reach of it.
        busbw_sends, busbw_casts: of the best schedules of each.
    """

    port: float
    sends: float
    casts: float
    busbw_sends: float
    busbw_casts: float

    @property
    def busbw(self) -> float:
        """The better one."""
        return max(self.busbw_sends, self.busbw_casts)

    @property
    def words(self) -> str:
        """One sentence."""
        return (
            f"of a port's {self.port:.4g} GB/s point-to-point traffic reaches {self.sends:.4g}, "
            f"NVLS {self.casts:.4g} (published shares): busbw {self.busbw_sends:.4g} and "
            f"{self.busbw_casts:.4g} GB/s for long messages"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object ``reached`` of the command line."""
        return {
            "port_GBps": number(self.port),
            "sends_GBps": number(self.sends),
            "casts_GBps": number(self.casts),
            "busbw_sends_GBps": number(self.busbw_sends),
            "busbw_casts_GBps": number(self.busbw_casts),
        }


def switches_json(topology: Topology, collective: Collective) -> dict[str, Any]:
    """Return the entry ``switches`` of the command line: what switches that compute bring, and with
    which rates; empty without any."""
    gain, rates = switch_gain(topology, collective), reached_rates(topology, collective)
    if gain is None:
        return {}
    return {"switches": gain.to_json() | ({"reached": rates.to_json()} if rates else {})}


def reached_rates(topology: Topology, collective: Collective) -> ReachedRates | None:
    """Return the expected rate; None where it is not known: of one box, and allreduce, alone."""
    media = set(link_media(topology))
    gain = switch_gain(topology, collective)
    if gain is None or collective.kind is not Kind.ALLREDUCE or len(media) != 1:
        return None
    reach = model_number(topology, f"reach.{next(iter(media))}")
    share = model_number(topology, "nvls")
    if topology.hosts > 1 or reach is None or share is None:
        return None
    port = float(max(link.bandwidth for link in topology.links))
    return ReachedRates(
        port,
        port * reach,
        port * reach * share,
        _busbw(gain.without, topology.ranks) * reach,
        _busbw(gain.with_them, topology.ranks) * reach * share,
    )


def _busbw(ps_per_byte: Fraction, ranks: int) -> float:
    algbw = 10**6 / (ps_per_byte * BYTES_PER_US_PER_GBPS)
    return float(algbw * 2 * (ranks - 1) / ranks)
