"""Certificates in words and numbers that a reader can check by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, rounded
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate

_SHOWN = 24


@dataclass(frozen=True, slots=True)
class BandwidthBound:
    """The parts of :class:`.bounds.Bounds` that are of bandwidth.

    ``rooted``: a larger bound, which only schedules of the kind :data:`.bounds.ROOTED` keep.
    """

    us_per_byte: Fraction
    certificate: Certificate
    attainable: Fraction | None = None
    remark: str = ""
    rooted: BandwidthBound | None = None


def carried(
    kind: str,
    text: str,
    chunks: Fraction | int,
    capacity: Fraction,
    message_chunks: int | None,
    before: Mapping[str, Any],
    after: Mapping[str, Any] | None = None,
) -> BandwidthBound:
    """The bound of ``chunks`` (M is ``message_chunks``; None: 1) over ``capacity`` GB/s.

    ``text`` says why; the arithmetic is added to it, as are both results to the data between
    ``before`` and ``after``.
    """
    share = Fraction(chunks) / (message_chunks or 1)
    us_per_byte = share / capacity / BYTES_PER_US_PER_GBPS
    arithmetic = (
        f"T >= {'M' if share == 1 else f'{rounded(share)}·M'} / ({rounded(capacity)} GB/s), "
        f"that is {rounded(us_per_byte * 10**6)} ps per byte of M"
    )
    of = {} if message_chunks is None else {"message_chunks": message_chunks}
    data = {**before, **of, "us_per_byte": str(us_per_byte), **(after or {})}
    return BandwidthBound(us_per_byte, Certificate(kind, f"{text}. {arithmetic}", data))


def names(topology: Topology, nodes: Iterable[int]) -> str:
    """Node names in braces; long lists are cut short."""
    listed = [topology.nodes[i].name for i in nodes]
    shown = ", ".join(listed[:_SHOWN])
    return "{" + shown + (f", … {len(listed)} nodes" if len(listed) > _SHOWN else "") + "}"


def listed(words: Sequence[str], between: str = ", ") -> str:
    """Words with ``between`` them; long lists are cut short."""
    return between.join(words[:_SHOWN]) + (f"{between}…" if len(words) > _SHOWN else "")


def chunk_words(chunks: int, message_chunks: int) -> str:
    """``3 chunks (M is 4)``."""
    return f"{count(chunks, 'chunk')} (M is {message_chunks})"


def capacity_words(topology: Topology, crossing: Any) -> str:
    """Links of a :class:`.cut.Crossing` and their load: ``6 links, 4·25 + 2·50 = 200 GB/s``."""
    bandwidth = topology.capacities()
    groups: dict[tuple[Fraction, Fraction], int] = {}
    for row, times in crossing.cover:
        key = (times, bandwidth[row])
        groups[key] = groups.get(key, 0) + 1
    terms = []
    for (times, each), many in sorted(groups.items()):
        factors = [str(many)] * (many > 1) + [rounded(times)] * (times != 1)
        terms.append("·".join([*factors, rounded(each)]))
    shared = [row - len(topology.links) for row, _ in crossing.cover if row >= len(topology.links)]
    shared_names = ", ".join(topology.resources[i].name for i in shared[:_SHOWN])
    via = f" (shared: {shared_names})" if shared else ""
    total = f" = {rounded(crossing.capacity)}" if len(terms) > 1 or sum(groups.values()) > 1 else ""
    many = len(crossing.links)
    return f"{many} link{'s' if many > 1 else ''}{via}: {' + '.join(terms)}{total} GB/s"


def prices_of(values: Iterable[int]) -> list[list[int]]:
    """(resource, price) of everything that costs something."""
    return [[row, int(price)] for row, price in enumerate(values) if price]


def price_words(topology: Topology, priced: Sequence[Sequence[int]]) -> str:
    """Resources by price: ``every link at 1`` or ``gpu0->gpu1, nic0 at 2; gpu1->gpu2 at 1``."""
    links, nodes = topology.links, topology.nodes
    by_price: dict[int, list[int]] = {}
    for row, price in priced:
        by_price.setdefault(price, []).append(row)
    if list(map(sorted, by_price.values())) == [list(range(len(links)))]:
        return f"every link at {priced[0][1]}"
    ends = [f"{nodes[x.src].name}->{nodes[x.dst].name}" for x in links]
    resources = [*ends, *(x.name for x in topology.resources)]
    return "; ".join(
        f"{listed([resources[row] for row in rows])} at {price}"
        for price, rows in sorted(by_price.items(), reverse=True)
    )


def line_words(us: Fraction, us_per_byte: Fraction) -> str:
    """The affine bound in words."""
    return f"T >= {rounded(us)} µs + {rounded(us_per_byte * 10**6)} ps per byte of M"
