"""``weft verify-run``: proof that a library's files ran, and measured against predicted times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import read_text, write_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.importers.nccl_log import NcclLog, read_log
from weft.dsl.importers.nccl_tests import (
    NcclTestsRun,
    looks_like_nccl_tests,
    read_run,
    require_passed,
    runs_in,
)
from weft.dsl.nouns.library import read
from weft.dsl.nouns.topology import Topology

from ...deploy.settings import is_amd
from ...fleet.calibrate import MeasuredTime, contradictions
from ...fleet.calibrate import calibrate as fit
from ...fleet.evidence import FILES, OWNS, Ran, RunAnswer, SizeVerdict, answer, is_ours, verdicts
from ...fleet.predictions import Predictions
from ...report.report import shown
from ...tune.nccl_settings import LIMITS, NcclSettings
from ..flags.cluster import VerifyRunFlags
from ..inputs.inputs import restricted
from ..inputs.machines import facts_of, is_library, read_topology
from ..output.console import Console, Exit, columns
from ..output.outputs import check_file_output
from ..work.calibration import require_machine


@dataclass(frozen=True, slots=True)
class _Read:
    """One file: its table (None: a log alone), its log, and verdicts on the table's sizes."""

    path: str
    run: NcclTestsRun | None
    log: NcclLog
    found: tuple[SizeVerdict, ...] = ()


def run(args: VerifyRunFlags, console: Console) -> int:
    check_file_output(args, console)
    if args.library is not None and not is_library(args.library):
        raise UserError("no library is there", where=f"--library {args.library}")
    library = None if args.library is None else read(args.library)
    topology = library.topology if library else None
    if args.topology is not None:
        topology = restricted(read_topology(args.topology), args.group)
    elif args.group:
        raise UserError("--group is of a machine, and none is named", hint="-t dgx-h100:nodes=2")
    if args.output is not None and topology is None:
        raise UserError("no machine is named", where="-o", hint="--library DIR, or -t TOPO")
    texts = [_one(text, path, console) for path in args.files for text in runs_in(read_text(path))]
    asked = Predictions(library, Path(args.library or "."), topology)
    read_by = [is_ours(one.log, asked.files()) for one in texts]
    told = True if True in read_by else False if False in read_by else None
    # A run without a log of its own has the settings of one that has: which, its times say.
    ours = [told is True and (mine is not False) for mine in read_by]
    judged = [
        _judged(one, mine, asked, topology, console) for one, mine in zip(texts, ours, strict=True)
    ]
    found = [size for one in judged for size in one.found]
    refused = [why for one in judged for why in one.log.refused]
    runs = [(one.path, one.found) for one in judged if one.run is not None]
    said = answer(runs, told, refused) if library else None
    machine = _measured(judged, asked, topology, args, console) if args.output else None
    facts = _facts(judged, said, found)
    console.result(_text(judged, said, found), {**facts, **(machine or {}), "file": args.output})
    return Exit.DONE if said is None or said.yes else Exit.NO


def _one(text: str, path: str, console: Console) -> _Read:
    log = read_log(text)
    table_there = looks_like_nccl_tests(text)
    if not table_there and not log.lines:
        require_passed(text, path)
        raise BadFile(
            "neither a table of nccl-tests nor a debug log of NCCL",
            where=path,
            hint="the output of all_reduce_perf, or what NCCL_DEBUG=INFO prints",
        )
    found = read_run(text, path) if table_there else None
    parts = [] if found is None else [f"{_test_name(found)}, {count(len(found.rows), 'size')}"]
    parts += [f"{count(log.lines, 'line')} of a debug log"] if log.lines else []
    parts += [log.library] if log.library else []
    console.say("Read", f"{path}: {', '.join(parts)}")
    for why in log.refused:
        console.warn(f"{path}: {why}")
    return _Read(path, found, log)


def _judged(
    one: _Read, ours: bool, asked: Predictions, topology: Topology | None, console: Console
) -> _Read:
    if one.run is None:
        return one
    if topology is not None:
        require_machine(one.run, one.path, topology)
    if not one.run.warm:
        console.say("Left", f"{one.path}: its times, as no call came before those that were timed")
    predict = asked.of(one.run, NcclSettings.of(one.log.settings))
    found = tuple(verdicts(one.run, one.log, ours, predict))
    return _Read(one.path, one.run, one.log, found)


def _times(judged: Sequence[_Read], asked: Predictions, console: Console) -> list[MeasuredTime]:
    times: list[MeasuredTime] = []
    for one in judged:
        if one.run is None or not one.run.warm or one.run.kind is None:
            continue
        for size in one.found:
            program = (
                asked.program(one.run.kind, size.predicted.file) if size.ran in FILES else None
            )
            if (size.ran in FILES and program is None) or size.ran not in (*FILES, *OWNS):
                continue
            times.append(
                MeasuredTime(
                    one.run.kind,
                    size.bytes,
                    size.us,
                    one.run.gpus_per_process,
                    size.where,
                    program,
                    asked.target if program else "",
                    NcclSettings.of(one.log.settings),
                    size.ran in (Ran.LIKE_FILE, Ran.LIKE_OWN),
                )
            )
    if left := [one for same in contradictions(times) for one in same if one.guessed]:
        without = set(map(id, left))
        times = [one for one in times if id(one) not in without]
        console.say(
            "Left",
            f"{count(len(left), 'time')}: by these the same ran at a size, but they are far apart. "
            "Perhaps the library's files did not run, or the model is off: a debug log shows it "
            "(NCCL_DEBUG=INFO), or leave out the runs without the library",
        )
    return times


def _measured(
    judged: Sequence[_Read],
    asked: Predictions,
    topology: Topology | None,
    args: VerifyRunFlags,
    console: Console,
) -> dict[str, Any]:
    """Fit the machine to the times of known programs, write it, and return facts."""
    assert args.output is not None
    assert topology is not None
    times = _times(judged, asked, console)
    if not times:
        raise UserError(
            "of no time it is known what ran, so that nothing can be fitted",
            where=f"-o {args.output}",
            hint="run it with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING, or leave -o out",
        )
    source = f"fitted to {', '.join(Path(one.path).name for one in judged if one.run)}"
    found = fit(topology, times, "rccl" if is_amd(topology) else "nccl", source)
    text = json.dumps(found.topology.to_json(), indent=1) + "\n"
    write_text(args.output, text, force=args.force)
    before, after = found.error(fitted=False), found.error(fitted=True)
    console.say(
        "Wrote",
        f"{args.output}: {count(len(found.told), 'number')} fitted to "
        f"{count(len(times), 'time')}; median error {before:.1%} before, {after:.1%} after",
    )
    if found.doubt:
        console.warn(f"{args.output}: {found.doubt}")
    return {
        **facts_of(found.topology),
        "fitted": [{"key": x.key, "default": x.default, "value": x.value} for x in found.told],
        "median_error": {"default": before, "fitted": after},
        "doubt": found.doubt or None,
    }


# --- text and JSON --------------------------------------------------------------------------------


def _text(judged: Sequence[_Read], said: RunAnswer | None, found: Sequence[SizeVerdict]) -> str:
    parts = [_table(one, judges=said is not None) for one in judged if one.run is not None]
    parts += [_read_text(one) for one in judged if one.log.lines]
    errors = [abs(one.error) for one in found if one.error is not None]
    last = []
    if said is None and found and all(one.predicted.own_us is None for one in found):
        last.append("nothing is predicted: name the machine (-t dgx-h100:nodes=2) or --library DIR")
    if errors:
        last.append(f"predictions of what ran: median error {median(errors):.0%}")
    if said is not None:
        last.append(f"did the library's files run? {said.word}: {said.why}")
    return "\n\n".join([*parts, "\n".join(last)] if last else parts)


def _table(one: _Read, *, judges: bool) -> str:
    """Return a run's times; ``judges``: a library is given, with verdicts on programs."""
    assert one.run is not None
    hosts = len(set(one.run.hosts))
    machine = f"{count(len(one.run.hosts), 'GPU')} on {count(hosts, 'host')}"
    told = ("bytes", "us", "file_us", "own_us", *(("ran", "why") if judges else ()))
    rows = [
        {
            "placement": "in" if size.in_place else "out",
            **{key: x for key, x in _size(size).items() if key in told and x is not None},
        }
        for size in one.found
    ]
    heads = ("size:bytes:binary", "placement:placement", "measured µs:us:.4g")
    more = ("file µs:file_us:.4g", "own µs:own_us:.4g", "ran:ran", "because:why")
    name = _test_name(one.run)
    return f"{one.path}: {name} on {machine}\n{shown(rows, *heads, *more, width=columns())}"


def _test_name(run: NcclTestsRun) -> str:
    """Return the test of a run, and how it is known where the text does not name it."""
    return f"{run.test or 'a test'}{'' if run.named else ' (by its columns)'}"


def _read_text(one: _Read) -> str:
    log = one.log
    told = [log.library or "a runtime"]
    told.append(
        f"read by {' and '.join(log.by)}: {', '.join(log.read) or 'files'}" if log.by else ""
    )
    told.append("" if log.by else "no file of algorithms was read")
    limits = [f"{name}={log.settings[name]}" for name in LIMITS if name in log.settings]
    told.append(f"limited by {', '.join(limits)}" if limits else "")
    own = dict.fromkeys(f"{x.algorithm} {x.protocol}" for x in log.choices)
    told.append(f"its own: {', '.join(own)}" if own else "")
    return f"{one.path}, debug log: {'; '.join(filter(None, told))}"


def _facts(
    judged: Sequence[_Read], said: RunAnswer | None, found: Sequence[SizeVerdict]
) -> dict[str, Any]:
    errors = [abs(one.error) for one in found if one.error is not None]
    return {
        "status": "ok" if said is None or said.yes else "failed",
        "ran": said.word if said else None,
        "why": said.why if said else None,
        "median_error_of_predictions": median(errors) if errors else None,
        "runs": [
            {
                "file": one.path,
                "test": one.run.test if one.run else None,
                "ranks": len(one.run.hosts) if one.run else None,
                "library": one.log.library or None,
                "read": list(one.log.read),
                "by": list(one.log.by),
                "refused": list(one.log.refused),
                "sizes": [_size(size) for size in one.found],
            }
            for one in judged
        ],
    }


def _size(one: SizeVerdict) -> dict[str, Any]:
    return {
        "bytes": one.bytes,
        "in_place": one.in_place,
        "us": one.us,
        "file": one.predicted.file or None,
        "file_us": one.predicted.file_us,
        "own_us": one.predicted.own_us,
        "own": one.predicted.own_how or None,
        "ran": str(one.ran),
        "why": one.why,
        "error": one.error,
        "where": one.where,
    }
