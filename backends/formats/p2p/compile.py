"""Compile schedules, algorithms and programs to scripts: passes up to the flow, then rounds."""

from __future__ import annotations

from dataclasses import replace

from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import Collective, Kind, make
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.schedule import Schedule

from ...compile.analyses.flow import Flow
from ...compile.analyses.unroll import unrolled
from ...compile.passes.lift import Lift
from ...compile.passes.lower import Lower
from ...compile.passes.trace import Trace
from .model import Script
from .rounds import TARGET, script_of

Noun = Schedule | Algorithm | Program
"""Nouns that can be compiled to a script."""


def compile_script(
    noun: Noun, name: str = "", *, in_place: bool = False, segments: int = 1
) -> Script:
    """Return the script of a schedule, an algorithm or a program, by its own name if it gets none.

    ``in_place`` and ``segments`` (pieces of every chunk, which follow each other like a pipeline)
    are for schedules: all others are written in one way or the other.

    Raises:
        UserError: it is too long.
        CheckFailed: the schedule or the program is wrong.
    """
    script = script_of(_flow(noun, in_place, segments), name or _name(noun))
    return replace(script, collective=standard(script.collective))


def standard(collective: Collective) -> Collective:
    """Return the standard collective of that kind, which is all that the caller sees.

    One-shot allreduce, for instance, is written as an allgather with sums of its own.
    """
    if collective.kind is Kind.CUSTOM:
        return collective
    plain = make(collective.kind, collective.ranks, roots=collective.roots).split(collective.factor)
    same = (plain.input_chunks, plain.output_chunks) == (
        collective.input_chunks,
        collective.output_chunks,
    )
    return plain if same else collective


def _name(noun: Noun) -> str:
    if isinstance(noun, Schedule):
        return f"{noun.topology.name} {noun.collective.name or noun.collective.kind}"
    return noun.name


def _flow(noun: Noun, in_place: bool, segments: int) -> Flow:
    if isinstance(noun, Schedule):
        return Lower(in_place).apply(unrolled(noun, segments), TARGET)
    algorithm = Lift().apply(noun, TARGET) if isinstance(noun, Program) else noun
    return Trace().apply(algorithm, TARGET)
