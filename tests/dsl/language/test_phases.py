"""Phases, detours, orders, engines and sizes: from their lines to rules on a machine."""

from textwrap import dedent

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.sketch import Chunks, ChunksBySize, Phase, Phases, Rule, Sketch

TWO = "dgx1:nodes=2"


def sketch(lines: str, machine: str = TWO) -> Sketch:
    return elaborate(parse(f"sketch x\n{dedent(lines)}\n", "f"), topology(machine))


def rule(lines: str, machine: str = TWO) -> Rule:
    (one,) = sketch(lines, machine).rules
    return one


def phases(*lines: str, machine: str = TWO) -> tuple[Phase, ...]:
    one = rule("\n".join(["phases:", *(f"    {line}" for line in lines)]), machine)
    assert isinstance(one, Phases)
    return one.phases


def test_chunks_by_size_are_a_number_once_the_size_is_known() -> None:
    one = sketch("chunks 1 up to 64KiB, 2 up to 1MiB, 8 beyond", "ring:4")
    (by_size,) = one.rules
    assert isinstance(by_size, ChunksBySize)
    machine, collective = topology("ring:4"), make("allgather", 4)
    for size, count in [(1, 1), (65536, 1), (65537, 2), (1 << 20, 2), (1 << 21, 8), (None, 8)]:
        problem = Problem(machine, collective, one, bytes=size)
        assert problem.sketch is not None
        (chunks,) = problem.sketch.rules
        assert chunks == Chunks(count, label=by_size.label, span=by_size.span)


# ---- nodes by number
