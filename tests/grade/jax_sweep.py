"""Programs for JAX on devices of the host: classic algorithms, grade schedules, random ones.

Run: ``python tests/grade/jax_sweep.py [classic] [machines] [grade] [random] [--types T,T]``. Each
is compiled to a file, proved from it, compiled by XLA for devices of the host, called, and compared
with the definition in every type. A line each: ranks, rounds, permutations, padding, CPU seconds of
XLA's compiler and CPU milliseconds of a call (all devices together), and those of XLA's own
collective. Grade schedules are found anew with ``--effort``, less than the grade itself has. The
exit code is 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cases import CASES
from random_moves import random_algorithm
from run import _machine, _sketch

from weft.backends.check.findings import errors
from weft.backends.compile.request import Request
from weft.backends.formats.p2p.data import Exam, type_named, units_of
from weft.backends.formats.p2p.execute import loaded
from weft.backends.formats.p2p.format import JaxFile
from weft.backends.formats.p2p.judge import judge
from weft.backends.formats.p2p.permutes import cost_of, permuted
from weft.backends.ranks.bench import own
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.engines.classic.catalog import classic_algorithm
from weft.synth.engines.classic.flat import FLAT
from weft.synth.engines.classic.place import all_algorithms
from weft.synth.engines.classic.text import named_algorithm

MACHINES = ("torus:4x4", "dgx1", "dgx-a100:nodes=2", "dgx-a100:nodes=4")
"""Machines of the algorithms that depend on one."""

CALLS = 3
ELEMENTS = 1003
"""Elements of a unit: what hardly any number of chunks divides."""


def classics(most: int) -> Iterator[tuple[str, Any]]:
    """Every classic algorithm on 3 or more ranks: the fewest, about 8, and the most allowed."""
    for one in FLAT:
        defined = [n for n in range(3, most + 1) if not one.defined(n)]
        for n in sorted({defined[0], min(defined, key=lambda n: abs(n - 8)), defined[-1]}):
            yield f"{one.name} {one.kind}", classic_algorithm(one.name, one.kind, n)


def on_machines() -> Iterator[tuple[str, Any]]:
    """The classic algorithms that depend on a machine, on several."""
    known = {(one.name, one.kind) for one in all_algorithms()}
    for name, kind in sorted(known - {(one.name, one.kind) for one in FLAT}):
        for machine in MACHINES:
            try:
                named = named_algorithm(f"classic:{name}{{collective={kind},on={machine}}}")
            except UserError:  # it is not for such machines
                continue
            yield f"{name} {kind} {machine}", named.algorithm


def grades(most: int, effort: float) -> Iterator[tuple[str, Any]]:
    """A schedule for every size of the grade cases."""
    for case in CASES:
        machine = _machine(case.topology)
        if machine is None or machine.ranks > most:
            continue
        collective = make(case.collective, machine.ranks)
        engine = "portfolio" if case.engine == "exact" else case.engine
        for size, _ in case.limits:
            problem = Problem(
                machine, collective, _sketch(case, machine), Objective.TIME, bytes=size
            )
            outcome = synthesize(problem, engine, Budget(effort))
            for point in outcome.points[:1]:
                yield f"{case.name} {case.topology} {case.collective} {size} B", point.schedule


def randoms(count: int) -> Iterator[tuple[str, Any]]:
    """Random algorithms of two to six ranks, in and out of place."""
    for seed in range(count):
        rng = random.Random(seed)
        noun = random_algorithm(
            seed,
            ranks=rng.randint(2, 6),
            chunks=rng.randint(1, 4),
            moves=rng.randint(4, 24),
            in_place=bool(seed % 2),
        )
        yield f"random {seed}", noun


def cpu(call: Any) -> tuple[Any, float]:
    """What a call returns, and its CPU seconds."""
    begin = time.process_time()
    found = call()
    return found, time.process_time() - begin


class Sweep:
    """XLA's own times by collective, size and type, and what was wrong."""

    def __init__(self, types: list[str]) -> None:
        self.types, self.native, self.wrong, self.results = types, {}, 0, 0

    def one(self, name: str, noun: Any) -> None:
        """Write, prove, compile and call one program; print its line."""
        format = JaxFile()
        script = format.script(Request(noun, name=name, in_place=False, segments=1, where=name))
        text = format.write(script)
        again, found = judge(text, name)
        assert not errors(found), found
        assert replace(again, name=script.name) == script
        cost = cost_of(permuted(script))
        function = loaded(text).collective
        cells = []
        for dtype in self.types:
            compiling, calling, wrong = self.called(script.collective, function, dtype)
            cells.append(f"{dtype} {compiling:.1f} s {calling:.1f} ms {self.beside(script, dtype)}")
            self.results += 1
            if wrong:
                self.wrong += 1
                cells.append(f"WRONG: {wrong}")
        print(
            f"| {name} | {script.collective.ranks} | {script.rounds} | {cost.permutes} | "
            f"{100 * cost.padding:.1f} % | {' | '.join(cells)} |",
            flush=True,
        )

    def called(self, collective: Any, function: Any, dtype: str) -> tuple[float, float, str | None]:
        """CPU seconds of XLA's compiler, CPU ms of a call, and what is wrong with its result."""
        from weft.backends.ranks.jax import AXIS, Devices

        devices = Devices(collective.ranks)
        exam = Exam(units_of(collective), ELEMENTS, type_named(dtype))
        x = devices.put(exam)
        mapped = devices.mapped(lambda array: function(array, AXIS))
        compiled, compiling = cpu(lambda: mapped.lower(x).compile())
        result = devices.timed(compiled, x)[0]
        wrong = next(filter(None, devices.wrong(exam, result)), None)
        calling = min(cpu(lambda: devices.timed(compiled, x))[1] for _ in range(CALLS))
        return compiling, 1e3 * calling, wrong

    def beside(self, script: Any, dtype: str) -> str:
        """CPU seconds and ms of XLA's own, in parentheses."""
        from weft.backends.ranks.jax import AXIS

        units = units_of(script.collective)
        function = own.jax(AXIS, units)
        if function is None:
            return "(XLA: none)"
        key = (units.kind, units.ranks, dtype)
        if key not in self.native:
            self.native[key] = self.called(script.collective, lambda x, _: function(x), dtype)[:2]
        compiling, calling = self.native[key]
        return f"(XLA: {compiling:.1f} s {calling:.1f} ms)"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("which", nargs="*", default=["classic", "machines", "grade", "random"])
    parser.add_argument("--most", type=int, default=32, help="ranks")
    parser.add_argument("--random", type=int, default=200, help="random algorithms")
    parser.add_argument("--effort", type=float, default=2.0)
    parser.add_argument("--types", default="float32,bfloat16,int32")
    options = parser.parse_args()
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count="
    os.environ |= {"XLA_FLAGS": f"{flags}{options.most}", "JAX_PLATFORMS": "cpu"}
    kinds = {
        "classic": lambda: classics(options.most),
        "machines": on_machines,
        "grade": lambda: grades(options.most, options.effort),
        "random": lambda: randoms(options.random),
    }
    sweep = Sweep(options.types.split(","))
    for which in options.which:
        for name, noun in kinds[which]():
            sweep.one(name, noun)
    print(f"{sweep.results} results, {sweep.wrong} wrong")
    return int(sweep.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
