"""Variants of compilation: instances, channels for chains, pairing of blocks, protocol, order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.nouns.library import MANIFEST, MOST_COPIES, TunedPlan
from weft.dsl.nouns.program import Protocol, protocol_of
from weft.dsl.nouns.runtime import Target

from ..compile.analyses.planned import Order
from ..compile.compile import CompileOptions
from ..compile.passes.channels import Spread
from ..compile.passes.threadblocks import Pairing

COPIES = (1, 2, 4, 8, 16)
"""Numbers of instances that are tried, as far as more are quicker."""


USUAL_COPIES = (1, 4)
"""Numbers of instances tried first."""


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """One way to compile; the fields as :class:`.CompileOptions` has them."""

    instances: int = 1
    protocol: Protocol = Protocol.SIMPLE
    spread: Spread = Spread.LANES
    pairing: Pairing = Pairing.AUTO
    segments: int = 1
    order: Order = Order.PRIORITY
    parts: int = 1

    @property
    def words(self) -> str:
        """Return ``LL128 x4 chains``: short, and different for different variants."""
        words = [str(self.protocol), f"x{self.instances}"]
        words += [str(self.spread)] if self.spread is not Spread.LANES else []
        words += [f"pairs={self.pairing}"] if self.pairing is not Pairing.AUTO else []
        words += [f"in {self.segments} segments"] if self.segments > 1 else []
        words += [f"sums in {self.parts} parts"] if self.parts > 1 else []
        words += [f"by {self.order}"] if self.order is not Order.PRIORITY else []
        return " ".join(words)

    @property
    def passes(self) -> dict[str, str | int]:
        """Return the values of ``weft compile -p`` by pass, where they differ from the default."""
        found: dict[str, str | int] = {}
        if self.spread is not Spread.LANES:
            found["channels.policy"] = str(self.spread)
        if self.pairing is not Pairing.AUTO:
            found["threadblocks.policy"] = str(self.pairing)
        if self.order is not Order.PRIORITY:
            found["lower.order"] = str(self.order)
        if self.parts > 1:
            found["lower.parts"] = self.parts
        return found

    def options(self, target: Target, *, in_place: bool = False, name: str = "") -> CompileOptions:
        """Return the compiler options."""
        return CompileOptions(
            target=target,
            instances=self.instances,
            protocol=self.protocol,
            spread=self.spread,
            pairing=self.pairing,
            segments=self.segments,
            order=self.order,
            parts=self.parts,
            in_place=in_place,
            name=name,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for a job."""
        return {
            "instances": self.instances,
            "protocol": str(self.protocol),
            "spread": str(self.spread),
            "pairing": str(self.pairing),
            "segments": self.segments,
            "order": str(self.order),
            "parts": self.parts,
        }

    @staticmethod
    def of(data: Mapping[str, Any]) -> Variant:
        """Return the variant from the JSON of :meth:`to_json`."""
        return Variant(
            data["instances"],
            protocol_of(data["protocol"]),
            Spread(data["spread"]),
            Pairing(data["pairing"]),
            data["segments"],
            Order(data["order"]),
            data["parts"],
        )


SHAPES = (
    Variant(),
    Variant(pairing=Pairing.NONE),
    Variant(pairing=Pairing.NONE, segments=2),
    Variant(pairing=Pairing.NONE, segments=4),
    Variant(pairing=Pairing.NONE, segments=8),
    Variant(pairing=Pairing.NONE, segments=16),
    Variant(spread=Spread.CHAINS, pairing=Pairing.NONE),
)
"""Settings of channels, blocks and pipeline that won in some experiment."""

SUMS = (
    Variant(pairing=Pairing.NONE, parts=8),
    Variant(pairing=Pairing.NONE, parts=32),
    Variant(pairing=Pairing.NONE, segments=2, parts=8),
)
"""Settings for runtimes whose sums are instructions of their own that take time: the blocks of an
instance share them."""

LONG = 4
"""Number of segments from which twice as many are tried only where these were the best."""


PLAIN = (
    Variant(pairing=Pairing.NONE),
    Variant(instances=2, pairing=Pairing.NONE),
    Variant(instances=4, pairing=Pairing.NONE),
    Variant(pairing=Pairing.NONE, segments=4),
)
"""Forms that fit nearly every schedule."""


def variant_of(plan: TunedPlan) -> Variant:
    """Return the variant with which a plan of a library was compiled."""
    spread, pairing = (plan.options.get(f"{name}.policy") for name in ("channels", "threadblocks"))
    try:
        forms = Spread(str(spread or Spread.LANES)), Pairing(str(pairing or Pairing.AUTO))
        order = Order(str(plan.options.get("lower.order") or Order.PRIORITY))
    except ValueError as error:
        raise BadFile(f"{plan.name}: {error}, in its options", where=MANIFEST) from None
    protocol, parts = protocol_of(plan.protocol), plan.options.get("lower.parts", 1)
    if not isinstance(parts, int) or not 1 <= parts <= MOST_COPIES:
        raise BadFile(f"{plan.name}: {parts!r} parts, in its options", where=MANIFEST)
    return Variant(plan.instances, protocol, *forms, plan.segments, order, parts)
