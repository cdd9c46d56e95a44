"""Programs for JAX on devices of the host: classic algorithms, grade schedules, random ones.

Run: ``python tests/grade/jax_sweep.py [classic] [machines] [grade] [random] [--types T,T]``, in
pieces with ``--kept FILE`` (:mod:`kept`). Each is compiled to a file, proved from it, compiled by
XLA for devices of the host, called, and compared with the definition in every type. A line each:
ranks, rounds, permutations, padding, and of the first type CPU seconds of XLA's compiler and CPU
milliseconds of a call (all devices together), with those of XLA's own collective. In the other
types (in all with ``--untimed``) only the result counts: XLA compiles them without optimization,
which takes half as long. With ``--in-turn`` each program is called in one of the types. A program
that an earlier case of the run had is not compiled again. Grade schedules are found anew with
``--effort``, less than the grade itself has. The exit code is 1 if a result is wrong.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kept import Line, add_flags, part, swept, told
from programs import KINDS, cases

from weft.backends.check.findings import errors
from weft.backends.compile.request import Request
from weft.backends.compile.source import fitted
from weft.backends.formats.p2p.data import Exam, type_named, units_of
from weft.backends.formats.p2p.execute import loaded
from weft.backends.formats.p2p.format import JaxFile
from weft.backends.formats.p2p.judge import judge
from weft.backends.formats.p2p.permutes import cost_of, permuted
from weft.backends.ranks.bench.ranks import of_xla
from weft.dsl.nouns.schedule import Schedule

CALLS = 3
ELEMENTS, FEW = 1003, 131
"""Elements of a unit, with and without times: what hardly any number of chunks divides."""

QUICKLY = {"xla_backend_optimization_level": 0}
"""XLA's options where nothing is timed."""


def cpu(call: Any) -> tuple[Any, float]:
    """What a call returns, and its CPU seconds."""
    begin = time.process_time()
    found = call()
    return found, time.process_time() - begin


class Sweep:
    """The types of a sweep, the one that is timed, the texts seen, and XLA's own times."""

    def __init__(self, types: list[str], timed: str | None, *, in_turn: bool) -> None:
        self.types, self.timed, self.in_turn = types, timed, in_turn
        self.seen: dict[str, str] = {}
        self.native: dict[Any, str] = {}

    def one(self, name: str, noun: Any) -> Line:
        """Write, prove, compile and call one program; its line."""
        begin = time.process_time()
        format = JaxFile()
        if isinstance(noun, Schedule):
            noun = fitted(noun, format.name, 1)[0]
        script = format.script(Request(noun, name=name, in_place=False, segments=1, where=name))
        text = format.write(script)
        again, found = judge(text, name)
        assert not errors(found), found
        assert replace(again, name=script.name) == script
        first = self.seen.setdefault(text.replace(script.name, ""), name)
        if first != name:
            return Line(name, f"| {name} | the program of {first} |", 0, 0)
        function = loaded(text).collective
        cells, bad = [], 0
        chosen = self.types[len(self.seen) % len(self.types)]
        types = [chosen] if self.in_turn else self.types
        for dtype in types:
            timed = dtype == self.timed
            spent, wrong = called(script.collective, function, dtype, timed=timed)
            cells.append(f"{dtype} {spent}{self.beside(script, dtype)}" if timed else dtype)
            if wrong:
                bad += 1
                cells.append(f"WRONG: {wrong}")
        cost = cost_of(permuted(script))
        row = (
            f"| {name} | {script.collective.ranks} | {script.rounds} | {cost.permutes} | "
            f"{100 * cost.padding:.1f} % | {' | '.join(cells)} | "
            f"{time.process_time() - begin:.1f} s in all |"
        )
        return Line(name, row, len(types), bad)

    def beside(self, script: Any, dtype: str) -> str:
        """CPU seconds and ms of XLA's own, in parentheses."""

        units = units_of(script.collective)
        function = of_xla(units)
        if function is None:
            return " (XLA: none)"
        key = (units.kind, units.ranks)
        if key not in self.native:
            self.native[key] = called(script.collective, lambda x, _: function(x), dtype)[0]
        return f" (XLA: {self.native[key]})"


def called(
    collective: Any, function: Any, dtype: str, *, timed: bool = True
) -> tuple[str, str | None]:
    """CPU seconds of XLA's compiler and CPU ms of a call, and what is wrong with its result."""
    from weft.backends.ranks.jax import AXIS, Devices

    devices = Devices(collective.ranks)
    exam = Exam(units_of(collective), ELEMENTS if timed else FEW, type_named(dtype))
    x = devices.put(exam)
    mapped = devices.mapped(lambda array: function(array, AXIS))
    options = {} if timed else QUICKLY
    compiled, compiling = cpu(lambda: mapped.lower(x).compile(compiler_options=options))
    result = devices.timed(compiled, x)[0]
    wrong = next(filter(None, devices.wrong(exam, result)), None)
    calls = [cpu(lambda: devices.timed(compiled, x))[1] for _ in range(CALLS if timed else 0)]
    return f"{compiling:.1f} s {1e3 * min(calls, default=0):.1f} ms", wrong


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("which", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--most", type=int, default=32, help="ranks")
    parser.add_argument("--random", type=int, default=200, help="random algorithms")
    parser.add_argument("--effort", type=float, default=2.0)
    parser.add_argument("--types", default="float32,bfloat16,int32")
    parser.add_argument("--untimed", action="store_true", help="results only")
    parser.add_argument("--in-turn", action="store_true", help="a program in one of the types")
    parser.add_argument("--found", type=Path, help="folder of the grade's schedules")
    add_flags(parser)
    options = parser.parse_args()
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count="
    os.environ |= {"XLA_FLAGS": f"{flags}{options.most}", "JAX_PLATFORMS": "cpu"}
    types = options.types.split(",")
    sweep = Sweep(types, None if options.untimed else types[0], in_turn=options.in_turn)
    asked = cases(options.which, options.most, options.effort, options.random, options.found)
    return told(swept(part(asked, options.part), sweep.one, options.kept))


if __name__ == "__main__":
    sys.exit(main())
