"""Programs at random that end: what is sent is received, and nothing waits in a circle."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from timed_programs import instr, program

from weft.dsl.nouns.program import Block, Instr, Program


@dataclass
class Draft:
    """A thread block that is being written."""

    send: int | None
    recv: int | None
    channel: int
    code: list[Instr] = field(default_factory=list)


def random_program(dice: random.Random) -> Program:
    """Two to five ranks; single messages, forwarded ones, local work and waits in any order.

    Instructions are written in an order in which they could be done one after the other, so the
    program ends whatever the FIFOs hold.
    """
    ranks, chunks = dice.randint(2, 5), 6
    blocks: list[list[Draft]] = [[] for _ in range(ranks)]
    paths = [_path(dice, blocks, channel) for channel in range(dice.randint(1, 4))]
    for _ in range(dice.randint(1, 12)):
        if dice.random() < 0.25:
            rank = dice.randrange(ranks)
            if blocks[rank]:
                block = dice.randrange(len(blocks[rank]))
                _write(dice, blocks[rank], block, dice.choice(("cpy", "re", "nop")), chunks, 1)
        else:
            count, path = dice.choice((1, 1, 2, 3)), dice.choice(paths)
            for place, (rank, block) in enumerate(path):
                last = place == len(path) - 1
                op = "s" if not place else "r" if last else dice.choice(("rcs", "rrcs", "rrs"))
                _write(dice, blocks[rank], block, op, chunks, count)
    bodies = [[Block(b.channel, b.send, b.recv, tuple(b.code)) for b in rank] for rank in blocks]
    return program(dice.choice(("allreduce", "broadcast")), bodies, ranks * chunks)


def _path(dice: random.Random, blocks: list[list[Draft]], channel: int) -> list[tuple[int, int]]:
    """Neighbours on a line through some ranks, by new blocks: (rank, block) of each."""
    most, first = len(blocks), dice.randrange(len(blocks))
    length = dice.randint(2, most)
    through = [(first + k) % most for k in range(length)]
    if dice.random() < 0.5:
        through.reverse()
    path = []
    for place, rank in enumerate(through):
        send = through[place + 1] if place < length - 1 else None
        path.append((rank, len(blocks[rank])))
        blocks[rank].append(Draft(send, through[place - 1] if place else None, channel))
    return path


def _write(
    dice: random.Random, rank: list[Draft], block: int, op: str, chunks: int, count: int
) -> None:
    """An instruction that waits for some of those before it on its rank."""
    waits = []
    for other, draft in enumerate(rank):
        if other != block and draft.code and dice.random() < 0.4:
            waits.append((other, dice.randrange(len(draft.code))))
    place = f"o{dice.randrange(chunks - count + 1)}"
    rank[block].code.append(instr(op, place, 0 if op == "nop" else count, tuple(waits)))
