"""Chunks that travel together, and copies that are made together."""

from dataclasses import replace

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.passes.aggregate import Aggregate
from weft.backends.compile.passes.channels import Channels
from weft.backends.compile.passes.threadblocks import ThreadBlocks
from weft.backends.compile.passes.trace import Trace
from weft.backends.compile.passes.weave import Weave
from weft.dsl.author.builder import Builder
from weft.dsl.author.standard import Allgather
from weft.dsl.nouns.runtime import MSCCL


def test_copies_that_were_merged_stay_merged() -> None:
    """A pass that runs again, as checking a pipeline pass by pass does, loses nothing."""
    p = Builder(Allgather(2, chunks=3))
    for r in range(2):
        for k in range(3):
            p.chunk(r, 3 * r + k).copy_to(rank=1 - r)
    flow = Channels(1).apply(Trace().apply(p.algorithm(), MSCCL), MSCCL)
    flow = ThreadBlocks().apply(flow, MSCCL)
    once = Aggregate(count=1).apply(flow, MSCCL)
    local = Aggregate(count=3).apply(flow, MSCCL).local
    assert local.count.tolist() == [3, 3]
    twice = Aggregate(count=1).apply(replace(once, local=local), MSCCL)
    assert twice.local.count.tolist() == [3, 3]
    assert not errors(check_program(Weave("twice").apply(twice, MSCCL)))
