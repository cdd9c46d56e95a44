"""``classic:NAME{option=…}``: a classic algorithm as the command line names it.

>>> named_algorithm("classic:ring{collective=allreduce,ranks=4}").algorithm.collective.chunks
4
"""

from __future__ import annotations

from types import MappingProxyType

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spec import build, parse_spec
from weft.dsl.catalogue import topology
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.topology import Topology

from .place import Site, kinds_of

PREFIX = "classic:"


MEANT = MappingProxyType({"two_shot": "allreduce"})
"""The collective of names that had this one alone before: their texts stay valid."""


@dataclass(frozen=True, slots=True)
class _Options:
    collective: str = ""
    ranks: int = 0
    on: str = ""
    chunks: int = 1
    root: int = 0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedAlgorithm:
    """An algorithm, and the machine that it was mapped to, where one was named."""

    algorithm: Algorithm
    topology: Topology | None


def named_algorithm(text: str, *, in_place: bool = False) -> NamedAlgorithm:
    """The algorithm of ``classic:NAME{collective=…,ranks=…}``.

    Options: ``collective`` (needed where the name has several, but for
    :data:`MEANT`), ``ranks``, or ``on=`` a machine to
    whose rings and levels the ranks are mapped (in braces if it has options:
    ``on={dgx-h100:nodes=2,fabric=rails}``), ``chunks``, ``root``, and ``shape``, the sizes of the
    levels, innermost first (``8+2``).

    Raises:
        SyntaxProblem, UnknownName, UserError: not such a text, or no such algorithm there.
    """
    spec = parse_spec(text.removeprefix(PREFIX), text)
    options = build(spec, _Options)
    kinds = kinds_of(spec.name)
    collective = options.collective or MEANT.get(spec.name, "")
    if not collective and len(kinds) > 1:
        raise UserError(
            f"{spec.name} is for {', '.join(kinds)}: which is meant?",
            where=spec.span,
            hint=f"{PREFIX}{spec.name}{{collective={kinds[0]}}}",
        )
    on = options.on.removeprefix("{").removesuffix("}")
    if not on and options.ranks < 2:
        raise UserError(
            f"for how many ranks is {spec.name} meant?",
            where=spec.span,
            hint="ranks=8, or on= a machine",
        )
    machine = topology(on) if on else topology(f"hub:{options.ranks}")
    if options.ranks not in (0, machine.ranks):
        raise UserError(
            f"{machine.name} has {machine.ranks} ranks, not {options.ranks}", where=spec.span
        )
    made = Site(machine, options.shape).algorithm(
        spec.name,
        collective or kinds[0],
        chunks=options.chunks,
        root=options.root,
        in_place=in_place,
        own_order=not on,
    )
    return NamedAlgorithm(made, machine if on else None)
