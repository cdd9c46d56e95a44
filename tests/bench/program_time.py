"""``make bench``: simulated operations of programs, compiled and plain, in one process.

Both machines run the same turns, with all costs in ticks before; a first run loads the compiled
one. *prepared* is what a further size of the same program costs beside its run.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.dsl.catalogue import topology
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.classic.flat import classic_algorithm
from weft.synth.time.program_machine import Machine
from weft.synth.time.program_tables import PreparedProgram
from weft.synth.time.runtime_model import MSCCL

MESSAGE = 1 << 20
CASES = (
    ("ring", "allreduce", "dgx-h100:nodes=8,fabric=star", 4),
    ("ring", "allgather", "ring:64", 2),
    ("direct", "allgather", "dgx-h100:nodes=2,fabric=star", 1),
)
T = TypeVar("T")


def programs() -> Iterator[tuple[str, Program, Topology]]:
    """The programs that are timed, and their machines."""
    for name, kind, where, instances in CASES:
        machine = topology(where)
        made = classic_algorithm(name, kind, machine.ranks)
        yield (
            f"{name} {kind}, {where}",
            lower_algorithm(made, CompileOptions(instances=instances)),
            machine,
        )


def seconds(what: Callable[[], T]) -> tuple[T, float]:
    """What a call gives, and how long it takes."""
    start = time.perf_counter()
    found = what()
    return found, time.perf_counter() - start


def run(machine: Machine) -> None:
    """To the end, every operation."""
    machine.start()
    while machine.left and machine.advance():
        pass


def row(name: str, program: Program, machine: Topology) -> list[str]:
    """µs per operation in Python and compiled, their ratio, and ms to prepare a size."""
    prepared, protocol = PreparedProgram(program, machine, MSCCL), program.protocol
    cut = prepared.cut(MESSAGE, protocol)
    turns, slots = cut.iterations, MSCCL.protocol(protocol).slots
    layout = prepared.layout(cut)
    operations = layout.operations

    def make(compiled: bool = True) -> Machine:
        ticks = prepared.ticks(cut, protocol)
        return Machine(layout, ticks, slots=slots, turns=turns, compiled=compiled)

    slow = make(compiled=False)
    run(make())
    quick, ready = seconds(make)
    _, compiled = seconds(lambda: run(quick))
    _, python = seconds(lambda: run(slow))
    assert slow.finished == quick.finished
    each = 1e6 / (operations.size * turns)
    return [
        name,
        f"{operations.size}",
        f"{python * each:.2f}",
        f"{compiled * each:.3f}",
        f"{python / compiled:.0f}",
        f"{ready * 1e3:.1f}",
    ]


def main() -> None:
    """Print a line for each program."""
    table = Table("1 MiB", "operations", "Python, µs each", "compiled", "ratio", "prepared, ms")
    for name, program, machine in programs():
        table.add_row(*row(name, program, machine))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
