"""Schedules with slices and with unequal chunks, made fit for what will run them, and what to say.

A runtime of MSCCL XML slices chunks by itself; a plan is run once, on whole chunks. Both know
chunks of one size only, and a buffer is cut into at most so many: unequal shares are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from weft.dsl.base.units import format_bytes

if TYPE_CHECKING:
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.schedule import Schedule

    from ..formats.p2p.model import Script

MOST_GRAINS = 1024
"""Chunks of a message, for formats of equal chunks: calls must have sizes that divide into them."""

BY_OFFSETS = "program"
"""The format whose chunks are as fine as they need to be: whoever runs it has byte offsets."""


def binary(chunks: int, message_chunks: int) -> bool:
    """Whether a collective of so many chunks is cut into so many by a power of two.

    MSCCL's runtimes pass a file over, in silence, for messages that do not divide into its chunks,
    and most messages are round in binary.
    """
    factor, rest = divmod(message_chunks, chunks)
    return not rest and not factor & (factor - 1)


@dataclass(frozen=True, slots=True)
class Remark:
    """What became of the input, for people and for ``--json``; ``program`` may add to the words."""

    label: str
    text: Callable[[Program | Script], str]
    facts: dict[str, Any] = field(default_factory=dict)


def fitted(schedule: Schedule, to: str, segments: int) -> tuple[Schedule, list[Remark]]:
    """The schedule with shares that ``to`` can express in ``segments`` pieces, and the loss."""
    from .analyses.grains import MOST_GRAINS as MOST_MOVED
    from .analyses.grains import coarsest

    if not schedule.collective.sizes:
        return schedule, []
    collective = coarsest(schedule.collective)
    grains = collective.message_chunks
    most = MOST_GRAINS // segments
    if to == BY_OFFSETS:
        # Exactly, as far as the checkers can look at every grain.
        moved = int(collective.grains[schedule.chunk].sum()) * segments
        most = max(most, grains if moved <= MOST_MOVED else grains * MOST_MOVED // moved)
    if grains <= most:
        return schedule, []
    quantized, loss = _quantize(schedule, most)
    kept = coarsest(quantized.collective).message_chunks
    text = (
        f"unequal shares rounded to {kept} chunks of the message (exact: {grains}); "
        f"the busiest link is busy for {float(100 * loss):.3g} % longer"
    )
    facts = {"quantized": {"chunks": kept, "exact": grains, "loss": float(loss)}}
    return quantized, [Remark("Rounded", lambda _: text, facts)]


def _quantize(schedule: Schedule, grains: int) -> tuple[Schedule, Fraction]:
    module = import_module("weft.synth.engines.packing.trees.quantize")
    return cast("tuple[Schedule, Fraction]", module.quantize(schedule, grains))


def sliced(schedule: Schedule, to: str, target: str, pieces: int) -> list[Remark]:
    """What becomes of the slices of a schedule that is cut into ``pieces`` per chunk here."""
    if schedule.segments == 1 and pieces == 1:
        return []
    slices = schedule.segments

    def text(program: Program | Script) -> str:
        from weft.dsl.nouns.program import Program

        if pieces > 1:
            return f"every chunk is cut into {pieces} pieces that follow each other"
        if to == "msccl-xml" and isinstance(program, Program):
            return _looped(program, target, slices, schedule.bytes)
        if to == BY_OFFSETS:
            return f"the program is what is done to each of the schedule's {slices} segments"
        return (
            f"{to} has no loop: the schedule's {slices} segments are run as one; "
            f"--segments N cuts every chunk into N pieces"
        )

    return [Remark("Sliced", text, {"segments": slices, "pieces": pieces})]


def _looped(program: Program, target: str, slices: int, size: int | None) -> str:
    """The loop that the runtime makes of the slices, at the size that the schedule is for."""
    from ..runtime.judged import target_named

    payload = target_named(target).payload[program.protocol]
    text = f"the runtime slices chunks itself: the schedule's {slices} segments are its loop"
    if size is None:
        return f"{text}, {format_bytes(payload)} of every chunk at a time"
    chunk = Fraction(size, program.message_chunks)
    turns = -(-chunk // payload)
    text += f", at {format_bytes(size)} "
    if turns == 1:
        # The size of a chunk may be a fraction: in whole bytes where it is none.
        each = f" of {format_bytes(int(chunk))}" if chunk.denominator == 1 else ""
        return f"{text}one turn with every chunk{each} whole"
    text += f"{turns} turns with {format_bytes(payload)} of every chunk each"
    return f"{text}, coarser than those segments" if turns < slices else text
