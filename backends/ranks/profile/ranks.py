"""Ranks of a runtime that take part in a measurement.

As a program: one rank that :mod:`..launcher` started.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from weft.dsl.base.errors import Missing
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.timing import MachineTiming, TimingNumber
from weft.dsl.nouns.topology import BANDWIDTHS, Link, Node, Resource, Topology
from weft.dsl.symmetry.symmetry import GUESSED, guess
from weft.synth.time.calibrated import family_medium

from ...formats.p2p.embedded.mpi import Mpi
from ...formats.p2p.embedded.nccl import Connection, Nccl, joined
from ...formats.p2p.embedded.threads import Hub, Threads
from ...formats.p2p.embedded.torch import Torch
from ..joined import world_of
from ..launcher import take_part
from ..mpi import wait_until
from ..nccl import connected, shares_gpus
from .calls import WireCaller
from .model import EFFORT, AlphaBeta, CallPath, CallStep, CallTime, Findings, LinkClass, ProbeLimits
from .probe import Probe, Tell
from .survey import survey


class Patient(Mpi):
    """MPI for long waits: the longer it takes, the longer the naps, so that cores are free."""

    def _wait(self, begun: list[Any], states: list[Any], ways: list[str], here: str) -> None:
        late = f"{here}: still waiting for messages {', '.join(ways)}"
        wait_until(
            partial(self.mpi.Request.Testall, begun, states),
            EFFORT.wait_seconds + (self.timeout or 0.0),
            late,
        )


def measure_mpi(effort: ProbeLimits, seed: int, tell: Tell) -> Iterator[Findings | None]:
    """Run a rank of MPI; yield the findings on rank 0.

    Raises:
        Missing: mpi4py is not installed.
    """
    if find_spec("mpi4py") is None:
        raise Missing("MPI needs the Python package mpi4py", hint="pip install 'weft[mpi]'")
    wire, patient = Mpi(timeout=EFFORT.wait_seconds), Patient(timeout=effort.seconds)
    probe = Probe(wire, patient, np.copy, np.asarray, effort.batches)
    yield survey(probe, effort, seed, tell, WireCaller(probe))


def measure_torch(
    effort: ProbeLimits, seed: int, tell: Tell, place: Path | None = None, ranks: int = -1
) -> Iterator[Findings | None]:
    """Run a rank of torch.distributed (gloo), of torchrun or of a job with a folder; yield the
    findings on rank 0, then leave the ranks.

    Raises:
        Missing: torch is not installed.
    """
    if find_spec("torch") is None:
        raise Missing("torch is not installed", hint="pip install 'weft[torch]'")
    world: Any = world_of("torch", 1800.0, place, ranks, gpus=False)  # torch's own time-out
    wire = Torch(None)  # gloo sleeps while it waits: one wire for both
    probe = Probe(
        wire,
        wire,
        lambda x: world.torch.from_numpy(np.array(x)),
        lambda x: x.numpy(),
        effort.batches,
    )
    yield survey(probe, effort, seed, tell, WireCaller(probe))
    world.close()


def measure_threads(ranks: int, effort: ProbeLimits, seed: int, tell: Tell) -> Findings:
    """Ranks that are threads of this process."""
    found: list[Findings] = []

    def main(wire: Threads) -> None:
        probe = Probe(wire, wire, np.copy, np.asarray, effort.batches)
        told = tell if not wire.rank else lambda _: None
        one = survey(probe, effort, seed, told, WireCaller(probe))
        if one is not None:
            found.append(one)

    Hub(ranks, EFFORT.wait_seconds + effort.seconds).run(main)
    return found[0]


ON_ONE_GPU = "ranks share a GPU: these are times of their turns on it, and say nothing of links"
"""Remark on a machine that was measured so."""


class TimedNccl(Nccl):
    """NCCL, whose clock stands still until the stream is empty."""

    def clock(self) -> float:
        """Seconds, when all that was begun is done; sums that wait for company are launched."""
        self.flush()
        return super().clock()


def probe_of(connection: Connection, effort: ProbeLimits) -> Probe:
    """The probe of a rank, on its current GPU and stream. NCCL waits on the GPU: one transport
    serves short and long waits."""
    import cupy

    wire = TimedNccl(connection, cupy.cuda.get_current_stream(), "float32")
    return Probe(wire, wire, cupy.asarray, cupy.asnumpy, effort.batches)


class NcclCaller(WireCaller):
    """NCCL's own allreduce over a ring, by protocol.

    A communicator reads protocol and algorithm from the environment when it is made.
    """

    protocols: Sequence[str] = tuple(map(str, Protocol))
    one_channel = True

    def ring(self, inside: Sequence[int], asked: CallTime) -> Callable[[], None]:
        """Return the call of a communicator of these ranks."""
        import cupy
        from cupy.cuda import nccl

        fresh = () if self.probe.rank else nccl.get_unique_id()  # the name of a communicator
        name = self.probe.share([int(x) for x in fresh])
        if self.probe.rank not in inside:
            return lambda: None
        most = {"NCCL_MAX_NCHANNELS": str(asked.channels)} if asked.channels else {}
        with _environment(NCCL_PROTO=asked.protocol, NCCL_ALGO="Ring", **most):
            comm = joined(len(inside), name, inside.index(self.probe.rank))
        count = asked.bytes // 4
        send, recv = (cupy.zeros(count, "float32") for _ in range(2))
        wire: Any = self.probe.wire
        stream, kind = wire.stream.ptr, nccl.NCCL_FLOAT32
        ends = send.data.ptr, recv.data.ptr

        def reduce(_: object = (send, recv)) -> None:
            """The default keeps the arrays alive."""
            comm.allReduce(*ends, count, kind, nccl.NCCL_SUM, stream)

        return reduce

    def empty(self) -> Callable[[], None]:
        """Return the launch of a kernel that copies a number."""
        import cupy

        wire: Any = self.probe.wire
        out, number = (cupy.zeros(1, "float32") for _ in range(2))

        def launch() -> None:
            wire.copy(out, number)
            wire.flush()

        return launch


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def measure_nccl(effort: ProbeLimits, seed: int, tell: Tell) -> Iterator[Findings | None]:
    """Run a rank that MPI started; yield the findings on rank 0.

    Raises:
        Missing: as :func:`connected`.
    """
    probe = probe_of(connected(), effort)
    if not shares_gpus():
        yield survey(probe, effort, seed, tell, NcclCaller(probe))
    elif found := survey(probe, effort, seed, tell, None):
        yield replace(found, remarks=(ON_ONE_GPU, *found.remarks))


def written(name: str, found: Findings, family: str = "") -> dict[str, Any]:
    """Return the topology and its measured facts, as JSON.

    Raises:
        UnknownName: no such family.
    """
    topology: Topology = topology_of(name, found, family)
    classes = [
        {"directions": [list(flow) for flow in one.flows], **asdict(one.line)}
        for one in found.classes
    ]
    return {
        "topology": topology.to_json(),
        "classes": classes,
        "noise": found.noise,
        "groups": [list(group) for group in found.groups],
        "sweeps": list(found.sweeps),
        "sum_GBps": None if found.sum_rate is None else round(found.sum_rate / 1000, 3),
        "shared": [{"name": s.name, "GBps": s.rate / 1000, "error": s.error} for s in found.shared],
        "overhead_us": round(found.overhead, 3),
        "remarks": list(found.remarks),
        "calls": [asdict(one) for one in found.calls],
        "timing": [
            {"key": one.key, "value": one.value, "worst": one.worst, "of": one.of}
            for one in numbers_of_calls(found, family).told
        ],
    }


def serve(on: str, plan: Any, folder: Path, tell: Tell) -> Iterator[dict[str, Any] | None]:
    """Run one of the ranks that :mod:`..launcher` started."""
    effort, seed = ProbeLimits(**plan["effort"]), plan["seed"]
    if on == "torch":
        measured = measure_torch(effort, seed, tell, folder, plan["ranks"])
    else:
        measured = (measure_mpi if on == "mpi" else measure_nccl)(effort, seed, tell)
    for found in measured:
        yield None if found is None else written(plan["name"], found, plan["family"])


GB_PER_S = 1e-3
"""GB/s that one byte per µs is."""


def topology_of(name: str, found: Findings, family: str = "") -> Topology:
    """Return a link for every direction, with hosts for groups, and shared resources.

    Links of one class are exactly equal, and numbers have the digits that are known: equal links
    are what symmetry is made of. What calls tell is in the numbers of the runtime model, and what
    is uncertain in the notes. ``family``: of the machine, which names the class of its links.

    Raises:
        UnknownName: no such family.
    """
    host = {rank: number for number, group in enumerate(found.groups) for rank in group}
    several = len(found.groups) > 1
    nodes = tuple(Node(f"rank{r}", host=host[r] if several else None) for r in range(found.ranks))
    costs = {
        flow: (
            _bandwidth(1 / one.line.beta, one.line.beta_error),
            rounded(one.line.alpha, one.line.alpha_error),
        )
        for one in found.classes
        for flow in one.flows
    }
    flows = sorted(costs)
    links = tuple(Link(a, b, *costs[a, b]) for a, b in flows)
    place = {flow: i for i, flow in enumerate(flows)}
    resources = tuple(
        Resource(
            one.name, tuple(sorted(place[f] for f in one.flows)), _bandwidth(one.rate, one.error)
        )
        for one in found.shared
    )
    calls = numbers_of_calls(found, family)
    timing = MachineTiming(family, tuple(one.given() for one in calls.told))
    notes = (*notes_of(found), *calls.remarks)
    made = Topology(name, nodes, links, resources, notes=notes, timing=timing)
    return replace(made, symmetries=guess(made)) if made.ranks <= GUESSED else made


def numbers_of_calls(found: Findings, family: str) -> CallNumbers:
    """Return the numbers of the runtime model that times of calls determine; none without these.

    Raises:
        UnknownName: no such family.
    """
    inner = family_medium(family)
    media = {CallPath.INSIDE: inner} if inner else {}
    if len(found.groups) > 1:
        media[CallPath.BETWEEN] = Medium.NETWORK
    near = {rank: number for number, group in enumerate(found.groups) for rank in group}
    if not found.calls:
        return CallNumbers()
    lines: dict[CallPath, list[AlphaBeta]] = {}
    for (a, b), line in found.line_of().items():
        lines.setdefault(CallPath.INSIDE if near[a] == near[b] else CallPath.BETWEEN, []).append(
            line
        )
    alphas = {way: float(np.median([x.alpha for x in some])) for way, some in lines.items()}
    rates = {way: 1 / float(np.median([x.beta for x in some])) for way, some in lines.items()}
    return call_numbers(found.calls, media, alphas, rates)


def notes_of(found: Findings) -> tuple[str, ...]:
    """Return notes on the precision of the findings."""
    every = len(found.classes) == 1
    lines = [_class_note(one, every) for one in found.classes]
    lines.append(
        f"times spread by {found.noise:.1%} from sweep to sweep ({found.sweeps[0]} sweeps over "
        f"pairs, {found.sweeps[1]} over what they share); links that differ by less than "
        f"{EFFORT.alike_share:.0%}, or than the noise, count as alike"
    )
    lines.append(
        "the two directions of a pair have half of their α each: without a common clock "
        "only the sum can be measured"
    )
    if found.sum_rate is not None:
        lines.append(f"a rank sums {rounded_text(found.sum_rate * GB_PER_S)} GB/s by itself")
    if found.overhead:
        cost = rounded_text(found.overhead)
        lines.append(
            f"when all ranks send, each message costs all of them {cost} µs, for which a "
            f"topology file lacks a key: --overhead {cost}us of weft simulate and weft bench"
        )
    return (*lines, *found.remarks)


def _class_note(one: LinkClass, every: bool) -> str:
    line = one.line
    which = "all" if every else "the" if len(one.flows) > 1 else ""
    first = f"{one.flows[0][0]} to {one.flows[0][1]}"
    names = f"{which} {len(one.flows)} directions{'' if every else f' like {first}'}"
    unsure = "; its bandwidth is the least that fits" if line.beta_error > 0.45 else ""
    return (
        f"{names if len(one.flows) > 1 else first}: α known to {line.alpha_error:.1%}, "
        f"bandwidth to {line.beta_error:.1%}; times are off the line by {line.residual:.0%} "
        f"in the median, at most by {line.worst:.0%}{unsure}"
    )


def _bandwidth(rate: float, error: float) -> Fraction:
    least, most = BANDWIDTHS
    return min(max(rounded(rate * GB_PER_S, error), least), most)


def rounded(value: float, error: float) -> Fraction:
    """Return the value with the digits that its relative error leaves: two to four."""
    digits = min(4, max(2, math.ceil(-math.log10(max(error, 1e-9)))))
    return Fraction(f"{value:.{digits - 1}e}")


def rounded_text(value: float) -> str:
    """Two digits, for people."""
    return f"{float(np.format_float_positional(value, 2, fractional=False)):g}"


# --- numbers of the runtime model, from times of calls --------------------------------------------


NO_RATES: Mapping[CallPath, float] = {}


@dataclass(frozen=True, slots=True)
class CallNumber:
    """A number that calls determine.

    ``worst``: how far its times are from their line at most, relative; None: not checked.
    ``of``: the times, in words.
    """

    key: str
    value: float
    worst: float | None
    of: str

    def given(self) -> TimingNumber:
        """Return it as a number of a machine, with the digits that are known."""
        return TimingNumber(self.key, Fraction(f"{self.value:.3g}"), f"measured: {self.note}")

    @property
    def note(self) -> str:
        """The times, and how well they are on their line."""
        if self.worst is None:
            return self.of
        return f"{self.of}, off their line by {self.worst:.0%} at most"


@dataclass(frozen=True, slots=True)
class CallNumbers:
    """Numbers that calls determine, and remarks on those that they do not."""

    told: tuple[CallNumber, ...] = ()
    remarks: tuple[str, ...] = ()


def call_numbers(
    times: Sequence[CallTime],
    media: Mapping[CallPath, Medium],
    alphas: Mapping[CallPath, float],
    rates: Mapping[CallPath, float] = NO_RATES,
) -> CallNumbers:
    """Return start, α, cost of a message at a NIC, the host's part of a call, and bandwidths.

    ``media``: the class of links of each way, where it is known. ``alphas``: µs of a message by
    the machine's links, which a measured α stands for from then on. ``rates``: bytes per µs of the
    machine's links, of which programs reach a share.
    """
    told: dict[str, CallNumber] = {}
    remarks: list[str] = []
    for one in (*_all(times, media, alphas, remarks), *_of_large(times, media, rates, remarks)):
        told.setdefault(one.key, one)  # the start is that of the nearer ring
    for way, medium in media.items():  # of measured links, defaults that are of data sheets fail
        if way in alphas:
            of = "α of the links of this machine"
            told.setdefault(
                f"nominal.{medium}", CallNumber(f"nominal.{medium}", alphas[way], None, of)
            )
        if way in rates:
            of = "bandwidths of the links are measured ones"
            told.setdefault(f"reach.{medium}", CallNumber(f"reach.{medium}", 1.0, None, of))
    return CallNumbers(tuple(told.values()), tuple(remarks))


def _all(
    times: Sequence[CallTime],
    media: Mapping[CallPath, Medium],
    alphas: Mapping[CallPath, float],
    remarks: list[str],
) -> Iterator[CallNumber]:
    for way in (CallPath.INSIDE, CallPath.BETWEEN):
        rings = [one for one in times if one.step is CallStep.RING and one.way is way]
        for protocol in dict.fromkeys(one.protocol for one in rings):
            mine = [one for one in rings if one.protocol == protocol]
            yield from _of_rings(mine, media.get(way), alphas.get(way), remarks)
    yield from _of_fans([one for one in times if one.step is CallStep.FAN], remarks)
    for one in times:
        if one.step is CallStep.EMPTY:
            yield CallNumber("host.per_gpu", one.us, None, "calls that send nothing, in a row")


def _of_rings(
    rings: Sequence[CallTime], medium: Medium | None, alpha: float | None, remarks: list[str]
) -> Iterator[CallNumber]:
    first = rings[0]
    counts = [one.count for one in rings]
    of = f"{first.bytes}-byte rings of {min(counts)} to {max(counts)} ranks {first.way}"
    who = f"{of}, {first.protocol}"
    if len(set(counts)) < EFFORT.line_counts:
        remarks.append(
            f"{who}: start {'and α are' if medium else 'and steps are'} one number "
            f"({first.us:.3g} µs): start.{first.protocol} keeps its default; "
            "a third rank on this way parts them"
        )
        return
    start, slope, worst, reason = _line_of([2 * (k - 1) for k in counts], rings)
    if reason:
        remarks.append(f"{who}: {reason}; start.{first.protocol} keeps its default")
        return
    yield CallNumber(f"start.{first.protocol}", start, worst, of)
    if medium is None:
        own = "" if alpha is None else f"; its links' own α is {alpha:.3g} µs"
        remarks.append(
            f"{who}: {slope:.3g} µs a step, but no class of link is known that this could be "
            f"the α of{own}: --family names it"
        )
        return
    yield CallNumber(f"alpha.{medium}.{first.protocol}", slope, worst, of)
    if alpha is not None:
        yield CallNumber(f"nominal.{medium}", alpha, None, "α of the links of this machine")


def _of_large(
    times: Sequence[CallTime],
    media: Mapping[CallPath, Medium],
    rates: Mapping[CallPath, float],
    remarks: list[str],
) -> Iterator[CallNumber]:
    """Yield the share of its links' bandwidth that a ring reaches, and the rate of one channel."""
    for one in times:
        if one.step is not CallStep.LARGE:
            continue
        # A ring of two: each rank sends every byte once, after one start and two α.
        mine = (CallStep.RING, one.way, one.protocol, one.count)
        short = (x.us for x in times if (x.step, x.way, x.protocol, x.count) == mine)
        us = one.us - next(short, 0.0)
        of = f"{one.bytes >> 20} MiB over two ranks {one.way}"
        if us <= 0:
            remarks.append(f"{of}: as quick as 8 bytes; no bandwidth is told")
            continue
        rate = one.bytes / us
        whole = next((x for x in times if x == replace(one, channels=0, us=x.us)), None)
        if one.channels and whole and one.us * EFFORT.channel_share < whole.us:
            remarks.append(
                f"{of}: one channel is as quick as all; cap.send keeps its default (NCCL before "
                "2.29 may have read NCCL_MAX_NCHANNELS before)"
            )
        elif one.channels:
            yield CallNumber(
                "cap.send", rate * 1e-3, None, f"{of}, one channel, {rate / 1e3:.3g} GB/s"
            )
        elif one.way in media and one.way in rates:
            share = min(1.0, rate / rates[one.way])
            told = f"{of}, {rate / 1e3:.3g} of {rates[one.way] / 1e3:.3g} GB/s"
            yield CallNumber(f"reach.{media[one.way]}", share, None, told)


def _of_fans(fans: Sequence[CallTime], remarks: list[str]) -> Iterator[CallNumber]:
    if not fans:
        remarks.append("no rank has two remote ones: what a message costs a NIC keeps its default")
        return
    of = f"{fans[0].bytes} bytes to 1 to {max(one.count for one in fans)} remote ranks"
    _, slope, worst, reason = _line_of([one.count for one in fans], fans)
    if reason:
        remarks.append(f"{of}: {reason}; message.{fans[0].protocol} keeps its default")
    else:
        yield CallNumber(f"message.{fans[0].protocol}", slope, worst, of)


def _line_of(
    steps: Sequence[int], times: Sequence[CallTime]
) -> tuple[float, float, float | None, str]:
    """Return the line with least relative errors: its first time, its slope, the relative distance
    of the worst time (None of two), and why it determines nothing, or an empty text."""
    x, y = np.array(steps, float), np.array([one.us for one in times], float)
    rows = np.stack([1 / y, x / y], axis=1)
    first, slope = map(float, np.linalg.lstsq(rows, np.ones(len(y)), rcond=None)[0])
    # Two times are on their line, whatever they are.
    worst = float(np.abs(rows @ (first, slope) - 1).max()) if len(set(steps)) > 2 else None
    if -EFFORT.start_share * abs(slope) < first < 0:
        first = 0.0
    reason = ""
    if worst is not None and worst > EFFORT.line_share:
        reason = f"times are {worst:.0%} off a straight line"
    elif slope < 0:
        reason = f"a step takes {slope:.3g} µs, less than nothing"
    elif first < 0:
        reason = f"the start takes {first:.3g} µs, less than nothing"
    return first, slope, worst, reason


if __name__ == "__main__":
    take_part(serve)
