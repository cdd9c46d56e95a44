"""No flag behind a plain send on RCCL under LL: what needs one is fenced, proved and right."""

import pytest
from classics import wrong

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.backends.compile.passes.sync import Fence
from weft.backends.compile.pipeline import DEFAULT_PASSES
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Op, Program, Protocol
from weft.dsl.nouns.runtime import MSCCL, RCCL
from weft.synth.engines.classic.flat import classic_algorithm

NAMES = ("biring", "double_tree", "recursive_doubling", "halving_doubling", "swing", "one_shot")


def compiled(name: str, in_place: bool, protocol: Protocol, *, fenced: bool = True) -> Program:
    passes = tuple(p for p in DEFAULT_PASSES if fenced or not isinstance(p, Fence))
    options = CompileOptions(RCCL, protocol=protocol, in_place=in_place, passes=passes)
    return lower_algorithm(classic_algorithm(name, "allreduce", 8, in_place=in_place), options)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_allreduce_can_be_written_for_rccl_under_ll(name: str, in_place: bool) -> None:
    program = compiled(name, in_place, Protocol.LL)
    assert wrong(program, 4) == ""
    for rank in program.ranks:  # nobody waits for a send
        waited = {w for block in rank for i in block.code for w in i.waits}
        assert not any(rank.blocks[b].code[i].op is Op.SEND for b, i in waited)
    text = emit(program, RCCL)
    assert not errors(check_xml(read_msccl_xml(text, "f.xml"), "rccl"))


def test_without_the_fence_it_is_refused_and_the_pass_named() -> None:
    program = compiled("recursive_doubling", True, Protocol.LL, fenced=False)
    assert not errors(check_program(program))  # right by itself: only RCCL's flags are late
    with pytest.raises(UserError, match="overwrites on rank 0") as caught:
        emit(program, RCCL)
    assert "fence" in caught.value.hint


def test_where_flags_are_in_time_nothing_changes() -> None:
    program = compiled("recursive_doubling", True, Protocol.SIMPLE, fenced=False)
    assert Fence().apply(program, RCCL) is program
    under_ll = compiled("recursive_doubling", True, Protocol.LL, fenced=False)
    assert Fence().apply(under_ll, MSCCL) is under_ll
    assert len(Fence().apply(under_ll, RCCL).ranks[0].blocks) == len(under_ll.ranks[0].blocks)
