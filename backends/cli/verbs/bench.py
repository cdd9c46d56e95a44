"""``weft bench``: plans against the runtime's own collective, over a sweep of sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from weft.dsl.base.errors import UserError
from weft.dsl.base.units import SizeRange, format_bytes

from ...check.findings import require_good
from ...formats.p2p.data import type_named, units_of
from ...formats.p2p.emit import function_of
from ...formats.p2p.predict import predict
from ...formats.p2p.read import read_script
from ...ranks.bench.job import Bench, Contestant, entries
from ...ranks.bench.ranks import attend
from ...ranks.joined import is_joined, world_of
from ...ranks.launcher import run_program
from ...ranks.nccl import unusable
from ...report.report import TIMED, shown
from ..flags.files import CompileFlags
from ..flags.machines import BenchFlags
from ..flags.values import LIMITS
from ..inputs.machines import read_topology
from ..nouns.scripts import format_on, require_runtime, script_text
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit
from ..output.stages import telling
from ..work.lowering import source_of

if TYPE_CHECKING:
    from ...formats.p2p.model import Script
    from ...ranks.bench.job import BenchTime, Predict


def run(args: BenchFlags, console: Console) -> int:
    if args.on == "nccl" and (missing := unusable(0)):
        raise missing
    world = None
    with telling(console, "Running") as tell:
        tell("compile")
        plans = [_plan(text, args) for text in args.files]
        bench = _bench(plans, args)
        predictions = _predictions(plans, bench, args)
        if is_joined(args.on):
            world = world_of(args.on, bench.timeout)
            rows = attend(bench, world, lambda _: None)
        else:
            limit = len(bench.lengths) * (2 * bench.seconds + bench.timeout)
            rows = run_program(
                "weft.backends.ranks.bench.ranks",
                args.on,
                bench.units.ranks,
                bench.to_json(),
                limit,
                tell,
            )
    code = Exit.DONE
    if rows is not None:
        code = _told(entries(rows, bench.units, predictions), bench, args, console)
    if world is not None:  # closing may fail: the results are out by now
        world.close()
    return code


def _told(found: list[BenchTime], bench: Bench, args: BenchFlags, console: Console) -> Exit:
    wrong = [x for x in found if x.wrong]
    console.result(
        _text(found),
        {
            "status": "failed" if wrong else "ok",
            "on": args.on,
            "dtype": args.dtype,
            "collective": str(bench.units.kind),
            "ranks": bench.units.ranks,
            "sizes": [x.to_json() for x in found],
        },
    )
    for one in wrong:
        console.warn(f"{one.name}, {format_bytes(one.bytes)}: {one.wrong}")
    return Exit.NO if wrong else Exit.DONE


def _plan(text: str, args: BenchFlags) -> tuple[Contestant, Script]:
    subject = read_subject(text)
    backend = format_on(args.on)
    if subject.is_script:
        code = subject.text
        require_runtime(subject, args.on)
    else:
        asked = CompileFlags(file=text, to=backend.name)
        code = script_text(backend, subject, source_of(subject, asked), asked)
    require_good(backend.findings(code, subject.where), subject.where)
    script = read_script(code, subject.where)
    name = Path(text).stem if Path(text).is_file() else text.removeprefix("classic:")
    return Contestant(name, code, function_of(script.collective)), script


def _bench(plans: list[tuple[Contestant, Script]], args: BenchFlags) -> Bench:
    units = units_of(plans[0][1].collective)
    for text, (_, script) in zip(args.files, plans, strict=True):
        if units_of(script.collective) != units:
            raise UserError(
                f"{script.collective} is not {plans[0][1].collective}",
                where=text,
                hint="plans of one collective, for as many ranks",
            )
    sizes: SizeRange = args.sizes
    if sizes.high > LIMITS.run_bytes:
        raise UserError("messages have at most 1GiB", where="--sizes")
    unit = type_named(args.dtype).itemsize * units.message_chunks
    lengths = tuple(dict.fromkeys(max(1, size // unit) for size in sizes.powers()))
    names = [one.name for one, _ in plans]
    return Bench(
        tuple(
            one if names.count(one.name) == 1 else replace(one, name=f"{one.name} ({i})")
            for i, (one, _) in enumerate(plans, 1)
        ),
        units,
        lengths,
        args.dtype,
        args.repeat,
        args.time,
        args.timeout,
        args.seed,
    )


def _predictions(
    plans: list[tuple[Contestant, Script]], bench: Bench, args: BenchFlags
) -> dict[str, Predict]:
    if not args.topology:
        return {}
    machine = read_topology(args.topology)

    def us(script: Script, size: int) -> float:
        return predict(script, machine, size, overhead_us=float(args.overhead)).time_us

    return {
        one.name: partial(us, script)
        for one, (_, script) in zip(bench.contestants, plans, strict=True)
    }


def _text(found: list[BenchTime]) -> str:
    best = {size: min(x.us for x in found if x.bytes == size) for size in {x.bytes for x in found}}
    marks = ["WRONG" if x.wrong else "best" if x.us == best[x.bytes] else "" for x in found]
    rows = [{**x.to_json(), "mark": mark} for x, mark in zip(found, marks, strict=True)]
    return shown(rows, *TIMED)
