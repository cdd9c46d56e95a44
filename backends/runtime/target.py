"""What a runtime can run: operations, limits, the names it gives to collectives, as data.

The numbers are those the parsers and kernels check, or break on without checking; every limit is
held at emission, so that no file leaves that one rank accepts and another rejects.

Sources: microsoft/msccl 0.7.4 (``topo.cc``, ``msccl.h``, ``devcomm.h``), ROCm/rccl and
Azure/msccl-executor-nccl (``msccl_parser.cc``, ``msccl_struct.h``, ``device.h``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from weft.dsl.base.errors import UnknownName
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.program import Op

FUSED = frozenset(
    {Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY, Op.RECV_REDUCE_COPY_SEND}
)
"""Operations that RCCL parses and then refuses at launch."""


@dataclass(frozen=True, slots=True)
class Target:
    """A runtime that reads MSCCL XML.

    Attributes:
        ops: instructions it executes.
        max_steps: steps of one thread block, nops included.
        max_blocks: thread blocks of one rank.
        max_channels: channels; ``max_peers`` blocks of one rank may send (or receive) on one.
        max_dependence: largest thread block id that a step can wait for.
        max_count, max_offset: chunks one step moves; largest chunk offset (16 bit, signed).
        max_nodes: XML elements one rank may see: algo, every gpu, own blocks, own steps;
            ``max_children`` of one element.
        max_fused_reduces: consecutive ``re`` that the runtime may merge and still get right.
        collectives: how it spells the kinds it knows; ``fallback`` stands for all others.
        send_publishes: a flag after ``s`` is safe under LL too (a barrier follows the send).
        max_bytes_excluded: a file is for messages *below* its maxBytes.
    """

    name: str
    ops: frozenset[Op]
    max_steps: int
    max_blocks: int
    max_channels: int
    max_dependence: int
    collectives: Mapping[Kind, str]
    fallback: str | None = None
    max_peers: int = 32
    max_count: int = 71
    max_offset: int = 32767
    max_nodes: int = 4095
    max_children: int = 1024
    max_fused_reduces: int = 15
    send_publishes: bool = True
    max_bytes_excluded: bool = False

    @property
    def fuses(self) -> bool:
        """Whether it executes receive-reduce-copy and its relatives."""
        return self.ops >= FUSED


_ALL_SPELL_ALIKE: Mapping[Kind, str] = MappingProxyType(
    {
        k: str(k)
        for k in (Kind.ALLREDUCE, Kind.ALLGATHER, Kind.ALLTOALL, Kind.BROADCAST, Kind.REDUCE)
    }
)


def _names(reduce_scatter: str) -> Mapping[Kind, str]:
    return MappingProxyType({**_ALL_SPELL_ALIKE, Kind.REDUCE_SCATTER: reduce_scatter})


MSCCL = Target(
    "msccl",
    frozenset(Op),
    max_steps=256,
    max_blocks=216,
    max_channels=32,
    max_dependence=127,
    collectives=_names("reduce_scatter"),
    fallback="custom",
    max_bytes_excluded=True,
)

# 128 channels exist there, but one more than 32 makes the file unreadable elsewhere for nothing:
# 64 blocks leave no use for them.
RCCL = Target(
    "rccl",
    frozenset(Op) - FUSED,
    max_steps=64,
    max_blocks=64,
    max_channels=32,
    max_dependence=63,
    collectives=_names("reducescatter"),
    send_publishes=False,
)

EXECUTOR = Target(
    "executor",
    frozenset(Op),
    max_steps=64,
    max_blocks=1024,
    max_channels=32,
    max_dependence=127,
    collectives=_names("reducescatter"),
)

PORTABLE = Target(
    "portable",
    frozenset(Op) - FUSED,
    max_steps=64,
    max_blocks=64,
    max_channels=32,
    max_dependence=63,
    collectives=_ALL_SPELL_ALIKE,
    send_publishes=False,
    max_bytes_excluded=True,
)
"""What all of them read and execute alike. Not reduce_scatter: it has two spellings."""

P2P = Target(
    "p2p",
    frozenset(Op) - FUSED,
    max_steps=1 << 30,
    max_blocks=1 << 30,
    max_channels=1,
    max_dependence=1 << 30,
    collectives=_ALL_SPELL_ALIKE,
    max_count=1 << 30,
    max_nodes=1 << 30,
)
"""Point-to-point programs: no thread blocks, no limits, and sums apart from messages."""

TARGETS: Mapping[str, Target] = MappingProxyType(
    {t.name: t for t in (MSCCL, RCCL, EXECUTOR, PORTABLE)}
)


def target(name: str | Target) -> Target:
    """The target of that name; a target is one already.

    Raises:
        UnknownName: there is none.
    """
    if isinstance(name, Target):
        return name
    if name not in TARGETS:
        raise UnknownName("target", name, TARGETS)
    return TARGETS[name]
