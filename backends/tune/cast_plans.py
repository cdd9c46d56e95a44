"""Plans in which switches sum and copy, in a race: their one way to compile, and their timers.

Such a plan has one or more thread blocks of each GPU side by side; what else forms differ in is of
programs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from weft.dsl.base.errors import UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import BACKENDS
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.library import IN_SWITCHES
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds.switch_gain import switch_gain
from weft.synth.time.calibrated import CAST_NUMBERS, model_number, named_model
from weft.synth.time.cast_phases import Passage, phase_tables
from weft.synth.time.program_tables import reached_bandwidth
from weft.synth.time.reached import with_rows
from weft.synth.time.routes import routes_of
from weft.synth.time.runtime_model import SLOWNESS, RuntimeModel
from weft.synth.time.schedule_tables import QueueTables

from ..compile.variants import Variant
from ..formats.mscclpp.casts.acts import Act, ActKind, acts_of
from ..formats.mscclpp.casts.clocks import ActPhase, SentSignal, ordered
from ..formats.mscclpp.casts.emit import cast_plan
from ..formats.mscclpp.casts.fit import DTYPES, Hardware, refuse_hardware
from ..formats.mscclpp.lower.emit import largest_message
from ..formats.mscclpp.plan.model import FACTS
from .options import TuneOptions


def form_of(schedule: Schedule, form: Variant) -> Variant:
    """Return the remark of a form on a schedule: with casts copies side by side only."""
    return Variant(instances=form.instances) if len(schedule.casts) else form


def nodes_of(topology: Topology) -> list[int] | None:
    """Return the host of each rank; None: one for all."""
    hosts = [host for host in topology.host_of if host is not None]
    return hosts if len(hosts) == topology.ranks else None


@dataclass(frozen=True, slots=True)
class CastTimer:
    """The clock of a plan with casts, and the messages in bytes that the plan takes."""

    clock: CastClock
    least: int
    most: int


@kept(most=64)
def cast_timer(schedule: Schedule, model: tuple[str, str], lanes: int) -> CastTimer | None:
    """Return the timer of the plan of a schedule; None without a plan.

    ``model``: a runtime, and the name of the model that times it.
    """
    nodes = nodes_of(schedule.topology)
    try:
        plan = cast_plan(schedule, "timed", nodes, in_place=False, lanes=lanes)
        clock = cast_clock(schedule, nodes, *model, lanes)
    except UserError:
        return None
    if clock is None:
        return None
    chunks = schedule.collective.in_grains().message_chunks * lanes
    _, most = largest_message(chunks, plan.gpus, packets=False)
    return CastTimer(clock, FACTS.vector_bytes * chunks, most)


def unsaid(schedules: Iterable[Schedule]) -> str | None:
    """Return why no plan expresses any of the schedules with casts; None: one does, or none
    has any."""
    why: str | None = None
    for one in (s for s in schedules if len(s.casts)):
        try:
            cast_plan(one, "tried", nodes_of(one.topology), in_place=False)
        except UserError as error:
            why = why or error.message
        else:
            return None
    return why


def fits_in_place(schedule: Schedule, form: Variant) -> bool:
    """Return True if there is a plan for a buffer that is input and output."""
    nodes = nodes_of(schedule.topology)
    try:
        cast_plan(schedule, "timed", nodes, in_place=True, lanes=form.instances)
    except UserError:
        return False
    return True


# Time of MSCCL++ plans in which switches sum and copy, by the model that times programs.
#
# A plan does phase after phase (:mod:`..formats.mscclpp.casts`): signals, then acts that all start
# at once. A round of signals takes what one from GPU to GPU does; acts queue for links by the rule
# *legs*, slice by slice of what a thread block has in hand, at the share of a link's bandwidth that
# casts reach; and no thread block issues more than its part of what fills a switch.

STRIDE = 16 << 10
"""Bytes that a thread block has in hand: 1,024 threads with 16 bytes each."""

MOST_SLICES = 128
"""Slices of an act at most: with more, its time changes by a percent."""

PASSING = (ActKind.SUM, ActKind.STORE)


@dataclass(frozen=True, eq=False)
class _TimedPhase:
    """Times of a phase of a plan.

    ``fixed_us``: of its signals, and latencies that no queue has. ``queues``: of its acts.
    ``issue``: µs a byte of the message that a thread block of a rank issues for, with one lane.
    ``largest``: grains of its largest cast.
    """

    fixed_us: float
    queues: QueueTables | None
    issue: float
    largest: int


@dataclass(frozen=True, eq=False)
class CastClock:
    """Times a plan with casts: see the module's text.

    ``lanes``: thread blocks of a rank. ``share``: of what links reach, that casts have.
    """

    reached: Topology
    model: RuntimeModel
    phases: tuple[_TimedPhase, ...]
    message_chunks: int
    lanes: int
    share: Fraction

    def time_us(
        self,
        message_bytes: int,
        protocol: Protocol | None = None,
        *,
        limit: float = math.inf,
        most_operations: int | None = None,
    ) -> float:
        """Return µs of a call with a message; infinite beyond ``limit``."""
        grain = Fraction(message_bytes, self.message_chunks)
        run = 0.0
        for one in self.phases:
            moved = 0.0
            if one.queues is not None:
                held = int(one.largest * grain / self.lanes) // STRIDE
                slices = 1 << max(1, min(MOST_SLICES, held)).bit_length() - 1
                each = grain / self.share.numerator
                moved = one.queues.time_us(self.reached, each, slices, 1)
            run += one.fixed_us + max(moved, one.issue * message_bytes / self.lanes)
        us = self.model.total_us(Protocol.SIMPLE, run)
        return us if us <= limit else math.inf


def cast_clock(
    schedule: Schedule, nodes: Sequence[int] | None, runtime: str, by: str, lanes: int
) -> CastClock | None:
    """Return the clock of the plan of a schedule with casts, out of place; None: some sum in it is
    stored over links that are not known.

    Raises:
        UserError: no plan can express it.
    """
    acts = acts_of(schedule, in_place=False)
    if any(act.kind in PASSING and not act.stores for phase in acts.phases for act in phase):
        return None
    maker = _PhaseMaker.of(schedule, runtime, by)
    node = list(nodes or [0] * schedule.topology.ranks)
    phases = tuple(map(maker.phase, ordered(acts.phases, node)))
    chunks = schedule.collective.in_grains().message_chunks
    return CastClock(maker.reached, maker.model, phases, chunks, lanes, maker.share)


@dataclass(frozen=True, eq=False)
class _PhaseMaker:
    """Numbers of a machine and its runtime, by which phases take time."""

    topology: Topology
    reached: Topology
    model: RuntimeModel
    share: Fraction
    cast_us: float | None
    signal_us: float | None
    blocks: float
    message_chunks: int

    @staticmethod
    def of(schedule: Schedule, runtime: str, by: str) -> _PhaseMaker:
        topology = schedule.topology
        model = named_model(topology, runtime, by)
        calibrated = model.media is not None
        found = {
            key: model_number(topology, key, runtime) if calibrated else None
            for key in CAST_NUMBERS
        }
        share = Fraction(found["nvls"] or 1).limit_denominator(1000)
        return _PhaseMaker(
            topology,
            with_rows(topology, reached_bandwidth(topology, model, (Protocol.SIMPLE,))),
            model,
            share,
            found["cast"],
            found["signal"],
            found["casting"] or FACTS.switch_blocks,
            schedule.collective.in_grains().message_chunks,
        )

    def phase(self, one: ActPhase) -> _TimedPhase:
        """Return the times and queues of a phase."""
        fixed = max(map(self._signal_us, one.signals), default=0.0)
        fixed += max(map(self._latency_us, one.acts), default=0.0)
        issue: dict[int, float] = defaultdict(float)
        for act in one.acts:
            issue[act.rank] += self._issue_us(act)
        casts = [act.size for act in one.acts if act.kind in PASSING]
        queues = phase_tables(self.reached, list(map(self._passage, one.acts)))
        return _TimedPhase(fixed, queues, max(issue.values(), default=0.0), max(casts, default=0))

    def _passage(self, act: Act) -> Passage:
        put = act.kind is ActKind.PUT
        # Weighted by the time of a byte: casts reach only ``share`` of the machine's rate.
        weight = self.share.numerator if put else self.share.denominator
        return Passage(act.size * weight, act.loads, act.stores, one_route=put)

    def _issue_us(self, act: Act) -> float:
        """Return µs that a thread block is busy with an act, for a byte of the message."""
        if act.kind in PASSING:
            port = self.reached.links[act.stores[0]].bandwidth * self.share
            rate = float(port) / self.blocks
        elif act.kind is ActKind.PUT:
            rate = float(self.model.protocol(Protocol.SIMPLE).send_GBps)
        else:
            rate = float(self.model.local_GBps) / max(1, len(act.sources))
        return act.size / (self.message_chunks * rate * BYTES_PER_US_PER_GBPS)

    def _latency_us(self, act: Act) -> float:
        """Return µs of an act beside the α of its links."""
        if act.kind is ActKind.PUT:
            return self._more_us(act.stores)
        if act.kind not in PASSING:
            return 0.0
        passes = [way for way in (act.loads, act.stores) if way]
        if self.cast_us is None:  # a load begins with a request, which passes the same links
            return self._alpha_us(act.loads[-1:] * 2) if act.loads else 0.0
        return sum(max(0.0, self.cast_us - self._alpha_us((way[0], way[-1]))) for way in passes)

    def _signal_us(self, one: SentSignal) -> float:
        (way,) = routes_of(self.topology, [(one.source, one.target, 0)])
        ends = (self.topology.nodes[r].host for r in (one.source, one.target))
        if self.signal_us is None or len(set(ends)) > 1:
            return self._alpha_us(way) + self._more_us(way)
        return max(self.signal_us, self._alpha_us(way))

    def _alpha_us(self, way: Sequence[int]) -> float:
        return float(sum(self.topology.links[k].latency for k in way))

    def _more_us(self, way: Sequence[int]) -> float:
        """Return µs of a message beside the α of its links, by its slowest medium."""
        if self.model.media is None:
            return 0.0
        slowest = max((self.model.media.links[k] for k in way), key=SLOWNESS.index)
        more = self.model.protocol(Protocol.SIMPLE).alpha_us
        return float(more.get(slowest, 0)) if slowest else 0.0


# Choice of tune: schedules in which switches sum and copy take part, or a remark says why not.
#
# Only MSCCL++ plans express them, and only GPUs from sm_90 on execute them.

FORMAT = "mscclpp-json"
"""The format whose plans contain casts."""

KINDS = (Kind.ALLREDUCE, Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.BROADCAST, Kind.REDUCE)
"""Collectives in which sums or copies of switches serve."""


def why_not(topology: Topology, options: TuneOptions) -> str | None:
    """Return the reason why plans of a library lack casts, and the remedy; None: some may."""
    others = [name for name in options.wanted.formats if name != FORMAT]
    if options.measuring is not None:
        return (
            "ranks that are measured exchange messages; without --measure and with --to " + FORMAT
        )
    if others:
        say = getattr(BACKENDS.make(others[0]), "no_casts", "")
        reason = f" ({say})" if say else ""
        return f"{others[0]} cannot express it{reason}; --to {FORMAT} alone takes it"
    if "Simple" not in options.raced_protocols:
        return "packets cannot be summed; --protocols Simple takes it"
    try:
        refuse_hardware(Hardware(family=topology.timing.family), topology.name)
    except UserError as error:
        return error.message
    return None


def left_out(topology: Topology, collective: Collective, why: str) -> str | None:
    """Return one line on the capabilities that the plans of a library leave unused; None: none."""
    gain = switch_gain(topology, collective)
    if gain is None or collective.kind not in KINDS:
        return None
    ratio = f"{float(gain.without / gain.with_them):.4g}"
    brings = f", which gives {ratio} times the bandwidth" if gain.helps else ""
    return f"plans do not let {gain.switches[0]} sum or copy{brings}: {why}"


def asked_of(topology: Topology, collective: Collective, options: TuneOptions) -> bool:
    """Return True if schedules with casts take part in a race."""
    able = any(node.computes for node in topology.nodes)
    return able and collective.kind in KINDS and why_not(topology, options) is None


def limits_told(plans: Mapping[str, tuple[Schedule, int]]) -> Iterator[str]:
    """Yield the requirements of plans with casts; ``plans``: schedule and lanes by name."""
    some = {name: one for name, one in plans.items() if len(one[0].casts)}
    if not some:
        return
    chunks = {s.collective.in_grains().message_chunks * lanes for s, lanes in some.values()}
    multiples = " and ".join(str(FACTS.vector_bytes * n) for n in sorted(chunks))
    groups = {len({*one.sources, *one.destinations}) for s, _ in some.values() for one in s.casts}
    yield (
        f"{', '.join(some)}: {IN_SWITCHES}, on sm_{FACTS.switch_sm} or later only; "
        f"{', '.join(DTYPES)}; messages of a multiple of {multiples} bytes, in buffers that can be "
        f"multicast, at one offset on all {_listed(sorted(groups))} GPUs of a group"
    )


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))
