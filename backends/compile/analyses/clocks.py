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
from weft.dsl.nouns.program import Program


def walk(program: Program, rank: int) -> Iterator[tuple[int, Ints]]:
    """The instructions of a rank in an order its waits allow, each with its clock.

    ``clock[b]`` is the last instruction of block b of the rank that is done before this one begins,
    -1 for none. The array is reused: copy what you keep. Cost: waits × blocks.

    Raises:
        CheckFailed: the waits form a cycle.
    """
    first, end = program.first_block[rank : rank + 2].tolist()
    start = program.block_start[first : end + 1].tolist()
    base = start[0]
    begin = program.wait_start[base : start[-1] + 1]
    waits = program.wait[begin[0] : begin[-1]].tolist()
    wait_at = (begin - begin[0]).tolist()
    owner = (program.block[waits] - first).tolist()
    named = set(waits)
    clocks = np.full((end - first, end - first), -1, np.int64)
    done = start[:-1]  # the next instruction of each block
    published: dict[int, Ints] = {}
    sleeping: dict[int, list[int]] = {}
    ready = deque(range(end - first))
    while ready:
        at = ready.popleft()
        clock = clocks[at]
        while done[at] < start[at + 1]:
            here = done[at]
            own = range(wait_at[here - base], wait_at[here - base + 1])
            late = next((waits[w] for w in own if done[owner[w]] <= waits[w]), None)
            if late is not None:
                sleeping.setdefault(late, []).append(at)
                break
            for w in own:
                np.maximum(clock, published[waits[w]], out=clock)
            yield here, clock
            clock[at] = here - start[at]
            done[at] += 1
            if here in named:
                published[here] = clock.copy()
                ready.extend(sleeping.pop(here, ()))
    for at, here in enumerate(done):
        if here < start[at + 1]:
            raise CheckFailed(
                f"rank {rank}: block {at} waits in a circle at instruction {here - start[at]}"
            )
