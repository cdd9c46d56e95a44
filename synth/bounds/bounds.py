"""Lower bounds of a collective on a machine: choose the arguments that apply and compute them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import BadTopology
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..steiner.packing import cast_packing
from . import distance, report
from .cast_partition import cast_partition
from .composite import Composite, Wants, always, average, envelope, of_cut, sides
from .cut import CutFinder, NodeCut, best_cut, best_of, host_cuts
from .demand import ClassDemand, copying_demand, is_allreduce, representatives, wanted_items
from .distance import Lengths
from .effort import BOUND_EFFORT, BoundEffort
from .flow import best_prices, level_sets
from .mix import best_mix
from .network import MaxFlow, network
from .orbit_prices import orbit_prices
from .partition import best_partition, least_cut, plain_partition
from .reach import SIZES, Reach, reaches
from .trees import tree_time

ROOTED = "schedules that bring every byte to one place and spread it from there"


@dataclass(frozen=True, slots=True)
class RootedBound:
    """T/M in µs per byte that no schedule of the kind :data:`ROOTED` is below, and why."""

    us_per_byte: Fraction
    certificate: Certificate


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
    rooted: RootedBound | None = None

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

        def rooted(one: RootedBound) -> dict[str, Any]:
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
    whole = collective.plain() if collective.sizes else collective
    needs = distance.required_matrix(whole, copying_demand(whole))
    orbits = representatives(topology, BOUND_EFFORT.few_ranks)
    path = distance.step_path(topology, needs, orbits)
    return 0 if path is None else int(path.length)


def lower_bound_us(found: Bounds, message_bytes: int) -> Fraction:
    """Return the largest of all lower bounds on the time of a message of M bytes, in µs."""
    return binding(found, message_bytes)[0]


def binding(found: Bounds, message_bytes: int) -> tuple[Fraction, Certificate]:
    """Return the largest bound at one size, in µs, and its proof; the simplest among equals."""
    terms = [
        (found.latency_us, found.latency_certificate),
        (found.us_per_byte * message_bytes, found.certificate),
        *((one.at(message_bytes), one.certificate) for one in found.composite),
        *((one.at(message_bytes), one.certificate) for one in found.reach),
    ]
    return max(terms, key=lambda term: term[0])


@kept()
def bounds(
    topology: Topology, collective: Collective, effort: BoundEffort = BOUND_EFFORT
) -> Bounds:
    """Return all lower bounds of a collective on a machine; ``effort`` limits the search for them.

    Raises:
        BadTopology: different numbers of ranks, or no path from a rank to one that needs its data.
    """
    _require_same_ranks(topology, collective)
    if collective.sizes:
        collective = collective.plain()
    demand = copying_demand(collective)
    needs = distance.required_matrix(collective, demand)
    speakers = representatives(topology, effort.few_ranks)
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
        report.path_certificate(topology, latency, "µs"),
        report.path_certificate(topology, steps, "hops"),
        flow.attainable,
        flow.remark,
        _composites(topology, collective, demand, latency, flow, speakers, effort),
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


def _composites(
    topology: Topology,
    collective: Collective,
    demand: ClassDemand | None,
    farthest: distance.Path | None,
    flow: BandwidthBound,
    speakers: Ints,
    effort: BoundEffort,
) -> tuple[Composite, ...]:
    """Composite bounds: latency added to the bandwidth bound and to cuts near ranks and hosts."""
    if farthest is None or not farthest.length or not flow.us_per_byte:
        return ()
    latency = farthest.length
    lengths = Lengths.of(topology)
    found = [waiting(topology, lengths, flow.certificate, latency, flow.us_per_byte)]
    ends = (farthest.nodes[0], farthest.nodes[-1])
    given = flow.certificate.data.get("inside")
    for wants in _wants(collective, demand):
        machine = topology.reversed() if wants.backwards else topology
        turned = lengths.turned() if wants.backwards else lengths
        for inside in sides(topology, ends, given, speakers, effort.side_ranks):
            side = ~inside if wants.backwards else inside
            for us, line in of_cut(machine, turned, side, wants, latency, effort):
                slope = _per_byte(collective, line.time)
                shown = line.turned()
                found.append(
                    Composite(
                        us,
                        slope,
                        report.line_certificate(
                            topology, shown, collective.message_chunks, us, slope
                        ),
                    )
                )
    return envelope((one for one in found if one.us), latency, flow.us_per_byte)


def _wants(collective: Collective, demand: ClassDemand | None) -> list[Wants]:
    if demand is not None:
        return [Wants.of(demand)]
    if is_allreduce(collective):
        n, chunks = collective.ranks, collective.chunks
        return [Wants.of_sums(n, chunks, way) for way in (False, True)]
    return []


def waiting(
    topology: Topology,
    lengths: Lengths,
    certificate: Certificate,
    latency: Fraction,
    us_per_byte: Fraction,
) -> Composite:
    """The bandwidth bound with the α of the transfers over its links."""
    rows = certificate.data.get("cover") or certificate.data["prices"]
    cover = [(int(row), Fraction(times)) for row, times in rows]
    waits = always(topology, lengths, [row for row, _ in cover], latency)
    us = average(topology, cover, waits, lengths.unit)
    shown = [int(x) * lengths.unit for x in waits]
    return Composite(
        us, us_per_byte, report.waiting_certificate(certificate, shown, us, us_per_byte)
    )


@dataclass(frozen=True, slots=True)
class BandwidthBound:
    """The parts of :class:`Bounds` that are of bandwidth."""

    us_per_byte: Fraction
    certificate: Certificate
    attainable: Fraction | None = None
    remark: str = ""
    rooted: RootedBound | None = None


_NOTHING = BandwidthBound(
    Fraction(0), Certificate("none", "nothing must move"), Fraction(0), "nothing must move"
)


@kept()
def bandwidth_bound(
    topology: Topology, collective: Collective, effort: BoundEffort = BOUND_EFFORT
) -> BandwidthBound:
    """Return the bandwidth bound of a collective in one size of chunks, and no other."""
    plain = collective.plain() if collective.sizes else collective
    speakers = representatives(topology, effort.few_ranks)
    return _bandwidth(topology, plain, copying_demand(plain), speakers, effort)


def _bandwidth(
    topology: Topology,
    collective: Collective,
    demand: ClassDemand | None,
    speakers: Ints,
    effort: BoundEffort,
) -> BandwidthBound:
    if demand is not None:
        found = _copying(topology, collective, demand, speakers, effort)
        alike = demand.unicast or (demand.spread and demand.everybody())
        return found if alike or not demand.classes else _of_union(topology, collective, found)
    if is_allreduce(collective):
        return _allreduce(topology, collective, speakers, effort)
    return _of_union(topology, collective, _any_cut(topology, collective, effort))


def _of_union(topology: Topology, collective: Collective, found: BandwidthBound) -> BandwidthBound:
    """Return the bound of the trees and paths of all chunks together, where it is above ``found``.

    Single cuts, and cuts combined, miss it by up to a third where collectives differ.
    """
    if found.us_per_byte == found.attainable:
        return found
    from ..joint.union import joint_union  # the joint bound takes 25 ms to load

    union = joint_union(topology, collective)
    if union is None:
        return found
    value = union.joint.us / collective.message_chunks
    if value <= found.us_per_byte:
        return found
    certificate = report.union_certificate(topology, union, collective.message_chunks, value)
    return BandwidthBound(value, certificate)


def _copying(
    topology: Topology,
    collective: Collective,
    demand: ClassDemand,
    speakers: Ints,
    effort: BoundEffort,
) -> BandwidthBound:
    """Copying collectives, and reducing ones as their duals."""
    if not demand.classes:
        return _NOTHING
    if demand.unicast and len(demand.sinks()) > 1 == len(demand.sources()):
        demand = demand.reversed()  # scatter: a gather on the reversed machine
    machine = topology.reversed() if demand.backwards else topology
    found = best_cut(machine, demand, speakers)
    attained = _attained_by_trees(topology, demand)
    if (demand.spread or len(demand.sinks()) == 1) and (attained or not topology.resources):
        return _of_cut(topology, collective, found, demand.backwards, attained)
    from_sources = _seen_from_sources(machine, demand, speakers)
    near_hosts = host_cuts(machine, demand.across, effort.cut_ranks)
    found = best_of(found, from_sources, *near_hosts)
    if found is None:
        return _NOTHING
    if demand.unicast:
        return _unicast(topology, collective, demand, found, effort)
    return _mixed(topology, collective, demand, found, effort)


def _seen_from_sources(machine: Topology, demand: ClassDemand, speakers: Ints) -> NodeCut | None:
    """A cut near a source: the best of the reversed problem, judged in this one.

    With several holders of a chunk there is no reversed problem: any of them may send it.
    """
    if len(demand.holders) > demand.classes:
        return None
    found = best_cut(machine.reversed(), demand.reversed(), speakers)
    return None if found is None else CutFinder.of(machine, demand.across).cut(~found.inside)


def _mixed(
    topology: Topology,
    collective: Collective,
    demand: ClassDemand,
    cut: NodeCut,
    effort: BoundEffort,
) -> BandwidthBound:
    """Bound of several cuts together, where a single cut may not be the best bound."""
    machine = topology.reversed() if demand.backwards else topology
    mix = best_mix(machine, demand, [cut], effort)
    if mix is None or mix.time < cut.time:
        return _of_cut(topology, collective, cut, demand.backwards, "")
    trees = "attained by packing trees (Edmonds 1973)"
    remark = trees if mix.complete and _edmonds(topology, demand) else ""
    if mix.time == cut.time:
        return _of_cut(topology, collective, cut, demand.backwards, remark)
    value = _per_byte(collective, mix.time)
    shown = mix.turned() if demand.backwards else mix
    certificate = report.mix_certificate(topology, shown, collective.message_chunks, value)
    return BandwidthBound(value, certificate, value if remark else None, remark)


def _edmonds(topology: Topology, demand: ClassDemand) -> bool:
    """Return whether all ranks want all chunks and every node is a rank."""
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
        return "attained by packing trees (Edmonds 1973)"
    one_holder = len(demand.holders) == demand.classes
    if demand.everybody() and one_holder and _eulerian(topology):
        return "attained by packing trees: as much enters every node as leaves it (edge splitting)"
    return ""


def _eulerian(topology: Topology) -> bool:
    surplus = [Fraction(0)] * len(topology.nodes)
    for one in topology.links:
        surplus[one.src] -= one.bandwidth
        surplus[one.dst] += one.bandwidth
    return not any(surplus)


def _per_byte(collective: Collective, chunks_per_GBps: Fraction) -> Fraction:
    """Convert chunks per GB/s to µs per byte of M."""
    return chunks_per_GBps / (BYTES_PER_US_PER_GBPS * collective.message_chunks)


def _of_cut(
    topology: Topology, collective: Collective, cut: NodeCut | None, backwards: bool, attained: str
) -> BandwidthBound:
    if cut is None:
        return _NOTHING
    value = _per_byte(collective, cut.time)
    shown = cut.turned() if backwards else cut
    certificate = report.cut_certificate(topology, shown, collective.message_chunks, value)
    return BandwidthBound(value, certificate, value if attained else None, attained)


def _unicast(
    topology: Topology,
    collective: Collective,
    demand: ClassDemand,
    cut: NodeCut | None,
    effort: BoundEffort,
) -> BandwidthBound:
    """Alltoall: bound by prices; where a cut gives the same bound, the cut is the certificate."""
    machine = topology.reversed() if demand.backwards else topology
    solved = best_prices(machine, demand, effort)
    if solved is None:
        trees = orbit_prices(machine, demand, effort)
        if trees is None:
            return _of_cut(topology, collective, cut, demand.backwards, "")
        solved = trees.prices, trees.attained
    prices, flow_time = solved
    finder = CutFinder.of(machine, demand.across)
    free = level_sets(machine, prices, effort.level_sources)
    cut = best_of(cut, *map(finder.cut, free))
    attained = None if flow_time is None else _per_byte(collective, flow_time)
    remark = "" if attained is None else "attained by a fractional multi-commodity flow"
    if cut is not None and cut.time >= prices.time:
        found = _of_cut(topology, collective, cut, demand.backwards, "")
    else:
        value = _per_byte(collective, prices.time)
        found = BandwidthBound(
            value,
            report.price_certificate(topology, prices, collective.message_chunks, value),
        )
    return BandwidthBound(found.us_per_byte, found.certificate, attained, remark)


def _allreduce(
    topology: Topology, collective: Collective, speakers: Ints, effort: BoundEffort
) -> BandwidthBound:
    """The larger bound of cut and partition; every chunk of the collective is one more buffer."""
    if topology.ranks < 2:
        return _NOTHING
    composed = _composed(topology, speakers)
    divided = host_cuts(
        topology, lambda inside: int(inside.any() and not inside.all()), effort.cut_ranks
    )
    cut = best_of(*divided)
    partition = plain_partition(topology, Fraction(0) if cut is None else cut.time)
    if composed is None or composed.time not in (x.time for x in (cut, partition) if x):
        # Nothing that composing attains meets them: all cuts and partitions count.
        cut = least_cut(topology)
        partition = None if cut is None else best_partition(topology, cut.time)
    chunks, of = collective.chunks, collective.message_chunks
    casts = cast_partition(topology)
    others = [x.time for x in (cut, partition) if x is not None]
    if casts is not None and casts.time > max(others, default=Fraction(0)):
        value = _per_byte(collective, casts.time * chunks)
        certificate = report.cast_certificate(topology, casts, of, chunks, value)
    elif partition is not None:
        value = _per_byte(collective, partition.time * chunks)
        certificate = report.partition_certificate(topology, partition, of, chunks, value)
    elif cut is None:
        return _NOTHING
    else:
        value = _per_byte(collective, cut.time * chunks)
        whole = NodeCut(cut.inside, chunks, cut.crossing)
        certificate = report.cut_certificate(topology, whole, of, value)
    plain = BandwidthBound(value, certificate)
    if composed is not None and composed.attained:
        if _per_byte(collective, composed.time * chunks) == value:
            told = "attained by reduce_scatter and allgather, one after the other"
            return replace(plain, attainable=value, remark=told)
    if any(node.computes for node in topology.nodes):
        return _with_casts(topology, collective, plain)
    return _with_trees(topology, collective, plain, effort)


@dataclass(frozen=True, slots=True)
class _ComposedTime:
    """Reduce_scatter then allgather: buffers per GB/s, and whether trees attain it."""

    time: Fraction
    attained: bool


def _composed(topology: Topology, speakers: Ints) -> _ComposedTime | None:
    """Time of reduce_scatter and allgather by exact cut bounds; None where cuts are not exact.

    No cut gives a larger bound for allreduce: a set S of k of n ranks has a capacity out of it of
    at least k / allgather and, for its complement, (n-k) / reduce_scatter.
    """
    if topology.resources:
        return None
    half = ClassDemand.of_allgather(topology.ranks)
    forth, back = (best_cut(x, half, speakers) for x in (topology, topology.reversed()))
    if forth is None or back is None:
        return None
    time = (forth.time + back.time) / topology.ranks
    return _ComposedTime(time, bool(_attained_by_trees(topology, half)))


def _with_trees(
    topology: Topology, collective: Collective, plain: BandwidthBound, effort: BoundEffort
) -> BandwidthBound:
    """Return a bound with the rate of the tree program."""
    trees = tree_time(topology, effort)
    if trees is None:
        return plain
    value = _per_byte(collective, trees * collective.chunks)
    equal = " equal to the bound" if value == plain.us_per_byte else ""
    told = f"attained by reducing to roots and broadcasting, shares by linear program{equal}"
    return replace(plain, attainable=value, remark=told)


def _with_casts(
    topology: Topology, collective: Collective, plain: BandwidthBound
) -> BandwidthBound:
    """Return a bound with the rate of the best trees through switches, and the proof of that."""
    found = cast_packing(topology)
    if found is None:
        return plain
    per_chunk = Fraction(collective.chunks, collective.message_chunks)
    value = found.us_per_byte * per_chunk
    told = "attained by trees to roots and from them, switches on them copying and summing"
    if value == plain.us_per_byte:
        return replace(plain, attainable=value, remark=f"{told}, equal to the bound")
    if found.proof is None:
        return replace(plain, attainable=value, remark=told)
    told += "; of all schedules that bring every byte to one place first none is quicker"
    certificate = report.rooted_certificate(topology, found.proof, per_chunk, value)
    return replace(plain, attainable=value, remark=told, rooted=RootedBound(value, certificate))


def _any_cut(topology: Topology, collective: Collective, effort: BoundEffort) -> BandwidthBound:
    """Custom combining collectives: minimum cuts between required pairs, and between hosts."""
    chunk, _, holder, dest = wanted_items(collective)
    if not len(chunk):
        return _NOTHING

    def across(inside: Bools) -> int:
        return len(distinct_values(chunk[inside[holder] & ~inside[dest]]))

    finder = CutFinder.of(topology, across)
    cuts = [*host_cuts(topology, across, effort.cut_ranks)]
    cuts += [finder.cut(inside) for inside in _pair_cuts(topology, holder, dest, effort.cut_pairs)]
    return _of_cut(topology, collective, best_of(*cuts), False, "")


def _pair_cuts(topology: Topology, holder: Ints, dest: Ints, most: int) -> list[Bools]:
    """Source sides of minimum cuts for every required pair (at most ``most`` of them)."""
    net = network(topology)
    flow = MaxFlow(net, np.zeros((2, 0), np.int64), net.vertices)
    flow.set(1, [])
    sides = []
    for src, dst in np.unique(np.stack([holder, dest], axis=1), axis=0)[:most].tolist():
        flow.solve(src, dst)
        sides.append(flow.source_side()[: net.nodes])
    return sides
