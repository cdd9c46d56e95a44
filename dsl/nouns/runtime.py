"""Constants of the runtimes that execute MSCCL XML, shared by timing and backends.

All limits of each runtime are in :mod:`weft.backends.runtime`, which takes these from here; see
also :attr:`~weft.dsl.nouns.program.Protocol.fifo_operations`.

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
"""Most chunks of one step; the parsers refuse MSCCL_MAX_COUNT = 72 and more."""

CUDA_PAYLOAD: Mapping[Protocol, int] = MappingProxyType(
    {Protocol.SIMPLE: 2 << 20, Protocol.LL: 32 << 10, Protocol.LL128: 576_000}
)
"""Most bytes moved by one operation, by protocol, at the default buffer sizes on CUDA."""

ROCM_PAYLOAD: Mapping[Protocol, int] = MappingProxyType(
    {Protocol.SIMPLE: 2 << 20, Protocol.LL: 16 << 10, Protocol.LL128: 50_176}
)
"""As :data:`CUDA_PAYLOAD`, on ROCm."""

LL_EFFICIENCY = Fraction(1, 2)
"""Payload per transferred byte of LL: 8-byte stores of which 4 bytes are a flag."""

CUDA_LL128_EFFICIENCY, ROCM_LL128_EFFICIENCY = Fraction(120, 128), Fraction(56, 64)
"""Payload per transferred byte of LL128: one 8-byte flag per line; ROCm has 64-byte lines."""

ROOTED, ROOTED_PART = (Kind.BROADCAST, Kind.REDUCE), 4
"""Collectives for which the host code uses 1/``ROOTED_PART`` of Simple's payload when it decides
how many chunks share an operation."""
