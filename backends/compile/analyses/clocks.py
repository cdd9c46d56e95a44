"""What is known to be done on a rank before an instruction begins: one number per thread block.

The order that a rank's own code gives: the blocks' code and the waits. Messages through other
ranks order more; whoever asks here is told less than the truth, never more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.program import Instr, RankProgram

Place = tuple[int, int]
"""Block and index of an instruction."""


def walk(code: RankProgram, rank: int) -> Iterator[tuple[Place, Instr, Ints]]:
    """The instructions of a rank in an order its waits allow, each with its clock.

    ``clock[b]`` is the last instruction of block b that is done before this one begins, -1 for
    none. The array is reused: copy what you keep. Cost: waits × blocks.

    Raises:
        CheckFailed: the waits form a cycle.
    """
    blocks = [block.code for block in code]
    named = {w for own in blocks for instr in own for w in instr.waits}
    clocks = np.full((len(blocks), len(blocks)), -1, np.int64)
    done = [0] * len(blocks)
    published: dict[Place, Ints] = {}
    sleeping: dict[Place, list[int]] = {}
    ready = deque(range(len(blocks)))
    while ready:
        at = ready.popleft()
        clock = clocks[at]
        while done[at] < len(blocks[at]):
            here = (at, done[at])
            instr = blocks[at][done[at]]
            late = next((w for w in instr.waits if done[w[0]] <= w[1]), None)
            if late is not None:
                sleeping.setdefault(late, []).append(at)
                break
            for wait in instr.waits:
                np.maximum(clock, published[wait], out=clock)
            yield here, instr, clock
            clock[at] = here[1]
            done[at] += 1
            if here in named:
                published[here] = clock.copy()
                ready.extend(sleeping.pop(here, ()))
    for at, own in enumerate(blocks):
        if done[at] < len(own):
            raise CheckFailed(
                f"rank {rank}: block {at} waits in a circle at instruction {done[at]}"
            )
