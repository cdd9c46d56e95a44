"""Importer of the output of CUDA's sample p2pBandwidthLatencyTest: measurements of GPU pairs.

Each matrix has a title, a line of column numbers and a row for each GPU. Read are those with P2P
enabled if present: unidirectional and bidirectional bandwidth, and the GPU's latency. Rows are
readers in matrices titled *P2P Reads*, and writers in the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from statistics import median

from ..base.errors import BadFile
from ..base.lazy_dataclass import dataclass
from ..machines.spec import MachineSpec
from ..nouns.timing import MachineTiming
from ..nouns.topology import Link, Resource, Topology, gpu
from ..symmetry.symmetry import guess
from .generations import family_of

NOISE = 0.06
"""Typical relative noise of one run of a bandwidth test."""

BOTH_WAYS = 0.9
"""Two directions share a bandwidth if together they have less than this fraction of the sum."""

_TITLE = re.compile(
    r"\s*(?:(Unidirectional|Bidirectional) )?P2P=(Enabled|Disabled) (Bandwidth|Latency)"
    r"(?: \(P2P (Writes|Reads)\))? Matrix \((GB/s|us)\)\s*$"
)
_DEVICE = re.compile(r"\s*Device: \d+, (.+?), pciBusID")
_COLUMNS = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d+)+)\s*$")

Matrix = dict[tuple[int, int], float]


@dataclass(frozen=True, slots=True)
class _Titled:
    """Quantity of a matrix by its title; ``line`` of the title, from 1."""

    ways: str
    enabled: bool
    what: str
    reads: bool
    line: int


def looks_like_p2p_test(text: str) -> bool:
    """Return True if some line is the title of a matrix."""
    return any(map(_TITLE.match, text[:200_000].splitlines()))


def read_p2p_test(text: str, where: str, options: MachineSpec) -> Topology:
    """Return links for all pairs, with shared resources where both directions together are slower.

    Raises:
        BadFile: no unidirectional bandwidths, a row that is short, missing or not numeric, matrices
            of different sizes; with the line.
    """
    lines = text.replace("\r", "").splitlines()
    matrices = dict(_matrices(lines, where))
    one, enabled = _chosen(matrices, "Unidirectional", "Bandwidth", where)
    gpus = 1 + max(a for a, _ in one)
    if gpus < 2:
        raise BadFile("there is one GPU only: no pairs were measured", where=where)
    both = _like(matrices, "Bidirectional", "Bandwidth", enabled, gpus, where)
    delays = _like(matrices, "", "Latency", enabled, gpus, where)
    notes = [
        f"measured by p2pBandwidthLatencyTest, P2P {'enabled' if enabled else 'disabled'}: "
        "every pair alone, so what several pairs share is not known"
    ]
    if delays is None:
        notes.append("there is no latency in the text: α is 0")
    if both is None:
        notes.append("both directions at once are not in the text: taken to be independent")
    flows = list(permutations(range(gpus), 2))
    width, delay = alike(one[f] for f in flows), alike((delays or {}).get(f, 0.0) for f in flows)
    links = tuple(Link(*f, width[one[f]], delay[(delays or {}).get(f, 0.0)]) for f in flows)
    made = Topology(
        options.title(),
        tuple(map(gpu, range(gpus))),
        links,
        _shared(one, both, flows),
        notes=(*notes, *_cannot(lines)),
        timing=MachineTiming(family_of(m[1] for m in map(_DEVICE.match, lines) if m)),
    )
    return replace(made, symmetries=guess(made))


def _shared(one: Matrix, both: Matrix | None, flows: list[tuple[int, int]]) -> tuple[Resource, ...]:
    if both is None:
        return ()
    gpus = 1 + max(a for a, _ in flows)
    place = {flow: i for i, flow in enumerate(flows)}
    sums = {(a, b): (both[a, b] + both[b, a]) / 2 for a, b in combinations(range(gpus), 2)}
    least = {f: s for f, s in sums.items() if s < BOTH_WAYS * (one[f] + one[f[::-1]])}
    rate = alike(least.values())
    return tuple(
        Resource(f"pair {a}-{b}", (place[a, b], place[b, a]), rate[s])
        for (a, b), s in least.items()
    )


def _cannot(lines: list[str]) -> list[str]:
    """Return a note if some GPUs cannot access others."""
    some = sum("CANNOT Access Peer" in line for line in lines)
    return [f"{some} directions have no peer access: they go through the host"] if some else []


def _chosen(
    matrices: dict[_Titled, Matrix], ways: str, what: str, where: str
) -> tuple[Matrix, bool]:
    for enabled in (True, False):
        for title, matrix in matrices.items():
            if (title.ways, title.what, title.enabled) == (ways, what, enabled):
                return _written(title, matrix), enabled
    raise BadFile(
        f"the {ways.lower()} bandwidths are missing", where=where, hint="is the text complete?"
    )


def _like(
    matrices: dict[_Titled, Matrix], ways: str, what: str, enabled: bool, gpus: int, where: str
) -> Matrix | None:
    """Return the matrix of the same kind of access, of the same size."""
    for title, matrix in matrices.items():
        if (title.ways, title.what, title.enabled) == (ways, what, enabled):
            if len(matrix) != gpus**2:
                raise BadFile(
                    f"the matrix is not of {gpus} GPUs, as the first one is",
                    where=f"{where}:{title.line}",
                )
            return _written(title, matrix)
    return None


def _written(title: _Titled, matrix: Matrix) -> Matrix:
    """Return the matrix indexed by sender and receiver."""
    return {f[::-1]: x for f, x in matrix.items()} if title.reads else matrix


def _matrices(lines: list[str], where: str) -> Iterator[tuple[_Titled, Matrix]]:
    for number, line in enumerate(lines, 1):
        found = _TITLE.match(line)
        if found:
            ways, access, what, method, _ = found.groups()
            title = _Titled(ways or "", access == "Enabled", what, method == "Reads", number)
            yield title, _matrix(lines, number, where)


def _matrix(lines: list[str], at: int, where: str) -> Matrix:
    """Parse the rows below the title in line ``at`` (from 1); the first table if there are two."""
    head = _COLUMNS.match(lines[at]) if at < len(lines) else None
    if head is None:
        raise BadFile("a line of column numbers is expected", where=f"{where}:{at + 1}")
    gpus = len(head[2].split())
    if head[2].split() != [str(i) for i in range(gpus)]:
        raise BadFile("columns are numbered 0, 1, 2 …", where=f"{where}:{at + 1}")
    found: Matrix = {}
    for row in range(gpus):
        place = at + 1 + row
        words = lines[place].split() if place < len(lines) else []
        if not words or words[0] != str(row):
            raise BadFile(
                f"the row of GPU {row} is missing",
                where=f"{where}:{place + 1}",
                hint="is the text complete?",
            )
        if len(words) != gpus + 1:
            raise BadFile(
                f"the row of GPU {row} has {len(words) - 1} numbers for {gpus} columns",
                where=f"{where}:{place + 1}",
            )
        for column, word in enumerate(words[1:]):
            if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", word) or float(word) <= 0:
                raise BadFile(f"{word!r} is not a positive number", where=f"{where}:{place + 1}")
            found[row, column] = float(word)
    return found


def alike(values: Iterable[float], noise: float = NOISE) -> dict[float, Fraction]:
    """Return for each value the median of its cluster, in three significant digits.

    A cluster ends where the next larger value is ``noise`` above the smallest of the cluster.
    Measurements have as many bandwidths as links, real machines a few; equal links give symmetry,
    and symmetry makes synthesis fast.
    """
    found: dict[float, Fraction] = {}
    kind: list[float] = []
    for value in [*sorted(values), float("inf")]:
        if kind and value > kind[0] * (1 + noise):
            found |= dict.fromkeys(kind, Fraction(f"{median(kind):.2e}"))
            kind = []
        kind.append(value)
    return found
