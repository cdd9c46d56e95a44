"""Random machines whose switches compute, and what must hold on each of them."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations, product
from math import inf

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.parts import Node, NodeKind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import dumps
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.packing.casts.schedule import lifted, schedule_of
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify
from weft.synth.steiner.packing import CastPacking, cast_packing
from weft.synth.time.schedule_time import simulate

SIZE = 1 << 20
FEW = 5
"""Ranks and computing switches up to which all trees are tried."""


def with_one_more(machine: Topology) -> list[Topology]:
    """The machine with each capability that one of its switches lacks; an issuer outside the group
    is one, too."""
    found = []
    for i, node in enumerate(machine.nodes):
        if node.kind is not NodeKind.SWITCH:
            continue
        words = {"multicast", "reduces", "turns", "issuer_in_group"}
        held = {word for word in words if getattr(node, word)}
        more = [held | {word} for word in ("multicast", "reduces") if word not in held]
        more += [held | {"turns"}] if "reduces" in held and not held & {"turns"} else []
        more += [held - {"issuer_in_group"}] if "issuer_in_group" in held else []
        found += [machine.with_capabilities({i: sorted(one)}) for one in more]
    return found


@dataclass(frozen=True)
class Checked:
    """What :func:`check_rates` found of a machine: optima proved, and capabilities added."""

    proved: bool
    met: bool
    added: int
    helped: int


def check_rates(machine: Topology, few: int = FEW) -> Checked:
    """Check an allreduce: no schedule beats a bound, no capability costs anything, and a proved
    optimum is equal to the packing that attains it."""
    collective = make("allreduce", machine.ranks)
    found, packing = bounds(machine, collective), cast_packing(machine)
    assert packing is not None
    schedule = schedule_of(machine, collective, lifted(packing))
    verdict = verify(schedule)
    assert verdict.ok, verdict.problems
    assert found.us_per_byte <= us_per_byte(schedule) <= packing.us_per_byte
    assert float(lower_bound_us(found, SIZE)) <= simulate(schedule, SIZE).time_us * (1 + 1e-9)
    plain = cast_packing(machine.without_capabilities())
    assert plain is not None
    assert packing.us_per_byte <= plain.us_per_byte
    if packing.proof is not None:
        check_proof(machine, packing, few)
    more = with_one_more(machine)
    helped = 0
    for one in more:
        better = cast_packing(one)
        assert better is not None
        assert better.us_per_byte <= packing.us_per_byte
        helped += better.us_per_byte < packing.us_per_byte
    met = found.us_per_byte == packing.us_per_byte
    return Checked(packing.proof is not None, met, len(more), helped)


def check_proof(machine: Topology, packing: CastPacking, few: int = FEW) -> None:
    """Check prices against their worth, and, of a small machine, against every pair of trees."""
    assert packing.proof is not None
    prices, capacity = packing.proof.prices, machine.capacities()
    assert all(p >= 0 for p in prices)
    worth = sum((p * b for p, b in zip(prices, capacity, strict=True)), Fraction(0))
    assert packing.proof.least / worth / 1000 == packing.us_per_byte
    able = sum(node.computes for node in machine.nodes)
    if machine.ranks + able > few:
        return
    cost = [
        prices[i]
        + sum(
            p
            for p, r in zip(prices[len(machine.links) :], machine.resources, strict=True)
            if i in r.links
        )
        for i in range(len(machine.links))
    ]
    turning = [v for v, x in enumerate(machine.nodes) if x.turns and x.multicast]
    pairs = [
        sum(cheapest_tree(machine, cost, root, inward=way) for way in (True, False))
        for root in (*range(machine.ranks), *turning)
    ]
    assert min(pairs) == packing.proof.least


def check_answers(machine: Topology) -> None:
    """Check the answers of the engine: verified, not below the bound, optimal only where they meet
    it, not slower than without capabilities, and without any those of switches that never had
    one, to the byte."""
    collective = make("allreduce", machine.ranks)
    off = machine.without_capabilities()
    never = replace(off, nodes=tuple(Node(x.name, x.kind, x.host) for x in off.nodes))
    us, texts = {}, {}
    for name, one in (("on", machine), ("off", off), ("never", never)):
        problem = Problem(one, collective, None, Objective.TIME, SIZE)
        outcome = synthesize(problem, "packing")
        us[name] = min(simulate(p.schedule, SIZE).time_us for p in outcome.points)
        texts[name] = [dumps(p.schedule) for p in outcome.points]
        bound = float(lower_bound_us(bounds(one, collective), SIZE))
        assert us[name] >= bound * (1 - 1e-9)
        if outcome.status is Status.OPTIMAL:
            assert us[name] <= bound * (1 + 1e-9)
    assert us["on"] <= us["off"] * (1 + 1e-9)
    assert texts["off"] == texts["never"]


def cheapest_tree(machine: Topology, price: list[int], root: int, *, inward: bool) -> float:
    """The cheapest tree from or to a root by trying every parent of every node in every set."""
    steps = [(x.src, x.dst, p) for x, p in zip(machine.links, price, strict=True)]
    steps = [(b, a, p) for a, b, p in steps] if inward else steps
    able = [v for v, x in enumerate(machine.nodes) if (x.reduces if inward else x.multicast)]
    grouped = [v for v in able if machine.nodes[v].issuer_in_group]
    direct: dict[tuple[int, int], float] = {}
    for a, b, p in steps:
        direct[a, b] = min(p, direct.get((a, b), inf))

    def route(a: int, b: int) -> float:
        """Over nodes that pass one copy: any switch between ranks, plain ones otherwise, and those
        at which an issuer's own copy would have to be. Its group is next to an issuer."""
        if b in grouped and a < machine.ranks:
            return direct.get((a, b), inf) + direct.get((b, a), inf)
        ranks = a < machine.ranks and b < machine.ranks
        far = {a: 0.0}
        for _ in machine.nodes:
            for u, v, p in steps:
                between = u >= machine.ranks and (ranks or u not in able or u in grouped)
                if u in far and (u == a or between) and v != a:
                    far[v] = min(far.get(v, inf), far[u] + p)
        return inf if b in grouped else far.get(b, inf)

    best = inf
    for chosen in chain.from_iterable(combinations(able, k) for k in range(len(able) + 1)):
        inner = sorted({*range(machine.ranks), *chosen, root})
        if root >= machine.ranks and root not in able:
            return inf
        cost = {(a, b): route(a, b) for a in inner for b in inner if a != b}
        others = [v for v in inner if v != root]
        choices = [[u for u in inner if u != v and cost[u, v] < inf] for v in others]
        for parents in product(*choices):
            total = sum(cost[p, v] for p, v in zip(parents, others, strict=True))
            if total < best and _spans(dict(zip(others, parents, strict=True)), root):
                best = total
    return best


def _spans(above: dict[int, int], root: int) -> bool:
    """Return whether every vertex leads to the root."""
    for v in above:
        for _ in above:
            v = above.get(v, v)
        if v != root:
            return False
    return True
