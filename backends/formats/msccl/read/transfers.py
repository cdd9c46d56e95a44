"""Convert the steps of a thread block to transfers, as every runtime's parser does.

``nop`` steps hand their dependence to the next real step; consecutive ``re`` steps into one place
are fused; the flag a step publishes is a running counter, not its ``s``. The traps of that
become remarks.
"""

from __future__ import annotations

from typing import NamedTuple

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer, Op, Slice
from weft.dsl.nouns.runtime import FUSED_SOURCES, MAX_COUNT

from .elements import wrap
from .model import ALL, Remarks, XmlTransfer


class RawStep(NamedTuple):
    """The ten attributes of a ``<step>`` as 32-bit integers, and its place in the text."""

    s: int
    op: Op
    src: Buffer
    src_offset: int
    dst: Buffer
    dst_offset: int
    cnt: int
    depid: int
    deps: int
    hasdep: int
    place: tuple[int, int]


@dataclass(slots=True)
class _Draft:
    """A transfer that may still grow by fusion."""

    first: RawStep
    last: RawStep
    waits: tuple[tuple[int, int], ...]
    sources: list[int]


def transfers_of(steps: list[RawStep], remarks: Remarks) -> tuple[XmlTransfer, ...]:
    """Return the transfers of one thread block, with the flag values they publish."""
    drafts = _fuse(steps, remarks)
    done: list[XmlTransfer] = []
    counter = 0
    for draft in drafts:
        first, last = draft.first, draft.last
        counter += max(0, len(draft.waits) - 1) + len(draft.sources) - 1
        if counter != last.s:
            remarks.add(
                "the flag of a step is a running counter and differs from its s here: "
                "deps must refer to the counter",
                ALL,
                last.place,
            )
        done.append(
            XmlTransfer(
                first.op,
                first.s,
                Slice(first.src, draft.sources[0]),
                Slice(first.dst, wrap(first.dst_offset, 16)),
                last.cnt,
                draft.waits,
                counter,
                last.hasdep != 0,
                tuple(draft.sources[1:]),
            )
        )
        counter += 1
    return tuple(done)


def _fuse(steps: list[RawStep], remarks: Remarks) -> list[_Draft]:
    drafts: list[_Draft] = []
    pending: list[tuple[int, int]] = []
    chain: _Draft | None = None
    reductions = 0
    for step in steps:
        if step.depid >= 0:
            pending.append((wrap(step.depid, 8), wrap(step.deps, 16)))
        _remark(step, remarks)
        if step.op is Op.NOP:
            continue
        if chain is not None and _continues(step, chain):
            _grow(chain, step, pending, remarks)
        else:
            if pending and step.depid < 0:
                remarks.add(
                    "a nop's dependence, and the step after it has none of its own",
                    ALL,
                    step.place,
                    rejected=True,
                )
            chain = _Draft(step, step, tuple(pending), [wrap(step.src_offset, 16)])
            pending = []
            drafts.append(chain)
        if step.op is Op.REDUCE:
            reductions += 1
        if step.op is not Op.REDUCE or step.hasdep or reductions == FUSED_SOURCES:
            chain = None
    if pending:
        remarks.add("dependences of nops at the end of a tb are dropped", ALL, steps[-1].place)
    return drafts


def _continues(step: RawStep, chain: _Draft) -> bool:
    first = chain.first
    return (
        step.op is Op.REDUCE
        and step.depid == -1
        and step.src == first.src
        and step.dst == first.dst
        and step.dst_offset == wrap(first.dst_offset, 16)
    )


def _grow(chain: _Draft, step: RawStep, pending: list[tuple[int, int]], remarks: Remarks) -> None:
    if pending:
        remarks.add(
            "a nop between fused re steps: its dependence is waited for only after them",
            ALL,
            step.place,
        )
    if step.cnt != chain.last.cnt:
        remarks.add(
            "fused re steps with different cnt: the last one's is used for all", ALL, step.place
        )
    chain.sources.append(wrap(step.src_offset, 16))
    chain.last = step


def _remark(step: RawStep, remarks: Remarks) -> None:
    """Note oddities of one step by itself."""

    def note(message: str, runtimes: str = ALL, rejected: bool = False) -> None:
        remarks.add(message, runtimes, step.place, rejected=rejected)

    if step.s < 0:
        note("s is negative", rejected=True)
    if step.depid < -1:
        note(f"depid {step.depid} is read as none")
    if step.depid > 127:
        wrapped = wrap(step.depid, 8)
        before = ": reads before the flags" if wrapped < 0 else ""
        note(f"depid {step.depid} wraps to {wrapped}{before}")
    if step.depid >= 0 and step.deps < 0:
        note("deps is negative: any flag of that tb satisfies the dependence")
    if step.depid >= 0 and not -32768 <= step.deps < 32768:
        note(f"deps {step.deps} wraps to {wrap(step.deps, 16)}")
    if step.op is Op.NOP:
        if step.depid < 0:
            note("a nop without a dependence is not counted: later flags shift by one")
        if step.hasdep:
            note("hasdep on a nop is never published")
        return
    if step.hasdep not in (0, 1):
        note("hasdep must be 0 or 1", rejected=True)
    if not 0 <= step.cnt <= MAX_COUNT:
        note(f"cnt {step.cnt} is outside 0 … {MAX_COUNT}", rejected=True)
    if step.cnt == 0:
        note("cnt 0 moves nothing and writes index -1 of a table", "M")
    for offset in (step.src_offset, step.dst_offset):
        if wrap(offset, 16) != offset:
            note(f"offset {offset} wraps to {wrap(offset, 16)}")
