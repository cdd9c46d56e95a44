"""GPUs as nvidia-smi lists them beside its matrix: names, bus ids, and the state of NVLinks.

Read from plain ``nvidia-smi``, ``nvidia-smi -L`` and ``nvidia-smi nvlink -s`` in the same text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from fractions import Fraction

from ..base.errors import BadFile
from ..base.lazy_dataclass import dataclass
from ..base.terminal import plain_lines
from .smi_matrix import Matrix

_GPU = re.compile(r"\s*GPU (\d{1,4}(?:,\d{1,4})*): (\S.*?)\s*(?:\(UUID.*)?$")
"""A line of ``nvidia-smi -L``; reports of environments list GPUs of one name together."""

_ROW = re.compile(
    r"\|\s+(\d{1,4})\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
"""A GPU in the table of plain ``nvidia-smi``."""

_LINK = re.compile(r"\s*Link (\d{1,3}): (?:([0-9.]{1,9}) GB/s|<?inactive>?)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SmiDevices:
    """GPUs by the index of nvidia-smi; ``up`` and ``down``: numbers of NVLinks of those with any.

    ``speed``: GB/s of one NVLink, where the text has it.
    """

    names: dict[int, str]
    bus_ids: dict[int, str]
    up: dict[int, int]
    down: dict[int, int]
    speed: Fraction | None

    def names_of(self, name: str) -> tuple[str, ...]:
        """Return the names of a GPU of the matrix: its own, and its bus id."""
        index = int(name.removeprefix("GPU"))
        return (name, self.bus_ids[index]) if index in self.bus_ids else (name,)


def read_devices(text: str) -> SmiDevices:
    """Return what a text says of its GPUs, nothing if it says nothing."""
    names: dict[int, str] = {}
    bus_ids: dict[int, str] = {}
    up: Counter[int] = Counter()
    down: Counter[int] = Counter()
    speeds: Counter[str] = Counter()
    at = None
    for line in plain_lines(text):
        if (gpu := _GPU.match(line)) is not None:
            listed = [int(number) for number in gpu[1].split(",")]
            at = listed[0]
            names = dict.fromkeys(listed, gpu[2]) | names
        elif (row := _ROW.match(line)) is not None:
            names.setdefault(int(row[1]), row[2])
            bus_ids[int(row[1])] = row[3].lower()
        elif at is not None and (link := _LINK.match(line)) is not None:
            (down if link[2] is None else up)[at] += 1
            if link[2] is not None:
                speeds[link[2]] += 1
    speed = Fraction(speeds.most_common(1)[0][0]) if speeds else None
    return SmiDevices(names, bus_ids, dict(up), dict(down), speed)


def looks_like_nvlink_status(text: str) -> bool:
    """Return True for the text of ``nvidia-smi nvlink -s``."""
    lines = plain_lines(text[:100_000])
    return any(map(_GPU.match, lines)) and any(map(_LINK.match, lines))


def matrix_of_status(text: str, where: str) -> Matrix:
    """Return the matrix that ``nvidia-smi nvlink -s`` alone implies: every pair joined alike.

    Up to four GPUs with links to share among the others are read as cabled directly, more as being
    on an NVSwitch.

    Raises:
        BadFile: GPUs that may be cabled in several ways, or without links.
    """
    found = read_devices(text)
    gpus = sorted(found.names)
    links = [found.up.get(g, 0) for g in gpus]
    lines = plain_lines(text)
    line = next(i for i, s in enumerate(lines, 1) if _GPU.match(s))
    if gpus != list(range(len(gpus))) or not all(links):
        lacking = [g for g in gpus if not found.up.get(g)]
        raise BadFile(
            f"GPU {lacking[0]} has no active NVLink" if lacking else "GPUs are missing in the list",
            where=f"{where}:{line}",
            hint=_TOPO,
        )
    others = len(gpus) - 1
    whole = max(found.up[g] + found.down.get(g, 0) for g in gpus)
    if 2 < len(gpus) and whole <= _CABLED and not (others <= 3 and whole % others == 0):
        if len(gpus) < 16:
            raise BadFile(
                f"{len(gpus)} GPUs with {whole} NVLinks each may be cabled in several ways",
                where=f"{where}:{line}",
                hint=_TOPO,
            )
    direct = 0 < others <= 3 and whole % others == 0
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    for a in gpus:
        for b in gpus:
            count = min(links[a], links[b])
            pairs[a, b] = max(1, count // others) if direct else count
    cells = tuple(tuple("X" if a == b else f"NV{pairs[a, b]}" for b in gpus) for a in gpus)
    names = tuple(f"GPU{g}" for g in gpus)
    return Matrix(names, len(gpus), cells, (None,) * len(gpus), tuple((n,) for n in names))


_CABLED = 6
"""GPUs with so few NVLinks are cabled directly in most machines, in cubes and rings."""

_TOPO = "put the text of nvidia-smi topo -m into the same file"
