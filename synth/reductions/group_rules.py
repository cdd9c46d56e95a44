"""What the rules of a sketch say about one group of one phase, in the group's own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.sketch import (
    Chunks,
    Forbid,
    Only,
    OwnFirst,
    Pair,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)

from .group_machine import GroupMachine


def group_sketch(sketch: Sketch, machine: GroupMachine, cells: int) -> Sketch | None:
    """The rules that bind a group alone; ``cells`` make up a unit of the whole collective.

    Rules about whole ways (hops, steps, detours, relays, fixed sends) are none of a part: the
    schedule that is put together is held against them.

    Raises:
        UserError: the chunks of a unit do not make up its cells.
    """
    rules = tuple(_rules(sketch, machine, cells))
    return replace(sketch, rules=rules, machine="", collective="", engine="") if rules else None


def _rules(sketch: Sketch, machine: GroupMachine, cells: int) -> Iterator[Rule]:
    ranks = machine.topology.ranks
    place = {node: i for i, node in enumerate(machine.nodes)}
    link = {old: i for i, old in enumerate(machine.links.tolist())}
    every = {(u, v) for u in range(ranks) for v in range(ranks) if u != v}

    def pairs(of: Iterable[Pair]) -> frozenset[Pair]:
        return frozenset(
            (place[u], place[v])
            for u, v in of
            if max(place.get(u, ranks), place.get(v, ranks)) < ranks
        )

    def links(of: Iterable[int]) -> frozenset[int]:
        return frozenset(link[i] for i in of if i in link)

    only = [r for r in sketch.rules if isinstance(r, Only)]
    named = frozenset[Pair]().union(*(pairs(r.pairs) for r in only))
    for rule in sketch.rules:
        match rule:
            case Only() if named < every:
                yield replace(rule, pairs=pairs(rule.pairs), links=links(rule.links))
            case Forbid():
                here = replace(rule, pairs=pairs(rule.pairs), links=links(rule.links))
                if here.pairs or here.links:
                    yield here
            case OwnFirst():
                if pairs(rule.pairs):
                    yield replace(rule, pairs=pairs(rule.pairs))
            case SwitchPolicy() if rule.switch in place:
                yield replace(rule, switch=place[rule.switch])
            case Symmetry():
                image = tuple(place.get(rule.image[v], ranks) for v in machine.nodes[:ranks])
                if sorted(image) == list(range(ranks)) and image != tuple(range(ranks)):
                    yield replace(rule, image=image)
            case Chunks():
                if rule.count % cells:
                    raise UserError(
                        f"{rule.count} chunks are not shared out among the {cells} parts that the "
                        "phases divide a unit in",
                        where=str(rule.span or rule.label),
                        hint=f"chunks {cells}, or a multiple",
                    )
                yield replace(rule, count=rule.count // cells)
            case _:
                pass
