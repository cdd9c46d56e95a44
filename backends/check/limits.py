"""Limits of a runtime: steps, thread blocks, channels, counts, fused reductions, unknown ops."""

from __future__ import annotations

from functools import partial

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import NOP, OPS, READS_SRC, REDUCE, WRITES_DST, Code, Protocol
from weft.dsl.nouns.runtime import Target

from .findings import Finding, Severity, at_blocks, at_transfers


@dataclass(frozen=True)
class Steps:
    """Step counts that limits are about: one entry per block of the code.

    ``number`` of steps with nops, the ``largest`` s, ``waits`` in all.
    """

    number: Ints
    largest: Ints
    waits: Ints


def steps_of_listing(code: Code) -> Steps:
    """As a file would have them: one nop for each wait of an instruction after the first."""
    waits = np.diff(code.wait_start)
    steps = np.where(code.op == NOP, waits, np.maximum(waits, 1))
    total = np.concatenate([[0], np.cumsum(steps)])[code.block_start]
    all_waits = code.wait_start[code.block_start]
    return Steps(np.diff(total), np.diff(total) - 1, np.diff(all_waits))


def limits(code: Code, steps: Steps, target: Target) -> list[Finding]:
    """Everything that this runtime's size limits and instruction set forbid."""
    return [
        *_steps(code, steps, target),
        *_blocks(code, steps, target),
        *_channels(code, target),
        *_instructions(code, target),
    ]


def _steps(code: Code, steps: Steps, target: Target) -> list[Finding]:
    longest = np.maximum(steps.number, steps.largest + 1)
    refused = steps.largest >= target.max_steps
    # The parsers test the number that a step bears, not how many there are.
    repeated = (steps.number > target.max_steps) & ~refused
    found = []
    for which, kind in ((refused, "refused"), (repeated, "steps-overflow")):
        bad = np.flatnonzero(which)
        found += at_blocks(
            "limits",
            code,
            bad,
            partial(_too_many_steps, longest[bad], target),
            kind=kind,
        )
    nodes = np.bincount(code.block_rank, steps.number + 1, code.rank_count) + 1 + code.rank_count
    for rank in np.flatnonzero(nodes > target.max_nodes)[:3].tolist():
        text = f"{int(nodes[rank])} elements are read on this rank, more than {target.max_nodes}"
        found.append(Finding("limits", Severity.ERROR, text, rank, kind="refused"))
    crowded = np.flatnonzero(steps.number > target.max_children)
    text = f"more than {target.max_children} steps in a tb crash the parsers"
    return found + at_blocks("limits", code, crowded, text, kind="crashes")


def _too_many_steps(longest: Ints, target: Target, k: int) -> str:
    return f"{longest[k]} steps; {target.name} has at most {target.max_steps}"


def _blocks(code: Code, steps: Steps, target: Target) -> list[Finding]:
    found = []
    number = np.bincount(code.block_rank, minlength=code.rank_count)
    for rank in np.flatnonzero(number > min(target.max_blocks, target.max_children))[:3].tolist():
        text = f"{number[rank]} thread blocks; {target.name} has at most {target.max_blocks}"
        found.append(Finding("limits", Severity.ERROR, text, rank, kind="refused"))
    if code.rank_count > target.max_children:
        text = f"more than {target.max_children} ranks in a file crash the parsers"
        found.append(Finding("limits", Severity.ERROR, text, kind="crashes"))
    for rank in np.flatnonzero(number == 0)[:3].tolist():
        text = "no thread block: its kernel is not launched"
        found.append(Finding("limits", Severity.ERROR, text, rank, kind="no-blocks"))
    return found


def _channels(code: Code, target: Target) -> list[Finding]:
    found = []
    if not 1 <= code.channels <= target.max_channels:
        text = f"nchannels is {code.channels}; {target.name} has 1 … {target.max_channels}"
        found.append(Finding("limits", Severity.ERROR, text, kind="channels"))
    channel = code.block_channel
    bad = np.flatnonzero((channel < 0) | (channel >= code.channels))
    found += at_blocks(
        "limits",
        code,
        bad,
        lambda k: (
            f"channel {channel[bad[k]]} is not below nchannels {code.channels}: "
            "it is never connected"
        ),
        kind="unconnected",
    )
    for peer, verb in ((code.block_send, "send"), (code.block_recv, "receive")):
        used = peer >= 0
        keys, counts = np.unique(
            np.stack([code.block_rank[used], channel[used]]), axis=1, return_counts=True
        )
        for k in np.flatnonzero(counts > target.max_peers)[:3].tolist():
            text = (
                f"{counts[k]} blocks {verb} on channel {keys[1, k]}, more than {target.max_peers}"
            )
            found.append(Finding("limits", Severity.ERROR, text, int(keys[0, k]), kind="refused"))
    return found


def _instructions(code: Code, target: Target) -> list[Finding]:
    name = target.name
    found: list[Finding] = []
    for op in sorted(set(OPS) - target.ops):
        refused = np.flatnonzero(code.op == OPS.index(op))
        text = f"{name} refuses {op} at launch ({len(refused)} steps)"
        found += at_transfers("limits", code, refused[:1], text, kind="launch")
    count = code.count
    odd = np.flatnonzero((code.op != NOP) & ((count < 0) | (count > target.max_count)))
    found += at_transfers(
        "limits",
        code,
        odd,
        lambda k: f"cnt {count[odd[k]]} is outside 0 … {target.max_count}",
        kind="refused",
    )
    far = (READS_SRC[code.op] & (code.src_offset > target.max_offset)) | (
        WRITES_DST[code.op] & (code.dst_offset > target.max_offset)
    )
    found += at_transfers(
        "limits",
        code,
        np.flatnonzero(far),
        f"an offset is above {target.max_offset}",
        kind="offset-wraps",
    )
    return found + _waits(code, target) + _fusions(code, target)


def _waits(code: Code, target: Target) -> list[Finding]:
    """Thread blocks that waits can name: an 8-bit number."""
    owner = np.repeat(np.arange(code.instructions), np.diff(code.wait_start))
    there = code.wait_block >= 0
    number = code.block_id[code.wait_block[there]]
    largest = target.max_dependence
    far = np.flatnonzero(number > largest)
    return at_transfers(
        "limits",
        code,
        owner[there][far],
        lambda k: f"waits for tb {number[far[k]]}; depid reaches {largest}",
        kind="wait-nowhere",
    )


def _fusions(code: Code, target: Target) -> list[Finding]:
    if not target.fused_sources:
        return []
    most = target.fused_sources - (code.protocol is Protocol.SIMPLE)
    sources = 1 + np.diff(code.more_start)
    bad = np.flatnonzero((code.op == REDUCE) & (sources > most))
    return at_transfers(
        "limits",
        code,
        bad,
        lambda k: (
            f"{sources[bad[k]]} fused re under {code.protocol}; {target.name} computes "
            f"at most {most} right"
        ),
        kind="fused",
    )
