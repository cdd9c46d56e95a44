"""Demand of a collective: chunks held and wanted, as bits, one row of words per rank."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints, Ints32, Words, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind


@dataclass(frozen=True, eq=False)
class ChunkDemand:
    """The holders and the wanters of every chunk, in columns (rank, chunk)."""

    ranks: int
    chunks: int
    held_by: Ints
    held: Ints
    wanted_by: Ints
    wanted: Ints

    @property
    def everywhere(self) -> bool:
        """True if every rank holds or wants every chunk."""
        return len(self.held) + len(self.wanted) == self.ranks * self.chunks


def demand_of(collective: Collective) -> ChunkDemand:
    """The demand of a copying collective.

    Raises:
        UserError: a chunk starts as different things in different places.
    """
    c = collective
    sets = np.full(c.chunks, -1, np.int64)
    sets[c.pre.chunks] = c.pre.sets
    same = {who: i for i, who in reversed([*enumerate(c.contributions)])}
    number = np.array([same[who] for who in c.contributions], np.int64)
    for placement in (c.pre, c.post):
        if (number[sets[placement.chunks]] != number[placement.sets]).any():
            raise UserError(
                f"{c}: a chunk is not the same wherever it starts and ends",
                hint="give chunks of different contents different numbers",
            )
    columns = (c.pre.ranks, c.pre.chunks, c.post.ranks, c.post.chunks)
    held_by, held, wanted_by, wanted = (x.astype(np.int64) for x in columns)
    if c.kind is Kind.CUSTOM:  # a place may be named twice, with two offsets
        held_by, held = np.divmod(distinct_values(held_by * c.chunks + held), c.chunks)
        wanted_by, wanted = np.divmod(distinct_values(wanted_by * c.chunks + wanted), c.chunks)
    lacks = ~np.isin(wanted_by * c.chunks + wanted, held_by * c.chunks + held)
    return ChunkDemand(c.ranks, c.chunks, held_by, held, wanted_by[lacks], wanted[lacks])


def refusal(collective: Collective) -> str | None:
    """Return in words why a collective lacks such a demand; None if it has one."""
    if collective.combining:
        return f"{collective.name or collective.kind} adds up on the way"
    try:
        demand_of(collective)
    except UserError as error:
        return error.message
    return None


@dataclass(frozen=True, eq=False)
class Tables:
    """Bits of a demand: chunks that ranks have, and those they have, are promised or do not want.

    ``chunk_of`` names the chunk of each bit: they are shuffled, so that the chunks of a word are a
    sample. ``missing``: how many each rank lacks; ``count``: how many ranks have each bit's chunk.
    """

    have: Words
    promised: Words
    missing: Ints
    count: Ints
    chunk_of: Ints32


def tables(demand: ChunkDemand, seed: int) -> Tables:
    """The bits of a demand, shuffled by a seed."""
    words, bit_of, chunk_of = _shuffled(demand.chunks, seed)
    have = _bits(demand.ranks, words, demand.held_by, bit_of[demand.held])
    promised = ~_bits(demand.ranks, words, demand.wanted_by, bit_of[demand.wanted])
    count = np.zeros(words * 64, np.int64)
    np.add.at(count, bit_of[demand.held], 1)
    missing = np.bincount(demand.wanted_by, minlength=demand.ranks).astype(np.int64)
    return Tables(have, promised, missing, count, chunk_of)


def allgather_tables(ranks: int, pieces: int, seed: int) -> Tables:
    """The bits of an allgather of ``pieces`` chunks per rank, made without columns of all places.

    Chunk ``r * pieces + k`` is piece k of rank r. Memory: two bits per rank and chunk.
    """
    chunks = ranks * pieces
    words, bit_of, chunk_of = _shuffled(chunks, seed)
    have = _bits(ranks, words, np.arange(chunks) // pieces, bit_of)
    promised = have.copy()
    if chunks % 64:
        promised[:, -1] |= ~np.uint64((1 << chunks % 64) - 1)
    count = np.ones(words * 64, np.int64)
    missing = np.full(ranks, chunks - pieces, np.int64)
    return Tables(have, promised, missing, count, chunk_of)


def _shuffled(chunks: int, seed: int) -> tuple[int, Ints, Ints32]:
    """Return words for the chunks, the bit of each, and the chunk of each bit."""
    bit_of = np.random.default_rng(seed).permutation(chunks)
    chunk_of = np.empty(chunks, np.int32)
    chunk_of[bit_of] = np.arange(chunks, dtype=np.int32)
    return (chunks + 63) // 64, bit_of, chunk_of


def _bits(ranks: int, words: int, rows: Ints, bits: Ints) -> Words:
    table = np.zeros((ranks, words), np.uint64)
    np.bitwise_or.at(table, (rows, bits >> 6), np.uint64(1) << (bits & 63).astype(np.uint64))
    return table
