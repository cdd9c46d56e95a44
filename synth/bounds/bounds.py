"""Lower bounds of a collective on a machine: choose the arguments that apply and compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import BadTopology
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, rounded
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..steiner.packing import cast_packing
from . import distance
from .composite import Composite, Wants, envelope, of_cut, sides, waiting
from .cut import CutFinder, Mix, NodeCut, best_cut, best_mix, best_of, host_cuts
from .demand import ClassDemand, copying_demand, is_allreduce, representatives, wanted_items
from .effort import BOUND_EFFORT, BoundEffort
from .flow import best_prices, level_sets, orbit_prices
from .network import MaxFlow, network
from .partition import best_partition, cast_partition, least_cut, plain_partition
from .reach import SIZES, Reach, reaches
from .trees import tree_time
from .words import BandwidthBound, carried, listed, price_words, prices_of

ROOTED = "schedules that bring every byte to one place and spread it from there"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds for one topology and collective, M being the message size.

    Attributes:
        latency_us: α of the farthest required pair, in µs.
        steps: hops of the farthest required pair.
        us_per_byte: least T/M in µs per byte; 0 if nothing must move.
        rounds_per_chunk: the same in rounds: a chunk of the plain collective crosses a link of
            ``topology.round_bandwidth()`` in one round.
        certificate: why ``us_per_byte`` holds; the others are for latency and steps.
        attainable: a T/M that schedules attain in the fluid limit (any number of chunks, no α),
            where known; equal to ``us_per_byte`` it proves the bound tight.
        remark: where ``attainable`` comes from.
        rooted: a larger bound of T/M for some schedules only, where switches compute.
        composite: bounds T >= a + b·M that exceed both others at some size (:mod:`.composite`).
        reach: concave curves in M that exceed all of these at some size (:mod:`.reach`).
    """

    latency_us: Fraction
    steps: int
    us_per_byte: Fraction
    rounds_per_chunk: Fraction
    certificate: Certificate
    latency_certificate: Certificate
    steps_certificate: Certificate
    attainable: Fraction | None = None
    remark: str = ""
    composite: tuple[Composite, ...] = ()
    reach: tuple[Reach, ...] = ()
    rooted: BandwidthBound | None = None

    def __repr__(self) -> str:
        algbw = "" if self.algbw_GBps is None else f", {float(self.algbw_GBps):.4g} GB/s at most"
        return (
            f"<Bounds: {count(self.steps, 'step')}, {self.rounds_per_chunk} rounds per chunk, "
            f"{float(self.latency_us):.4g} µs at least{algbw}>"
        )

    @property
    def tight(self) -> bool:
        """True if the bandwidth bound is known to be attained."""
        return self.attainable == self.us_per_byte

    @property
    def ps_per_byte(self) -> Fraction:
        """T/M in ps per byte, which is µs per MB."""
        return self.us_per_byte * 10**6

    @property
    def seconds_per_byte(self) -> Fraction:
        """T/M in seconds per byte."""
        return self.us_per_byte / 10**6

    @property
    def algbw_GBps(self) -> Fraction | None:
        """M/T in GB/s; None if nothing must move."""
        if not self.us_per_byte:
            return None
        return 1 / (self.us_per_byte * BYTES_PER_US_PER_GBPS)

    def to_json(self) -> dict[str, Any]:
        """The ``bound`` object of the command line: rationals as strings."""

        def text(value: Fraction | None) -> str | None:
            return None if value is None else str(value)

        def certificate(one: Certificate) -> dict[str, Any]:
            return {"kind": one.kind, "text": one.text, "data": one.data}

        def rooted(one: BandwidthBound) -> dict[str, Any]:
            return {
                "holds_for": ROOTED,
                "seconds_per_byte": str(one.us_per_byte / 10**6),
                "certificate": certificate(one.certificate),
            }

        return {
            "latency_us": str(self.latency_us),
            "steps": self.steps,
            "seconds_per_byte": str(self.seconds_per_byte),
            "rounds_per_chunk": str(self.rounds_per_chunk),
            "algbw_GBps": text(self.algbw_GBps),
            "certificate": certificate(self.certificate),
            "latency_certificate": certificate(self.latency_certificate),
            "steps_certificate": certificate(self.steps_certificate),
            "attainable_seconds_per_byte": text(
                None if self.attainable is None else self.attainable / 10**6
            ),
            "remark": self.remark,
            **({} if self.rooted is None else {"rooted": rooted(self.rooted)}),
            "composite": [
                {
                    "us": str(one.us),
                    "seconds_per_byte": str(one.us_per_byte / 10**6),
                    "certificate": certificate(one.certificate),
                }
                for one in self.composite
            ],
            "reach": [
                {
                    "pairs": str(one.need),
                    "terms": [[str(us), str(GBps)] for us, GBps in one.terms],
                    "certificate": certificate(one.certificate),
                }
                for one in self.reach
            ],
        }


@kept()
def fewest_steps(topology: Topology, collective: Collective) -> int:
    """Return the hops of the farthest required pair, ``Bounds.steps``, and no other bound.

    Raises:
        BadTopology: different numbers of ranks, or no path from a rank to one that needs its data.
    """
    _require_same_ranks(topology, collective)
    question = _BoundQuestion.of(topology, collective, BOUND_EFFORT)
    needs = distance.required_matrix(question.collective, question.demand)
    path = distance.step_path(topology, needs, question.speakers)
    return 0 if path is None else int(path.length)


def lower_bound_us(found: Bounds, message_bytes: int) -> Fraction:
    """Return the largest of all lower bounds on the time of a message of M bytes, in µs."""
    return binding(found, message_bytes)[0]


def binding(found: Bounds, message_bytes: int) -> tuple[Fraction, Certificate]:
    """Return the largest bound at one size, in µs, and its proof; the simplest among equals."""
    terms = [(at(message_bytes), certificate) for at, certificate in arguments(found)]
    return max(terms, key=lambda term: term[0])


def arguments(found: Bounds) -> Iterator[tuple[Callable[[int], Fraction], Certificate]]:
    """Yield all bounds, the simplest first: µs by message size in bytes, and the proof."""
    yield lambda _: found.latency_us, found.latency_certificate
    yield lambda message_bytes: found.us_per_byte * message_bytes, found.certificate
    yield from ((one.at, one.certificate) for one in found.composite)
    yield from ((one.at, one.certificate) for one in found.reach)


@kept()
def bounds(
    topology: Topology, collective: Collective, effort: BoundEffort = BOUND_EFFORT
) -> Bounds:
    """Return all lower bounds of a collective on a machine; ``effort`` limits the search for them.

    Raises:
        BadTopology: different numbers of ranks, or no path from a rank to one that needs its data.
    """
    _require_same_ranks(topology, collective)
    question = _BoundQuestion.of(topology, collective, effort)
    collective, speakers = question.collective, question.speakers
    needs = distance.required_matrix(collective, question.demand)
    latency = distance.latency_path(topology, needs, speakers)
    steps = distance.step_path(topology, needs, speakers)
    flow = bandwidth_bound(topology, collective, effort)
    plain_chunks = Fraction(collective.message_chunks, collective.factor)
    rounds = flow.us_per_byte * BYTES_PER_US_PER_GBPS * topology.round_bandwidth() * plain_chunks
    found = Bounds(
        Fraction(0) if latency is None else latency.length,
        0 if steps is None else int(steps.length),
        flow.us_per_byte,
        rounds,
        flow.certificate,
        distance.path_certificate(topology, latency, "µs"),
        distance.path_certificate(topology, steps, "hops"),
        flow.attainable,
        flow.remark,
        question.composites(latency, flow),
        rooted=flow.rooted,
    )
    if latency is None or not latency.length or not flow.us_per_byte:
        return found
    starts = [latency.nodes[0], latency.nodes[-1], *speakers[: effort.side_ranks].tolist()]
    others = [lower_bound_us(found, size) for size in SIZES]
    return replace(found, reach=reaches(topology, collective, starts, effort, others))


def _require_same_ranks(topology: Topology, collective: Collective) -> None:
    if collective.ranks != topology.ranks:
        raise BadTopology(
            f"the collective is for {collective.ranks} ranks, {topology.name} has {topology.ranks}",
            hint="restrict the topology to the process group first",
        )


@kept()
def bandwidth_bound(
    topology: Topology, collective: Collective, effort: BoundEffort = BOUND_EFFORT
) -> BandwidthBound:
    """Return the bandwidth bound of a collective in one size of chunks, and no other."""
    return _BoundQuestion.of(topology, collective, effort).bandwidth()


_NOTHING = BandwidthBound(
    Fraction(0), Certificate("none", "nothing must move"), Fraction(0), "nothing must move"
)
EDMONDS = "attained by packing trees (Edmonds 1973)"


@dataclass(frozen=True, eq=False)
class _BoundQuestion:
    """A collective in one size of chunks on a machine.

    ``demand``: that of a copying or reducing collective; ``speakers``: a rank of every orbit;
    ``backwards``: the demand is of the reversed machine.
    """

    topology: Topology
    collective: Collective
    demand: ClassDemand | None
    speakers: Ints
    effort: BoundEffort

    @staticmethod
    def of(topology: Topology, collective: Collective, effort: BoundEffort) -> _BoundQuestion:
        plain = collective.plain() if collective.sizes else collective
        speakers = representatives(topology, effort.few_ranks)
        return _BoundQuestion(topology, plain, copying_demand(plain), speakers, effort)

    @property
    def of_message(self) -> int:
        return self.collective.message_chunks

    def bandwidth(self) -> BandwidthBound:
        if self.demand is not None:
            found = self._copying(self.demand)
            alike = self.demand.unicast or (self.demand.spread and self.demand.everybody())
            return found if alike or not self.demand.classes else self._of_union(found)
        if is_allreduce(self.collective):
            return self._allreduce()
        return self._of_union(self._any_cut())

    def _of(self, found: NodeCut | Mix | None, backwards: bool, why: str = "") -> BandwidthBound:
        """The bound of cuts on the machine, or on the reversed one; ``why`` it is attained."""
        if found is None:
            return _NOTHING
        bound = (found.turned() if backwards else found).bound(self.topology, self.of_message)
        return replace(bound, attainable=bound.us_per_byte if why else None, remark=why)

    def _of_union(self, found: BandwidthBound) -> BandwidthBound:
        """The bound of the trees and paths of all chunks together, where it is above ``found``.

        Single cuts, and cuts combined, miss it by up to a third where collectives differ.
        """
        if found.us_per_byte == found.attainable:
            return found
        from ..joint.union import joint_union  # the joint bound takes 25 ms to load

        union = joint_union(self.topology, self.collective)
        if union is None:
            return found
        joint, priced = union.joint, prices_of(union.joint.prices)
        each = zip(joint.demands, joint.proof.costs, strict=True)
        costs = [(one.name, cost) for one, cost in each if cost]
        spent, worth = sum((cost for _, cost in costs), Fraction(0)), joint.proof.worth
        text = (
            f"Price {price_words(self.topology, priced)}. The cheapest trees and paths of all "
            f"chunks cost {rounded(spent)} or more "
            f"({listed([f'{name} {rounded(cost)}' for name, cost in costs])}; M is "
            f"{count(self.of_message, 'chunk')}); price times bandwidth adds up to "
            f"{rounded(worth)} GB/s"
        )
        data = {
            "prices": priced,
            "costs": [[name, str(cost)] for name, cost in costs],
            "spent": str(spent),
            "worth_GBps": str(worth),
        }
        larger = carried("union", text, spent, worth, self.of_message, data)
        return larger if larger.us_per_byte > found.us_per_byte else found

    def _copying(self, demand: ClassDemand) -> BandwidthBound:
        if not demand.classes:
            return _NOTHING
        if demand.unicast and len(demand.sinks()) > 1 == len(demand.sources()):
            demand = demand.reversed()  # scatter: a gather on the reversed machine
        topology, effort = self.topology, self.effort
        machine = topology.reversed() if demand.backwards else topology
        cut = best_cut(machine, demand, self.speakers)
        attained = _attained_by_trees(topology, demand)
        if (demand.spread or len(demand.sinks()) == 1) and (attained or not topology.resources):
            return self._of(cut, demand.backwards, attained)
        finder = CutFinder.of(machine, demand.across)
        if len(demand.holders) == demand.classes:
            # Near a source: the best of the reversed problem, judged in this one. With several
            # holders of a chunk there is none: any of them may send it.
            near = best_cut(machine.reversed(), demand.reversed(), self.speakers)
            cut = best_of(cut, None if near is None else finder.cut(~near.inside))
        cut = best_of(cut, *host_cuts(machine, demand.across, effort.cut_ranks))
        if cut is None:
            return _NOTHING
        if demand.unicast:
            return self._unicast(machine, demand, finder, cut)
        mix = best_mix(machine, demand, [cut], effort)
        if mix is None or mix.time < cut.time:
            return self._of(cut, demand.backwards)
        remark = EDMONDS if mix.complete and _edmonds(topology, demand) else ""
        return self._of(cut if mix.time == cut.time else mix, demand.backwards, remark)

    def _unicast(
        self, machine: Topology, demand: ClassDemand, finder: CutFinder, cut: NodeCut
    ) -> BandwidthBound:
        """Alltoall: bound by prices; where a cut gives the same bound, it is the certificate."""
        solved = best_prices(machine, demand, self.effort)
        if solved is None:
            trees = orbit_prices(machine, demand, self.effort)
            if trees is None:
                return self._of(cut, demand.backwards)
            solved = trees.prices, trees.attained
        prices, flow_time = solved
        free = level_sets(machine, prices, self.effort.level_sources)
        best = best_of(cut, *map(finder.cut, free))
        if best is not None and best.time >= prices.time:
            found = self._of(best, demand.backwards)
        else:
            found = prices.bound(self.topology, self.of_message)
        if flow_time is None:
            return found
        attained = flow_time / (BYTES_PER_US_PER_GBPS * self.of_message)
        return replace(
            found, attainable=attained, remark="attained by a fractional multi-commodity flow"
        )

    def _allreduce(self) -> BandwidthBound:
        """The larger bound of cut and partition; every chunk of the collective is one more
        buffer."""
        topology, chunks, of = self.topology, self.collective.chunks, self.of_message
        if topology.ranks < 2:
            return _NOTHING
        composed = self._composed()
        divided = host_cuts(
            topology, lambda inside: int(inside.any() and not inside.all()), self.effort.cut_ranks
        )
        cut = best_of(*divided)
        partition = plain_partition(topology, Fraction(0) if cut is None else cut.time)
        if composed is None or composed not in (x.time for x in (cut, partition) if x):
            # Nothing that composing attains meets them: all cuts and partitions count.
            cut = least_cut(topology)
            partition = None if cut is None else best_partition(topology, cut.time)
        casts = cast_partition(topology)
        others = [x.time for x in (cut, partition) if x is not None]
        if casts is not None and casts.time > max(others, default=Fraction(0)):
            plain = casts.bound(topology, of, chunks)
        elif partition is not None:
            plain = partition.bound(topology, of, chunks)
        elif cut is None:
            return _NOTHING
        else:
            plain = NodeCut(cut.inside, chunks, cut.crossing).bound(topology, of)
        per_buffer = Fraction(chunks, BYTES_PER_US_PER_GBPS * of)
        half = ClassDemand.of_allgather(topology.ranks)
        if composed is not None and composed * per_buffer == plain.us_per_byte:
            if _attained_by_trees(topology, half):
                told = "attained by reduce_scatter and allgather, one after the other"
                return replace(plain, attainable=plain.us_per_byte, remark=told)
        if any(node.computes for node in topology.nodes):
            return self._with_casts(plain)
        trees = tree_time(topology, self.effort)
        if trees is None:
            return plain
        value = trees * per_buffer
        equal = " equal to the bound" if value == plain.us_per_byte else ""
        told = f"attained by reducing to roots and broadcasting, shares by linear program{equal}"
        return replace(plain, attainable=value, remark=told)

    def _composed(self) -> Fraction | None:
        """Buffers per GB/s of reduce_scatter, then allgather, by cuts; None where these are not
        exact.

        No cut gives a larger bound for allreduce: a set S of k of n ranks has a capacity out of it
        of at least k / allgather and, for its complement, (n-k) / reduce_scatter.
        """
        topology = self.topology
        if topology.resources:
            return None
        half = ClassDemand.of_allgather(topology.ranks)
        both = [best_cut(x, half, self.speakers) for x in (topology, topology.reversed())]
        forth, back = both
        if forth is None or back is None:
            return None
        return (forth.time + back.time) / topology.ranks

    def _with_casts(self, plain: BandwidthBound) -> BandwidthBound:
        """The bound with the rate of the best trees through switches, and the proof of that."""
        found = cast_packing(self.topology)
        if found is None:
            return plain
        per_chunk = Fraction(self.collective.chunks, self.of_message)
        value = found.us_per_byte * per_chunk
        told = "attained by trees to roots and from them, switches on them copying and summing"
        if value == plain.us_per_byte:
            return replace(plain, attainable=value, remark=f"{told}, equal to the bound")
        if found.proof is None:
            return replace(plain, attainable=value, remark=told)
        told += "; of all schedules that bring every byte to one place first none is quicker"
        least, worth, priced = found.proof.least, found.proof.worth, prices_of(found.proof.prices)
        text = (
            f"Price {price_words(self.topology, priced)}. A tree to a root and one from it, with "
            f"any switches on them that sum and copy, cost {least} or more; price times bandwidth "
            f"adds up to {rounded(worth)} GB/s"
        )
        data = {
            "prices": priced,
            "least": least,
            "worth_GBps": str(worth),
            "share": str(per_chunk),
        }
        rooted = carried("rooted", text, least * per_chunk, worth, None, data)
        return replace(plain, attainable=value, remark=told, rooted=rooted)

    def _any_cut(self) -> BandwidthBound:
        """Custom combining collectives: cuts of hosts, and minimum ones between required pairs."""
        topology, effort = self.topology, self.effort
        chunk, _, holder, dest = wanted_items(self.collective)
        if not len(chunk):
            return _NOTHING

        def across(inside: Bools) -> int:
            return len(distinct_values(chunk[inside[holder] & ~inside[dest]]))

        finder, cuts = CutFinder.of(topology, across), host_cuts(topology, across, effort.cut_ranks)
        pairs = np.unique(np.stack([holder, dest], axis=1), axis=0)[: effort.cut_pairs]
        net = network(topology)
        flow = MaxFlow(net, np.zeros((2, 0), np.int64), net.vertices)
        flow.set(1, [])
        near: list[NodeCut | None] = []
        for src, dst in pairs.tolist():
            flow.solve(src, dst)
            near.append(finder.cut(flow.source_side()[: net.nodes]))
        return self._of(best_of(*cuts, *near), backwards=False)

    def composites(
        self, farthest: distance.Path | None, flow: BandwidthBound
    ) -> tuple[Composite, ...]:
        """Latency added to the bandwidth bound and to cuts near ranks and hosts."""
        topology, effort, collective = self.topology, self.effort, self.collective
        if farthest is None or not farthest.length or not flow.us_per_byte:
            return ()
        latency = farthest.length
        lengths = distance.Lengths.of(topology)
        found = [waiting(topology, lengths, flow.certificate, latency, flow.us_per_byte)]
        wanted = [] if self.demand is None else [Wants.of(self.demand)]
        if not wanted and is_allreduce(collective):
            n, chunks = collective.ranks, collective.chunks
            wanted = [Wants.of_sums(n, chunks, way) for way in (False, True)]
        ends = (farthest.nodes[0], farthest.nodes[-1])
        given = flow.certificate.data.get("inside")
        for wants in wanted:
            machine = topology.reversed() if wants.backwards else topology
            turned = lengths.turned() if wants.backwards else lengths
            for inside in sides(topology, ends, given, self.speakers, effort.side_ranks):
                side = ~inside if wants.backwards else inside
                for us, line in of_cut(machine, turned, side, wants, latency, effort):
                    found += [line.composite(topology, us, self.of_message)] if us else []
        return envelope((one for one in found if one.us), latency, flow.us_per_byte)


def _edmonds(topology: Topology, demand: ClassDemand) -> bool:
    """Return True if all ranks want all chunks and every node is a rank."""
    if len(topology.nodes) > topology.ranks or not demand.spread:
        return False
    return demand.everybody()


def _attained_by_trees(topology: Topology, demand: ClassDemand) -> str:
    """Return why the cut bound is attained; empty if that is not known."""
    if len(demand.sinks()) == 1 and demand.unicast and network(topology).faithful:
        return "attained: max-flow equals min-cut"
    if topology.resources or not demand.spread:
        return ""
    if _edmonds(topology, demand):
        return EDMONDS
    one_holder = len(demand.holders) == demand.classes
    if demand.everybody() and one_holder:
        surplus = [Fraction(0)] * len(topology.nodes)
        for one in topology.links:
            surplus[one.src] -= one.bandwidth
            surplus[one.dst] += one.bandwidth
        if not any(surplus):
            edges = "as much enters every node as leaves it (edge splitting)"
            return f"attained by packing trees: {edges}"
    return ""
