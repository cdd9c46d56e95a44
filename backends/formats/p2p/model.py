"""The script: sends, receives and computations of every rank, round by round.

In a **round** a rank posts all its sends and receives at once and waits for all of them; then it
does its local work, in order. Sends read what held before the round. The messages from one rank to
another in one round are matched by their order alone, as NCCL does it. Ranks need not be in the
same round at the same time: a round ends when the rank's own messages are through. Nothing can
deadlock, because all messages of the earliest round that is not done are posted.
"""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Buffer


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """Layout of scripts, limits of their size, and the cost of a message."""

    line_width: int = 92  # of code, without its indentation
    text_width: int = 84  # of a text on one line of a file
    loop_rounds: int = 3  # least number that makes a loop
    axes: int = 4  # of a grid of ranks
    written_lines: int = 2_000_000  # messages and sums of a script; larger files are never read
    rounds: int = 100_000  # of a file that is read
    turns: int = 10_000_000  # of loops, of all ranks, after which formulas are given up
    message_us: float = 0.1  # of a message on its links beside its bytes, assumed: a thread block's


LIMITS = ScriptLimits()


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """Chunks ``first … first + count - 1`` of a buffer."""

    buffer: Buffer
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Message:
    """One end of a message: the slice read or written here, and the rank at the other end."""

    part: ChunkRange
    peer: int


@dataclass(frozen=True, slots=True)
class LocalOperation:
    """``into = terms[0]``, or the sum of two; all parts have as many chunks."""

    into: ChunkRange
    terms: tuple[ChunkRange, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Messages and local work of one rank in one round."""

    sends: tuple[Message, ...] = ()
    recvs: tuple[Message, ...] = ()
    work: tuple[LocalOperation, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sends or self.recvs or self.work)


@dataclass(frozen=True, slots=True)
class Script:
    """A point-to-point program.

    Attributes:
        collective: in the script's chunks.
        in_place: input and output alias as :meth:`Collective.in_place_shift` says.
        scratch: chunks of scratch memory of each rank.
        ranks: the rounds of each rank, the same number for all.
        grid: the shape, row by row, of the grid or torus that ranks are in; () if in none or where
            that makes no difference.
    """

    name: str
    collective: Collective
    in_place: bool
    scratch: tuple[int, ...]
    ranks: tuple[tuple[Round, ...], ...]
    grid: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<Script {self.name}: {self.collective}, {count(self.rounds, 'round')}, "
            f"{count(self.messages, 'message')}{', in place' if self.in_place else ''}>"
        )

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.ranks[0]) if self.ranks else 0

    @property
    def messages(self) -> int:
        """Messages of all ranks and rounds."""
        return sum(len(one.sends) for rank in self.ranks for one in rank)
