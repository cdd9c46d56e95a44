"""Runtimes that execute our files, as data: limits and payloads of those that read MSCCL XML, and
for all of them the GPUs that they are built for, how they are given files, and their printed lines.

The numbers are those the parsers and kernels check, or break on without checking; every limit is
held at emission, so that no file leaves that one rank accepts and another rejects. Compiler,
judges and timing share this table, and no code that computes with it. See also
:attr:`~weft.dsl.nouns.program.Protocol.fifo_operations`.

Sources: microsoft/msccl 0.7.4 (``topo.cc``, ``msccl.h``, ``init.cc``, ``devcomm.h``,
``enqueue.cc``), ROCm/rccl (``msccl_setup.cc``, ``device.h``) and Azure/msccl-executor-nccl
(``msccl_parser.cc``, ``msccl_struct.h``, ``device.h``); NCCL's protocols as in "Demystifying NCCL"
(arXiv:2507.04786). Of loaders: the same, ``msccl_lifecycle.cc`` of the last two, and
microsoft/mscclpp 0.9 (``src/ext/nccl/nccl.cc``, ``include/mscclpp/env.hpp``,
``python/mscclpp/_core/algorithm.py``, ``src/ext/collectives/algorithm_collection_builder.cc``);
of torch: ``torch/csrc/distributed/c10d/NCCLUtils.hpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from ..base.errors import UnknownName
from ..base.lazy_dataclass import Frozen
from .collective import Kind
from .program import Op, Protocol

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

INSTANCES, SUM_PARTS = 4, 8
"""Instances of usual forms of a program, and parts of sums that are instructions of their own; a
transfer is a send and a receive of each."""

FUSED = frozenset(
    {Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY, Op.RECV_REDUCE_COPY_SEND}
)
"""Operations that RCCL parses and then refuses at launch."""

MAX_OFFSET = 32767
"""Largest chunk offset: 16 bits, signed."""

ADDRESSABLE_CHUNKS = MAX_OFFSET + 1 + MAX_COUNT + 1
"""Chunks of a buffer that a file can address."""

MAX_NODES, MAX_CHILDREN = 4095, 1024
"""XML elements that one rank may see (algo, every gpu, own blocks, own steps); of one element."""

MAX_PEERS = 32
"""Thread blocks of one rank that may send, or receive, on one channel."""

MAX_ITERATIONS = 65536
"""Turns of the loop over a message; later ones have wrong flags."""

FEWEST_CHANNELS = 32
"""Channels that every runtime has."""

FUSED_SOURCES = 16
"""Sources of one fused reduction; one less under Simple, whose operation has a destination more."""

UNLIMITED = 1 << 30


class Target(Frozen):
    """Limits of one runtime that reads MSCCL XML, or of several that read it alike.

    Attributes:
        letters: one for each runtime that it stands for, as in the reader's remarks.
        ops: instructions it executes.
        max_steps: steps of one thread block, nops included; also its dependences.
        max_blocks: thread blocks of one rank.
        max_channels: channels that it has; ``max_peers`` blocks of one rank may send (or receive)
            on one.
        payload: bytes that one operation moves at most, by protocol.
        collectives: its names of the kinds it knows; ``fallback`` is used for all others.
        max_count, max_offset: chunks one step moves; largest chunk offset.
        max_nodes: XML elements one rank may see; ``max_children`` of one element.
        fused_sources: sources of one fused reduction, under Simple one less (0: no limit).
        send_publishes: a flag after ``s`` is published when all its reads are done, also under LL
            (a barrier follows the send).
        max_bytes_excluded: a file is for messages *below* its maxBytes; else ``maxBytes`` itself
            is in the range, and 0 means no limit.
        consistent_chunks: it insists on i_chunks and o_chunks of the collective.
    """

    name: str
    letters: str
    ops: frozenset[Op]
    max_steps: int
    max_blocks: int
    max_channels: int
    payload: Mapping[Protocol, int]
    collectives: Mapping[Kind, str]
    fallback: str | None = None
    max_peers: int = MAX_PEERS
    max_count: int = MAX_COUNT
    max_offset: int = MAX_OFFSET
    max_nodes: int = MAX_NODES
    max_children: int = MAX_CHILDREN
    fused_sources: int = FUSED_SOURCES
    send_publishes: bool = True
    max_bytes_excluded: bool = False
    consistent_chunks: bool = False

    @property
    def fuses(self) -> bool:
        """Return True if it executes receive-reduce-copy and its relatives."""
        return self.ops >= FUSED

    def most_moves(self, *, sums: bool) -> int:
        """Return the transfers that a rank of a schedule may send so that there is room for its
        program in usual forms; ``sums``: the collective sums."""
        parts = 1 if self.fuses or not sums else SUM_PARTS
        return self.max_blocks * self.max_steps // (2 * INSTANCES * parts)

    @property
    def max_dependence(self) -> int:
        """Largest thread block id that a step can wait for: 8 bits, signed."""
        return min(127, self.max_blocks - 1)

    @property
    def used_channels(self) -> int:
        """Channels that the compiler uses.

        RCCL has 128, but one more than 32 makes the file unreadable elsewhere for nothing: its 64
        blocks leave no use for them.
        """
        return min(self.max_channels, FEWEST_CHANNELS)

    @property
    def max_fused_reduces(self) -> int:
        """Most consecutive ``re`` that every runtime merges correctly."""
        return FUSED_SOURCES - 1

    @property
    def runtimes(self) -> tuple[Target, ...]:
        """Runtimes that it stands for: itself, or all of them for the portable subset."""
        return tuple(t for t in RUNTIMES.values() if t.letters in self.letters)

    @property
    def loads_folder(self) -> bool:
        """Return True if it reads all files of ``MSCCL_ALGO_DIR``, and fails on any of them."""
        return "M" not in self.letters

    def host_payload(self, protocol: Protocol, coll: str) -> int:
        """Bytes of one operation, as the host code assumes to decide how many chunks share one.

        For broadcast and reduce under Simple that is a quarter of the payload.
        """
        part = protocol is Protocol.SIMPLE and coll in ROOTED
        return self.payload[protocol] // (ROOTED_PART if part else 1)

    def merge(self, protocol: Protocol, coll: str, chunk_bytes: int) -> int:
        """Chunks of a size that one operation moves at most (``maxAllowedCount``)."""
        payload = self.host_payload(protocol, coll)
        return max(1, min(self.max_count, payload // max(1, chunk_bytes)))

    def largest_chunk(self, protocol: Protocol, coll: str, merge: int) -> int:
        """Bytes of the largest chunk of which ``merge`` still share an operation."""
        return self.host_payload(protocol, coll) // merge


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
    "M",
    frozenset(Op),
    max_steps=256,
    max_blocks=216,
    max_channels=32,
    payload=CUDA_PAYLOAD,
    collectives=_names("reduce_scatter"),
    fallback="custom",
    max_bytes_excluded=True,
    consistent_chunks=True,
)

RCCL = Target(
    "rccl",
    "R",
    frozenset(Op) - FUSED,
    max_steps=64,
    max_blocks=64,
    max_channels=128,
    payload=ROCM_PAYLOAD,
    collectives=_names("reducescatter"),
    fused_sources=0,
    send_publishes=False,
)

EXECUTOR = Target(
    "executor",
    "E",
    frozenset(Op),
    max_steps=64,
    max_blocks=1024,
    max_channels=32,
    payload=CUDA_PAYLOAD,
    collectives=_names("reducescatter"),
)

PORTABLE = Target(
    "portable",
    "MRE",
    frozenset(Op) - FUSED,
    max_steps=64,
    max_blocks=64,
    max_channels=32,
    payload=ROCM_PAYLOAD,
    collectives=_ALL_SPELL_ALIKE,
    send_publishes=False,
    max_bytes_excluded=True,
    consistent_chunks=True,
)
"""Subset that all of them read and execute alike: each limit is the least of theirs. Without
reduce_scatter, which has two spellings."""

P2P = Target(
    "p2p",
    "",
    frozenset(Op) - FUSED,
    max_steps=UNLIMITED,
    max_blocks=UNLIMITED,
    max_channels=1,
    payload={},
    collectives=_ALL_SPELL_ALIKE,
    max_count=UNLIMITED,
    max_nodes=UNLIMITED,
)
"""Point-to-point programs: no thread blocks, no limits, and sums apart from messages."""

RUNTIMES: Mapping[str, Target] = MappingProxyType({t.name: t for t in (MSCCL, RCCL, EXECUTOR)})
"""The runtimes themselves."""

TARGETS: Mapping[str, Target] = MappingProxyType({**RUNTIMES, PORTABLE.name: PORTABLE})

MSCCLPP, NCCL = "mscclpp", "nccl"

TIMED = (*TARGETS, MSCCLPP, NCCL, P2P.name)
"""Names of runtimes of which a model is known: those that read MSCCL XML, MSCCL++, NCCL's own
kernels (RCCL's on AMD's machines), and messages from rank to rank, which these make."""


def target(name: str | Target) -> Target:
    """Return the target of that name; a :class:`Target` is returned as it is.

    Raises:
        UnknownName: there is none.
    """
    if isinstance(name, Target):
        return name
    if name not in TARGETS:
        raise UnknownName("target", name, TARGETS)
    return TARGETS[name]


# --- how runtimes are given files -----------------------------------------------------------------

_AMPERE = ("p100", "v100", "t4", "a100", "a800", "a10", "a30", "a40")
_HOPPER = ("h100", "h800", "h20", "h200", "gh200", "l4", "l40s")
_BLACKWELL = ("b200", "b300", "gb200", "gb300")
_INSTINCT = ("mi50", "mi100", "mi250", "mi300x", "mi325x", "mi355x")
"""Families of machines, as :attr:`~weft.dsl.nouns.timing.MachineTiming.family` names them."""

_SEVERAL = ("", "pcie", "rtx")
"""Families without a definite generation: unknown, and those that stand for several."""


class Loader(Frozen):
    """A runtime that is given our files: which, on which GPUs, how, and its output then.

    Attributes:
        name: that of its :class:`Target` if it reads MSCCL XML.
        title: the project, and its base.
        format: the files that it takes.
        families: of machines whose GPUs its kernels are built for.
        why_not: why not on others, in words.
        preload: the library that takes the place of NCCL's, as its build names it; empty: the
            library that is there reads files itself.
        debug: variables that make it print the files that it read.
        proof: its printed line, in words; ``{file}`` stands for a file, ``{folder}`` for theirs.
        read: pattern of a line stating that a file, or a folder of them, was read.
        single: it takes one GPU of a process only.
        registered: a program registers the files; others find them by variables alone.
        torch: which wheels of torch load it, in words; ``torchrun``: some do.
        fallback: the variable that names NCCL's own library, for calls without a file.
    """

    name: str
    title: str
    format: str
    families: tuple[str, ...]
    why_not: str
    preload: str = ""
    debug: tuple[tuple[str, str], ...] = (
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG_SUBSYS", "INIT,ENV,TUNING"),
    )
    proof: str = ""
    read: str = ""
    single: bool = False
    registered: bool = False
    torch: str = ""
    torchrun: bool = True
    fallback: str = ""

    @property
    def flag(self) -> str:
        """The flag of ``weft tune`` that makes files for it."""
        return f"--target {self.name}" if self.name in RUNTIMES else f"--to {self.format}"

    def built(self, family: str, amd: bool | None) -> bool | None:
        """Return True if its kernels are built for a family of GPUs; None: that is not known.

        ``amd``: whether AMD makes the GPUs; None if unknown.
        """
        if family not in _SEVERAL:
            return family in self.families
        makers = {one in _INSTINCT for one in self.families}
        return None if amd is None or amd in makers else False

    def why_not_on(self, family: str, amd: bool | None = None) -> str:
        """Return why it is not for a family of machines that is none of its own."""
        if (family in _INSTINCT or amd) and not {*self.families} & {*_INSTINCT}:
            return "for NVIDIA's GPUs"
        return self.why_not


MSCCL_LOADER = Loader(
    MSCCL.name,
    "microsoft/msccl, a fork of NCCL 2.12 (2023)",
    "msccl-xml",
    _AMPERE,
    "a fork of NCCL 2.12 of 2023: no kernels for Hopper and later, CUDA 12 untested",
    preload="msccl/build/lib/libnccl.so",
    proof="NCCL INFO Parsed MSCCL Algorithm {file} successfully.",
    read=r"Parsed MSCCL Algorithm (\S+) successfully",
    torch="no wheel of torch since 2.0 loads it: they need NCCL 2.14 or later",
    torchrun=False,
)

EXECUTOR_LOADER = Loader(
    EXECUTOR.name,
    "Azure/msccl-executor-nccl, on NCCL 2.23.4 (December 2024)",
    "msccl-xml",
    (*_AMPERE, *_HOPPER),
    "on NCCL 2.23.4, which lacks kernels for Blackwell",
    preload="msccl-executor-nccl/build/lib/libnccl.so",
    proof="NCCL INFO MSCCL: Initialization finished",
    read=r"MSCCL: (?:Initialization finished|Parsing algorithm (\S+))",
    single=True,
    torch="wheels of torch 2.0 to 2.7 load it; from 2.8 on they need functions of NCCL 2.27 "
    "(undefined symbol: ncclCommWindowRegister): take an older one, or build torch with it",
)

MSCCLPP_LOADER = Loader(
    "mscclpp",
    "microsoft/mscclpp 0.9, in place of NCCL or by its executor",
    "mscclpp-json",
    ("a100", "a800", *_HOPPER[:5], *_BLACKWELL, "mi250", "mi300x", "mi325x"),
    "its documents name NVIDIA GPUs from A100 on, and MI250X and MI300X",
    preload="mscclpp/lib/libmscclpp_nccl.so",
    debug=(
        ("MSCCLPP_DEBUG", "INFO"),
        ("MSCCLPP_LOG_LEVEL", "INFO"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG_SUBSYS", "INIT,ENV,TUNING"),
    ),
    proof="weft: registered {file} with MSCCL++",
    read=r"weft: registered (\S+) with MSCCL\+\+|Loading plan: \"?([^\s\"]+)",
    single=True,
    registered=True,
    fallback="MSCCLPP_NCCL_LIB_PATH",
)

RCCL_LOADER = Loader(
    RCCL.name,
    "RCCL of ROCm up to 7.2.4 (RCCL 2.27.7); MSCCL is removed from later ones",
    "msccl-xml",
    _INSTINCT,
    "for AMD's GPUs",
    proof="NCCL INFO Using MSCCL files from {folder}",
    read=r"Using MSCCL files from (\S+)",
    single=True,
)

LOADERS: Mapping[str, Loader] = MappingProxyType(
    {x.name: x for x in (EXECUTOR_LOADER, RCCL_LOADER, MSCCLPP_LOADER, MSCCL_LOADER)}
)
"""Runtimes that load our files, the best first: those that variables alone make read them, so that
programs stay as they are; MSCCL++, whose plans a program registers; a fork of 2023."""


def loaders_for(family: str, amd: bool | None = None) -> tuple[Loader, ...]:
    """Return the runtimes that fit GPUs, the best first: those built for their family; if that does
    not show the generation, the one that reads MSCCL XML on most GPUs of their maker.

    ``amd``: whether AMD makes the GPUs; None if unknown.
    """
    if family not in _SEVERAL:
        return tuple(x for x in LOADERS.values() if x.built(family, amd))
    return () if amd is None else (RCCL_LOADER if amd else EXECUTOR_LOADER,)


def default_loader(family: str, amd: bool | None, *, xml: bool = False) -> Loader:
    """Return the runtime that files are made for if no flag names one: the best that fits; where
    none does, the one that reads MSCCL XML on most GPUs of their maker (unknown: NVIDIA).

    ``xml``: of those that read MSCCL XML.
    """
    fit = (x for x in loaders_for(family, amd) if not xml or x.name in RUNTIMES)
    return next(fit, RCCL_LOADER if amd else EXECUTOR_LOADER)
