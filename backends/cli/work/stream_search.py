"""Making streams of allgather: ``weft synth --stream``."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.tables import count, number
from weft.synth.base.engine import Budget
from weft.synth.engines.greedy.engine import Greedy
from weft.synth.engines.greedy.plan import TransferBlock
from weft.synth.engines.greedy.stream import Stream, run, stream

from ...report.report import shown
from ..flags.search import SynthFlags
from ..flags.values import DEFAULTS
from ..inputs.inputs import canonical, restricted
from ..inputs.machines import machine_line, read_topology
from ..output.console import Console, Exit
from ..output.progress import Progress, watching

PARTS = frozenset({"header.json", "ticks.i8", "counts.i4", "links.u4", "chunks.u2", "chunks.u4"})
"""Files in the folder of a stream."""


def synth_stream(args: SynthFlags, console: Console) -> int:
    """Make, verify and write a stream; the folder appears complete or not at all."""
    engine, size = _asked(args)
    _check_folder(args)
    topology = read_topology(args.topology)
    topology = restricted(topology, args.group)
    console.say("Read", f"{machine_line(topology)}; allgather")
    memory = args.memory.high if args.memory else engine.memory << 30
    source = stream(topology, size, pieces=engine.chunks or 1, seed=args.seed, memory=memory)
    with (
        watching(console, Budget(args.effort, seconds=args.time)) as progress,
        _Beside(args.output) as beside,
    ):
        report = run(_followed(source, progress, console), beside.folder)
        if not report.verified:
            raise WeftError(
                f"a bug in the engine greedy: its stream is wrong: {report.problem}",
                hint="nothing was written; please report it",
            )
        beside.keep()
    console.say("Solved", f"greedy in {progress.seconds:.1f}s: feasible")
    console.say("Verified", count(report.transfers, "transfer"))
    if args.output:
        console.say("Wrote", args.output)
    figures = {
        "bytes": size,
        "transfers": report.transfers,
        "value": number(report.time_us),
        "bound_us": number(report.bound_us),
        "of_bound": report.bound_us / report.time_us if report.time_us else 1.0,
        "verified": report.verified,
        "peak_bytes": report.peak_bytes,
    }
    text = shown(
        [{**figures, "peak": report.peak_bytes >> 20}],
        *("size:bytes", "transfers:transfers", "µs:value:,.3f", "bound µs:bound_us"),
        *("of bound:of_bound:.1%", "peak MiB:peak"),
    )
    console.result(
        text,
        {
            "status": "feasible",
            "topology": topology.name,
            "collective": "allgather",
            "ranks": topology.ranks,
            "engine": args.engine,
            "seconds": round(progress.seconds, 3),
            **figures,
            "file": args.output,
        },
    )
    return Exit.DONE


def _asked(args: SynthFlags) -> tuple[Greedy, int]:
    """Return the engine and the message size."""
    engine = ENGINES.make(args.engine or "portfolio", "--engine")
    if not isinstance(engine, Greedy):
        raise UserError(
            f"the engine {engine.name} makes no streams", where="--stream", hint="-e greedy"
        )
    if canonical(args.collective) != "allgather":
        raise UserError(
            f"{args.collective} cannot be made as a stream",
            where="--stream",
            hint="allgather can; leave --stream out for all others",
        )
    if args.sketch:
        raise UserError("matching cannot follow a sketch", where="--stream", hint="leave out -s")
    if args.size is not None and args.size.low != args.size.high:
        raise UserError("a stream is for one message size", hint="--size 1GiB")
    return engine, args.size.low if args.size else DEFAULTS.stream_bytes


def _followed(source: Stream, progress: Progress, console: Console) -> Stream:
    """Return the stream with its blocks reported to ``progress``; Ctrl-C discards it."""
    total = source.topology.ranks * (source.topology.ranks - 1) * source.pieces

    def blocks() -> Iterator[TransferBlock]:
        done, told = 0, time.monotonic()
        for block in source.blocks:
            yield block
            if progress.cancelled():
                raise KeyboardInterrupt
            done += len(block)
            progress.stage(f"{done / total:.0%} of {total} transfers")
            if time.monotonic() - told > 10:
                told = time.monotonic()
                console.say("", f"{done / total:.0%} of {total} transfers")

    return replace(source, blocks=blocks())


class _Beside:
    def __init__(self, output: str | None) -> None:
        self._target = Path(os.path.realpath(output)) if output else None
        self._aside: Path | None = None
        self.folder: Path | None = None

    def __enter__(self) -> _Beside:
        if self._target is not None:
            name = f".{self._target.name[:100]}."
            self._aside = Path(tempfile.mkdtemp(dir=self._target.parent, prefix=name))
            self.folder = self._aside / "stream"
        return self

    def keep(self) -> None:
        """Rename the folder; an earlier stream or an empty folder is replaced."""
        if self._target is None or self.folder is None or self._aside is None:
            return
        if self._target.is_dir():
            self._target.rename(self._aside / "old")
        self.folder.rename(self._target)

    def __exit__(self, *_: object) -> None:
        if self._aside is not None:
            shutil.rmtree(self._aside, ignore_errors=True)


def _check_folder(args: SynthFlags) -> None:
    """Check before the work begins that the folder may be written."""
    if args.output is None:
        return
    if args.output == "-":
        raise UserError("a stream is a folder: stdout takes one file", hint="-o FOLDER")
    folder = Path(args.output)
    if not folder.absolute().parent.is_dir():
        raise UserError(
            f"the folder {folder.parent} does not exist", where=args.output, hint="make it first"
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError("expected a folder for the output, got a file", where=args.output)
    held = {file.name for file in folder.iterdir()}
    if held and not args.force:
        raise UserError(
            "the folder exists and is not empty", where=args.output, hint="-f replaces a stream"
        )
    if held - PARTS:
        raise UserError(
            f"expected a folder with a stream only, got one with {min(held - PARTS)!r}",
            where=args.output,
            hint="name a folder of its own",
        )
