"""Least time of any program of a runtime: the bounds of the machine as its programs see it.

For each protocol that is weft's own bound on the machine with the bandwidths and α that the
runtime's model has (:func:`.reached_machine`), after the start of the call; a program has one
protocol, so the least of them holds for all. Further arguments: thread blocks send so much at
most, a NIC takes a while for a message, however small, and where a runtime sums apart from
messages, its thread blocks do that as well.

A NIC's port is held by a message for ``message_us`` at least, and no message has more than a
payload of bytes: so it passes at most payload ÷ ``message_us``, if the last message counts as
long as it holds the port. It arrives before that, by ``early`` at most, so what such a port
proves counts less ``early``. (Bytes may be thought of as passing evenly while their message holds
the port, none more than ``early`` after it did; arguments of windows then hold for T + ``early``.)
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import microseconds, number
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.parts import Resource
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCLPP, P2P, RCCL, TARGETS, TIMED
from weft.dsl.nouns.topology import Medium, Topology

from ..base.engine import Certificate
from ..time.calibrated import NCCL, NCCL_TREE, USUAL_CHOICE, ModelChoice, at_best, inner_medium
from ..time.program_tables import media_rows
from ..time.reached import reached_machine, with_rows
from ..time.runtime_model import RuntimeModel
from .bounds import Bounds, arguments, bounds

PACKETS, BY_PACKETS = (Protocol.LL, Protocol.SIMPLE), (MSCCLPP, P2P.name)
"""Protocols of MSCCL++'s plans and of messages from rank to rank; others have all three."""

IN_SWITCHES = (MSCCLPP, NCCL)
"""Runtimes whose programs let switches sum and copy, under Simple."""

WHOLE_MESSAGES = (NCCL, P2P.name)
"""Runtimes whose channels act together, so that a message may have more than one payload."""


@dataclass(frozen=True, slots=True)
class RuntimeBound:
    """Least time of any program of a runtime for a message: µs, under which protocol, and why.

    Attributes:
        runtime: its name.
        start_us, alpha_us, bytes_us: parts of ``us``: the start of the call; what messages take
            without bytes; what the bytes add.
        argument: kind of the argument that binds; ``text``: the argument in words, on the machine
            with the bandwidths and α of the protocol.
    """

    runtime: str
    us: float
    protocol: str
    start_us: float
    alpha_us: float
    bytes_us: float
    argument: str
    text: str

    def over(self, us: float) -> float:
        """Return a time over the bound."""
        return us / self.us if self.us else 1.0

    def optimal(self, us: float) -> bool:
        """Return True if a time is the bound to three decimals: no program is quicker."""
        return round(self.over(us), 3) <= 1

    @property
    def parts(self) -> str:
        """The parts in words."""
        named = (("start", self.start_us), ("α", self.alpha_us), ("bytes", self.bytes_us))
        shown = ", ".join(f"{name} {microseconds(us)}" for name, us in named if us)
        return f"{self.protocol}: {shown} µs"

    def verdict(self, us: float) -> str:
        """Return how far a time is above the bound, in words."""
        least = f"{microseconds(self.us)} µs that any program of {self.runtime} takes at least"
        if self.optimal(us):
            return f"this plan is optimal in this runtime: it takes the {least} ({self.parts})"
        return f"{self.over(us) - 1:.1%} over the {least} ({self.parts})"

    def beside(self, us: float) -> dict[str, Any]:
        """Return the entries of ``--json`` that stand beside a time: ``runtime``, and the time over
        it."""
        return {
            "runtime": self.to_json(),
            "over_runtime": number(self.over(us)),
            "optimal_in_runtime": self.optimal(us),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the object ``runtime`` of the command line."""
        return {
            "name": self.runtime,
            "us": number(self.us),
            "protocol": self.protocol,
            "binds": {
                "start_us": number(self.start_us),
                "alpha_us": number(self.alpha_us),
                "bytes_us": number(self.bytes_us),
                "argument": self.argument,
                "text": self.text,
            },
        }


def runtime_bound(
    topology: Topology,
    collective: Collective,
    message_bytes: int,
    runtime: str,
    choice: ModelChoice = USUAL_CHOICE,
    *,
    best: bool = False,
) -> RuntimeBound:
    """Return the least time of any program for a message; what no size changes is kept.

    ``choice``: the model that times programs, with numbers that replace its own. ``best``: its
    defaults at the most that was seen of them, for times that are measured (:func:`.at_best`).

    Raises:
        UserError: a runtime without a model. BadTopology: as :func:`.bounds`.
    """
    found: RuntimeBound | None = None
    for name in models_of(topology, runtime):
        by = at_best(choice, topology, name) if best else choice
        model = by.on(topology, name)
        protocols = PACKETS if runtime in BY_PACKETS else tuple(model.protocols)
        for protocol in sorted(protocols, key=lambda one: model.protocol(one).start_us):
            if found is None or model.protocol(protocol).start_us < found.us:
                bound = _protocol_bound(topology, collective, runtime, name, by, protocol)
                one = bound.at(message_bytes)
                found = one if found is None or one.us < found.us else found
    assert found is not None
    return found


def models_of(topology: Topology, runtime: str) -> tuple[str, ...]:
    """Return the models of a runtime's programs; NCCL is RCCL on AMD's machines.

    Raises:
        UserError: a runtime without a model.
    """
    if runtime not in TIMED:
        raise UserError(f"expected a runtime with a model, got {runtime!r}", hint=", ".join(TIMED))
    if runtime in (NCCL, P2P.name):
        if inner_medium(topology) is Medium.XGMI:
            return (RCCL.name,)
        return (NCCL, NCCL_TREE) if runtime == NCCL else (NCCL,)
    return (runtime,)


@dataclass(frozen=True, slots=True)
class _ProtocolBound:
    """Bounds on programs of one protocol after the start of the call: ``plain``; those where ports
    of NICs take a while for a message, less ``early_us``; and sums of thread blocks."""

    runtime: str
    protocol: Protocol
    start_us: Fraction
    host_us: Fraction
    plain: Bounds
    ports: Bounds | None
    early_us: Fraction
    sums_us_per_byte: Fraction

    def at(self, message_bytes: int) -> RuntimeBound:
        """Return the largest bound at one size."""
        sums = Certificate(
            "sums",
            f"{float(self.sums_us_per_byte * 10**6):.4g} ps per byte of M: thread blocks of a rank "
            "make its part of the sums apart from messages",
        )
        found = [
            *((at(message_bytes), at(0), one) for at, one in arguments(self.plain)),
            (self.sums_us_per_byte * message_bytes, Fraction(0), sums),
        ]
        for at, one in arguments(self.ports) if self.ports else ():
            us = at(message_bytes) - self.early_us
            found.append((us, max(Fraction(0), at(0) - self.early_us), one))
        run, alpha, certificate = max(found, key=lambda one: one[0])
        alpha = min(alpha, run)
        host = max(Fraction(0), self.host_us - self.start_us - run)
        return RuntimeBound(
            self.runtime,
            float(self.start_us + run + host),
            str(self.protocol),
            float(self.start_us + host),
            float(alpha),
            float(run - alpha),
            "host" if host else certificate.kind,
            certificate.text,
        )


@kept()
def _protocol_bound(
    topology: Topology,
    collective: Collective,
    runtime: str,
    named: str,
    choice: ModelChoice,
    protocol: Protocol,
) -> _ProtocolBound:
    model = choice.on(topology, named)
    how = model.protocol(protocol)
    machine = program_machine(topology, runtime, model, protocol)
    ports, early, casts = machine, Fraction(0), any(node.computes for node in machine.nodes)
    if how.message_us and runtime not in WHOLE_MESSAGES and not casts:
        most = Fraction(how.payload) / how.message_us / BYTES_PER_US_PER_GBPS
        rows = [*machine.capacities()]
        for i in media_rows(topology, model).port.nonzero()[0].tolist():
            if rows[i] > most:
                taken = how.payload / (rows[i] * BYTES_PER_US_PER_GBPS)
                early, rows[i] = max(early, how.message_us - taken), most
        ports = with_rows(machine, rows)
    return _ProtocolBound(
        runtime,
        protocol,
        how.start_us,
        model.host_us,
        bounds(machine, collective),
        bounds(ports, collective) if early else None,
        early,
        _sums_us_per_byte(collective, runtime, model),
    )


def program_machine(
    topology: Topology, runtime: str, model: RuntimeModel, protocol: Protocol
) -> Topology:
    """Return the machine as programs of a runtime see it.

    Casts have α of their own, which may be below that of messages: of the two the lesser counts.
    """
    casts = runtime in IN_SWITCHES and protocol is Protocol.SIMPLE
    plain = topology if casts else topology.without_capabilities()
    made = reached_machine(plain, model, protocol)
    if any(node.computes for node in plain.nodes):
        pairs = zip(made.links, topology.links, strict=True)
        links = tuple(replace(one, latency=min(one.latency, own.latency)) for one, own in pairs)
        made = replace(made, links=links)
    return _with_blocks(made, runtime, model, protocol)


def _with_blocks(
    machine: Topology, runtime: str, model: RuntimeModel, protocol: Protocol
) -> Topology:
    """Return the machine where the thread blocks of a rank send no more than they can."""
    each = model.protocol(protocol).send_GBps
    if runtime not in TARGETS or not isinstance(each, Fraction):
        return machine
    most, shared = TARGETS[runtime].max_blocks * each, list(machine.resources)
    for rank in range(machine.ranks):
        out = tuple(i for i, one in enumerate(machine.links) if one.src == rank)
        if sum(machine.links[i].bandwidth for i in out) > most:
            shared.append(Resource(f"thread blocks of rank {rank}", out, most))
    return replace(machine, resources=tuple(shared))


def _sums_us_per_byte(collective: Collective, runtime: str, model: RuntimeModel) -> Fraction:
    """Return what sums take where they are apart from messages: those of the message, one for each
    rank but one, shared by the thread blocks of all ranks."""
    target, ranks, local = TARGETS.get(runtime), collective.ranks, model.local_GBps
    sums = collective.kind in (Kind.ALLREDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER)
    if target is None or target.fuses or not sums or not isinstance(local, Fraction):
        return Fraction(0)
    rate = ranks * target.max_blocks * local * BYTES_PER_US_PER_GBPS
    return Fraction(ranks - 1) / rate
