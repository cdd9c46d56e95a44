"""Classes of chunks of a collective's demand, against counting them one by one."""

from collections import Counter

import numpy as np
import pytest

from weft.dsl.nouns.collective import Collective, custom, make
from weft.synth.bounds.demand import ClassDemand, copying_demand


def moved(collective: Collective) -> Counter[tuple[int, int]]:
    """Count the chunks by holder and destination, of chunks that each have one of both."""
    where = dict(zip(collective.pre.chunks.tolist(), collective.pre.ranks.tolist(), strict=True))
    ends = zip(collective.post.chunks.tolist(), collective.post.ranks.tolist(), strict=True)
    found = Counter((where[chunk], dest) for chunk, dest in ends)
    return Counter({pair: count for pair, count in found.items() if pair[0] != pair[1]})


def of_pairs(pairs: list[tuple[int, int]]) -> Collective:
    """Return chunk i from the i-th pair's first rank to its second, on four ranks."""
    seen: Counter[tuple[str, int]] = Counter()
    pre, post = [], []
    for chunk, (source, dest) in enumerate(pairs):
        pre.append((source, chunk, [source], seen["pre", source]))
        post.append((dest, chunk, [source], seen["post", dest]))
        seen["pre", source] += 1
        seen["post", dest] += 1
    return custom("pairs", 4, pre, post)


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1), (0, 2), (3, 1)],
        [(3, 1), (0, 2), (3, 1), (1, 1), (0, 2), (2, 0), (3, 1)],
        [(2, 0), (0, 2)],
        [(2, 0), (2, 0), (1, 3), (0, 2)],
    ],
)
def test_pairs_are_counted_in_order_of_their_first_chunk(pairs: list[tuple[int, int]]) -> None:
    collective = of_pairs(pairs)
    demand = copying_demand(collective)
    assert demand is not None
    assert demand.unicast
    assert not demand.uniform
    found = list(zip(demand.holders.tolist(), demand.dests.tolist(), strict=True))
    assert found == list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    assert dict(zip(found, demand.weight.tolist(), strict=True)) == moved(collective)
    assert demand.wanted().tolist() == demand.pairs.sum(axis=0).tolist()
    assert demand.spread == ({frozenset(pair) for pair in found} == {frozenset({0, 2})})


@pytest.mark.parametrize("chunks", [1, 3])
def test_what_all_pairs_share_is_what_the_columns_say(chunks: int) -> None:
    demand = copying_demand(make("alltoall", 5, chunks=chunks))
    assert demand is not None
    assert demand.uniform == chunks
    # With one pair short the general ways count.
    short = ClassDemand(
        demand.ranks,
        demand.weight[:-1],
        demand.holders[:-1],
        demand.holder_start[:-1],
        demand.dests[:-1],
        demand.dest_start[:-1],
    )
    assert not short.uniform
    last = np.zeros((5, 5), np.int64)
    last[4, 3] = chunks
    assert (demand.pairs - short.pairs).tolist() == last.tolist()
    assert (demand.needs ^ short.needs).tolist() == (last > 0).tolist()
    assert (demand.wanted() - short.wanted()).tolist() == last.sum(axis=0).tolist()
    for inside in (np.arange(5) < 4, np.arange(5) == 4, np.arange(5) % 2 == 0):
        gone = last[inside][:, ~inside].sum()
        assert demand.across(inside) - short.across(inside) == gone
        assert (demand.leaving(inside) - short.leaving(inside)).sum() == gone
