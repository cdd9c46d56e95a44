"""The runtimes that execute MSCCL XML, and their limits.

Read from their sources: microsoft/msccl (NCCL 2.12 fork), RCCL, and
Azure's msccl-executor-nccl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from weft.dsl.errors import UnknownName
from weft.dsl.program import Op, Protocol

_FULL = frozenset(Op)
_PLAIN = frozenset({Op.SEND, Op.RECV, Op.COPY, Op.REDUCE, Op.NOP})


@dataclass(frozen=True, slots=True)
class Target:
    """One runtime's limits.

    Attributes:
        letter: how remarks of the reader call it.
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
    letter: str
    steps: int
    blocks: int
    channels: int
    fused: int
    payload: Mapping[Protocol, int]
    ops: frozenset[Op]
    consistent_chunks: bool
    send_flag_is_late: bool
    size_inclusive: bool

    def merge(self, protocol: Protocol, coll: str, chunk_bytes: int) -> int:
        """Chunks of a size that one operation moves at most (``maxAllowedCount``).

        For broadcast and reduce under Simple the host reckons with a quarter of the payload.
        """
        payload = self.payload[protocol]
        if protocol is Protocol.SIMPLE and coll in ("broadcast", "reduce"):
            payload //= 4
        return max(1, min(MAX_COUNT, payload // max(1, chunk_bytes)))


MAX_COUNT = 71
MAX_OFFSET = 32767
BLOCKS_PER_CHANNEL = 32
MAX_ITERATIONS = 65536
NODES = 4095
CHILDREN = 1024

_CUDA = MappingProxyType({Protocol.SIMPLE: 2 << 20, Protocol.LL: 32 << 10, Protocol.LL128: 576_000})
_ROCM = MappingProxyType({Protocol.SIMPLE: 2 << 20, Protocol.LL: 16 << 10, Protocol.LL128: 50_176})

TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "msccl": Target("msccl", "M", 256, 216, 32, 16, _CUDA, _FULL, True, True, False),
        "rccl": Target("rccl", "R", 64, 64, 128, 0, _ROCM, _PLAIN, False, False, True),
        "executor": Target("executor", "E", 64, 1024, 32, 16, _CUDA, _FULL, False, True, True),
    }
)


def target_named(name: str) -> Target:
    """The target of a name.

    Raises:
        UnknownName: there is none.
    """
    if name not in TARGETS:
        raise UnknownName("target", name, TARGETS)
    return TARGETS[name]
