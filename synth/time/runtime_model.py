"""Models of runtimes: payloads, efficiency, slots and overheads of their protocols, as data.

The models here know data sheets and protocols alone (``--model datasheet``), with the numbers of
:mod:`weft.dsl.nouns.runtime`; :mod:`.calibrated` makes those of a machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import (
    CUDA_LL128_EFFICIENCY,
    CUDA_PAYLOAD,
    LL_EFFICIENCY,
    MAX_COUNT,
    ROCM_LL128_EFFICIENCY,
    ROCM_PAYLOAD,
    ROOTED,
    ROOTED_PART,
)


@dataclass(frozen=True, slots=True)
class ProtocolModel:
    """One protocol of one runtime.

    Attributes:
        payload: bytes of every chunk that one loop iteration moves; also what several chunks of
            one instruction may have together to travel as one operation.
        slots: operations a sender can be ahead of its receiver.
        efficiency: payload ÷ bytes on the wire.
        alpha: factor on the latency of every link.
        rooted_payload: what the runtime reckons with to merge chunks of broadcast and reduce,
            where that differs. ``rooted_pieces``: it also moves no more at once.
        start_us: of a call, before its first operation.
        alpha_us: what a message takes beside the latencies of its links, which count for what they
            are above usual ones (so it may be negative), by the slowest medium on its way.
        send_GBps: payload that a thread block sends at most.
        message_us: how long a message holds the ports of NICs at least.
    """

    payload: int
    slots: int
    efficiency: Fraction = Fraction(1)
    alpha: Fraction = Fraction(1)
    rooted_payload: int | None = None
    start_us: Fraction = Fraction(0)
    alpha_us: Mapping[Medium, Fraction] = field(default_factory=dict)
    send_GBps: Fraction | float = math.inf
    message_us: Fraction = Fraction(0)
    rooted_pieces: bool = False

    def __post_init__(self) -> None:
        if self.payload < 1 or self.slots < 1:
            raise UserError("a protocol moves at least one byte and has at least one slot")
        if not 0 < self.efficiency <= 1:
            raise UserError(f"an efficiency of {self.efficiency} makes no sense")
        if self.alpha < 0:
            raise UserError(f"a latency factor of {self.alpha} makes no sense")


SLOWNESS = (None, Medium.NVLINK, Medium.XGMI, Medium.PCIE, Medium.NETWORK)
"""Media, the slowest last: that of a route is the slowest of its links. None: not known; such links
have the α and bandwidth of the machine, as they are."""


@dataclass(frozen=True, slots=True)
class MediaModel:
    """The media of a machine: the share of each one's bandwidth that is reached; that of each
    link."""

    reach: Mapping[Medium, Fraction]
    links: tuple[Medium | None, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Iterations and operations of a message, as the runtime derives them from its size.

    Attributes:
        chunk: bytes of a chunk. ``iterations``: turns of the loop over its pieces.
        piece, last: bytes of every chunk that a turn moves, and the last turn.
        merge: chunks that one operation moves at most (``maxAllowedCount``).
    """

    chunk: Fraction
    iterations: int
    piece: Fraction
    last: Fraction
    merge: int


@dataclass(frozen=True, slots=True)
class RuntimeModel:
    """A runtime: its protocols, and its other costs in time.

    Attributes:
        overhead_us: every operation holds its thread block this much longer, before it starts to
            send, or is done.
        local_GBps: bandwidth of copies and reductions inside a GPU (``cpy``, ``re``); infinite:
            they take no time.
        media: where bandwidths that are reached, and α by medium, are known.
        host_us: what the host takes for a call; the longer one counts, host or GPUs.
        numbers: what a calibrated model is made of (:class:`.calibrated.ModelNumber`).
            ``remarks``: what it lacks, in sentences.
    """

    name: str
    protocols: Mapping[Protocol, ProtocolModel]
    overhead_us: Fraction | float = 0
    local_GBps: Fraction | float = math.inf
    most_merged: int = MAX_COUNT
    media: MediaModel | None = None
    host_us: Fraction = Fraction(0)
    numbers: tuple[Any, ...] = ()
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.overhead_us < math.inf:
            raise UserError(f"an overhead of {self.overhead_us} µs makes no sense")
        if not self.local_GBps > 0:
            raise UserError(f"a local bandwidth of {self.local_GBps} GB/s makes no sense")

    def nic_message_us(self) -> Fraction | None:
        """Return the least time for which a message holds a NIC, under any protocol; None where
        messages pass no NIC of known costs."""
        if self.media is None or Medium.NETWORK not in self.media.links:
            return None
        return min(one.message_us for one in self.protocols.values()) or None

    def cut(self, program: Program, message_bytes: int) -> Cut:
        """Cut a message of M bytes into iterations and operations.

        Raises:
            UserError: a size below one byte, or a protocol that the runtime does not have.
        """
        if message_bytes < 1:
            raise UserError(f"a message of {message_bytes} bytes cannot be simulated")
        chunk = Fraction(message_bytes, program.message_chunks)
        payload, merged = self.payloads(program.protocol, program.collective)
        iterations = math.ceil(chunk / payload)
        return Cut(
            chunk,
            iterations,
            min(chunk, Fraction(payload)),
            chunk - (iterations - 1) * payload,
            max(1, min(self.most_merged, merged // math.ceil(chunk))),
        )

    def payloads(self, protocol: Protocol, collective: Collective) -> tuple[int, int]:
        """Return the bytes of a chunk that a turn of the loop moves at most, and those of the
        chunks that travel together."""
        one = self.protocol(protocol)
        if one.rooted_payload and collective.kind in ROOTED:
            return one.rooted_payload if one.rooted_pieces else one.payload, one.rooted_payload
        return one.payload, one.payload

    def protocol(self, protocol: Protocol) -> ProtocolModel:
        """The model of a protocol.

        Raises:
            UserError: the runtime does not have it.
        """
        if protocol not in self.protocols:
            raise UserError(f"expected a protocol of {self.name}, got {protocol}")
        return self.protocols[protocol]

    def unlooped(self) -> RuntimeModel:
        """Return the model of a runtime without a loop: an operation moves whole chunks, into a
        buffer that is for nothing else."""
        protocols = {
            name: replace(one, payload=1 << 50, rooted_payload=None, slots=1 << 20)
            for name, one in self.protocols.items()
        }
        return replace(self, protocols=protocols)

    def in_lockstep(self, channels: int) -> RuntimeModel:
        """Return the model in which one thread block stands for those of several channels.

        They do the same at the same time, each with its part of every message, as the channels of
        NCCL's own kernels do; in the simulation channels apart would take turns on a link, and
        hide each other's α.
        """
        protocols = {
            name: replace(
                one,
                payload=one.payload * channels,
                rooted_payload=one.rooted_payload and one.rooted_payload * channels,
                send_GBps=one.send_GBps * channels,
            )
            for name, one in self.protocols.items()
        }
        return replace(self, protocols=protocols, local_GBps=self.local_GBps * channels)

    def total_us(self, protocol: Protocol, run_us: float) -> float:
        """Return the time of a call: start and run, or the host, if that takes longer."""
        return max(float(self.host_us), float(self.protocol(protocol).start_us) + run_us)


def _protocols(
    payload: Mapping[Protocol, int], ll128: Fraction
) -> Mapping[Protocol, ProtocolModel]:
    efficiency = {Protocol.LL: LL_EFFICIENCY, Protocol.LL128: ll128}
    rooted = {Protocol.SIMPLE: payload[Protocol.SIMPLE] // ROOTED_PART}
    return MappingProxyType(
        {
            one: ProtocolModel(
                payload[one],
                one.fifo_operations,
                efficiency.get(one, Fraction(1)),
                rooted_payload=rooted.get(one),
            )
            for one in Protocol
        }
    )


MSCCL = RuntimeModel("msccl", _protocols(CUDA_PAYLOAD, CUDA_LL128_EFFICIENCY))
"""microsoft/msccl and msccl-executor-nccl on CUDA, default buffer sizes. LL128 is taken at the
120/128 = 93.75 % of its lines: what they lose beyond that is not the protocol's."""

RCCL = RuntimeModel("rccl", _protocols(ROCM_PAYLOAD, ROCM_LL128_EFFICIENCY))
"""RCCL, default buffer sizes; its LL128 lines have 64 bytes."""


def model_of(runtime: str | None) -> RuntimeModel:
    """Of the runtime that is called so; RCCL differs, all others are as microsoft/msccl."""
    return RCCL if runtime == "rccl" else MSCCL
