"""Parser of the text of ``nvidia-smi topo -m`` to a matrix of classes, tolerant of damage.

Copies of that text have tabs or spaces, ANSI colours, lines wrapped by a terminal, NICs named by
device or by number with a legend. So the text is parsed as tokens with line numbers: first the
column names, then for each name its row.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import field, replace
from fractions import Fraction

from ..base.errors import BadFile
from ..base.files import looks_like_json
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.tables import count
from ..base.terminal import plain_lines, without_bars
from .host_plan import require_symmetric

PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Classes over PCIe, nearest first."""

_CELL = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
_DEVICE = re.compile(r"GPU[0-9]+|NIC[0-9]+|[a-z][a-z0-9]*_[a-z0-9_.]*|[a-z]+[0-9][a-z0-9]*")
_WHOLE = re.compile(rf"{_CELL.pattern}|{_DEVICE.pattern}|Affinity|ID|N/A|[0-9,-]+")
"""Words at the end of an unbroken line."""

_FUSED = re.compile(
    r"(?:GPU|NIC|mlx[45]_(?:bond_)?)[0-9]+|NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|X", re.ASCII
)
"""A word that stands beside others without a space where a copy lost it: ``SYSSYS``."""

_AFTER = ("CPU", "NUMA", "GPU")
_STARTS = re.compile(r"[\s|]*GPU[0-9]+([\s|]|$)")
OWN_ROW = re.compile(r"[\s|]*GPU0[\s|]+X(?:[\s|]|$)")
"""The begin of the first row of a matrix of nvidia-smi."""

_TITLE_LINES = 4
"""Lines above a matrix of ``topo -p2p`` among which its command may be."""

ONE_HOST = "one file for each kind of host; a.txt*2+b.txt*2 is a cluster of both"

_FLAT = re.compile(r"\bGPU0\s+(GPU1|CPU Affinity)\b")
"""The header of a matrix whose line ends were lost, behind other words."""

_PEER = re.compile(
    r"[\s|]*GPU(\d{1,4})[\s|]((?:[\s|]*\b(?:X|OK|CNS|GNS|TNS|NS|DR|U|N/A)(?![^\s|]))+)[\s|]*$"
)
"""A row of ``nvidia-smi topo -p2p``."""

_GPU_NAMES = re.compile(r"[\s|]*GPU\d{1,4}(?:[\s|]+GPU\d{1,4})*[\s|]*$")
_CAPABILITY = re.compile(r"-p2p\s+([rwnap]{1,2})\b")

CAPABILITIES = {
    "r": "reads",
    "w": "writes",
    "n": "NVLink",
    "a": "atomic operations",
    "p": "PCIe",
}
"""Subjects of ``nvidia-smi topo -p2p``, by its argument."""

_LEGEND = re.compile(r"\s*(NIC )?Legend:?\s*$", re.IGNORECASE)


class PeerStates(Frozen):
    """Pairs of GPUs, by the numbers in their names, whose state of access is not OK.

    ``capability``: a letter of ``CAPABILITIES``, or two; empty where the text does not state it.
    """

    capability: str
    states: dict[tuple[int, int], str]


class Matrix(Frozen):
    """Devices and the connection class of each pair; ``numa`` of a GPU is None if unknown.

    ``own``: the names of each device, that of the driver first: NICs without a number in the text
    have that of their column, as newer versions of the tool number them. ``cut``: the last rows,
    of NICs, that the text does not have; the path between two such NICs counts as SYS.
    ``coherent``: the memory of the GPUs is NUMA nodes, as it is beside Grace only.
    ``peers``: states of access between GPUs, as ``nvidia-smi topo -p2p`` beside it lists.
    """

    names: tuple[str, ...]
    gpus: int
    cells: tuple[tuple[str, ...], ...]
    numa: tuple[int | None, ...]
    own: tuple[tuple[str, ...], ...]
    cut: int = 0
    coherent: bool = False
    peers: tuple[PeerStates, ...] = ()

    def bonded(self, device: int) -> bool:
        """Return True if a NIC is a bond of several ports, by a name of its driver."""
        return any("_bond_" in name for name in self.own[device])

    def shown(self, device: int) -> str:
        """Return the names of a device for people: ``mlx5_3 (NIC3)``."""
        first, *others = self.own[device]
        return f"{first} ({', '.join(others)})" if others else first

    def without(self, gone: Collection[int]) -> Matrix:
        """Return the matrix without some NICs."""
        kept = [i for i in range(len(self.names)) if i not in gone]
        cells = tuple(tuple(self.cells[i][j] for j in kept) for i in kept)
        own = tuple(self.own[i] for i in kept)
        return replace(self, names=tuple(self.names[i] for i in kept), cells=cells, own=own)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int


def _flat(lines: list[str]) -> list[str]:
    """Return the lines from the header on, if line ends before it were lost; else all."""
    for i, line in enumerate(lines):
        if (header := _FLAT.search(line)) is not None:
            return [*([""] * i), line[header.start() :], *lines[i + 1 :]]
    return lines


def looks_like_matrix(text: str) -> bool:
    """Return True if some line starts with the name of the first GPU, or has the whole matrix.

    JSON and XML are none: files of ours keep the text that they were imported from.
    """
    if looks_like_json(text) or text.lstrip("\ufeff \t\r\n").startswith("<"):
        return False
    lines = plain_lines(text[:100_000])
    return any(_STARTS.match(line) or _FLAT.search(line) for line in lines)


def read_matrix(text: str, where: str) -> Matrix:
    """Parse the text.

    Raises:
        BadFile: no header, a row that is missing, too short or too long, an unknown class; with
            the line. BadTopology: an asymmetric matrix.
    """
    lines, peers = _without_peers(without_bars(plain_lines(text)))
    tokens, legend = _tokens(lines)
    if peers and not tokens:
        raise BadFile(
            "expected the matrix of nvidia-smi topo -m, got topo -p2p alone, without links",
            where=where,
            hint="put the text of nvidia-smi topo -m into the same file",
        )
    names, rest = _header(tokens, where)
    gpus = sum(name.startswith("GPU") for name in names)
    rows, tails = _rows(names, gpus, rest, where)
    cut = len(names) - len(rows)
    rows += _rows_by_columns(rows, len(names))
    require_symmetric(names, rows, where, "nvidia-smi topo -m")
    numa = tuple(_numa(tail) for tail in tails[:gpus])
    own = (_own_names(name, i - gpus, legend) for i, name in enumerate(names))
    coherent = all(len(tail) > 2 and tail[2].isdecimal() for tail in tails[:gpus])
    made = Matrix(names, gpus, tuple(rows), numa, tuple(own), cut, coherent, peers)
    _require_one_host(made, lines, where)
    return made


def _without_peers(lines: list[str]) -> tuple[list[str], tuple[PeerStates, ...]]:
    """Return the lines with those of ``topo -p2p`` left empty, and its matrices."""
    rows = [_PEER.match(line) for line in lines]
    # One GPU's row is X in both kinds of matrices.
    rows = [row if row and set(row[2].split()) != {"X"} else None for row in rows]
    kept = list(lines)
    peers: list[PeerStates] = []
    columns: list[int] = []
    for at, row in enumerate(rows):
        if row is None:
            continue
        kept[at] = ""
        if at == 0 or rows[at - 1] is None:
            head = next((i for i in range(at - 1, -1, -1) if lines[i].strip()), 0)
            names = lines[head].split() if _GPU_NAMES.match(lines[head]) else []
            titles = map(_CAPABILITY.search, lines[max(0, head - _TITLE_LINES) : head + 1])
            title = next((m[1] for m in titles if m), "")
            columns = [int(name[3:]) for name in names]
            peers.append(PeerStates(title, {}))
            kept[head] = "" if names else kept[head]
        cells = row[2].split()
        for column, cell in zip(columns or range(len(cells)), cells, strict=False):
            if cell not in ("X", "OK"):
                peers[-1].states[int(row[1]), column] = cell
    return kept, tuple(peers)


def _require_one_host(first: Matrix, lines: list[str], where: str) -> None:
    others = [i for i, line in enumerate(lines) if OWN_ROW.match(line)][1:]
    if not others:
        return
    start = next((i for i in range(others[0] - 1, 0, -1) if _STARTS.match(lines[i])), 0)
    other = read_matrix("\n" * start + "\n".join(lines[start:]), where)
    if (other.names, other.cells) != (first.names, first.cells):
        raise BadFile(
            "another matrix than the first follows: the texts of two hosts",
            where=f"{where}:{start + 1}",
            hint=ONE_HOST,
        )


def _own_names(name: str, column: int, legend: dict[str, str]) -> tuple[str, ...]:
    if column < 0:
        return (name,)
    if name.startswith("NIC"):
        return (legend[name], name) if name in legend else (name,)
    return (name, f"NIC{column}")


def _tokens(lines: list[str]) -> tuple[list[_Token], dict[str, str]]:
    """Return the tokens from the header to the legend, and the names in the NIC legend."""
    start = next((i for i, s in enumerate(lines) if _STARTS.match(s)), len(lines))
    if start == len(lines) or OWN_ROW.match(lines[start]):
        lines = _flat(lines)
        start = next((i for i, s in enumerate(lines) if _STARTS.match(s)), len(lines))
    end = next((i for i, s in enumerate(lines) if i > start and _LEGEND.match(s)), len(lines))
    tokens: list[_Token] = []
    width = max(map(len, lines[start:end]), default=0)
    for i in range(start, end):
        words = [_Token(word, i + 1) for word in lines[i].split()]
        if words and i > start and _is_broken(lines[i - 1], lines[i], width):
            words[0] = _Token(tokens.pop().text + words[0].text, i + 1)
        tokens += words
    tokens = [_Token(word, token.line) for token in tokens for word in _apart(token.text)]
    found = (re.match(r"\s*(NIC[0-9]+):\s*(\S+)\s*$", s) for s in lines[end:])
    return tokens, {m.group(1): m.group(2) for m in found if m}


def _apart(word: str) -> list[str]:
    """Return the words that a word consists of, ``NIC11NIC12`` as two; else itself."""
    found = _FUSED.findall(word)
    return found if len(found) > 1 and "".join(found) == word else [word]


def _is_broken(line: str, following: str, width: int) -> bool:
    if len(line) < width or "\t" in line or line[-1].isspace() or following[0].isspace():
        return False
    left, right = line.split()[-1], following.split()[0]
    return not (_WHOLE.fullmatch(left) and _DEVICE.fullmatch(right))


def _header(tokens: list[_Token], where: str) -> tuple[tuple[str, ...], list[_Token]]:
    """Return the column names, and the tokens from the first row on."""
    names: list[str] = []
    for token in tokens:
        if token.text in _AFTER or token.text in names:
            break
        if not _DEVICE.fullmatch(token.text):
            place = f"{where}:{token.line}"
            raise BadFile(
                f"{token.text!r} is not the name of a device",
                where=place,
                hint="keep the tabs or spaces between the columns, and one row in a line",
            )
        names.append(token.text)
    if not names:
        raise BadFile("no GPU in the header", where=where)
    gpus = [name.startswith("GPU") for name in names]
    if gpus != sorted(gpus, reverse=True):
        raise BadFile("GPUs come first in the header", where=f"{where}:{tokens[0].line}")
    for i in range(len(names), len(tokens)):
        if tokens[i].text == names[0]:
            return tuple(names), tokens[i:]
    raise BadFile(
        f"the row of {names[0]} is missing",
        where=f"{where}:{tokens[-1].line}",
        hint="is the text complete?",
    )


def _rows_by_columns(rows: list[tuple[str, ...]], devices: int) -> Iterator[tuple[str, ...]]:
    known = len(rows)
    for one in range(known, devices):
        others = ("X" if other == one else "SYS" for other in range(known, devices))
        yield (*(row[one] for row in rows), *others)


def _rows(
    names: tuple[str, ...], gpus: int, tokens: list[_Token], where: str
) -> tuple[list[tuple[str, ...]], list[list[str]]]:
    """Return the cells of each row, and the tokens after them.

    A text may end behind the rows of its GPUs: the columns of these have what NICs' rows repeat.
    """
    rows: list[tuple[str, ...]] = []
    tails: list[list[str]] = []
    at = 0
    for r, name in enumerate(names):
        if r >= gpus and at == len(tokens):
            break
        if at == len(tokens) or tokens[at].text != name:
            line = tokens[min(at, len(tokens) - 1)].line
            raise BadFile(
                f"the row of {name} is missing",
                where=f"{where}:{line}",
                hint=f"the header has {len(names)} devices, the text {r} whole rows",
            )
        first, at = tokens[at], at + 1
        cells, at = _cells(names, tokens, at)
        if r >= gpus and len(cells) < len(names) and len(tokens) - at <= 1:
            break  # at most the cell is there within which the text ends
        if len(cells) != len(names):
            raise BadFile(
                f"the row of {name} has {count(len(cells), 'cell')} for {len(names)} columns",
                where=f"{where}:{first.line}",
                hint="the text ends there"
                if at == len(tokens)
                else f"{tokens[at].text!r} is none of X, NV#, {', '.join(PATHS)}",
            )
        if cells[r] != "X" or cells.count("X") != 1:
            place = f"{where}:{first.line}"
            raise BadFile(
                f"{name}: expected X in its own column alone, got {' '.join(cells)[:60]}",
                where=place,
            )
        after = names[r + 1] if r + 1 < len(names) else ""
        tail: list[str] = []
        while at < len(tokens) and tokens[at].text != after:
            if not tail and _CELL.fullmatch(tokens[at].text):
                raise BadFile(
                    f"the row of {name} has more than {len(names)} cells",
                    where=f"{where}:{tokens[at].line}",
                )
            tail.append(tokens[at].text)
            at += 1
        rows.append(tuple("SYS" if c == "SOC" else c for c in cells))
        tails.append(tail)
    return rows, tails


def _cells(names: tuple[str, ...], tokens: list[_Token], at: int) -> tuple[list[str], int]:
    cells: list[str] = []
    while len(cells) < len(names) and at < len(tokens) and _CELL.fullmatch(tokens[at].text):
        cells.append(tokens[at].text)
        at += 1
    return cells, at


def _numa(tail: list[str]) -> int | None:
    """Parse the NUMA node of ``0-23,48-71  0  N/A``: the second column after the cells."""
    if len(tail) > 1 and tail[1].isascii() and tail[1].isdigit():
        return int(tail[1][:9])
    return None


# --- GPUs beside the matrix -----------------------------------------------------------------------
# GPUs as nvidia-smi lists them beside its matrix: names, bus ids, and the state of NVLinks.
#
# Read from plain ``nvidia-smi``, ``nvidia-smi -L`` and ``nvidia-smi nvlink -s`` in the same text.

_GPU = re.compile(r"\s*GPU (\d{1,4}(?:,\d{1,4})*): (\S.*?)\s*(?:\(UUID.*)?$")
"""A line of ``nvidia-smi -L``; reports of environments list GPUs of one name together."""

_TABLE_ROW = re.compile(
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


class SmiDevices(Frozen):
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
    """Return the facts that a text states of its GPUs, if any."""
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
        elif (row := _TABLE_ROW.match(line)) is not None:
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
