"""``weft tuner``: a tuner file for plain NCCL or RCCL, from measured times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import read_text, write_text
from weft.dsl.base.tables import count, table
from weft.dsl.base.units import format_binary

from ...fleet.tuner import OPTIONS, TunerLine, tuner_lines, tuner_text, tuner_times
from ..flags.cluster import TunerFlags
from ..flags.values import file_words
from ..inputs.machines import is_library
from ..output.console import Console, Exit, columns
from ..output.outputs import check_file_output

ENVIRONMENT = "NCCL_TUNER_PLUGIN=/path/to/libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE={file}"


def run(args: TunerFlags, console: Console) -> int:
    check_file_output(args, console)
    times = []
    for text in args.files:
        path, words = file_words(text, OPTIONS)
        if is_library(path):
            raise UserError(
                "a library has times of schedules, and a tuner file takes none: it chooses among "
                "NCCL's own algorithms by measured times",
                where=path,
                hint="run nccl-tests with NCCL_ALGO and NCCL_PROTO set, and name the outputs",
            )
        found = tuner_times(read_text(path), path, words)
        settings = dict.fromkeys(one.setting.words for one in found)
        console.say("Read", f"{path}: {count(len(found), 'time')} of {'; '.join(settings)}")
        times += found
    lines = tuner_lines(times)
    if any(one.setting.channels is None for one in lines):
        console.warn(
            "channels are not known: NCCL's example plug-in then takes one; run with "
            "NCCL_DEBUG_SUBSYS=TUNING (NCCL from 2.23 on), or write channels=16 behind the name"
        )
    text = tuner_text(lines, [Path(one).name for one in args.files])
    if args.output not in (None, "-"):
        assert args.output is not None
        write_text(args.output, text, force=args.force)
        console.say("Wrote", args.output)
        console.say("Next", ENVIRONMENT.format(file=Path(args.output).resolve()))
        console.result(_text(lines), _facts(lines, args.output))
    else:
        console.result(text.rstrip("\n"), _facts(lines, None))
    return Exit.DONE


def _text(lines: list[TunerLine]) -> str:
    head = ("collective", "ranks", "from", "to", "setting", "µs", "next best is longer by")
    rows = [
        (
            str(one.kind),
            one.ranks,
            format_binary(one.low),
            "" if one is lines[-1] or one.high >= 1 << 61 else format_binary(one.high),
            one.setting.words,
            _span([f"{us:.4g}" for us in one.us]),
            _span([f"{n / us - 1:.0%}" for n, us in zip(one.next_us, one.us, strict=True) if n]),
        )
        for one in lines
    ]
    return table(head, rows, columns())


def _span(texts: list[str]) -> str:
    ends = dict.fromkeys((texts[0], texts[-1])) if texts else {}
    return "..".join(ends)


def _facts(lines: list[TunerLine], file: str | None) -> dict[str, Any]:
    return {
        "status": "ok",
        "lines": [
            {
                "collective": str(one.kind),
                "ranks": one.ranks,
                "hosts": one.hosts,
                "low": one.low,
                "high": one.high,
                "algorithm": one.setting.algorithm,
                "protocol": one.setting.protocol,
                "channels": one.setting.channels,
                "text": one.text,
            }
            for one in lines
        ],
        "file": file,
    }
