"""Rounds of a script as permutations, for runtimes that run one program on all ranks (JAX).

A round is a number of permutations, all of which read what held before the round, and then work in
waves: all operations of a wave read what held before it. ::

    rank 0, round 1: o[4] > 1, s[0] < 3; o[4] = o[4] + s[0]      (a script, one line per rank)

    "0 > 1, 1 > 2: o[4] -> s[0]; 2 > 3: o[5] -> s[0]"            (a permutation)
    "0, 1: o[4] = o[4] + s[0]; 2: o[5] = o[5] + s[0]"            (a wave)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from weft.dsl.base.errors import BadFile
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from .matchings import Pair, matchings
from .model import ChunkRange, LocalOperation, Message, Round, Script
from .text import part_text, read_part, read_work, work_text


@dataclass(frozen=True, slots=True)
class Route:
    """One message of a permutation: the chunks sent, and those they come into, part by part."""

    pair: Pair
    sent: tuple[ChunkRange, ...]
    got: tuple[ChunkRange, ...]

    @property
    def chunks(self) -> int:
        """Length of the message."""
        return sum(part.count for part in self.sent)


Permute = tuple[Route, ...]
"""Messages of which each rank sends at most one and receives at most one."""

Wave = tuple[tuple[LocalOperation, ...], ...]
"""Operations of every rank, none of which touches a slot that an earlier one of them wrote."""


@dataclass(frozen=True, slots=True)
class PermuteRound:
    """Permutations, then waves of work."""

    permutes: tuple[Permute, ...]
    waves: tuple[Wave, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of rounds: permutations, and chunks sent with and without padding."""

    permutes: int
    chunks: int
    padded: int

    @property
    def padding(self) -> float:
        """Share by which messages grow because a permutation has one length."""
        return self.padded / self.chunks - 1 if self.chunks else 0.0


def cost_of(rounds: Sequence[PermuteRound]) -> Cost:
    """Return the number of permutations of some rounds and their padding."""
    every = [[route.chunks for route in one] for r in rounds for one in r.permutes]
    return Cost(len(every), sum(map(sum, every)), sum(max(one) * len(one) for one in every))


# --- from a script and back -----------------------------------------------------------------------


def permuted(script: Script) -> tuple[PermuteRound, ...]:
    """Return the rounds of a script, which must be right, as permutations and waves."""
    return tuple(_permuted(script, number) for number in range(script.rounds))


def _permuted(script: Script, number: int) -> PermuteRound:
    sent, got = defaultdict(list), defaultdict(list)
    for rank, own in enumerate(script.ranks):
        for message in own[number].sends:
            sent[rank, message.peer].append(message.part)
        for message in own[number].recvs:
            got[message.peer, rank].append(message.part)
    routes = {pair: Route(pair, tuple(parts), tuple(got[pair])) for pair, parts in sent.items()}
    sets = matchings({pair: one.chunks for pair, one in routes.items()}, script.grid)
    ranks = range(len(script.ranks))
    split = [list(_waves(script, rank, script.ranks[rank][number].work)) for rank in ranks]
    deepest = max(map(len, split))
    waves = tuple(
        tuple(own[depth] if depth < len(own) else () for own in split) for depth in range(deepest)
    )
    return PermuteRound(tuple(tuple(routes[pair] for pair in one) for one in sets), waves)


def _waves(
    script: Script, rank: int, work: Sequence[LocalOperation]
) -> Iterator[tuple[LocalOperation, ...]]:
    """Cut work, in order, before each operation that reads a write since the last cut."""
    wave: list[LocalOperation] = []
    written: set[int] = set()
    for one in work:
        into, read = _touched(script, rank, one)
        if written & (into | read):
            yield tuple(wave)
            wave, written = [], set()
        wave.append(one)
        written |= into
    if wave:
        yield tuple(wave)


def _touched(script: Script, rank: int, one: LocalOperation) -> tuple[set[int], set[int]]:
    """Return the rows that an operation writes and reads; in place, i and o have some in common."""
    first = bases(script, rank)

    def rows(part: ChunkRange) -> range:
        begin = first[part.buffer] + part.first
        return range(begin, begin + part.count)

    return set(rows(one.into)), {row for term in one.terms for row in rows(term)}


def bases(script: Script, rank: int) -> dict[Buffer, int]:
    """Return the rows of a rank's memory at which its buffers begin."""
    c = script.collective
    if not script.in_place:
        return {
            Buffer.INPUT: 0,
            Buffer.OUTPUT: c.input_chunks,
            Buffer.SCRATCH: c.input_chunks + c.output_chunks,
        }
    shift = c.in_place_shift(rank)
    given, result = max(shift, 0), max(-shift, 0)
    end = max(given + c.input_chunks, result + c.output_chunks)
    return {Buffer.INPUT: given, Buffer.OUTPUT: result, Buffer.SCRATCH: end}


def rows_of(script: Script) -> int:
    """Return the rows (chunks) of memory that the largest rank needs."""
    return max(bases(script, r)[Buffer.SCRATCH] + s for r, s in enumerate(script.scratch))


def scripted(rounds: Sequence[PermuteRound], ranks: int) -> tuple[tuple[Round, ...], ...]:
    """Return the rounds of every rank, as a script has them."""
    return tuple(tuple(_of_rank(one, rank, ranks) for one in rounds) for rank in range(ranks))


def _of_rank(one: PermuteRound, rank: int, ranks: int) -> Round:
    sends, recvs = [], []
    for route in (route for permute in one.permutes for route in permute):
        source, target = route.pair
        sends += [Message(part, target) for part in route.sent if source == rank]
        recvs += [Message(part, source) for part in route.got if target == rank]
    for own in (sends, recvs):
        own.sort(key=lambda message: (message.peer - rank) % ranks)
    work = tuple(operation for wave in one.waves for operation in wave[rank])
    return Round(tuple(sends), tuple(recvs), work)


def require_permutes(script: Script, rounds: Sequence[PermuteRound], where: str) -> None:
    """Require that permutations are some, and that waves do not depend on the order of their work.

    What scripts are judged for is not looked at here.

    Raises:
        BadFile: a rank sends or receives twice in a permutation, or a wave reads what it writes.
    """
    for number, one in enumerate(rounds, 1):
        for k, permute in enumerate(one.permutes, 1):
            for side, word in ((0, "sends"), (1, "receives")):
                ends = [route.pair[side] for route in permute]
                twice = next((rank for rank in ends if ends.count(rank) > 1), None)
                if twice is not None:
                    raise BadFile(
                        f"round {number}, permutation {k}: rank {twice} {word} twice", where=where
                    )
                if max(ends) >= script.collective.ranks:
                    raise BadFile(
                        f"round {number}, permutation {k}: rank {max(ends)} {word}; there are "
                        f"{script.collective.ranks}",
                        where=where,
                    )
        for wave in one.waves:
            for rank, work in enumerate(wave):
                if len(list(_waves(script, rank, work))) > 1:
                    raise BadFile(
                        f"round {number}: work of rank {rank} in one wave needs what the wave "
                        "writes",
                        where=where,
                    )


# --- text -----------------------------------------------------------------------------------------

Texts = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""Rounds as files have them: the texts of permutations, and those of waves."""


def write_rounds(rounds: Sequence[PermuteRound]) -> Texts:
    """Return the texts of rounds."""
    return tuple(
        (tuple(map(_permute, one.permutes)), tuple(map(_wave, one.waves))) for one in rounds
    )


def _permute(permute: Permute) -> str:
    """``0 > 1, 1 > 2: o[4] -> s[0]``: pairs whose messages have the same chunks go together."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for route in permute:
        sent, got = (" ".join(map(part_text, parts)) for parts in (route.sent, route.got))
        pairs[f"{sent} -> {got}"].append("{} > {}".format(*route.pair))
    return "; ".join(f"{', '.join(ends)}: {chunks}" for chunks, ends in pairs.items())


def _wave(wave: Wave) -> str:
    """``0, 1: o[4] = o[4] + s[0]``: ranks that do the same go together."""
    ranks: dict[str, list[str]] = defaultdict(list)
    for rank, work in enumerate(wave):
        if work:
            ranks[", ".join(map(work_text, work))].append(str(rank))
    return "; ".join(f"{', '.join(some)}: {work}" for work, some in ranks.items())


def read_rounds(texts: Texts, ranks: int, where: str) -> tuple[PermuteRound, ...]:
    """Read the text of :func:`write_rounds`.

    Raises:
        BadFile: anything else.
    """
    rounds = []
    for number, (permutes, waves) in enumerate(texts, 1):
        here = f"{where}: round {number}"
        rounds.append(
            PermuteRound(
                tuple(_read_permute(text, here) for text in permutes),
                tuple(_read_wave(text, ranks, here) for text in waves),
            )
        )
    return tuple(rounds)


_ENDS = re.compile(r"(\d+) > (\d+)")


def _read_permute(text: str, where: str) -> Permute:
    routes = []
    for group in text.split("; "):
        pairs, colon, chunks = group.partition(": ")
        sent, arrow, got = chunks.partition(" -> ")
        matches = [_ENDS.fullmatch(pair) for pair in pairs.split(", ")]
        if not colon or not arrow or None in matches:
            raise BadFile(f"{group!r} is not messages such as 0 > 1: o[3] -> s[0]", where=where)
        from_, into = (
            tuple(read_part(part, where) for part in parts.split(" ")) for parts in (sent, got)
        )
        ends = [(int(match[1]), int(match[2])) for match in matches if match]
        routes += [Route(pair, from_, into) for pair in ends]
    return tuple(routes)


def _read_wave(text: str, ranks: int, where: str) -> Wave:
    wave: list[tuple[LocalOperation, ...]] = [()] * ranks
    for group in text.split("; "):
        some, colon, work = group.partition(": ")
        named = [int(rank) for rank in some.split(", ") if rank.isdecimal()]
        if (
            not colon
            or len(named) < some.count(",") + 1
            or any(r >= ranks or wave[r] for r in named)
        ):
            raise BadFile(f"{group!r} is not work such as 0, 1: o[3] = i[3] + s[0]", where=where)
        operations = tuple(read_work(one, where) for one in work.split(", "))
        for rank in named:
            wave[rank] = operations
    return tuple(wave)
