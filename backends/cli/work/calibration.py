"""``weft topo calibrate``: nccl-tests texts in, a machine with fitted numbers out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import read_text, write_text
from weft.dsl.base.tables import count, table
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.importers.nccl_tests import NcclTestsRun, read_run, require_warm, runs_in
from weft.dsl.nouns.collective import ROOTED, Kind, make
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import inner_medium
from weft.synth.time.schedule_time import bus_factor

from ...fleet.calibrate import FIT, Calibration, MeasuredTime, Residual
from ...fleet.calibrate import calibrate as fit
from ...report.html.bench_page import calibration_page
from ...report.html.page import render
from ...report.report import shown
from ..flags.nested import TopoCalibrateFlags
from ..inputs.inputs import restricted
from ..inputs.machines import facts_of, machine_line, read_topology
from ..output.console import Console, Exit, columns
from ..output.outputs import check_file, check_file_output
from ..output.stages import telling

END = (
    f"at an end of what is fitted (default × or ÷ {FIT.range:g}, or 1): the model misses something"
)
"""Remark on a number that is fitted to an end of its range."""


def calibrate(args: TopoCalibrateFlags, console: Console) -> int:
    """Read the runs, fit, print which numbers were determined, and write machine and page."""
    check_file_output(args, console)
    if args.page is not None:
        check_file(args.page, force=args.force)
        if args.output is not None and Path(args.page).resolve() == Path(args.output).resolve():
            raise UserError("-o and --page name the same file", where=f"--page {args.page}")
    topology = restricted(read_topology(args.topology), args.group)
    console.say("Read", machine_line(topology))
    times: list[MeasuredTime] = []
    for path in args.files:
        for text in runs_in(read_text(path)):
            times += _read(text, path, topology, args.collective, console)
    rccl = inner_medium(topology) is Medium.XGMI
    runtime = args.runtime or ("rccl" if rccl else "nccl")
    source = f"fitted to {', '.join(Path(path).name for path in args.files)}"
    with telling(console, "Fitting") as stages:
        found = fit(topology, times, runtime, source, stages)
    facts = _facts(found, runtime)
    if found.doubt:
        console.warn(found.doubt)
    if args.output is not None:
        write_text(
            args.output, json.dumps(found.topology.to_json(), indent=1) + "\n", force=args.force
        )
        console.say("Wrote", args.output)
    if args.page is not None:
        write_text(args.page, render(calibration_page(facts)), force=args.force)
        console.say("Wrote", args.page)
    console.result(_text(found, facts["sizes"]), {**facts, "file": args.output})
    return Exit.DONE


def _read(
    text: str, path: str, topology: Topology, given: str | None, console: Console
) -> list[MeasuredTime]:
    run = read_run(text, path)
    require_warm(run, path)
    if not run.rows:
        raise BadFile("no row with a time", where=path, hint="run the test with -b 8 -e 1G -f 2")
    times = _times(run, path, topology, given)
    console.say("Read", f"{path}: {run.test or 'a test'}, {count(len(run.rows), 'size')}")
    known = topology.timing.family
    if run.family and known and run.family != known:
        console.warn(f"{path}: measured on {run.family}, fitted to a machine of {known}")
    return times


def _times(
    run: NcclTestsRun, path: str, topology: Topology, given: str | None
) -> list[MeasuredTime]:
    require_machine(run, path, topology)
    if given and given not in {*Kind}:
        raise UserError(f"no collective is called {given}", where="-c", hint=", ".join(Kind))
    kind = Kind(given) if given else run.kind
    if kind is None:
        got = f"got {run.test}_perf" if run.test else "got a text that names no test"
        told = f"expected a test of a collective of weft, {got}"
        raise UserError(told, where=path, hint="say which with -c allreduce")
    if given and run.kind not in (None, kind):
        raise UserError(
            f"the text is of {run.kind}, not of {kind}", where=path, hint="leave out -c"
        )
    return [MeasuredTime(kind, r.bytes, r.us, run.gpus_per_process, r.where) for r in run.rows]


def require_machine(run: NcclTestsRun, path: str, topology: Topology) -> None:
    """Raise UserError if a run was on another number of GPUs or hosts than a machine has."""
    hosts = len(set(run.hosts)) if all(run.hosts) else topology.hosts  # JSON may not tell hosts
    if (len(run.hosts), hosts) != (topology.ranks, topology.hosts):
        raise UserError(
            f"{count(len(run.hosts), 'GPU')} in {count(hosts, 'host')}, but "
            f"{machine_line(topology)}",
            where=path,
            hint="name the machine that ran it, such as dgx-a100:nodes=2, and of a larger one its "
            "ranks: --group 0..3,8..11",
        )


def _text(found: Calibration, sizes: list[dict[str, Any]]) -> str:
    told = [(x.key, f"{x.value:.4g}", f"{x.default:.4g}", END * x.at_end) for x in found.told]
    told += [(x.key, "", f"{x.default:.4g}", f"kept: {x.why}") for x in found.untold]
    rows = [{**x, "error": "", "how": x["apart"]} if x["apart"] else x for x in sizes]
    heads = ("collective:name", "size:bytes", "measured µs:us:.4g", "default µs:default_us:.4g")
    more = ("fitted µs:predicted_us:.4g", "error:error:+.0%", "what ran:how")
    before, after = found.error(fitted=False), found.error(fitted=True)
    apart = sum(bool(r.apart) for r in found.residuals)
    last = f"median error {before:.1%} with defaults, {after:.1%} as fitted"
    if apart:
        last += f"; {count(apart, 'time')} took no part"
    return "\n\n".join(
        (
            table(("number", "fitted", "default", "remark"), told, columns())
            + "\nalpha, start and host in µs; reach and efficiency are parts of 1",
            shown(rows, *heads, *more, width=columns()),
            last,
        )
    )


def _facts(found: Calibration, runtime: str) -> dict[str, Any]:
    kinds = {str(r.measured.kind) for r in found.residuals}
    return {
        "status": "ok",
        **facts_of(found.topology),
        "on": f"{runtime}-tests",
        "collective": " and ".join(sorted(kinds)),
        "fitted": [
            {"key": x.key, "default": x.default, "value": x.value, "at_end": x.at_end}
            for x in found.told
        ],
        "kept": [{"key": x.key, "default": x.default, "why": x.why} for x in found.untold],
        "median_error": {
            "default": found.error(fitted=False),
            "fitted": found.error(fitted=True),
        },
        "doubt": found.doubt or None,
        "sizes": [_size(found.topology, one) for one in found.residuals],
    }


def _size(topology: Topology, one: Residual) -> dict[str, Any]:
    mine = one.measured
    roots = (0,) if mine.kind in ROOTED else ()
    collective = make(mine.kind, topology.ranks, roots=roots)
    algbw = mine.bytes / mine.us / BYTES_PER_US_PER_GBPS
    return {
        "name": str(mine.kind),
        "bytes": mine.bytes,
        "us": mine.us,
        "algbw_GBps": algbw,
        "busbw_GBps": algbw * bus_factor(collective),
        "default_us": one.default_us,
        "predicted_us": one.fitted_us,
        "error": one.fitted_us / mine.us - 1,
        "how": one.how,
        "apart": one.apart,
        "where": mine.where,
    }
