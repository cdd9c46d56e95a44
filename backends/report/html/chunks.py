"""Descriptions of the chunks of a collective: initial and final ranks of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement

MOST_NAMED = 6_000
"""Largest number of chunks that are described; the others have a number only."""

FEW_NAMED = 600


def chunk_names(collective: Collective, most: int = MOST_NAMED) -> list[list[str]]:
    """Return for each chunk the ranks on which it starts and on which it must end, in words."""
    start, end = _holders(collective.pre), _holders(collective.post)
    everybody = collective.ranks
    return [
        [_words(start.get(k, set()), everybody), _words(end.get(k, set()), everybody)]
        for k in range(min(most, collective.chunks))
    ]


def _holders(placement: Placement) -> dict[int, set[int]]:
    held: dict[int, set[int]] = defaultdict(set)
    for rank, chunk in zip(placement.ranks.tolist(), placement.chunks.tolist(), strict=True):
        held[chunk].add(rank)
    return held


def _words(ranks: set[int], everybody: int) -> str:
    if not ranks:
        return "nowhere"
    if len(ranks) == everybody and everybody > 1:
        return "all ranks"
    return f"rank{'s' if len(ranks) > 1 else ''} {runs(ranks)}"


def runs(numbers: Iterable[int]) -> str:
    """Return sorted numbers with runs joined: ``0–3, 7``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in found)
