"""Allreduce from simpler collectives.

*Composed*: a reduce_scatter of k chunks per block, then an allgather of the same blocks, is an
allreduce of n·k chunks (Rabenseifner; SCCL's ``compose``). *One-shot*: an allgather of everybody's
whole buffer, then a sum at home: fewest steps, n times the traffic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Kind, make, one_shot_allreduce
from weft.dsl.nouns.schedule import Schedule


def compose_allreduce(scatter: Schedule, gather: Schedule) -> Schedule:
    """The reduce_scatter schedule followed by the allgather schedule, as one allreduce.

    Chunk j of block b is chunk ``b * k + j`` in all three collectives. Rounds are concatenated
    where both schedules have them.

    Raises:
        UserError: not these two collectives, different cuts, or different machines.
    """
    first, second = scatter.collective, gather.collective
    if first.kind is not Kind.REDUCE_SCATTER or second.kind is not Kind.ALLGATHER:
        raise UserError(f"a reduce_scatter and an allgather are needed, not {first} and {second}")
    if first.factor != second.factor:
        raise UserError(f"blocks are cut in {first.factor} chunks here, in {second.factor} there")
    if scatter.topology != gather.topology:
        raise UserError("the two halves of an allreduce are on different machines")
    if first.sizes != second.sizes:
        raise UserError("the blocks are cut in other shares here than there")
    if scatter.segments != 1 or gather.segments != 1:
        raise UserError("the halves of an allreduce are put together before they are segmented")
    n = first.ranks
    whole = make(Kind.ALLREDUCE, n)
    cut = whole.cut([first.sizes]) if first.sizes else whole.split(n * first.factor)
    offset = len(scatter.rounds) or scatter.steps
    one, two = scatter.columns(), gather.columns()
    two["step"] = two["step"] + offset
    if "priority" in one and "priority" in two:  # what is summed goes before what is handed out
        two["priority"] = two["priority"].astype(np.int64) + one["priority"].max(initial=-1) + 1
    joined: dict[str, Any] = {
        name: np.concatenate([one[name], two[name]]) for name in one if name in two
    }
    rounds = scatter.rounds + gather.rounds
    return Schedule.from_columns(
        scatter.topology,
        cut,
        **joined,
        rounds=rounds if scatter.rounds and gather.rounds else (),
        provenance={
            "reduction": "compose",
            "parts": [dict(scatter.provenance), dict(gather.provenance)],
        },
    )


def one_shot_allreduce_from(gather: Schedule) -> Schedule:
    """An allgather schedule as the allreduce in which every rank sums at home.

    Chunk j of rank r is chunk ``r * k + j`` in both; the transfers are the same.

    Raises:
        UserError: the schedule is no allgather, or its chunks are not equal.
    """
    c = gather.collective
    if c.kind is not Kind.ALLGATHER:
        raise UserError(f"a one-shot allreduce is made from an allgather, not {c}")
    if c.sizes:
        raise UserError("a one-shot allreduce is made of equal chunks; these have unequal sizes")
    return replace(
        gather,
        collective=one_shot_allreduce(c.ranks, chunks=c.factor),
        bytes=None,
        provenance={"reduction": "one-shot", "parts": [dict(gather.provenance)]},
    )
