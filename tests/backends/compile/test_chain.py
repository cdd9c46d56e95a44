"""Runs of sums: merged by the runtime, proved, and computed right."""

import patterns
import pytest

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.sync import Chain, Sync
from weft.backends.execute.execute import run_program
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read.msccl_xml import read_msccl_xml
from weft.dsl.nouns.program import Op, Program
from weft.dsl.nouns.runtime import MSCCL, RCCL, Target


def runs(program: Program, target: Target) -> list[int]:
    """Sources of every sum, as a runtime's reader merges them."""
    algo = read_msccl_xml(emit(program, target, max_bytes=1 << 20))
    assert not errors(check_xml(algo, target.name))
    return [
        1 + len(t.more_sources)
        for rank in algo.ranks
        for block in rank.blocks
        for t in block.transfers
        if t.op is Op.REDUCE
    ]


@pytest.mark.parametrize("target", [MSCCL, RCCL], ids=lambda t: t.name)
@pytest.mark.parametrize("ranks", [4, 8])
def test_one_shot_sums_at_once(target: Target, ranks: int) -> None:
    options = CompileOptions(target=target, passes=(Sync(),))
    program = lower_schedule(patterns.one_shot(ranks, 1), options)
    chained = Chain().apply(program, target)
    before, after = runs(program, target), runs(chained, target)
    assert sum(before) == sum(after) == ranks * (ranks - 1)
    assert len(after) < len(before)
    assert max(after) == ranks - 1
    assert not errors(check_program(chained))
    assert run_program(chained, interleavings=8).ok
    assert Chain().apply(chained, target) is chained


def test_no_more_sources_than_the_runtime_adds_up_right() -> None:
    program = lower_schedule(patterns.one_shot(18, 1), CompileOptions(passes=(Sync(),)))
    found = runs(Chain().apply(program, MSCCL), MSCCL)
    assert sum(found) == 18 * 17
    assert max(found) == MSCCL.max_fused_reduces
