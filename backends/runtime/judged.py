"""The runtimes that execute MSCCL XML, and their limits.

Read from their sources: microsoft/msccl (NCCL 2.12 fork), RCCL, and
Azure's msccl-executor-nccl. Data for those who judge files, the checker and the interpreter;
what the compiler holds itself to was read for itself (:mod:`~weft.backends.runtime.target`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from weft.dsl.base.errors import UnknownName
from weft.dsl.nouns.program import Op, Protocol

_FULL = frozenset(Op)
_PLAIN = frozenset({Op.SEND, Op.RECV, Op.COPY, Op.REDUCE, Op.NOP})


@dataclass(frozen=True, slots=True)
class Target:
    """One runtime's limits.

    Attributes:
        letters: how remarks of the reader call it, or those that it stands for.
        steps: per thread block; also dependences and fused reductions per block.
        blocks: per rank. ``channels``: in all.
        fused: sources of one fused reduction, under Simple one less (0: no limit).
        payload: bytes that one operation moves at most, by protocol.
        ops: what it executes.
        consistent_chunks: it insists on i_chunks and o_chunks of the collective.
        send_flag_is_late: the flag after a send is published when all its reads are done, also
            under LL.
        size_inclusive: ``maxBytes`` itself is in the range, and 0 means no limit.
    """

    name: str
    letters: str
    steps: int
    blocks: int
    channels: int
    fused: int
    payload: Mapping[Protocol, int]
    ops: frozenset[Op]
    consistent_chunks: bool
    send_flag_is_late: bool
    size_inclusive: bool

    @property
    def runtimes(self) -> tuple[Target, ...]:
        """Itself, or for the portable subset all of them."""
        return tuple(t for t in RUNTIMES.values() if t.letters in self.letters)

    @property
    def loads_folder(self) -> bool:
        """Whether it reads all files of a folder (``MSCCL_ALGO_DIR``), and fails on any of them."""
        return "M" not in self.letters

    def host_payload(self, protocol: Protocol, coll: str) -> int:
        """Bytes of one operation, as the host reckons to say how many chunks share one.

        For broadcast and reduce under Simple that is a quarter of the payload.
        """
        quarter = protocol is Protocol.SIMPLE and coll in ("broadcast", "reduce")
        return self.payload[protocol] // (4 if quarter else 1)

    def merge(self, protocol: Protocol, coll: str, chunk_bytes: int) -> int:
        """Chunks of a size that one operation moves at most (``maxAllowedCount``)."""
        payload = self.host_payload(protocol, coll)
        return max(1, min(MAX_COUNT, payload // max(1, chunk_bytes)))

    def largest_chunk(self, protocol: Protocol, coll: str, merge: int) -> int:
        """Bytes of the largest chunk of which ``merge`` still share an operation."""
        return self.host_payload(protocol, coll) // merge


MAX_COUNT = 71
"""Chunks of one step at most; the parsers refuse all from their MSCCL_MAX_COUNT, 72, on."""

MAX_OFFSET = 32767
BLOCKS_PER_CHANNEL = 32
MAX_ITERATIONS = 65536
NODES = 4095
CHILDREN = 1024

_CUDA = MappingProxyType({Protocol.SIMPLE: 2 << 20, Protocol.LL: 32 << 10, Protocol.LL128: 576_000})
_ROCM = MappingProxyType({Protocol.SIMPLE: 2 << 20, Protocol.LL: 16 << 10, Protocol.LL128: 50_176})

RUNTIMES: Mapping[str, Target] = MappingProxyType(
    {
        "msccl": Target("msccl", "M", 256, 216, 32, 16, _CUDA, _FULL, True, True, False),
        "rccl": Target("rccl", "R", 64, 64, 128, 0, _ROCM, _PLAIN, False, False, True),
        "executor": Target("executor", "E", 64, 1024, 32, 16, _CUDA, _FULL, False, True, True),
    }
)

PORTABLE = Target("portable", "MRE", 64, 64, 32, 16, _ROCM, _PLAIN, True, False, False)
"""What all of them take: each limit is the least of theirs."""

TARGETS: Mapping[str, Target] = MappingProxyType({**RUNTIMES, "portable": PORTABLE})


def target_named(name: str) -> Target:
    """The target of a name.

    Raises:
        UnknownName: there is none.
    """
    if name not in TARGETS:
        raise UnknownName("target", name, TARGETS)
    return TARGETS[name]
