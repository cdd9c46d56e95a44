"""The public grade cases that weft answers so far: machine, collective, sizes, limits.

Cases of the engine ``exact`` are graded on its whole frontier; the others are solved anew for each
size, with the objective time, by the engine named (``portfolio``, where the case asks nothing
special) at the default effort, within ``seconds`` of CPU time each. cases.txt has a line for each.

Sizes are M in bytes (decimal), limits µs, bounds as the cases state them: T/M in ps per byte and
the α bound in µs. ``peers`` asks for a schedule in which no GPU has more send peers than that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from weft.dsl.base.units import parse_bytes
from weft.synth.base.engine import Budget
from weft.synth.time.schedule_tables import CostModel


@dataclass(frozen=True)
class Case:
    """One line of the table of grade cases."""

    name: str
    topology: str
    collective: str
    limits: tuple[tuple[int, float], ...]
    alpha_us: float
    ps_per_byte: float
    points: tuple[tuple[int, int, int], ...] = ()
    sketch: str = ""
    engine: str = "exact"
    seconds: float = 60
    effort: float = Budget().effort
    cost: CostModel = field(default_factory=CostModel)
    note: str = ""


def two_shot(size: int) -> float:
    """G12's limit: 1.02 times the better of one-shot and two-shot allreduce."""
    return 1.02 * min(0.7 + 7 * size / 300e3, 1.4 + 1.75 * size / 300e3)


TACOS = CostModel(alpha_occupies=True)
"""α is part of the occupancy, as TACOS counts."""


def points(text: str) -> tuple[tuple[int, int, int], ...]:
    """Points of a frontier: ``2/3/2 3/7/6``."""
    found = (one.split("/") for one in text.split())
    return tuple((int(a), int(b), int(c)) for a, b, c in found)


READ = {"points": points, "seconds": float, "cost": {"tacos": TACOS}.__getitem__}


def limit(text: str) -> tuple[int, float]:
    size, us = text.split()
    return parse_bytes(size), two_shot(parse_bytes(size)) if us == "two-shot" else float(us)


def cases() -> Iterator[Case]:
    """Yield the cases of cases.txt."""
    for line in Path(__file__).with_name("cases.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, machine, collective, limits, alpha, ps, *rest = line.split(" | ")
            most = tuple(map(limit, limits.split(", ")))
            pairs = (one.partition("=") for one in rest)
            more = {key: READ.get(key, str)(value) for key, _, value in pairs}
            bound = float(Fraction(ps))
            yield Case(name, machine, collective, most, float(alpha), bound, **more)


CASES = tuple(cases())
