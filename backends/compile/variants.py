"""Variants of compilation: instances, channels for chains, pairing of blocks, protocol, order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.library import MANIFEST, MOST_COPIES, TunedPlan
from weft.dsl.nouns.program import Protocol, protocol_of
from weft.dsl.nouns.runtime import Target

from .analyses.planned import Order
from .compile import CompileOptions
from .passes.channels import Spread
from .passes.threadblocks import Pairing
from .pipeline import SETTINGS


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
    lanes: int = 0

    @property
    def words(self) -> str:
        """Return ``LL128 x4 chains``: short, and different for different variants."""
        words = [str(self.protocol), f"x{self.instances}"]
        words += [str(self.spread)] if self.spread is not Spread.LANES else []
        words += [f"pairs={self.pairing}"] if self.pairing is not Pairing.AUTO else []
        words += [f"in {self.segments} segments"] if self.segments > 1 else []
        words += [f"sums in {self.parts} parts"] if self.parts > 1 else []
        words += [f"in {self.lanes} lanes"] if self.lanes else []
        words += [f"by {self.order}"] if self.order is not Order.PRIORITY else []
        return " ".join(words)

    @property
    def pieces(self) -> int:
        """Return into how many chunks of a program one of a schedule is cut."""
        return self.segments * self.parts * self.instances

    @property
    def passes(self) -> dict[str, str | int]:
        """Return the values of ``weft compile -p`` by setting, where they differ from the
        default."""
        mine, plain = self.to_json(), Variant().to_json()
        return {key: mine[x] for key, x in SETTINGS.items() if mine[x] != plain[x]}

    def options(self, target: Target, *, in_place: bool = False, name: str = "") -> CompileOptions:
        """Return the compiler options."""
        return replace(CompileOptions(target, in_place=in_place, name=name), **self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the fields by name, as those of :class:`.CompileOptions`."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def to_json(self) -> dict[str, str | int]:
        """Return the JSON for a job."""
        return {k: x if isinstance(x, int) else str(x) for k, x in self.settings.items()}

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
            data["lanes"],
        )


LANES = 4
"""Thread blocks that share the chunks of a connection. A block serves one chunk after the other in
one order, and one that is late holds up all behind it; so boxes with damage, whose trees differ
from host to host, come to 1.35 times the bound in four lanes, and to 1.7 times in one."""

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
    parts = _number(plan, "lower.parts", 1)
    lanes = _number(plan, "channels.lanes", 0)
    protocol = protocol_of(plan.protocol)
    return Variant(plan.instances, protocol, *forms, plan.segments, order, parts, lanes)


def _number(plan: TunedPlan, option: str, default: int) -> int:
    found = plan.options.get(option, default)
    if not isinstance(found, int) or not default <= found <= MOST_COPIES:
        noun = option.partition(".")[2]
        raise BadFile(f"{plan.name}: {found!r} {noun}, in its options", where=MANIFEST)
    return found
