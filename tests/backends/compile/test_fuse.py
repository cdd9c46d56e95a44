"""Fusion: right on random programs, and careful where messages alone order accesses."""

import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from wait_programs import local_edges, longest, message_edges

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes import fuse
from weft.backends.compile.passes.fuse import Fuse
from weft.backends.compile.passes.prune import Elide
from weft.backends.execute.execute import run_program
from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, Protocol, RankProgram, Slice
from weft.dsl.nouns.runtime import MSCCL, RCCL


def ops(program: Program) -> list[Op]:
    return [i.op for rank in program.ranks for b in rank for i in b.code]


@settings(max_examples=examples(20, 40), deadline=None)
@given(data=st.data())
def test_random_programs(data: st.DataObject) -> None:
    """Proved and run after each pass; sends stay, receives go into them; no path grows."""
    schedule = patterns.random_allreduce(
        data.draw(st.integers(2, 6)), data.draw(st.integers(1, 6)), data.draw(st.integers(0, 10**6))
    )
    woven = lower_schedule(
        schedule,
        CompileOptions(
            passes=(),
            protocol=data.draw(st.sampled_from([Protocol.SIMPLE, Protocol.LL])),
            count=data.draw(st.integers(0, 4)),
            lanes=data.draw(st.integers(0, 2)),
            in_place=data.draw(st.booleans()),
        ),
    )
    fused = Fuse().apply(woven, MSCCL)
    short = Elide().apply(fused, MSCCL)
    sends = [sum(op.sends for op in ops(p)) for p in (woven, fused, short)]
    receives = [sum(op.receives for op in ops(p)) for p in (woven, fused, short)]
    assert len(set(sends)) == len(set(receives)) == 1
    assert len(ops(fused)) <= len(ops(woven))
    edges = [local_edges(p) + message_edges(p) for p in (woven, fused)]
    assert longest(edges[1]) <= longest(edges[0])
    for program in (fused, short):
        assert not errors(check_program(program))
        assert run_program(program, interleavings=3).ok
    assert Fuse().apply(woven, RCCL) is woven
    assert Fuse().apply(fused, MSCCL) is fused


def part(letter: str, offset: int) -> Slice:
    return Slice(Buffer(letter), offset)


def instr(op: str, src: Slice, dst: Slice, *waits: tuple[int, int]) -> Instr:
    return Instr(Op(op), src, dst, 1, waits)


def echo() -> Program:
    """Rank 1 copies into o[0], then sends s[0]; rank 0 answers, and only then is o[0] read."""
    i, o, s = part("i", 0), part("o", 0), [part("s", k) for k in range(3)]
    asks = Block(0, 1, 1, (instr("s", i, s[0]), instr("r", s[0], s[0])))
    answers = Block(1, 1, None, (instr("s", s[0], s[1], (0, 1)),))
    relay = Block(0, 0, 0, (instr("r", i, s[0]), instr("cpy", i, o), instr("s", s[0], s[0])))
    reads = Block(1, None, 0, (instr("r", s[0], s[1]), instr("cpy", o, s[2])))
    ranks = (RankProgram((asks, answers), 1, 1, 3), RankProgram((relay, reads), 1, 1, 3))
    return Program.of("echo", make("allreduce", 2), ranks, 1)


def races(program: Program) -> list[str]:
    return [f.message for f in errors(check_program(program)) if f.check == "races"]


def test_a_send_does_not_overtake_what_its_receiver_must_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = echo()
    assert not races(program)
    assert Fuse().apply(program, MSCCL) is program
    # Where the pass does not look, the same fusion makes a race: the checker sees it.
    monkeypatch.setattr(fuse, "_ordered_locally", lambda *_: True)
    hasty = Fuse().apply(program, MSCCL)
    assert Op.RECV_COPY_SEND in ops(hasty)
    assert races(hasty)


def test_in_place_a_chunk_has_two_names() -> None:
    """What lands in o[0] is sent from i[0]: one place, so it fuses."""
    i, o = part("i", 0), part("o", 0)
    ranks = (
        RankProgram((Block(0, 1, None, (instr("s", i, o),)),), 1, 1, 0),
        RankProgram((Block(0, 2, 0, (instr("r", i, o), instr("s", i, o))),), 1, 1, 0),
        RankProgram((Block(0, None, 1, (instr("r", i, o),)),), 1, 1, 0),
    )
    program = Program.of("chain", make("broadcast", 3), ranks, 1, in_place=True)
    assert not errors(check_program(program))
    fused = Fuse().apply(program, MSCCL)
    assert ops(fused) == [Op.SEND, Op.RECV_COPY_SEND, Op.RECV]
    assert not errors(check_program(fused))
    apart = Program.of("chain", make("broadcast", 3), ranks, 1, in_place=False)
    assert Fuse().apply(apart, MSCCL) is apart


def test_ends_that_do_not_match_and_deadlocks_are_refused() -> None:
    i, o = part("i", 0), part("o", 0)
    lonely = (
        RankProgram((Block(0, 1, None, (instr("s", i, o),)),), 1, 1, 0),
        RankProgram((Block(0, None, None, ()),), 1, 1, 0),
    )
    with pytest.raises(CheckFailed, match="connection 0 -> 1 on channel 0: sends and receives"):
        Fuse().apply(Program.of("lonely", make("allreduce", 2), lonely, 1), MSCCL)
    both = tuple(
        RankProgram((Block(0, 1 - r, 1 - r, (instr("r", i, o), instr("s", o, o))),), 1, 1, 0)
        for r in range(2)
    )
    with pytest.raises(CheckFailed, match="the program deadlocks: rank 0 never gets past r"):
        Fuse().apply(Program.of("stuck", make("allreduce", 2), both, 1), MSCCL)
