"""Reading of a workload from a file or a folder, in any format that weft knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...base.errors import BadFile, UserError
from ...base.files import looks_like_json, parse_json, read_text
from ...base.foreign import refuse_foreign, signatures
from ...base.lazy_dataclass import Frozen
from ...nouns.reshard import is_reshard, reshard_workload
from ...nouns.workload import Workload
from ...nouns.workload_file import load, load_csv, looks_like_csv
from .astra_text import looks_like_astra_text, read_astra_text
from .chakra import is_chakra_json, read_chakra, side_file
from .kineto import RECORD, is_kineto, read_kineto
from .optccl import is_optccl, read_optccl
from .parallel import looks_like_settings, read_settings
from .pytorch import is_param, is_pytorch, read_pytorch
from .traces import MEMBER, trace_files, traces_in

TRACES = ("chakra", "pytorch", "kineto", "param")
"""Formats with a file for each rank."""

_CALLS = f"weft wants the calls of every rank in their order; {RECORD}"

OTHERS = (
    (r"\bComm\. Op +Message Size", "DeepSpeed's table of sums of calls", _CALLS),
    (r"\bNCCL (INFO|WARN|TRACE) ", "a log of NCCL_DEBUG", _CALLS),
    (r'"profiling_name"\s*:\s*"', "a dump of PyTorch's flight recorder", _CALLS),
    (
        r"\bHloModule\b",
        "a module of XLA (HLO)",
        "weft wants its collectives as a table: name, kind, group, size, after",
    ),
    (
        r"\A\s*HYBRID_\w+ [^\n]*\b(ep|all_gpus|vpp|ga):",
        "a workload of SimAI (AICB)",
        "weft wants the settings that it was made from, in TOML: [parallel] beside [model]",
    ),
    (
        r'"(architectures|model_type|num_hidden_layers)"\s*:',
        "the configuration of a model",
        "weft wants its keys under [model] of a TOML, beside [parallel] (docs/whole-job.md)",
    ),
    (
        r"out-of-place +in-place",
        "a measurement of nccl-tests, which is of one collective",
        "weft verify-run and weft topo calibrate read it",
    ),
)
"""Texts that are not read: a pattern in their beginning, their kind, the form needed instead."""


class WorkloadSource(Frozen):
    """The place of a workload, and facts that its format omits.

    Attributes:
        path: a file, a folder of traces, the prefix of traces, ``-``, or ``reshard:…``.
        format: a value of ``--from``; None: by its content.
        groups: a file with process groups. ``ranks``: how many there are.
    """

    path: str
    format: str | None = None
    groups: str | None = None
    ranks: int | None = None

    @property
    def name(self) -> str:
        """Return the name of a workload that states none."""
        return "workload" if self.path == "-" else Path(self.path).stem


def read_workload(source: WorkloadSource) -> Workload:
    """Return the workload.

    Raises:
        BadFile: it is not one, or damaged; UserError: ``groups`` for a format that states them.
    """
    if source.format is None and is_reshard(source.path):
        return reshard_workload(source.path)
    known: dict[Path, Any] = {}
    form = source.format or _trace_form(source.path, known)
    if source.groups is not None and form not in (None, *TRACES):
        raise UserError(
            "only Chakra's, PyTorch's and PARAM's traces take a file of groups", where=source.groups
        )
    if form in TRACES:
        return _read_traces(source, form, known)
    if form is None and "=" in source.path and not Path(source.path).exists():
        raise BadFile(
            "no such file",
            where=source.path,
            hint="tp = 8, pp = 4, … go into a file, under [parallel], beside [model]",
        )
    where = "<stdin>" if source.path == "-" else source.path
    return workload_in(read_text(source.path), where, source)


def _read_traces(source: WorkloadSource, form: str, known: dict[Path, Any]) -> Workload:
    side = side_file(source.groups) if source.groups is not None else {}
    place = Path(source.path)
    if form == "chakra":
        return read_chakra(source.path, side)
    named = MEMBER.fullmatch(place.name) or not place.is_file()
    if form == "kineto" and (place.is_dir() or not named):
        files = sorted(x for x in place.iterdir() if _is_trace(x)) if place.is_dir() else [place]
        held = dict(enumerate(files))
        traces = (
            (_rank_in(held[at].name, len(held)), where, data)
            for at, where, data in traces_in(held, known)
        )
        return read_kineto(place.stem, source.path, traces, side)
    if not named:
        return read_pytorch(place.stem, source.path, traces_in({0: place}, known), 1, side)
    name, suffix, files_of = trace_files(source.path)
    if suffix != "json":
        raise BadFile("PyTorch's traces are JSON", where=source.path)
    traces_of = traces_in(files_of, known)
    if form == "kineto":
        return read_kineto(name, source.path, traces_of, side)
    return read_pytorch(name, source.path, traces_of, len(files_of), side)


def _is_trace(file: Path) -> bool:
    name = file.name.removesuffix(".gz")
    return not name.startswith(".") and name.endswith((".et", ".json")) and file.is_file()


def _rank_in(name: str, files: int) -> int | None:
    """Return the rank that a file's name states; 0 for the only file, which may state none."""
    found = re.search(r"rank[._-]?(?P<rank>\d{1,7})", name) or MEMBER.fullmatch(name)
    return int(found["rank"]) if found else 0 if files == 1 else None


def _trace_form(path: str, known: dict[Path, Any]) -> str | None:
    """Return the format of a set of traces; None for a single file of another format.

    ``known`` gets the JSON that was parsed for it.
    """
    place = Path(path)
    plain = path.removesuffix(".gz")
    if plain.endswith(".et") or (path != "-" and not place.exists()):
        held = place.parent.is_dir() and any(place.parent.glob(f"{place.name}.*.et"))
        return "chakra" if plain.endswith(".et") or held else None
    if place.is_dir():
        for one in sorted(x for x in place.iterdir() if _is_trace(x)):
            if one.name.removesuffix(".gz").endswith(".et"):
                return "chakra"
            known[one] = parse_json(read_text(one), str(one))
            if form := _json_form(known[one]):
                return form
        hint = "traces of Chakra, PyTorch, its profiler or PARAM, one for each rank"
        raise BadFile("a folder without traces", where=path, hint=hint)
    if not place.is_file() or not plain.endswith(".json"):
        return None
    known[place] = parse_json(read_text(place), path)
    return _json_form(known[place])


def _json_form(data: Any) -> str | None:
    """Return the format of a trace in JSON; None if it is not one."""
    for form, accepts in (
        ("pytorch", is_pytorch),
        ("kineto", is_kineto),
        ("param", is_param),
        ("chakra", is_chakra_json),
    ):
        if accepts(data):
            return form
    return None


def workload_in(text: str, where: str, source: WorkloadSource | None = None) -> Workload:
    """Return the workload of a text; its name is that of the file, where the text states none.

    Raises:
        BadFile: it is not one.
    """
    given = source or WorkloadSource(where)
    named = "settings" if Path(where).suffix == ".toml" else None
    form = given.format or named or text_form(text)
    if form is None and looks_like_json(text):
        form = "json"
    if form == "astra-sim" and given.format is None:  # SimAI's begin alike
        refuse_foreign(text, where, (*OTHERS, *signatures()))
    data: Any = None
    if form in ("weft", "optccl", "json"):
        data = parse_json(text, where)
        other = form == "json" and not (isinstance(data, dict) and "weft" in data)
        form = "optccl" if is_optccl(data) else None if other else "weft"
        if trace := _json_form(data):
            raise BadFile(
                f"this is a trace of one rank ({trace})", where=where, hint="name its file, not -"
            )
    readers: dict[str, Callable[[], Workload]] = {
        "weft": lambda: load(data, where, given.name),
        "optccl": lambda: read_optccl(data, where, given.name),
        "csv": lambda: load_csv(text, where, name=given.name),
        "astra-sim": lambda: read_astra_text(text, where, given.name, given.ranks),
        "settings": lambda: read_settings(text, where, given.name),
    }
    if form is None or form not in readers:
        refuse_foreign(text, where, (*OTHERS, *signatures()))
        raise BadFile(
            "not a workload",
            where=where,
            hint="weft's JSON or CSV, traces of Chakra, PyTorch, its profiler or PARAM, a text of "
            "ASTRA-sim, OptCCL's JSON, or TOML with [parallel]",
        )
    return readers[form]()


def of_another_tool(data: Any) -> bool:
    """Return True for JSON of a workload in the format of another tool."""
    return is_optccl(data) or _json_form(data) is not None


def text_form(text: str) -> str | None:
    """Return the format of a text that is not JSON; None if it is not a workload."""
    for form, accepts in (
        ("settings", looks_like_settings),
        ("astra-sim", looks_like_astra_text),
        ("csv", looks_like_csv),
    ):
        if accepts(text):
            return form
    return None
