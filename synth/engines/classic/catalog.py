"""The classic algorithms by name and collective, and the verb that writes one.

>>> ring = classic("ring", "allreduce")
>>> ring.cost(8).steps, ring.cost(8).volume
(14, Fraction(7, 4))
>>> len(classic_algorithm("ring", "allreduce", 4).moves)
24
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import ROOTED, Kind, make
from weft.dsl.nouns.program import Protocol

from .flat import FLAT
from .model import Flat

CLASSICS: tuple[Flat, ...] = FLAT
"""All of them."""


def classic(name: str, kind: str | Kind) -> Flat:
    """The algorithm of that name for a collective.

    Raises:
        UnknownName: no such name, or not for this collective.
    """
    named = [one for one in CLASSICS if one.name == name]
    if not named:
        raise UnknownName("classic algorithm", name, dict.fromkeys(c.name for c in CLASSICS))
    for one in named:
        if one.kind == str(kind):
            return one
    raise UserError(
        f"{name} is no algorithm for {kind}", hint="it is for " + ", ".join(c.kind for c in named)
    )


def classics_for(kind: str | Kind, ranks: int) -> tuple[Flat, ...]:
    """All algorithms for a collective that are defined on so many ranks."""
    return tuple(c for c in CLASSICS if c.kind == str(kind) and not c.defined(ranks))


def classic_algorithm(
    name: str,
    kind: str | Kind,
    ranks: int,
    *,
    in_place: bool = False,
    order: Sequence[int] | None = None,
    chunks: int = 1,
    root: int = 0,
    instances: int = 1,
    protocol: Protocol | str = Protocol.SIMPLE,
    **options: Any,
) -> Algorithm:
    """A classic algorithm, written and proved.

    Args:
        name, kind: which one, for which collective.
        ranks: size of the group.
        order: the ranks along the ring, or by their number in the tree; a permutation of all
            (:mod:`.mapping` finds a good one). Rooted collectives begin with
            the root: the order is rotated there.
        chunks: pieces of a pipeline, or of every block; they multiply what the algorithm itself
            cuts the unit into.
        root: of a rooted collective.
        in_place, instances, protocol: as :class:`~weft.dsl.author.builder.Builder` takes them.
        options: of this algorithm.

    Raises:
        UnknownName, UserError: no such algorithm, not on so many ranks, an order that is none.
    """
    one = classic(name, kind)
    check_defined(one, ranks)
    if chunks < 1:
        raise UserError(f"{chunks} chunks make no message", hint="use 1, 2, 4 …")
    roots = (root,) if one.kind in ROOTED else ()
    if root and not roots:
        raise UserError(f"{one.kind} has no root")
    known = list(signature(one.write).parameters)[2:]
    for option in options:
        if option not in known:
            raise UnknownName(f"option of {name}", option, known)
    factor = one.parts(ranks, **_accepted_options(one.parts, options)) * chunks
    collective = make(one.kind, ranks, chunks=factor, roots=roots)
    along = ring_from(checked_order(order, ranks), root if roots else None)
    builder = Builder(
        collective,
        name=f"{name}_{one.kind}",
        in_place=in_place,
        instances=instances,
        protocol=protocol,
    )
    one.write(builder, along, **options)
    return builder.algorithm()


def check_defined(one: Flat, ranks: int) -> None:
    """Refuse a number of ranks on which an algorithm is not defined.

    Raises:
        UserError: why not.
    """
    reason = one.defined(ranks)
    if reason:
        others = [c.name for c in classics_for(one.kind, ranks)]
        raise UserError(
            f"{one.name} {one.kind} is not defined on {ranks} ranks: {reason}",
            hint=f"{', '.join(others)} are" if others else "",
        )


def checked_order(order: Sequence[int] | None, ranks: int) -> list[int]:
    """A permutation of all ranks; their own order if there is none.

    Raises:
        UserError: a rank is missing or twice.
    """
    if order is None:
        return list(range(ranks))
    if sorted(order) != list(range(ranks)):
        raise UserError(
            f"the order {list(order)} is no permutation of the {ranks} ranks",
            hint=f"name each of 0 … {ranks - 1} once",
        )
    return list(order)


def ring_from(order: list[int], root: int | None) -> list[int]:
    """The order rotated so that it starts at the root.

    Raises:
        UserError: the root is not in it.
    """
    if root is None:
        return order
    if root not in order:
        raise UserError(f"root {root} is outside the group", hint=f"0 … {len(order) - 1}")
    at = order.index(root)
    return order[at:] + order[:at]


def _accepted_options(function: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a function takes."""
    return {k: v for k, v in options.items() if k in signature(function).parameters}
