"""An MSCCL algorithm as the runtimes hold it after reading the file.

The model stays close to the file: per rank, per thread block, the *transfers* that the runtimes
make of the steps (``nop`` steps become dependences of the next transfer, consecutive ``re`` steps
are fused) with the flag values they publish. Numbers are stored as wide as the runtimes store
them: an offset has wrapped to 16 bits here if it wraps there.

Runtimes are named by one letter: ``M`` microsoft/msccl, ``R`` RCCL, ``E`` msccl-executor-nccl.
"""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spans import Source, Span
from weft.dsl.nouns.program import Op, Protocol, Slice

ALL = "MRE"


@dataclass(frozen=True, slots=True)
class XmlRemark:
    """Something in the file that a runtime rejects, or silently reads as something else.

    ``runtimes`` are those it concerns; ``rejected``: they refuse the file, otherwise they accept
    it and do what the message says. ``times`` counts places with the same remark; the span is
    the first.
    """

    message: str
    runtimes: str
    rejected: bool
    span: Span
    times: int = 1

    def __str__(self) -> str:
        verb = "rejected by" if self.rejected else "silently by"
        more = f" ({self.times} places)" if self.times > 1 else ""
        return f"{self.span}: {self.message} [{verb} {'/'.join(self.runtimes)}]{more}"


@dataclass(frozen=True, slots=True)
class XmlTransfer:
    """One thing a thread block does: a step, or a chain of fused ``re`` steps.

    Attributes:
        op: its operation; never ``nop``.
        step: the ``s`` attribute of its first step.
        src, dst: the slices of the file, offsets wrapped to 16 bits.
        count: chunks; of a fused chain the last step's, as in the runtimes.
        waits: (thread block, flag value) pairs waited for before it starts.
        flag: the running step counter after it: the flag value it publishes, or could.
        publishes: whether it publishes (``hasdep``).
        more_sources: offsets of the 2nd, 3rd … source of a fused chain, in ``src.buffer``.
    """

    op: Op
    step: int
    src: Slice
    dst: Slice
    count: int
    waits: tuple[tuple[int, int], ...]
    flag: int
    publishes: bool
    more_sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class XmlBlock:
    """A ``<tb>``: its attributes, its transfers, and the counts of its steps that limits need."""

    id: int
    channel: int
    send: int
    recv: int
    transfers: tuple[XmlTransfer, ...]
    steps: int
    largest_s: int
    waits: int


@dataclass(frozen=True, slots=True)
class XmlRank:
    """A ``<gpu>``: declared buffer sizes in chunks, and its blocks in document order."""

    id: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    blocks: tuple[XmlBlock, ...]

    @property
    def nodes(self) -> int:
        """Elements below the ``<gpu>`` that take a slot of the runtimes' node pool."""
        return len(self.blocks) + sum(b.steps for b in self.blocks)


@dataclass(frozen=True, slots=True)
class XmlAlgo:
    """A whole file: the ``<algo>`` attributes and the ranks ``0 … ngpus-1`` that it describes.

    ``outofplace``, ``min_bytes``, ``max_bytes`` are ``None`` where the attribute is absent.
    """

    name: str
    protocol: Protocol
    channels: int
    message_chunks: int
    ngpus: int
    coll: str
    inplace: bool
    outofplace: bool | None
    min_bytes: int | None
    max_bytes: int | None
    nthreads: int
    ranks: tuple[XmlRank, ...]
    remarks: tuple[XmlRemark, ...]
    where: str

    @property
    def placements(self) -> tuple[bool, ...]:
        """The placements the file claims, as ``in_place`` values: (False,), (True,) or both.

        Where ``outofplace`` is absent, ``inplace`` alone decides (as in M). A file that claims
        neither is never selected; it is judged out of place.
        """
        if self.outofplace is None:
            return (self.inplace,)
        claimed = tuple(p for p in (False, True) if (self.inplace if p else self.outofplace))
        return claimed or (False,)

    @property
    def steps(self) -> int:
        """Steps of all ranks."""
        return sum(b.steps for r in self.ranks for b in r.blocks)


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """Facts of the runtimes' hand-written reader, and of microsoft/msccl."""

    attributes: int = 16  # of an element; further ones are not read
    name_characters: int = 254
    value_characters: int = 255
    remarks: int = 200  # different ones that are kept
    absent_max_bytes: int = 1 << 27  # ``maxBytes`` of microsoft/msccl where the file has none
    # That microsoft/msccl allocates at start-up without a warning of ours.
    scratch_bytes: int = 16 << 30


FACTS = ReaderFacts()


class Remarks:
    """Gathers remarks about one source; at most 200 different ones are kept."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: dict[tuple[str, str, bool], tuple[Span, int]] = {}

    def add(
        self, message: str, runtimes: str, place: tuple[int, int], *, rejected: bool = False
    ) -> None:
        """Note a remark at the characters ``place`` (start, end)."""
        key = (message, runtimes, rejected)
        if key not in self._found and len(self._found) >= FACTS.remarks:
            key = ("further remarks of other kinds", runtimes, rejected)
        span, times = self._found.get(key, (Span(self._source, *place), 0))
        self._found[key] = (span, times + 1)

    def all(self) -> tuple[XmlRemark, ...]:
        """Return the remarks, in the order in which they were first met."""
        return tuple(
            XmlRemark(message, runtimes, rejected, span, times)
            for (message, runtimes, rejected), (span, times) in self._found.items()
        )
