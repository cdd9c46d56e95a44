"""``make bench``: what the passes are worth, and against the published compiler's rules.

Allreduce in place, on links of 25 GB/s and 1 µs; each line adds one pass to the line above. Blocks,
channels, steps (nops for further waits included) and scratch are the most of any rank or block;
time is that of the program simulation. The rules are a model of ``msccl/language``
(``tests/support/msccl_rules.py``), on references of that many chunks; some of their programs hang.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.channels import Spread
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.compile.pipeline import DEFAULT_PASSES, of_form
from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.runtime import RCCL
from weft.dsl.nouns.schedule import Schedule
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import contenders
from proof import steps

MESSAGES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
SHOWN = (
    "ring 8",
    "ring 8, 2 chunks",
    "tree 8",
    "tree 8, 4 chunks",
    "all-pairs 8",
    "all-pairs 8, 2 chunks",
    "hierarchical 2x8",
    "hierarchical 4x4",
    "hierarchical 4x4, rings",
)


def stages(schedule: Schedule) -> Iterator[tuple[str, Program]]:
    """The program after more and more passes, then with other choices."""
    plain = CompileOptions(in_place=True, count=1, lanes=1, pairing=Pairing.NONE, passes=())
    yield "plain lowering", lower_schedule(schedule, plain)
    o = replace(plain, lanes=0, pairing=Pairing.AUTO)
    yield "+ channels, threadblocks", lower_schedule(schedule, o)
    o = replace(o, count=0)
    yield "+ aggregate", lower_schedule(schedule, o)
    last = of_form(DEFAULT_PASSES, "program", "program")
    for k, one in enumerate(last, 1):
        yield f"+ {one.name}", lower_schedule(schedule, replace(o, passes=tuple(last[:k])))
    o = replace(o, passes=DEFAULT_PASSES)
    fewest = replace(o, pairing=Pairing.FEWEST)
    yield "threadblocks{policy=fewest}", lower_schedule(schedule, fewest)
    yield "channels{policy=chains}", lower_schedule(schedule, replace(o, spread=Spread.CHAINS))


def rules(schedule: Schedule) -> Iterator[tuple[str, Program | None]]:
    """The published compiler's programs, where they differ."""
    seen: list[Program] = []
    for together in (1, 2, 4):
        program = contenders.by_the_rules(schedule, together)
        if program is None or program not in seen:
            plural = "s" if together > 1 else ""
            yield f"published rules, {together} chunk{plural}", program
        if program is not None:
            seen.append(program)


def row(program: Program, schedule: Schedule) -> list[str]:
    """The numbers of a program."""
    table = steps(program)
    waits = sum(len(i.waits) for rank in program.ranks for block in rank for i in block.code)
    numbers = (
        program.instructions,
        waits,
        max(map(len, table)),
        program.channels,
        max(map(max, table)),
        max(rank.scratch_chunks for rank in program.ranks),
    )
    return [*map(str, numbers), *(_time(program, schedule, m) for m in MESSAGES.values())]


def _time(program: Program, schedule: Schedule, message: int) -> str:
    try:
        return f"{simulate_program(program, schedule.topology, message, MSCCL).time_us:.1f}"
    except CheckFailed:
        return "hangs"


def memory() -> Table:
    """Scratch of all ranks before and after it is allocated by liveness, without fused steps."""
    table = Table("allreduce in place for rccl", "chunks of scratch", "by liveness")
    without = tuple(one for one in DEFAULT_PASSES if one.name != "scratch")
    for name, build in contenders.CASES.items():
        o = CompileOptions(in_place=True, target=RCCL)
        pair = (lower_schedule(build(), replace(o, passes=p)) for p in (without, DEFAULT_PASSES))
        table.add_row(name, *(str(sum(r.scratch_chunks for r in one.ranks)) for one in pair))
    return table


def main() -> int:
    """Print a table for each algorithm; 1 if one of our programs is wrong."""
    console = Console(width=130)
    console.print(memory())
    wrong = 0
    for name in SHOWN:
        schedule = contenders.CASES[name]()
        table = Table(
            name,
            "instructions",
            "waits",
            "blocks",
            "channels",
            "steps",
            "scratch",
            *(f"{size}, µs" for size in MESSAGES),
            title_justify="left",
        )
        for stage, program in stages(schedule):
            wrong += bool(errors(check_program(program)))
            table.add_row(stage, *row(program, schedule))
        table.add_section()
        for stage, theirs in rules(schedule):
            if theirs is None:
                table.add_row(stage, "no assignment")
                continue
            found = {finding.check for finding in errors(check_program(theirs))}
            table.add_row(
                f"{stage}{', ' if found else ''}{', '.join(found)}", *row(theirs, schedule)
            )
        console.print(table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
