"""A program is right: proved by the checker, executed by the interpreter."""

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.execute.execute import run_program
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import Target


def good(program: Program) -> None:
    """Raise AssertionError unless it is free of races and deadlock, and right."""
    found = errors(check_program(program))
    assert not found, found[0]
    done = run_program(program, interleavings=6)
    assert done.ok, done.detail


def prove(program: Program, target: Target, interleavings: int = 4) -> None:
    """Raise AssertionError unless it is free of races and deadlock, within limits, and right."""
    found = errors(check_program(program, target.name))
    assert not found, found[:3]
    done = run_program(program, dtypes=("int32",), interleavings=interleavings)
    assert done.ok, done.detail


def steps(program: Program) -> list[list[int]]:
    """Per rank and block: instructions and the nops that carry further dependences."""
    return [
        [sum(max(1, len(i.waits)) for i in block.code) for block in rank] for rank in program.ranks
    ]
