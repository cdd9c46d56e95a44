"""Execute a code for all ranks on NumPy data, in many orders, and judge the result.

The reference for every runner. It compares each output chunk that the postcondition names, exactly,
and, out of place, the whole input; every message must be received, and no block may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import UserError
from weft.dsl.base.jit import worth_compiling
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Code, Program

from ..judge.events import Control, MessageShape, assemble
from . import kernel
from .interleave import POLICIES, Interleaving, Traces, explain, interleave, unread
from .layout import BufferLayout, Data, data, layout, number_type, poison, unfit
from .memory import BufferMemory, carried

MOST_PLAIN = 100_000
"""Operations and elements moved by a process: from then on compiled loops do it."""

MOST_SCRATCH = 32768 + 72
"""Chunks of scratch of a rank: offsets in files have 16 bits, what lies further none addresses."""

MOST_OPERATIONS = 20_000_000
"""A program with more operations in one run is refused."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Result of executing: ``ok``, one sentence, and how much was done."""

    ok: bool
    detail: str
    interleavings: int = 0
    operations: int = 0


def execute(
    code: Code,
    collective: Collective,
    *,
    in_place: bool = False,
    shape: MessageShape | None = None,
    dtypes: Sequence[str] = ("float32", "int32"),
    interleavings: int = 200,
    seed: int = 0,
    padded: int = 0,
    tell: Callable[[int], None] = lambda _: None,
) -> Execution:
    """Run a code in many orders and compare with the collective's postcondition.

    ``collective`` is in chunks of the code; ``padded`` as in :func:`layout`. Every order is
    run on every data type, unless one of the same trace was (see :class:`.Traces`). Stops at the
    first failure. ``tell`` is called with the number of every order, from 1.

    Raises:
        UserError: an unknown data type; in place makes no sense for this collective.
    """
    shape = shape or MessageShape()
    scratch = np.minimum(code.chunks[:, 2], MOST_SCRATCH)
    place = layout(collective, scratch, in_place=in_place, padded=padded)
    problem = unfit(code, place)
    if problem:
        return Execution(False, problem)
    if shape.iterations * int(np.maximum(code.count, 1).sum()) > MOST_OPERATIONS:
        return Execution(False, f"more than {MOST_OPERATIONS} operations are not executed")
    machine = assemble(code, shape)
    rng = np.random.default_rng(seed)
    values = [data(place, carried(number_type(name)), shape.elements, rng) for name in dtypes]
    memories = [BufferMemory(machine, place, v.before) for v in values]
    each = len(machine.operations) * (1 + sum(memory.elements for memory in memories))
    compiled = worth_compiling(kernel, interleavings * each, MOST_PLAIN)
    operations, traces = 0, Traces(machine, place)
    for number in range(interleavings):
        tell(number + 1)
        policy = POLICIES[number % len(POLICIES)]
        run = interleave(machine, policy, (seed << 20) + number, compiled=compiled)
        operations += len(run.order)
        detail = explain(machine, run) if run.stuck else unread(machine, run)
        if detail is None and traces.fresh(run.order):
            detail = _compare(machine, run, place, memories, values, compiled)
        if detail is not None:
            return Execution(
                False, f"{detail} (order {number}, {policy}; {shape})", number + 1, operations
            )
    return Execution(
        True, f"{interleavings} interleavings right; {shape}", interleavings, operations
    )


def _compare(
    machine: Control,
    run: Interleaving,
    place: BufferLayout,
    memories: list[BufferMemory],
    values: list[Data],
    compiled: bool,
) -> str | None:
    """Replay an order on the data of each type; what is wrong with the result, or None."""
    for memory, value in zip(memories, values, strict=True):
        memory.reset()
        memory.replay(run.order, compiled=compiled)
        found = memory.rows[value.rows]
        if not np.array_equal(found, value.expected):
            return _difference(place, value, found)
        if len(value.kept):
            bits = f"u{value.before.dtype.itemsize}"
            same = memory.rows[value.kept].view(bits) == value.before[value.kept].view(bits)
            if not same.all():
                row = int(value.kept[np.argmin(same.all(axis=1))])
                return f"{place.name(row)} was overwritten: the input must not change"
    return None


def _difference(place: BufferLayout, value: Data, found: AnyArray) -> str:
    wrong = found != value.expected
    row, element = (int(i) for i in np.argwhere(wrong)[0])
    got, want = found[row, element], value.expected[row, element]
    kind = value.before.dtype
    unwritten = np.isnan(got) if kind.kind == "f" else got == poison(kind)
    shown = "was never written, or from what was not" if unwritten else f"is {got}"
    return (
        f"{place.name(int(value.rows[row]))} element {element} {shown}; expected {want} "
        f"({int(wrong.any(axis=1).sum())} of {len(wrong)} chunks are wrong, {value.before.dtype})"
    )


def run_program(
    program: Program,
    *,
    elements_per_chunk: int = 5,
    dtypes: Sequence[str] = ("float32", "int32"),
    interleavings: int = 200,
    seed: int = 0,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a program in its placement; see :func:`run_all`."""
    pieces, rest = divmod(program.message_chunks, program.collective.message_chunks)
    if rest or not pieces:
        raise UserError(
            f"{program.message_chunks} chunks are no multiple of the collective's "
            f"{program.collective.message_chunks}",
            where=program.name,
        )
    return run_all(
        program,
        program.collective.split(pieces),
        (program.in_place,),
        elements_per_chunk,
        dtypes,
        interleavings,
        seed,
        0,
        tell=tell,
    )


def run_all(
    code: Code,
    collective: Collective,
    placements: Sequence[bool],
    elements: int,
    dtypes: Sequence[str],
    interleavings: int,
    seed: int,
    padded: int,
    least_merge: int = 1,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a code in some placements, on small, middle and large messages.

    The interleavings of a placement are divided among the ways in which a message can be cut: every
    chunk its own operation, several turns of the loop, and many chunks in one operation. A hang in
    a cut of fewer than ``least_merge`` chunks an operation does not count. ``tell`` is called with
    the current one.
    """
    if elements < 1 or interleavings < 1:
        raise UserError("at least one element per chunk and one interleaving are needed")
    runs = operations = 0
    unused = ""
    least_merge = min(least_merge, max(1, int(code.count.max(initial=1))))
    shapes = _shapes(code, elements, interleavings)
    total = len(placements) * sum(share for share, _ in shapes)
    for in_place in placements:
        for share, shape in shapes:
            result = execute(
                code,
                collective,
                in_place=in_place,
                shape=shape,
                dtypes=dtypes,
                interleavings=share,
                seed=seed,
                padded=padded,
                tell=partial(_counted, tell, runs, total),
            )
            runs, operations = runs + result.interleavings, operations + result.operations
            if shape.merge < least_merge and result.detail.startswith("deadlock"):
                unused = f"; hangs only above maxBytes, with {shape.merge} chunks per operation"
                continue
            if not result.ok:
                how = "in place" if in_place else "out of place"
                return Execution(False, f"{how}: {result.detail}", runs, operations)
    how = " and ".join("in place" if p else "out of place" for p in placements)
    detail = f"{how}, {runs} interleavings, {', '.join(dtypes)}: all results right{unused}"
    return Execution(True, detail, runs, operations)


def _counted(tell: ProgressCallback, before: int, total: int, number: int) -> None:
    tell(f"execute {before + number} of {total}")


def _shapes(code: Code, elements: int, interleavings: int) -> list[tuple[int, MessageShape]]:
    """Ways to cut the message, and how many of the interleavings each gets (at least one)."""
    shapes = [MessageShape(elements, elements, 1)]
    if elements > 1:
        shapes.append(MessageShape(elements, -(-elements // 3), 1))
    longest = int(code.count.max(initial=1))
    if longest > 1:
        shapes.append(MessageShape(elements, elements, longest))
    share = max(1, interleavings // len(shapes))
    first = max(1, interleavings - share * (len(shapes) - 1))
    return [(first if i == 0 else share, shape) for i, shape in enumerate(shapes)]
