"""Numbers of the runtimes that execute MSCCL XML which timing needs as well as backends.

The limits of each runtime stand in :mod:`weft.backends.runtime`, which takes these from here;
:attr:`~weft.dsl.nouns.program.Protocol.fifo_operations` belongs to them too.

Sources: microsoft/msccl 0.7.4 (``init.cc``, ``devcomm.h``, ``enqueue.cc``), ROCm/rccl
(``msccl_setup.cc``, ``device.h``); NCCL's protocols as in "Demystifying NCCL" (arXiv:2507.04786).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from .collective import Kind
from .program import Protocol

MAX_COUNT = 71
"""Chunks of one step at most; the parsers refuse all from their MSCCL_MAX_COUNT, 72, on."""

CUDA_PAYLOAD: Mapping[Protocol, int] = MappingProxyType(
    {Protocol.SIMPLE: 2 << 20, Protocol.LL: 32 << 10, Protocol.LL128: 576_000}
)
"""Bytes that one operation moves at most, by protocol, at the default buffer sizes on CUDA."""

ROCM_PAYLOAD: Mapping[Protocol, int] = MappingProxyType(
    {Protocol.SIMPLE: 2 << 20, Protocol.LL: 16 << 10, Protocol.LL128: 50_176}
)
"""As :data:`CUDA_PAYLOAD`, on ROCm."""

LL_EFFICIENCY = Fraction(1, 2)
"""Payload ÷ bytes on the wire of LL: 8-byte stores of which 4 are a flag."""

CUDA_LL128_EFFICIENCY, ROCM_LL128_EFFICIENCY = Fraction(120, 128), Fraction(56, 64)
"""The same of LL128, one 8-byte flag per line; ROCm's lines have 64 bytes."""

ROOTED, ROOTED_PART = (Kind.BROADCAST, Kind.REDUCE), 4
"""Collectives for which the host takes a part of Simple's payload, one in so many, when it decides
how many chunks share an operation."""
