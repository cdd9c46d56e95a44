"""Measured times of NCCL's algorithms, from output of nccl-tests or of ``weft bench --json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import looks_like_json, parse_json
from weft.dsl.importers.nccl_log import NcclLog, read_log
from weft.dsl.importers.nccl_tests import (
    NcclTestsRun,
    looks_like_nccl_tests,
    read_run,
    require_warm,
)
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.runtime import RCCL

from .tuner_choice import TunerSetting, TunerTime

OPTIONS = ("algorithm", "protocol", "channels")
"""Words behind a path."""

OWN = "NCCL"
"""Name of the runtime's own collective in ``weft bench --on nccl``."""

_PREDICTED = (
    "times of a model, not measured: a tuner file of them would tell NCCL what we take NCCL for"
)
_HINT = "run nccl-tests with NCCL_ALGO and NCCL_PROTO set, once for each, and name the outputs"


def tuner_times(text: str, path: str, words: Mapping[str, str]) -> list[TunerTime]:
    """Return the measured times in a text.

    ``words``: algorithm, protocol and channels, where the text does not tell them.

    Raises:
        UserError: times that were not measured, or of which it is not told what ran.
        BadFile: neither an output of nccl-tests nor of ``weft bench``.
    """
    if looks_like_nccl_tests(text):
        run = read_run(text, path)
        if run.kind is None:
            named = f"{run.test}_perf is no collective of weft" if run.test else "no test is named"
            raise UserError(named, where=path)
        return list(_of_run(run, run.kind, read_log(text), path, words))
    if looks_like_json(text):
        return list(_of_bench(parse_json(text, path), path, words))
    raise BadFile("neither output of nccl-tests nor of weft bench --json", where=path, hint=_HINT)


def _of_run(
    run: NcclTestsRun, kind: Kind, log: NcclLog, path: str, words: Mapping[str, str]
) -> Iterator[TunerTime]:
    require_warm(run, path)
    hosts, ranks = len(set(run.hosts)), len(run.hosts)
    for row in run.rows:
        setting = _setting(log, kind, row.bytes, ranks, words, path)
        us = row.us if row.in_place_us is None else (row.us + row.in_place_us) / 2
        yield TunerTime(kind, ranks, hosts, row.bytes, us, setting, row.where)


def _setting(
    log: NcclLog, kind: Kind, size: int, ranks: int, words: Mapping[str, str], path: str
) -> TunerSetting:
    """Return what ran at a size: by the words, by its line of the log, or by the environment."""
    told = {
        (x.algorithm, x.protocol): x.channels
        for x in log.choices
        if x.kind in (None, kind) and x.message_bytes(ranks) == size
    }
    (algorithm, protocol), channels = (
        next(iter(told.items())) if len(told) == 1 else (("", ""), None)
    )
    algorithm = words.get("algorithm") or algorithm or _single(log, "NCCL_ALGO")
    protocol = words.get("protocol") or protocol or _single(log, "NCCL_PROTO")
    if not algorithm or not protocol:
        lacking = "algorithm" if not algorithm else "protocol"
        raise UserError(
            f"nothing tells which {lacking} ran at {size} bytes",
            where=path,
            hint=f"{path}:algorithm=ring,protocol=ll, or run it with NCCL_DEBUG=INFO "
            "NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING",
        )
    many = _channels(words["channels"], path) if "channels" in words else channels
    return TunerSetting(algorithm.lower(), protocol.lower(), many)


def _channels(text: str, path: str) -> int:
    """Parse the number of channels behind a path."""
    many = int(text) if re.fullmatch(r"[0-9]{1,4}", text) else 0
    if not 1 <= many <= RCCL.max_channels:
        raise UserError(
            f"channels={text[:20]!r} is no number from 1 to {RCCL.max_channels}",
            where=path,
            hint="as NCCL_DEBUG_SUBSYS=TUNING names them: channel{Lo..Hi}={0..15} are 16",
        )
    return many


def _single(log: NcclLog, name: str) -> str:
    """Return a variable's value if it names one thing."""
    value = log.settings.get(name, "")
    return "" if "," in value or "^" in value else value


def _of_bench(data: Any, path: str, words: Mapping[str, str]) -> Iterator[TunerTime]:
    if not isinstance(data, dict) or "on" not in data or "sizes" not in data:
        raise UserError(_PREDICTED, where=path, hint=_HINT)
    if data["on"] != "nccl":
        raise UserError(
            f"measured on {json.dumps(data['on'])}: a tuner file is for NCCL's own algorithms",
            where=path,
            hint="weft bench PLAN --on nccl --json",
        )
    kind, ranks = str(data.get("collective", "")), data.get("ranks")
    if kind not in {*Kind} or not isinstance(ranks, int):
        raise BadFile("no collective and ranks", where=path)
    setting = _setting(NcclLog(), Kind(kind), 0, ranks, words, path)
    for row in data["sizes"]:
        if isinstance(row, dict) and row.get("name") == OWN:
            size, us = row.get("bytes"), row.get("us")
            if not isinstance(size, int) or not isinstance(us, int | float) or us <= 0 < size:
                raise BadFile("a time without its bytes and µs", where=path)
            yield TunerTime(Kind(kind), ranks, None, size, float(us), setting, path)
