"""Evaluation of expressions, ranks and links of a sketch on one machine, inside one block.

Outside blocks a number is a rank of the machine. Inside ``within node:`` it is a local rank of
every host; inside ``between nodes:`` the source is a local rank of any host and the destination
one of any other host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from ..base.arrays import Bools
from ..base.errors import BadSketch, UnknownName
from ..base.lazy_dataclass import Frozen
from ..base.spans import Span
from . import ast
from .ast import Operator
from .format import text_of
from .machine import Selected, SketchMachine

MAX_VALUE = 1 << 40
"""Largest absolute value of index arithmetic."""

MAX_RANGE = 1 << 20
"""Largest length of a range."""


Nodes = tuple[int, ...]
"""Node indices of the topology; a GPU's index is its rank."""


class PairScope(StrEnum):
    """Pairs covered by a line, and so the meaning of its numbers."""

    MACHINE = "the whole machine"
    BETWEEN = "between nodes"
    WITHIN = "within node"


class Meaning(Frozen):
    """Context of a line: the machine, the block's reach, and the values of names.

    ``hosts`` are the (source, destination) hosts of the block; None where the reach implies them.
    """

    machine: SketchMachine
    numbers: Mapping[str, int]
    reach: PairScope = PairScope.MACHINE
    hosts: frozenset[tuple[int, int]] | None = None

    def bound(self, name: str, value: int) -> Meaning:
        """Return the context with one more name."""
        return replace(self, numbers={**self.numbers, name: value})

    # ---- numbers

    def number(self, expression: ast.Expression) -> int:
        """Return the value of an expression.

        Raises:
            UnknownName: an unknown variable. BadSketch: division by zero, or a huge value.
        """
        return number_of(expression, self.numbers, self.machine.nodes_named)

    def count(self, expression: ast.Expression, what: str) -> int:
        """Return a value that must be at least 1."""
        value = self.number(expression)
        if value < 1:
            raise BadSketch(f"{what}: expected 1 or more, got {value}", where=expression.span)
        return value

    def block_size(self, expression: ast.Expression) -> int:
        """Return the size of blocks, which must divide the number of ranks."""
        size = self.count(expression, "the size of a block")
        if self.machine.ranks % size:
            raise BadSketch(
                f"{self.machine.ranks} ranks cannot be divided into blocks of {size}",
                where=expression.span,
            )
        return size

    def values(self, group: ast.RangeList) -> list[int]:
        """Return the numbers of a list, in order; an empty range has none."""
        return [v for item in group.items for v in self._item(item)]

    def _item(self, item: ast.Expression | ast.Range) -> Sequence[int]:
        if not isinstance(item, ast.Range):
            return (self.number(item),)
        low, high = self.number(item.low), self.number(item.high)
        if high - low > MAX_RANGE:
            raise BadSketch(f"the range {low}..{high} is too long", where=item.span)
        return range(low, high + 1)

    # ---- ranks and nodes

    def rank(self, expression: ast.Expression, host: int | None = None) -> int:
        """Return one rank: of the machine, or of a host by its local rank.

        Raises:
            BadSketch: an unknown rank, or the name of a switch or of several nodes.
        """
        found = self._nodes(expression, host)
        if len(found) != 1 or not self.machine.is_gpu(found[0]):
            text = text_of(expression)
            raise BadSketch(f"{text!r} is not one GPU", where=expression.span)
        return found[0]

    def ranks(self, ranks: ast.Ranks, host: int | None = None) -> Nodes:
        """Return several GPUs.

        Raises:
            BadSketch: an unknown rank, or a node that is not a GPU.
        """
        found = self._nodes(ranks, host)
        other = next((n for n in found if not self.machine.is_gpu(n)), None)
        if other is not None:
            name = self.machine.topology.nodes[other].name
            raise BadSketch(f"{name!r} is not a GPU", where=ranks.span)
        return found

    def inside(self, head: ast.BetweenNodes | ast.WithinNode) -> Meaning:
        """Return the context of the lines in a block.

        Raises:
            BadSketch: an unknown host, or a pair of equal hosts.
        """
        reach = PairScope.BETWEEN if isinstance(head, ast.BetweenNodes) else PairScope.WITHIN
        hosts = None if head.hosts is None else frozenset(self._host_pairs(head.hosts))
        return replace(self, reach=reach, hosts=hosts)

    def _host_pairs(self, hosts: ast.Pair | ast.Ranks) -> Iterator[tuple[int, int]]:
        """Yield the pairs of hosts of ``between nodes 0 -> 1`` and ``within node 0``."""
        if not isinstance(hosts, ast.Pair):
            yield from ((host, host) for host in self._host_numbers(hosts))
            return
        sources, targets = self._host_numbers(hosts.src), self._host_numbers(hosts.dst)
        if len(sources) == 1 and sources == targets and len(self.machine.hosts) > 1:
            raise BadSketch(
                f"nothing is between node {sources[0]} and itself",
                where=hosts.span,
                hint="within node, links are named by 'within node'",
            )
        pairs = [(a, b) for a in sources for b in targets if a != b]
        yield from pairs
        if hosts.both_ways:
            yield from ((b, a) for a, b in pairs)

    def _host_numbers(self, hosts: ast.Ranks) -> list[int]:
        count = len(self.machine.hosts)
        if isinstance(hosts, ast.Any):
            return list(range(count))
        group = hosts if isinstance(hosts, ast.RangeList) else ast.RangeList((hosts,))
        found = self.values(group)
        beyond = next((v for v in found if not 0 <= v < count), None)
        if beyond is not None:
            raise BadSketch(
                f"expected a node of {self.machine.topology.name}, got {beyond}",
                where=hosts.span,
                hint=f"nodes are 0 … {count - 1}" if count > 1 else "it has one node, number 0",
            )
        return found

    @property
    def joined(self) -> Bools:
        """Return the matrix of (source, destination) hosts of this block, shape (hosts, hosts)."""
        count = len(self.machine.hosts)
        if self.reach is PairScope.MACHINE:
            return np.ones((count, count), np.bool_)
        same = np.eye(count, dtype=np.bool_)
        if self.hosts is None:
            return same if self.reach is PairScope.WITHIN else ~same
        table = np.zeros((count, count), np.bool_)
        for pair in self.hosts:
            table[pair] = True
        return table

    def places(self) -> tuple[int | None, ...]:
        """Return the hosts in which links of a line begin; (None,) for the whole machine."""
        if self.reach is PairScope.MACHINE:
            return (None,)
        return tuple(np.flatnonzero(self.joined.any(axis=1)).tolist())

    def targets(self) -> tuple[int | None, ...]:
        """Return the hosts in which links of a line end; (None,) for the whole machine."""
        if self.reach is PairScope.MACHINE:
            return (None,)
        return tuple(np.flatnonzero(self.joined.any(axis=0)).tolist())

    def _nodes(self, ranks: ast.Ranks, host: int | None) -> Nodes:
        match ranks:
            case ast.Any():
                everyone = tuple(range(self.machine.ranks))
                return everyone if host is None else self.machine.hosts[host]
            case ast.RangeList(items=items):
                return tuple(dict.fromkeys(n for item in items for n in self._nodes(item, host)))
            case ast.Range():
                return tuple(n for v in self._item(ranks) for n in self._rank(v, host, ranks.span))
            case ast.Name(text=text) | ast.Quoted(text=text):
                if isinstance(ranks, ast.Quoted) or text not in self.numbers:
                    return self._named(text, host, ranks.span)
        return self._rank(self.number(ranks), host, ranks.span)

    def _rank(self, value: int, host: int | None, where: Span | None) -> Nodes:
        machine = self.machine
        size = machine.ranks if host is None else max(map(len, machine.hosts))
        if not 0 <= value < size:
            kind = "rank" if host is None else "local rank"
            raise BadSketch(
                f"expected a {kind} of {machine.topology.name}, got {value}",
                where=where,
                hint=f"{kind}s are 0 … {size - 1}",
            )
        if host is None:
            return (value,)
        return machine.hosts[host][value : value + 1]

    def _named(self, text: str, host: int | None, where: Span | None) -> Nodes:
        """Return the nodes of a name; of a family only those that belong to the host."""
        nodes = self.machine.topology.nodes
        found = self.machine.nodes_named(text, where)
        if not found:
            names = (
                n.name if n.name.replace(".", "_").isidentifier() else f'"{n.name}"' for n in nodes
            )
            raise UnknownName("node", text, {*names, *self.numbers}, where=where)
        if host is None or nodes[found[0]].name == text:
            return found
        label = nodes[self.machine.hosts[host][0]].host
        return tuple(n for n in found if nodes[n].host == label)

    # ---- links

    def selection(self, selection: ast.Selection) -> Selected:
        """Return the selection of a list of links, without its exceptions.

        Raises:
            BadSketch: a single pair that is not a hop, an unknown rank. UnknownName: an unknown
                node.
        """
        return self._union(selection.selectors) - self._union(selection.exceptions)

    def _union(self, selectors: Sequence[ast.Selector]) -> Selected:
        found = self.machine.nothing()
        for one in selectors:
            found = found | self.selector(one)
        return found

    def selector(self, selector: ast.Selector) -> Selected:
        """Return the selection of one item of a list of links, inside the block."""
        machine = self.machine
        match selector:
            case ast.BetweenNodes() | ast.WithinNode():
                return self._within_reach(self.inside(selector).speaks_of())
            case ast.SameLocalRank():
                return self._within_reach(machine.same_place & ~machine.same_host)
            case ast.Pair(src=src, dst=dst):
                found = self.pair(selector, src, dst)
                return found | self.pair(selector, dst, src) if selector.both_ways else found

    def _within_reach(self, pairs: Bools) -> Selected:
        return replace(self.machine.nothing(), pairs=pairs & self.machine.hops & self.speaks_of())

    def speaks_of(self) -> Bools:
        """Return the pairs covered by lines of this block."""
        host = self.machine.host_of
        return self.joined[host[:, None], host[None, :]]

    def pair(self, written: ast.Pair, src: ast.Ranks, dst: ast.Ranks) -> Selected:
        """Return the pairs and the links at switches from one side to the other.

        Ranges and groups select the existing hops; a single pair must be a hop.
        """
        machine = self.machine
        sources = {host: self._nodes(src, host) for host in self.places()}
        targets = {host: self._nodes(dst, host) for host in self.targets()}
        named = (
            self._outer(sources.values(), targets.values())[: machine.ranks, : machine.ranks]
            & self.speaks_of()
        )
        links = machine.nothing().links
        if any(
            not machine.is_gpu(n)
            for side in (sources, targets)
            for nodes in side.values()
            for n in nodes
        ):
            links = self._links(sources, targets)
        if _is_single(src) and _is_single(dst):
            self._must_exist(written, named, links)
        return Selected(named & machine.hops, links)

    def _outer(self, sources: Iterable[Nodes], targets: Iterable[Nodes]) -> Bools:
        """Return the matrix of all sources with all targets, shape (nodes, nodes)."""
        size = len(self.machine.topology.nodes)
        one, other = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        one[[n for nodes in sources for n in nodes]] = True
        other[[n for nodes in targets for n in nodes]] = True
        return one[:, None] & other[None, :]

    def _links(
        self, sources: Mapping[int | None, Nodes], targets: Mapping[int | None, Nodes]
    ) -> Bools:
        """Return the links at switches from the sources of a host to the targets of joined hosts.

        A switch may belong to several hosts, so hosts are handled pair by pair.
        """
        ends = self.machine.link_ends
        found = np.zeros(len(ends), np.bool_)
        joined = self.joined
        for host, nodes in sources.items():
            for other, reached in targets.items():
                if host is None or other is None or joined[host, other]:
                    found |= np.isin(ends[:, 0], nodes) & np.isin(ends[:, 1], reached)
        touches: Bools = found & (ends >= self.machine.ranks).any(axis=1)
        return touches

    def _must_exist(self, pair: ast.Pair, named: Bools, links: Bools) -> None:
        missing = np.argwhere(named & ~self.machine.hops)
        if len(missing):
            raise self.no_hop(int(missing[0, 0]), int(missing[0, 1]), pair.span)
        alone = self.reach is PairScope.BETWEEN and not self.joined.any()
        if not (alone or named.any() or links.any()):
            raise BadSketch(
                f"expected a link of {self.machine.topology.name}, got {text_of(pair)}",
                where=pair.span,
                hint=self._linked_to(pair),
            )

    def no_hop(self, src: int, dst: int, where: Span | None) -> BadSketch:
        """Return the error for two ranks that are not one hop apart; the hint lists hops."""
        if src == dst:
            return BadSketch(f"rank {src} sends nothing to itself", where=where)
        near = np.flatnonzero(self.machine.hops[src]).tolist()
        reaches = f"reaches {_listed(near)}" if near else "reaches no rank"
        name = self.machine.topology.name
        message = f"{src} -> {dst} is not a hop on {name}"
        if self.reach is not PairScope.MACHINE:
            place = self.machine.place_of
            message += f" (local ranks {place[src]} and {place[dst]})"
        return BadSketch(message, where=where, hint=f"in one hop rank {src} {reaches}")

    def _linked_to(self, pair: ast.Pair) -> str:
        nodes = self.machine.topology.nodes
        sources = {n for host in self.places() for n in self._nodes(pair.src, host)}
        near = {nodes[x.dst].name for x in self.machine.topology.links if x.src in sources}
        return f"links from {text_of(pair.src)} go to {_listed(sorted(near))}" if near else ""


def _is_single(ranks: ast.Ranks) -> bool:
    return isinstance(ranks, ast.Expression)


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items[:16])) + (", …" if len(items) > 16 else "")


def number_of(
    expression: ast.Expression,
    numbers: Mapping[str, int],
    nodes_named: Callable[[str], Sequence[int]] = lambda name: (),
) -> int:
    """Return the value of an expression, given the values of its names.

    Raises:
        UnknownName: an unknown variable. BadSketch: a node's name (by ``nodes_named``), division by
            zero, or a huge result.
    """
    match expression:
        case ast.Number(value=value):
            return value
        case ast.Name(text=text) if text in numbers:
            return numbers[text]
        case ast.Name(text=text) | ast.Quoted(text=text):
            if nodes_named(text):
                raise BadSketch(
                    f"{text!r} is a node; expected a number",
                    where=expression.span,
                    hint="ranks and variables are numbers",
                )
            raise UnknownName("variable", text, numbers, where=expression.span)
        case ast.Binary():
            left = number_of(expression.left, numbers, nodes_named)
            return _compute(expression, left, number_of(expression.right, numbers, nodes_named))


def _compute(expression: ast.Binary, left: int, right: int) -> int:
    match expression.operator:
        case Operator.ADD:
            value = left + right
        case Operator.SUBTRACT:
            value = left - right
        case Operator.MULTIPLY:
            value = left * right
        case Operator.DIVIDE | Operator.MODULO if right == 0:
            raise BadSketch("division by zero", where=expression.right.span)
        case Operator.DIVIDE:
            value = left // right
        case Operator.MODULO:
            value = left % right
    if abs(value) > MAX_VALUE:
        raise BadSketch("the number is too large", where=expression.span)
    return value
