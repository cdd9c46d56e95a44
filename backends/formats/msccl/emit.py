"""Program to MSCCL XML, in the one form that all known parsers read.

One tag per line, space indentation, double quotes, one space between attributes, decimal integers,
no declaration: the runtimes' reader is hand-written and rejects or misreads much of what XML
allows. Every attribute is present. Beyond the syntax, what the readers do *not* check but break on
is refused here: offsets of 16 bits, counts, block numbers, elements per rank.

>>> from weft.dsl.nouns.collective import make
>>> from weft.dsl.nouns.program import Block, Program, RankProgram
>>> from weft.dsl.nouns.runtime import MSCCL
>>> idle = RankProgram((Block(0, None, None, ()),), 1, 1, 0)
>>> print(emit(Program.of("idle", make("allgather", 1), (idle,), 1), MSCCL, max_bytes=1024), end="")
<algo name="idle" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="1" coll="allgather" \
inplace="0" outofplace="1" minBytes="0" maxBytes="1024">
  <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="-1" recv="-1" chan="0">
    </tb>
  </gpu>
</algo>
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import UserError, require_type
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.program import (
    ABSENT,
    NOP,
    OPS,
    SENDS,
    Block,
    Instr,
    Op,
    Program,
    Protocol,
    RankProgram,
    offsets,
)
from weft.dsl.nouns.runtime import MSCCL, PORTABLE, Target
from weft.dsl.nouns.runtime import target as target_of


@dataclass(frozen=True, slots=True)
class XmlLimits:
    """Sizes of the files that are written."""

    message_bytes: int = 1 << 30  # largest message of a file for which no size is given
    name_characters: int = 63  # of the algorithm


LIMITS = XmlLimits()


FEWER_PEERS = "fewer peers need fewer blocks: `weft synth -e 'packing{peers=32}'`"


def emit(
    program: Program,
    target: Target | str,
    *,
    name: str | None = None,
    min_bytes: int = 0,
    max_bytes: int = LIMITS.message_bytes,
) -> str:
    """Return the text of the file for messages of ``min_bytes`` to ``max_bytes``.

    MSCCL takes messages *below* ``max_bytes`` and allocates scratch for that size at start-up; the
    other runtimes include the bound.

    Raises:
        UserError: the program does not fit the target, in words; a size range that is empty; a
            name that the format cannot hold.
    """
    require_type(program, Program, "the program to write", "weft.compile(schedule) makes one")
    target = target_of(target)
    label = program.name if name is None else name
    _check_header(program, target, label, min_bytes, max_bytes)
    _require_sizes(program, target)
    lines = [_algo(program, target, label, min_bytes, max_bytes)]
    texts: _Texts = {}
    for rank, code in enumerate(program.ranks):
        lines += _gpu(program, target, rank, code, texts)
    lines.append("</algo>\n")
    return "\n".join(lines)


def require_fit(program: Program, target: Target) -> None:
    """Check all that :func:`emit` checks, without making the text.

    Raises:
        UserError: as ``emit``.
    """
    _check_header(program, target, program.name, 0, LIMITS.message_bytes)
    collective_name(program.collective.kind, target)
    if _counts_fit(program, target):
        return
    _require_sizes(program, target)
    texts: _Texts = {}
    for rank, code in enumerate(program.ranks):
        _check_rank(program, target, rank, _low_targets_first(code, target), texts)


def _counts_fit(program: Program, target: Target) -> bool:
    """Return True if no rank of a program can exceed a limit of the target, by its columns.

    False says only that :func:`_require_sizes` and :func:`_check_rank` must look: they name what is
    wrong.
    """
    blocks, steps, nodes = _sizes(program)
    last = np.maximum(program.src_offset, program.dst_offset) + program.count - 1
    executed = np.array([op in target.ops for op in OPS])[program.op]
    pairs = (
        (blocks, target.max_blocks),
        (steps, target.max_steps),
        (nodes, target.max_nodes),
        (program.count, target.max_count),
        (last, target.max_offset),
    )
    if any(int(values.max(initial=0)) > most for values, most in pairs):
        return False
    if not _waits_fit(program, target):
        return False
    if not executed.all() or (program.count[program.op != NOP] < 1).any():
        return False
    publishes = target.send_publishes or program.protocol is Protocol.SIMPLE
    return publishes or not SENDS[program.op[program.wait]].any()


def _waits_fit(program: Program, target: Target) -> bool:
    """Return True if waits can name their blocks, once those have the low numbers of their rank
    (:func:`_low_targets_first`)."""
    if int(program.wait_id.max(initial=0)) <= target.max_dependence:
        return True
    named = distinct_values(program.wait_block)
    if named[0] == ABSENT:
        return False
    return int(np.bincount(program.block_rank[named]).max()) <= target.max_dependence + 1


def _sizes(program: Program) -> tuple[Ints, Ints, Ints]:
    """Return the blocks of each rank, the steps of each block, and the XML elements of each
    rank."""
    waits = np.diff(program.wait_start)
    steps = np.diff(offsets(np.maximum(waits, 1))[program.block_start])
    blocks = np.diff(program.first_block)
    nodes = 1 + program.rank_count + blocks
    nodes += np.bincount(program.block_rank, steps, program.rank_count).astype(np.int64)
    return blocks, steps, nodes


def _require_sizes(program: Program, target: Target) -> None:
    """Check the sizes of ranks that the columns of a program show.

    Raises:
        UserError: a rank is too large.
    """
    blocks, steps, nodes = _sizes(program)
    large = (blocks > target.max_blocks) | (nodes > target.max_nodes)
    large[program.block_rank[steps > target.max_steps]] = True
    hint = "more lanes or fewer chunks and instances make it smaller"
    for rank in np.flatnonzero(large).tolist():
        where, first = f"on rank {rank}", int(program.first_block[rank])
        _at_most(
            int(blocks[rank]), target.max_blocks, f"thread blocks {where}", target, FEWER_PEERS
        )
        for index, count in enumerate(steps[first : first + int(blocks[rank])].tolist()):
            _at_most(count, target.max_steps, f"steps in block {index} {where}", target, hint)
        _at_most(int(nodes[rank]), target.max_nodes, f"XML elements {where}", target, hint)


def _algo(program: Program, target: Target, label: str, least: int, most: int) -> str:
    coll = collective_name(program.collective.kind, target)
    return (
        f'<algo name="{label}" proto="{program.protocol}" nchannels="{program.channels}" '
        f'nchunksperloop="{program.message_chunks}" ngpus="{program.rank_count}" '
        f'coll="{coll}" inplace="{int(program.in_place)}" '
        f'outofplace="{int(not program.in_place)}" minBytes="{least}" maxBytes="{most}">'
    )


def collective_name(kind: Kind, target: Target) -> str:
    """Return the collective as the target spells it.

    Raises:
        UserError: it knows neither it nor collectives of the user's own.
    """
    spelled = target.collectives.get(kind, target.fallback)
    if spelled is None:
        known = ", ".join(sorted(map(str, target.collectives)))
        if target is PORTABLE and kind is Kind.REDUCE_SCATTER:
            raise UserError(
                "no one file holds a reduce_scatter for every runtime: msccl spells it "
                "reduce_scatter, rccl and executor reducescatter",
                hint="write two files, with --target msccl and --target rccl",
            )
        raise UserError(
            f"expected a collective of {target.name}, got {kind}",
            hint=f"it knows {known}; --to msccl-xml with target msccl writes a custom one",
        )
    return spelled


def _check_header(program: Program, target: Target, label: str, least: int, most: int) -> None:
    if not re.fullmatch(r"[^\x00-\x1f\"'<>&=]+", label) or len(label) > LIMITS.name_characters:
        raise UserError(
            f"{label!r} cannot be the name in an MSCCL file",
            hint=f"1 to {LIMITS.name_characters} characters, without quotes, <, >, & and =",
        )
    first_beyond = most if target.max_bytes_excluded else most + 1
    if not 0 <= least < first_beyond or most >= 1 << 63:
        raise UserError(
            f"no message has {least} to {most} bytes", hint="sizes are positive, least < most"
        )
    refuses = target in (MSCCL, PORTABLE)
    if refuses and program.in_place and program.collective.kind is Kind.ALLTOALL:
        raise UserError(
            "microsoft/msccl refuses alltoall in place",
            hint="compile it out of place, or for --target executor or rccl",
        )
    _at_most(program.rank_count, target.max_children, "ranks", target)
    _at_most(program.channels, target.used_channels, "channels", target)


def _at_most(value: int, limit: int, what: str, target: Target, hint: str = "") -> None:
    if value > limit:
        raise UserError(f"the program needs {value} {what}; {target.name} takes {limit}", hint=hint)


_Texts = dict[int, tuple[Instr, str]]
"""Texts of checked instructions, by identity (equal instructions are often one object)."""


def _gpu(
    program: Program, target: Target, rank: int, code: RankProgram, texts: _Texts
) -> Iterator[str]:
    code = _low_targets_first(code, target)
    _check_rank(program, target, rank, code, texts)
    inputs, outputs = code.input_chunks, code.output_chunks
    if program.collective.kind not in target.collectives:  # MSCCL wants a custom one's to be equal
        inputs = outputs = program.message_chunks
    published = {
        wait for block in code for instr in block.code if instr.waits for wait in instr.waits
    }
    numbers = [_step_numbers(block) for block in code]
    yield (
        f'  <gpu id="{rank}" i_chunks="{inputs}" o_chunks="{outputs}" '
        f's_chunks="{code.scratch_chunks}">'
    )
    for index, block in enumerate(code):
        send, recv = (-1 if peer is None else peer for peer in (block.send, block.recv))
        yield f'    <tb id="{index}" send="{send}" recv="{recv}" chan="{block.channel}">'
        flags = _flags(index, block, published, target)
        for instr, flag, number in zip(block.code, flags, numbers[index], strict=True):
            if instr.waits:
                waits = [(b, numbers[b][i]) for b, i in instr.waits]
                yield from _nops(number, waits)
                needed, step = waits[-1]
            else:
                needed = step = -1
            yield (
                f'      <step s="{number}" {texts[id(instr)][1]} depid="{needed}" deps="{step}" '
                f'hasdep="{flag:d}"/>'
            )
        yield "    </tb>"
    yield "  </gpu>"


def _nops(number: int, waits: list[tuple[int, int]]) -> Iterator[str]:
    """Nops for all dependences of an instruction but the last."""
    for s, (block, step) in enumerate(waits[:-1], number - len(waits) + 1):
        yield (
            f'      <step s="{s}" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" '
            f'depid="{block}" deps="{step}" hasdep="0"/>'
        )


def _step_numbers(block: Block) -> list[int]:
    """Return the number of each instruction: nops before it count, as the runtimes count them."""
    numbers, step = [], 0
    for instr in block.code:
        if instr.waits:
            step += len(instr.waits) - 1
        numbers.append(step)
        step += 1
    return numbers


def _flags(index: int, block: Block, published: set[tuple[int, int]], target: Target) -> list[bool]:
    """Return ``hasdep`` of each instruction: some wait names it, or a chain of ``re`` must end.

    The runtimes merge consecutive ``re`` of one destination and source buffer, up to the next
    dependence or flag, take the last count for all, and lose data beyond 15.
    """
    if not any(instr.op is Op.REDUCE for instr in block.code):
        return [(index, at) in published for at in range(len(block.code))]
    flags, chain = [], 0
    for at, instr in enumerate(block.code):
        flag = (index, at) in published
        chain = chain + 1 if instr.op is Op.REDUCE and not instr.waits and chain else 1
        if instr.op is Op.REDUCE and at + 1 < len(block.code):
            after = block.code[at + 1]
            if after.op is Op.REDUCE and not after.waits:
                flag = flag or chain >= target.max_fused_reduces or after.count != instr.count
        if flag or instr.op is not Op.REDUCE:
            chain = 0
        flags.append(flag)
    return flags


def _low_targets_first(code: RankProgram, target: Target) -> RankProgram:
    """Renumber so that blocks that waits name have the low numbers, if any is out of reach."""
    named = {b for block in code for instr in block.code if instr.waits for b, _ in instr.waits}
    if not named or max(named) <= target.max_dependence:
        return code
    order = sorted(range(len(code.blocks)), key=lambda b: (b not in named, b))
    place = {old: new for new, old in enumerate(order)}
    blocks = (code.blocks[old] for old in order)

    # Equal instructions are often one object, and stay one.
    known: dict[int, Instr] = {}

    def moved(instr: Instr) -> Instr:
        if not instr.waits:
            return instr
        done = known.get(id(instr))
        if done is None:
            waits = tuple(sorted((place[b], i) for b, i in instr.waits))
            done = Instr(instr.op, instr.src, instr.dst, instr.count, waits)
            known[id(instr)] = done
        return done

    return RankProgram(
        tuple(Block(b.channel, b.send, b.recv, tuple(map(moved, b.code))) for b in blocks),
        code.input_chunks,
        code.output_chunks,
        code.scratch_chunks,
    )


def _check_rank(
    program: Program, target: Target, rank: int, code: RankProgram, texts: _Texts
) -> None:
    """Check that the runtime executes and can number all steps; sizes: :func:`_require_sizes`."""
    where = f"on rank {rank}"
    waited = max(
        (b for block in code for i in block.code if i.waits for b, _ in i.waits), default=0
    )
    waiting = f"as the number of a block waited for {where}"
    _at_most(waited, target.max_dependence, waiting, target, FEWER_PEERS)
    for block in code:
        for instr in block.code:
            if id(instr) not in texts:
                _check_instr(target, where, instr)
                src, dst = instr.src, instr.dst
                texts[id(instr)] = (  # with the part of its text that does not depend on its place
                    instr,
                    f'type="{instr.op.value}" srcbuf="{src.buffer.value}" srcoff="{src.offset}" '
                    f'dstbuf="{dst.buffer.value}" dstoff="{dst.offset}" cnt="{instr.count}"',
                )
    if not target.send_publishes and program.protocol is not Protocol.SIMPLE:
        _refuse_late_sends(program, target, where, code)


def _check_instr(target: Target, where: str, instr: Instr) -> None:
    if instr.op not in target.ops:
        raise UserError(
            f"{target.name} does not execute {instr.op.value} (it is there {where})",
            hint=f"compile for the target {target.name}",
        )
    if instr.count < 1 and instr.op is not Op.NOP:
        raise UserError(f"{instr.op.value} moves {instr.count} chunks {where}")
    _at_most(instr.count, target.max_count, f"chunks in one step {where}", target)
    last = max(instr.src.offset, instr.dst.offset) + instr.count - 1
    _at_most(last, target.max_offset, f"as a chunk offset {where}", target)


def _refuse_late_sends(program: Program, target: Target, where: str, code: RankProgram) -> None:
    """There the flag after an LL send can be seen before the send has read its source."""
    for block in code:
        for instr in block.code:
            if any(code.blocks[b].code[i].op.sends for b, i in instr.waits):
                raise UserError(
                    f"{instr.op.value} overwrites {where} what another block sends, which "
                    f"{target.name} does not order under {program.protocol}",
                    hint="the pass fence mends it, as does the protocol Simple",
                )
