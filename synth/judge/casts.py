"""The verifier of casts: their trees of links, and the capabilities that their switches need.

The contents of casts are replayed with those of transfers (:mod:`.replay`). Here, from the links
alone, and without any engine's code:

* the links form one tree: they start at sources or switches and end at destinations or switches,
  every source reaches every destination, and nothing meets behind a place where copies were made;
* a switch that sums or copies is entered, then left, at most twice: on the way up of a tree and on
  its way down (what enters it behind a link that leaves it belongs to the second pass);
* a switch that neither reduces nor multicasts passes on what comes, copy by copy: as many links
  leave it as enter it, and the k-th that enters goes on over the k-th that leaves (so a link may
  stand in a cast as often as copies pass it); any other switch on it is entered and left;
* some switch on it can sum or copy (bounds of other machines know transfers alone, whose links are
  held all at once);
* a switch that more than one link enters in a pass must reduce, one that more than one leaves must
  multicast, one of both must turn sums round; its member set has at least as many as its least
  group;
* a sum is copied only behind a switch that turns it round: one that turns and multicasts, which the
  whole sum passes before any copy of it is made (a switch that reduces does not feed one that
  multicasts: only ranks and turning switches are roots of an allreduce);
* where the issuer is in the group, its own copy crosses the switch too, both ways; but one switch
  that turns the whole sum round needs no issuer: its members push;
* a switch keeps at most as many different member sets as it has groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import field
from itertools import chain

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import PUSHED, Cast, cast_name, rank_words
from weft.dsl.nouns.parts import Node
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

Groups = dict[int, set[frozenset[int]]]
"""The member sets that a switch keeps, by switch: nodes next to it."""


def cast_shape_problems(s: Schedule) -> Iterator[str]:
    """Yield indices of casts that are out of range, and casts that are not sorted by step."""
    c = s.casts
    ends = (len(c) + 1, len(c) + 1, len(c) + 1)
    if (len(c.source_start), len(c.destination_start), len(c.link_start)) != ends:
        yield "the columns of the casts have different lengths"
        return
    before = 0
    for i, one in enumerate(c):
        name = cast_name(one, i)
        if not 0 <= one.chunk < s.collective.chunks:
            yield f"{name}: its chunk is outside 0 … {s.collective.chunks - 1}"
        if not all(0 <= r < s.topology.ranks for r in (*one.sources, *one.destinations)):
            yield f"{name}: a rank is outside 0 … {s.topology.ranks - 1}"
        if not all(0 <= k < len(s.topology.links) for k in one.links):
            yield f"{name}: it names a link that does not exist"
        if one.issuer != PUSHED and one.issuer not in (*one.sources, *one.destinations):
            yield f"{name}: its issuer, rank {one.issuer}, takes no part"
        if one.step < before:
            yield f"{name} stands after one of step {before}: not sorted by step"
        before = max(before, one.step)


def cast_problems(s: Schedule) -> Iterator[str]:
    """Yield faults of trees, capabilities and groups; indices are in range."""
    groups: Groups = defaultdict(set)
    known: dict[tuple[object, ...], tuple[str, ...]] = {}
    for i, one in enumerate(s.casts):
        key = (one.sources, one.destinations, one.links, one.issuer)
        if key not in known:  # many chunks go the same way
            known[key] = tuple(_problems_of(s.topology, one, groups))
        for text in known[key]:
            yield f"{cast_name(one, i)}: {text}"
    for switch, sets in sorted(groups.items()):
        node = s.topology.nodes[switch]
        if node.limits.groups is not None and len(sets) > node.limits.groups:
            yield (
                f"the casts use {len(sets)} groups of {node.name}, which has {node.limits.groups}"
            )


@dataclass(slots=True)
class _SwitchPass:
    """A pass through a switch: the links that enter it and those that leave it at once."""

    enters: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    there: list[_Copy] = field(default_factory=list)

    def ends(self, topology: Topology) -> tuple[list[int], list[int]]:
        """Return the nodes before it and after it, once for each link."""
        before = [topology.links[k].src for k in self.enters]
        return before, [topology.links[k].dst for k in self.leaves]

    def met(self) -> frozenset[int]:
        """Return the sources of all that is here."""
        return frozenset[int]().union(*(copy.sources for copy in self.there))

    def turned(self, node: Node) -> bool:
        """Return True if data that leaves a switch was turned round, here or before."""
        return _roots(node) or (len(self.there) == 1 and self.there[0].turned)

    def leaving(self, node: Node) -> _Copy:
        """Return the data on each link that leaves."""
        copied = len(self.leaves) > 1 or any(copy.copied for copy in self.there)
        return _Copy(self.met(), copied, self.turned(node))

    def turns_all(self, node: Node, sources: tuple[int, ...]) -> bool:
        """Return True if the whole sum, not copied before, turns round here."""
        whole = len(self.met()) == len(sources) > 1
        return whole and _roots(node) and not any(copy.copied for copy in self.there)


@dataclass(frozen=True, slots=True)
class _Copy:
    """Data on a link of a cast.

    ``sources``: whose contributions it sums. ``copied``: it was copied on its way. ``turned``: it
    passed a switch that turns sums round since it last met another.
    """

    sources: frozenset[int]
    copied: bool = False
    turned: bool = False


def _problems_of(topology: Topology, one: Cast, groups: Groups) -> Iterator[str]:
    enters: dict[int, list[int]] = defaultdict(list)
    leaves: dict[int, list[int]] = defaultdict(list)
    for k in one.links:
        leaves[topology.links[k].src].append(k)
        enters[topology.links[k].dst].append(k)
    passes = _CastPasses.through(topology, one)
    broken = list(_tree_problems(topology, one, enters, leaves))
    broken += _order_problems(topology, one, passes)
    if not passes.of:
        broken.append("no switch on its way sums or copies, so it is a transfer")
    yield from broken
    if broken:
        return
    alone = one.issuer == PUSHED  # a switch may turn the sum round without an issuer
    for v, once in passes.each():
        node, ends = topology.nodes[v], once.ends(topology)
        yield from _switch_problems(node, ends, groups[v])
        if len(once.leaves) > 1 and len(once.met()) > 1 and not once.turned(node):
            yield f"{node.name} copies a sum and does not turn it round, nor does one before it"
        if not node.issuer_in_group or max(map(len, ends)) < 2:
            continue
        if alone and once.turns_all(node, one.sources):
            alone = False
        else:
            yield from _issuer_problems(node, one, ends)


def switch_passes(topology: Topology, one: Cast) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield each pass of a cast through a switch that computes: it, the nodes before and after."""
    for v, once in _CastPasses.through(topology, one).each():
        yield v, *once.ends(topology)


@dataclass(frozen=True, slots=True)
class _CastPasses:
    """The passes through each switch that sums or copies, found from the order of the links.

    ``into``, ``out_of``: of each place in the list of links, the pass that it enters or leaves.
    """

    of: dict[int, list[_SwitchPass]]
    into: dict[int, _SwitchPass]
    out_of: dict[int, _SwitchPass]

    def each(self) -> Iterator[tuple[int, _SwitchPass]]:
        """Yield each pass with its switch, in the order of the switches."""
        yield from ((v, once) for v, found in sorted(self.of.items()) for once in found)

    @staticmethod
    def through(topology: Topology, one: Cast) -> _CastPasses:
        """Return them; a link that enters behind one that leaves begins a pass."""
        made = _CastPasses(defaultdict(list), {}, {})
        for i, k in enumerate(one.links):
            tail, head = topology.links[k].src, topology.links[k].dst
            if topology.nodes[tail].computes:
                if not made.of[tail]:
                    made.of[tail].append(_SwitchPass())
                made.out_of[i] = made.of[tail][-1]
                made.out_of[i].leaves.append(k)
            if topology.nodes[head].computes:
                if not made.of[head] or made.of[head][-1].leaves:
                    made.of[head].append(_SwitchPass())
                made.into[i] = made.of[head][-1]
                made.into[i].enters.append(k)
        return made


def _tree_problems(
    topology: Topology, one: Cast, enters: dict[int, list[int]], leaves: dict[int, list[int]]
) -> Iterator[str]:
    ranks, name = topology.ranks, topology.nodes
    for label, side, ends in (
        ("source", one.sources, leaves),
        ("destination", one.destinations, enters),
    ):
        if len(set(side)) < len(side):
            yield f"a {label} is listed twice"
        for r in side:
            if len(ends[r]) != 1:
                yield f"its {label} {name[r].name} has {len(ends[r])} of its links, and needs one"
    for ends, side, verb in ((leaves, one.sources, "leaves"), (enters, one.destinations, "enters")):
        for v in sorted(v for v in ends if ends[v]):
            if v < ranks and v not in side:
                yield f"a link {verb} {name[v].name}, which takes no part on that side"
    for v in sorted({*enters, *leaves}):
        if v >= ranks and not (enters[v] and leaves[v]):
            yield f"its links {'end' if enters[v] else 'start'} at {name[v].name}, a switch"
        elif v >= ranks and not name[v].computes and len(enters[v]) != len(leaves[v]):
            here = f"{len(enters[v])} links enter {name[v].name} and {len(leaves[v])} leave it"
            yield f"{here}, which only passes on what comes"


def _order_problems(topology: Topology, one: Cast, passes: _CastPasses) -> Iterator[str]:
    """Follow the data on each link: its sources, and whether copies of it went elsewhere."""
    ranks, nodes = topology.ranks, topology.nodes
    for v, found in sorted(passes.of.items()):
        node = nodes[v]  # without an issuer every pass counts; others pass copies on one by one
        if node.multicast and node.reduces and not node.issuer_in_group:
            passed = len(found)
        else:
            passed = sum(len(once.enters) > 1 or len(once.leaves) > 1 for once in found)
        if passed > 2:  # up and down
            yield f"it passes {nodes[v].name} {passed} times, and twice is up and down"
        if found[-1].enters and not found[-1].leaves:
            yield f"what enters {nodes[v].name} last goes nowhere"
    passing: dict[int, list[_Copy]] = defaultdict(list)  # at switches that pass on all data
    for i, k in enumerate(one.links):
        x, once = topology.links[k], passes.out_of.get(i)
        if x.src < ranks:
            here = _Copy(frozenset((x.src,)))
        elif once is not None and once.there and len(once.there) == len(once.enters):
            if len(once.there) > 1 and any(copy.copied for copy in once.there):
                yield f"copies meet again at {nodes[x.src].name}"
            here = once.leaving(nodes[x.src])
        elif passing[x.src]:
            here = passing[x.src].pop(0)
        else:
            yield f"link {k} stands before one that leads to where it starts"
            return
        if i in passes.into:
            passes.into[i].there.append(here)
        elif x.dst >= ranks:
            passing[x.dst].append(here)
        elif missing := sorted(set(one.sources) - here.sources):
            yield f"what rank {x.dst} gets lacks that of {rank_words(tuple(missing))}"


def _roots(node: Node) -> bool:
    """Return True if a switch may be the root of an allreduce."""
    return node.turns and node.multicast


def _switch_problems(
    node: Node, ends: tuple[list[int], list[int]], groups: set[frozenset[int]]
) -> Iterator[str]:
    """Yield faults of a pass at its switch; its member set is added to the switch's groups."""
    before, after = ends
    many_in, many_out = len(before) > 1, len(after) > 1
    if not many_in and not many_out:
        return
    if many_in and not node.reduces:
        yield f"{node.name} sums {len(before)} of its links and does not reduce"
    if many_out and not node.multicast:
        yield f"{node.name} copies to {len(after)} of its links and does not multicast"
    sides = (before if many_in else ()), (after if many_out else ())
    groups.add(frozenset(chain.from_iterable(sides)))
    # Several copies may come from, or go to, one switch that only passes them on.
    members = (Counter(sides[0]) | Counter(sides[1])).total()
    if members < node.limits.least:
        yield f"a group of {members} of {node.name}, whose least has {node.limits.least}"


def _issuer_problems(node: Node, one: Cast, ends: tuple[list[int], list[int]]) -> Iterator[str]:
    if one.issuer == PUSHED:
        yield f"expected an issuer, got none: {node.name} acts for one"
    elif not all(one.issuer in side for side in ends):
        yield (
            f"{node.name} has its issuer in the group: the copy of rank {one.issuer} crosses it, "
            "up and down"
        )
