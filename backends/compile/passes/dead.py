"""Algorithm to algorithm: drop moves whose result is never read.

Before::

    rank 1: s[0] = i[0]      (o[0] is the same memory)      rank 1: o[0] = rank 0: i[1]

After, if nothing reads s[0]::

    rank 1: o[0] = rank 0: i[1]

One walk backwards over the moves: a slot is live if the collective wants it in the end or a later
move that stays reads it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import ClassVar

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.slots import NONE, OUTPUT, WIDE


@dataclass(frozen=True, slots=True)
class Dead:
    """Keep what leads to the postcondition."""

    name: ClassVar[str] = "dead"

    def apply(self, algorithm: Algorithm, target: Target) -> Algorithm:
        """Return the algorithm without the moves that nothing needs."""
        m, post = algorithm.moves, algorithm.collective.post
        wanted = post.ranks.astype(np.int64) * WIDE + OUTPUT + post.offsets
        live = set(wanted.tolist())
        reads, base = (m.src * WIDE + m.source).tolist(), m.dst * WIDE
        writes = (base + m.target).tolist()
        adds = np.where(m.operand == NONE, NONE, base + m.operand).tolist()
        kept = np.ones(len(m), bool)
        for i in range(len(m) - 1, -1, -1):
            if writes[i] not in live:
                kept[i] = False
                continue
            live.discard(writes[i])
            if adds[i] != NONE:
                live.add(adds[i])
            live.add(reads[i])
        if kept.all():
            return algorithm
        columns = (getattr(m, field.name)[kept] for field in fields(m))
        return replace(algorithm, moves=Moves(*columns))
