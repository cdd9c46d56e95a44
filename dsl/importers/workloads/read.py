"""Reading of a workload from a file or a folder, in any format that weft knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...base.errors import BadFile, UserError
from ...base.files import looks_like_json, parse_json, read_text
from ...base.lazy_dataclass import dataclass
from ...nouns.reshard import is_reshard, reshard_workload
from ...nouns.workload import Workload
from ...nouns.workload_file import load, load_csv, looks_like_csv
from ..foreign import refuse_foreign
from .astra_text import looks_like_astra_text, read_astra_text
from .chakra import is_chakra_json, read_chakra
from .optccl import is_optccl, read_optccl
from .parallel import looks_like_settings, read_settings
from .pytorch import is_pytorch, read_pytorch

FORMATS = ("weft", "csv", "chakra", "pytorch", "astra-sim", "optccl", "settings")
"""Names of formats, as ``--from`` takes them."""


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """Where a workload is, and what its format does not say.

    Attributes:
        path: a file, a folder of traces, the prefix of traces, ``-``, or ``reshard:…``.
        format: one of ``FORMATS``; None: by its content.
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
    form = source.format or _trace_form(source.path)
    if source.groups is not None and form not in (None, "chakra"):
        raise UserError("only Chakra's traces take a file of groups", where=source.groups)
    if form == "chakra":
        return read_chakra(source.path, source.groups)
    if form == "pytorch":
        return read_pytorch(source.path)
    if form is None and "=" in source.path and not Path(source.path).exists():
        raise BadFile(
            "no such file",
            where=source.path,
            hint="tp = 8, pp = 4, … go into a file, under [parallel], beside [model]",
        )
    where = "<stdin>" if source.path == "-" else source.path
    return workload_in(read_text(source.path), where, source)


def _trace_form(path: str) -> str | None:
    """Return the format of a set of traces; None for a single file of another format."""
    place = Path(path)
    if path.endswith(".et") or (path != "-" and not place.exists()):
        return "chakra" if path.endswith(".et") or _has_traces(place) else None
    if place.is_dir():
        one = next((x for x in sorted(place.iterdir()) if x.suffix in (".et", ".json")), None)
        if one is None:
            raise BadFile("a folder without traces", where=path)
        return "chakra" if one.suffix == ".et" else _json_form(one)
    return _json_form(place) if place.suffix == ".json" and place.is_file() else None


def _has_traces(prefix: Path) -> bool:
    return prefix.parent.is_dir() and any(prefix.parent.glob(f"{prefix.name}.*.et"))


def _json_form(file: Path) -> str | None:
    data = parse_json(read_text(file), str(file))
    if is_pytorch(data):
        return "pytorch"
    return "chakra" if is_chakra_json(data) else None


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
    data: Any = None
    if form in ("weft", "optccl", "json"):
        data = parse_json(text, where)
        form = "optccl" if is_optccl(data) else "weft"
    readers: dict[str, Callable[[], Workload]] = {
        "weft": lambda: load(data, where, given.name),
        "optccl": lambda: read_optccl(data, where, given.name),
        "csv": lambda: load_csv(text, where, name=given.name),
        "astra-sim": lambda: read_astra_text(text, where, given.name, given.ranks),
        "settings": lambda: read_settings(text, where, given.name),
    }
    if form is None or form not in readers:
        refuse_foreign(text, where)
        raise BadFile(
            "not a workload",
            where=where,
            hint="weft's JSON or CSV, Chakra or PyTorch traces, ASTRA-sim's text, OptCCL's JSON, "
            "or TOML with [parallel]",
        )
    return readers[form]()


def of_another_tool(data: Any) -> bool:
    """Return True for JSON of a workload in the format of another tool."""
    return is_optccl(data) or is_pytorch(data) or is_chakra_json(data)


def text_form(text: str) -> str | None:
    """Return the format of a text that is not JSON; None if it is no workload."""
    for form, accepts in (
        ("settings", looks_like_settings),
        ("astra-sim", looks_like_astra_text),
        ("csv", looks_like_csv),
    ):
        if accepts(text):
            return form
    return None
