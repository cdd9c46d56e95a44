"""NCCL's variables that limit its choice: algorithms, protocols, channels, sums in switches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.timing import TimingNumber
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import channels_of

from .baselines import Baseline, SwitchSums

_ALGORITHMS = ("ring", "tree", "nvls")

LIMITS = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_NVLS_ENABLE")
"""The variables that are read here."""


@dataclass(frozen=True, slots=True)
class NcclSettings:
    """Settings of a run by NCCL's variables.

    ``algorithms``, ``protocols``: that it may take, empty: all. ``channels``: at most, 0: any
    number. ``sums``: whether switches may sum.
    """

    algorithms: frozenset[str] = frozenset()
    protocols: frozenset[str] = frozenset()
    channels: int = 0
    sums: bool = True

    @staticmethod
    def of(variables: Mapping[str, str]) -> NcclSettings:
        """Return the settings of variables by name (``NCCL_PROTO``: ``LL``)."""
        most = re.match(r"\d+", variables.get("NCCL_MAX_NCHANNELS", ""))
        return NcclSettings(
            _listed(variables.get("NCCL_ALGO", ""), _ALGORITHMS),
            _listed(variables.get("NCCL_PROTO", ""), [str(one).lower() for one in Protocol]),
            int(most[0]) if most else 0,
            variables.get("NCCL_NVLS_ENABLE", "1")[:1] != "0",
        )

    def on(self, machine: Topology) -> Topology:
        """Return the machine with as many channels as were allowed, if fewer than usual."""
        if not 0 < self.channels < channels_of(machine):
            return machine
        number = TimingNumber("channels", Fraction(self.channels), "NCCL_MAX_NCHANNELS")
        return replace(machine, timing=machine.timing.with_numbers((number,)))

    def allowed(self, found: Iterable[Baseline | SwitchSums]) -> Iterator[Baseline | SwitchSums]:
        """Return the algorithms that may run, in the protocols that may."""
        for one in found:
            if isinstance(one, SwitchSums):
                # Switches sum under Simple alone.
                algorithm = not self.algorithms or "nvls" in self.algorithms
                if self.sums and algorithm and self._takes(Protocol.SIMPLE):
                    yield one
                continue
            word = "tree" if "tree" in one.name else "ring"
            if self.algorithms and word not in self.algorithms and "pairs" not in one.name:
                continue
            mine = tuple(x for x in one.protocols if self._takes(x))
            if mine == one.protocols:
                yield one
            elif mine:
                yield replace(one, protocols=mine, empty_us={})

    def _takes(self, protocol: Protocol) -> bool:
        return not self.protocols or str(protocol).lower() in self.protocols


ANY = NcclSettings()
"""Settings of a run that nothing limits."""


def _listed(text: str, known: Sequence[str]) -> frozenset[str]:
    """Return the known words of ``LL,Simple``, or all but those of ``^LL``; empty for none."""
    named = {word for word in re.findall(r"\w+", text.lower()) if word in known}
    return frozenset(set(known) - named if text.startswith("^") else named)
