"""The collective, the machine and the rules of each group in each phase of a sketch.

Collectives are given on cells: the parts of the data that no phase divides further.

Of an allreduce there is one cell for each rank or set of ranks that works on a part of the sum of
its own (its blocks after all reduce_scatters); of the others the units are the cells. Which
member of a group takes a cell follows from the nesting of the groups
(:mod:`weft.dsl.nouns.composition`): the one whose block works on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.components import components
from weft.dsl.base.errors import UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.sketch import (
    Chunks,
    Forbid,
    Only,
    OwnFirst,
    Pair,
    Phase,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)
from weft.dsl.nouns.topology import Link, Resource, Topology


@dataclass(frozen=True, eq=False)
class GroupPart:
    """The collective of one group in one phase."""

    phase: int  # its number
    kind: Kind  # what the group does
    ranks: tuple[int, ...]  # its members, in order; member i is rank i of the part's own problem
    # Shape (units of the plain collective, copies): the group does the same with as many cells of
    # every unit at once
    cells: Ints


def cells_of(phases: Sequence[Phase], kind: Kind, ranks: int) -> int:
    """Return the number of cells in a unit of the whole collective."""
    return len(set(_cell_labels(phases, ranks).tolist())) if kind is Kind.ALLREDUCE else 1


def parts_of(phases: Sequence[Phase], kind: Kind, ranks: int) -> list[GroupPart]:
    """Return the parts of all groups of more than one rank, phase by phase."""
    if kind is Kind.ALLTOALL:
        return list(_handed_on(phases, ranks))
    cell = _cell_labels(phases, ranks) if kind is Kind.ALLREDUCE else np.arange(ranks)
    stands_for = np.unique(cell, return_index=True)[1]  # a rank of each cell's block
    found = []
    for number, phase in enumerate(phases):
        inner = _inner(phases, number, kind, ranks)
        for group in (x for x in phase.groups if len(x) > 1):
            members = list(group)
            if phase.kind is Kind.ALLREDUCE:
                cells = np.flatnonzero(cell[stands_for] == cell[members[0]])[None, :]
            else:
                rows = [np.flatnonzero(inner[stands_for] == inner[m]) for m in members]
                cells = np.array(rows, np.int64)
            found.append(GroupPart(number, phase.kind, group, cells))
    return found


def _joined(phases: Sequence[Phase], ranks: int) -> Ints:
    """The block of every rank: ranks that the groups of some phases join are of one."""
    pairs = [(g[0], r) for phase in phases for g in phase.groups for r in g]
    return components(ranks, *np.array(pairs, np.int64).reshape(-1, 2).T)


def _cell_labels(phases: Sequence[Phase], ranks: int) -> Ints:
    """The ranks that work on a part of a sum together: those that allreduces join."""
    return _joined([p for p in phases if p.kind is Kind.ALLREDUCE], ranks)


def _inner(phases: Sequence[Phase], number: int, kind: Kind, ranks: int) -> Ints:
    """The blocks that a phase joins: of the phases after it; of an allgather, before it."""
    if phases[number].kind is not Kind.ALLGATHER:
        after = phases[number + 1 :]
        return _joined([p for p in after if p.kind is not Kind.ALLGATHER], ranks)
    if kind is Kind.ALLGATHER:
        return _joined(phases[:number], ranks)
    # It undoes a reduce_scatter: the last one of them first.
    scatters = [i for i, p in enumerate(phases) if p.kind is Kind.REDUCE_SCATTER]
    first = next(i for i, p in enumerate(phases) if p.kind is Kind.ALLGATHER)
    return _inner(phases, scatters[first - 1 - number], kind, ranks)


def _handed_on(phases: Sequence[Phase], ranks: int) -> Iterator[GroupPart]:
    """An alltoall: each cell goes to the member in whose block it will be wanted."""
    cell = np.arange(ranks * ranks)
    at, wanted = cell // ranks, cell % ranks
    for number, phase in enumerate(phases):
        inner = _joined(phases[number + 1 :], ranks)
        for group in (x for x in phase.groups if len(x) > 1):
            here = np.flatnonzero(np.isin(at, group))
            column = {int(inner[m]): i for i, m in enumerate(group)}
            place = {m: i for i, m in enumerate(group)}
            source = np.array([place[r] for r in at[here].tolist()], np.int64)
            target = np.array([column[b] for b in inner[wanted[here]].tolist()], np.int64)
            order = np.lexsort((here, target, source))
            yield GroupPart(number, phase.kind, group, here[order].reshape(len(group) ** 2, -1))
            at[here] = np.array(group)[target]


@dataclass(frozen=True, eq=False)
class GroupMachine:
    """The machine of one group: ``nodes[v]`` and ``links[i]`` are what its node v and its link i
    are in the whole machine.

    Names are those of places, so that groups that are wired alike have equal machines.
    """

    topology: Topology
    nodes: tuple[int, ...]
    links: Ints


@kept()
def group_machines(
    topology: Topology, groups: tuple[tuple[int, ...], ...], name: str
) -> tuple[GroupMachine, ...]:
    """Return the machines of groups that run at the same time.

    A link or resource that k of them can use has the k-th part of its bandwidth in each: so a
    schedule takes as long alone there as all of them take together.
    """
    used: list[set[int]] = []  # links on paths from member to member over nodes that do not store
    for group in groups:
        kept = {*group, *range(topology.ranks, len(topology.nodes))}
        links = [i for i, x in enumerate(topology.links) if x.src in kept and x.dst in kept]
        hops = find_hops(topology.restricted_to(group)).hops
        used.append({links[i] for hop in hops for i in hop.route})
    users = np.zeros(len(topology.links), np.int64)
    for mine in used:
        users[sorted(mine)] += 1
    sharers = [sum(not mine.isdisjoint(r.links) for mine in used) for r in topology.resources]
    return tuple(
        _machine(topology, group, sorted(mine), users.tolist(), sharers, name)
        for group, mine in zip(groups, used, strict=True)
    )


def _machine(
    topology: Topology,
    group: tuple[int, ...],
    links: list[int],
    users: list[int],
    sharers: list[int],
    name: str,
) -> GroupMachine:
    ends = {v for i in links for v in (topology.links[i].src, topology.links[i].dst)}
    nodes = (*group, *sorted(ends - set(group)))
    place = {node: i for i, node in enumerate(nodes)}
    new = {old: i for i, old in enumerate(links)}

    def link(i: int) -> Link:
        one = topology.links[i]
        src, dst = place[one.src], place[one.dst]
        return replace(one, src=src, dst=dst, bandwidth=one.bandwidth / users[i])

    shared: list[Resource] = []
    for r, sharing in zip(topology.resources, sharers, strict=True):
        members = tuple(new[i] for i in r.links if i in new)
        if members:
            shared.append(Resource(f"shared{len(shared)}", members, r.bandwidth / sharing))
    hosts: dict[int | None, int | None] = {None: None}  # numbered as they come
    for node in (topology.nodes[v] for v in nodes):
        hosts.setdefault(node.host, len(hosts) - 1)
    named = (
        replace(node, name=f"{node.kind}{place}", host=hosts[node.host])
        for place, node in enumerate(topology.nodes[v] for v in nodes)
    )
    local = Topology(name, tuple(named), tuple(map(link, links)), tuple(shared))
    return GroupMachine(local, nodes, np.array(links, np.int64))


def group_rules(sketch: Sketch, machine: GroupMachine, cells: int) -> Iterator[Rule]:
    """Yield the rules that bind a group alone; ``cells`` make up a unit of the whole collective.

    Rules about whole ways (hops, steps, detours, relays, fixed sends) are none of a part: the
    schedule that is put together is held against them.

    Raises:
        UserError: the chunks of a unit do not make up its cells.
    """
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
