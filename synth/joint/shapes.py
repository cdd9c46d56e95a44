"""Shapes for N GPUs of D cables each, ranked by the least time of a workload on them.

Candidates are tori, twisted tori (:func:`weft.dsl.machines.families.twisted`) and circulants, one
of each class of circulants that a factor prime to N maps to each other. All of them look the same
from every GPU, so that the joint bound of :mod:`.bound` has a row for each kind of cable. Prices of
1 on all links bound each candidate first; those whose bound is above the best are not solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.catalogue import topology
from weft.dsl.nouns.workload import Workload

from ..base.effort import Effort, setting
from ..prices.joint_prices import joint_prices
from .bound import joint_bound, priced
from .demands import demands_of
from .pricing import RELAYS_HINT, Unreached

SHAPES = ("torus", "twisted", "circulant")
"""Kinds of shapes that are tried."""


@dataclass(frozen=True, slots=True)
class ShapeEffort(Effort):
    """Limits of the search for shapes."""

    most: int = setting(4000, "shapes that are looked at, at most")


SHAPE_EFFORT = ShapeEffort()
"""Default limits."""


@dataclass(frozen=True, slots=True)
class RankedShape:
    """A shape by its name in the catalogue, the joint bound, and whether that is attained."""

    name: str
    us: Fraction
    exact: bool


@dataclass(frozen=True, slots=True)
class ShapeRanking:
    """The best shapes, the best first.

    ``looked_at``: how many there are; ``least_us``: a lower bound of those that are left out; None
    if none is.
    """

    shapes: tuple[RankedShape, ...]
    looked_at: int
    least_us: Fraction | None


def ranked_shapes(
    workload: Workload,
    ranks: int,
    degree: int,
    *,
    kinds: Sequence[str] = SHAPES,
    options: str = "",
    top: int = 10,
) -> ShapeRanking:
    """Return the best ``top`` shapes for a workload whose rank i is GPU i.

    ``options``: of every shape, as ``bw=50GB/s``. The order of operations is left out.

    Raises:
        UserError: no shape, or too many shapes, of ``degree`` cables.
    """
    names = list(_names(ranks, degree, kinds, SHAPE_EFFORT.most))
    if not names:
        told = f"no shape of {count(ranks, 'GPU')} has {count(degree, 'cable')} at each"
        raise UserError(told, hint=f"kinds that were tried: {', '.join(kinds)}")
    demands = demands_of(workload, ranks)
    if not any(one.parts for one in demands):
        raise UserError("the workload moves nothing")
    asked = [priced(one) for one in demands]
    waiting = []
    for name in names:
        machine = topology(",".join(filter(None, (name, options))))
        try:  # bound by prices of 1 on all links
            least = joint_prices(machine, asked, [1] * len(machine.links)).us
        except UserError as error:
            raise Unreached(f"{error.message} on {machine.name}", hint=RELAYS_HINT) from error
        waiting.append((least, name, machine))
    waiting.sort(key=lambda one: one[:2])
    found: list[RankedShape] = []
    while waiting and not (len(found) >= top and waiting[0][0] >= found[top - 1].us):
        _, _, machine = waiting.pop(0)
        solved = joint_bound(machine, demands)
        found.append(RankedShape(machine.name, solved.us, solved.exact))
        found.sort(key=lambda one: (one.us, one.name))
    rest = [one.us for one in found[top:]] + [least for least, _, _ in waiting]
    return ShapeRanking(tuple(found[:top]), len(names), min(rest, default=None))


# --- candidates -----------------------------------------------------------------------------------


def _names(ranks: int, degree: int, kinds: Sequence[str], most: int) -> Iterator[str]:
    """Yield the names of all shapes.

    Raises:
        UserError: there are more than ``most``.
    """
    for kind in kinds:
        if kind == "circulant":
            made = _circulants(ranks, degree)
        else:
            twisted = kind == "twisted"  # the longest axis even, and longer than the first
            made = (
                f"{kind}:{'x'.join(map(str, shape))}"
                for shape in _grids(ranks, degree, least=3 if twisted else 2)
                if not twisted or (shape[0] < shape[-1] and shape[-1] % 2 == 0)
            )
        for number, name in enumerate(made):
            if number == most:
                raise UserError(
                    f"more than {most} shapes of the kind {kind}",
                    hint=f"leave it out: --kinds {','.join(k for k in SHAPES if k != kind)}",
                )
            yield name


def _grids(ranks: int, degree: int, least: int = 2, start: int = 2) -> Iterator[tuple[int, ...]]:
    """Yield ascending sizes of axes; an axis has two cables at each GPU, one of two GPUs one."""
    if ranks == 1:
        if degree == 0:
            yield ()
        return
    for size in range(max(start, least), ranks + 1):
        cables = 1 if size == 2 else 2
        if ranks % size == 0 and cables <= degree:
            for rest in _grids(ranks // size, degree - cables, least, size):
                yield (size, *rest)


def _circulants(ranks: int, degree: int) -> Iterator[str]:
    """Yield a circulant of each class: the least that a factor prime to N maps it to."""
    half, opposite = divmod(degree, 2)
    if opposite and ranks % 2:
        return
    last = [ranks // 2] if opposite else []
    factors = [u for u in range(1, ranks // 2 + 1) if math.gcd(u, ranks) == 1]
    for some in combinations(range(1, (ranks + 1) // 2), half):
        steps = (*some, *last)
        if not steps or math.gcd(ranks, *steps) > 1:
            continue
        if all(
            steps <= tuple(sorted(min(s * u % ranks, -s * u % ranks) for s in steps))
            for u in factors  # GPU i is u · i of the other circulant
        ):
            yield f"circulant:{ranks},steps={','.join(map(str, steps))}"
