"""An independent reading of an algorithm's moves: carried out on numbers, one after another."""

from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.program import Buffer
from weft.dsl.nouns.slots import slice_of

Place = tuple[int, str, int]


def _memory(algorithm: Algorithm, rank: int, slot: int) -> Place:
    """The memory behind a slot: in place, input and output are one."""
    part = slice_of(slot)
    if algorithm.in_place and part.buffer is Buffer.INPUT:
        aliased = part.offset + algorithm.collective.in_place_shift(rank)
        if 0 <= aliased < algorithm.collective.output_chunks:
            return rank, Buffer.OUTPUT.value, aliased
    return rank, part.buffer.value, part.offset


def carried_out(algorithm: Algorithm) -> dict[Place, int]:
    """What every place holds in the end: a contribution is a digit of its own in base 2^16.

    The contribution of rank r to chunk k is the number 2^(16 (k ranks + r)); sums are sums, so a
    contribution counted twice, or a foreign chunk, shows.
    """
    c = algorithm.collective
    memory: dict[Place, int] = {}
    for rank, chunk, which, offset in c.pre.rows().tolist():
        at = _memory(algorithm, rank, offset)
        memory[at] = sum(1 << 16 * (chunk * c.ranks + who) for who in c.contributions[which])
    m = algorithm.moves
    for src, source, dst, target, operand in zip(
        *(x.tolist() for x in (m.src, m.source, m.dst, m.target, m.operand)), strict=True
    ):
        value = memory[_memory(algorithm, src, source)]
        if operand >= 0:
            value += memory[_memory(algorithm, dst, operand)]
        memory[_memory(algorithm, dst, target)] = value
    return memory


def achieves(algorithm: Algorithm) -> bool:
    """Whether every output chunk ends as the collective wants it."""
    c, memory = algorithm.collective, carried_out(algorithm)
    return all(
        memory.get((rank, Buffer.OUTPUT.value, offset))
        == sum(1 << 16 * (chunk * c.ranks + who) for who in c.contributions[which])
        for rank, chunk, which, offset in c.post.rows().tolist()
    )


def writes_input(algorithm: Algorithm) -> bool:
    """Whether a move writes a slot named as input."""
    return bool((algorithm.moves.target < 1 << 32).any())
