"""GPUs as nvidia-smi lists them beside its matrix: names, bus ids, and the state of NVLinks.

Read from plain ``nvidia-smi``, ``nvidia-smi -L`` and ``nvidia-smi nvlink -s`` in the same text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import field
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

_WORD = re.compile(
    r"(?:(?<![a-z0-9])|(?<=dgx)|(?<=hgx))([abhv]\d{2,3}|g[bh]\d{3})(?![a-z0-9])", re.IGNORECASE
)
"""A generation that other words name: a prompt ``root@dgx-h200-3:~#``, a title."""

_MEMORY = re.compile(r"(?:/|memory\.total\D{0,12}|^)\s*(\d{4,6}) ?MiB", re.IGNORECASE)
_DRIVER = re.compile(r"driver version\s*:?\s*(\d{3})\.", re.IGNORECASE)
_ADAPTER = re.compile(r"\s*(?:CA|Infiniband device|hca_id:) ?'?([a-z]\w{2,30})'?", re.IGNORECASE)
_RATE = re.compile(r"\s*rate:\s*(\d{1,4}(?:\.\d)?)(?: Gb|\s*$)", re.IGNORECASE)
"""Of ``ibstat`` and ``ibstatus``, in Gbit/s below a device."""

_LINK = re.compile(r"\s*Link (\d{1,3}): (?:([0-9.]{1,9}) GB/s|<?inactive>?)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SmiDevices:
    """GPUs by the index of nvidia-smi; ``up`` and ``down``: numbers of NVLinks of those with any.

    ``speed``: GB/s of one NVLink, where the text has it. What else it may say: ``words`` like names
    of generations, ``memory`` of a GPU in GiB and the branch of the ``driver`` (0: nothing), and
    GB/s of NICs by device (``ibstat``).
    """

    names: dict[int, str]
    bus_ids: dict[int, str]
    up: dict[int, int]
    down: dict[int, int]
    speed: Fraction | None
    words: tuple[str, ...] = ()
    memory: float = 0.0
    driver: int = 0
    rates: dict[str, Fraction] = field(default_factory=dict)

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
    return SmiDevices(names, bus_ids, dict(up), dict(down), speed, *_aside(plain_lines(text)))


def _aside(lines: list[str]) -> tuple[tuple[str, ...], float, int, dict[str, Fraction]]:
    """Return words like names of generations, the memory, the driver, and rates of NICs."""
    words = dict.fromkeys(m[1].lower() for line in lines for m in _WORD.finditer(line[:_LONGEST]))
    memory = [int(m[1]) for line in lines for m in _MEMORY.finditer(line[:_LONGEST])]
    drivers = [int(m[1]) for line in lines if (m := _DRIVER.search(line[:_LONGEST]))]
    rates: dict[str, Fraction] = {}
    device = ""
    for line in lines:
        if (adapter := _ADAPTER.match(line)) is not None:
            device = adapter[1]
        elif device and (rate := _RATE.match(line)) is not None:
            rates.setdefault(device, Fraction(rate[1]) / 8)
    return tuple(words), max(memory, default=0) / 1024, max(drivers, default=0), rates


_LONGEST = 400
"""Letters of a line that are searched for such words."""


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
