"""Random mutations of right files and programs, and what must be true of each.

A mutant that the checker accepts must execute right in every order that is tried; one that it
calls wrong must be seen to go wrong, wherever that can be seen at all.
"""

import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import patterns
from exhibit import exhibits
from right import RIGHT
from xml_edit import File

from weft.backends.check.checker import check_program
from weft.backends.check.findings import Finding, errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.execute.execute import run_program
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.formats.msccl.run import run_algo
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, Protocol, RankProgram, Slice
from weft.dsl.nouns.runtime import EXECUTOR, RCCL

# --- what is mutated ------------------------------------------------------------------------------


@cache
def programs() -> tuple[Program, ...]:
    """Compiled schedules of several families, placements, protocols, targets."""
    schedules = [
        patterns.ring_allgather(4, 1),
        patterns.ring_reduce_scatter(3, 1),
        patterns.ring_allreduce(3, 1),
        patterns.doubling_allgather(4, 1),
        patterns.doubling_allreduce(4, 1),
        patterns.halving_doubling_allreduce(4, 1),
        patterns.tree_broadcast(4, patterns.hub(4), 2),
        patterns.tree_reduce(4, patterns.hub(4), 2),
        patterns.trees_allreduce(3, patterns.full(3), 1),
        patterns.direct_alltoall(3, 1),
        patterns.one_shot(3, 1),
        patterns.random_allreduce(3, 2, 7),
        patterns.rotation(3),
        patterns.routed("gather", 3, patterns.both(patterns.ring(3)), 1),
    ]
    found = []
    for number, schedule in enumerate(schedules):
        options = CompileOptions(
            RCCL if number % 3 == 1 else EXECUTOR,
            instances=1 + number % 2,
            in_place=number % 2 == 0,
            protocol=list(Protocol)[number % 3],
        )
        found.append(lower_schedule(schedule, options))
        found.append(lower_schedule(schedule, replace(options, in_place=not options.in_place)))
    return tuple(found)


@cache
def texts() -> tuple[str, ...]:
    """XML files written by hand, and those of the compiled programs that have a name there."""
    found = list(RIGHT.values())
    for program in programs():
        try:
            found.append(emit(program, EXECUTOR))
        except UserError:
            continue
    return tuple(found)


# --- XML ------------------------------------------------------------------------------------------

_OFFSETS = ("srcoff", "dstoff")
_STEP = ("type", "srcbuf", "dstbuf", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")


def _set_step(file: File, dice: random.Random) -> None:
    step = _pick_step(file, dice)
    if step is None:
        return
    key = dice.choice(_STEP)
    value = step.get(key, "")
    match key:
        case "type":
            step.set(key, dice.choice([str(op) for op in Op]))
        case "srcbuf" | "dstbuf":
            step.set(key, dice.choice("ios"))
        case "hasdep":
            step.set(key, str(1 - int(value)))
        case _:
            step.set(key, str(int(value) + dice.choice([-2, -1, 1, 1, 2])))


def _pick_step(file: File, dice: random.Random) -> ElementTree.Element | None:
    steps = [step for gpu in file.root for tb in gpu for step in tb]
    return dice.choice(steps) if steps else None


def _pick_tb(file: File, dice: random.Random) -> ElementTree.Element:
    return dice.choice([tb for gpu in file.root for tb in gpu])


def _copy_attribute(file: File, dice: random.Random) -> None:
    """One step takes an attribute of another: mostly valid values."""
    one, other = _pick_step(file, dice), _pick_step(file, dice)
    if one is not None and other is not None:
        key = dice.choice(_STEP)
        one.set(key, other.get(key, ""))


def _swap_steps(file: File, dice: random.Random) -> None:
    tb = _pick_tb(file, dice)
    if len(tb) > 1:
        a, b = sorted(dice.sample(range(len(tb)), 2))
        one, other = dict(tb[a].attrib), dict(tb[b].attrib)
        tb[a].attrib.update(other | {"s": one["s"]})
        tb[b].attrib.update(one | {"s": other["s"]})


def _drop_step(file: File, dice: random.Random) -> None:
    tb = _pick_tb(file, dice)
    if len(tb):
        tb.remove(dice.choice(list(tb)))
        for number, step in enumerate(tb):
            step.set("s", str(number))


def _repeat_step(file: File, dice: random.Random) -> None:
    tb = _pick_tb(file, dice)
    if len(tb):
        at = dice.randrange(len(tb))
        tb.insert(dice.randint(0, len(tb)), ElementTree.Element("step", dict(tb[at].attrib)))
        for number, step in enumerate(tb):
            step.set("s", str(number))


def _drop_wait(file: File, dice: random.Random) -> None:
    waiting = [s for g in file.root for tb in g for s in tb if s.get("depid") != "-1"]
    if waiting:
        dice.choice(waiting).attrib.update(depid="-1", deps="-1")


def _set_tb(file: File, dice: random.Random) -> None:
    tb = _pick_tb(file, dice)
    key = dice.choice(["send", "recv", "chan", "id"])
    tb.set(key, str(int(tb.get(key, "0")) + dice.choice([-1, 1])))


def _set_head(file: File, dice: random.Random) -> None:
    root = file.root
    match dice.randrange(5):
        case 0:
            root.set("proto", dice.choice([str(p) for p in Protocol]))
        case 1:
            placed = dice.choice(["01", "10", "11"])
            root.attrib.update(inplace=placed[0], outofplace=placed[1])
        case 2:
            root.set("nchannels", str(int(root.get("nchannels", "1")) + dice.choice([-1, 1])))
        case 3:
            root.set("coll", dice.choice(["allreduce", "allgather", "alltoall", "broadcast"]))
        case _:
            gpu = dice.choice(list(root))
            key = dice.choice(["i_chunks", "o_chunks", "s_chunks"])
            gpu.set(key, str(int(gpu.get(key, "0")) + dice.choice([-1, 1])))


XML_EDITS: tuple[tuple[Callable[[File, random.Random], None], int], ...] = (
    (_set_step, 8),
    (_copy_attribute, 4),
    (_swap_steps, 4),
    (_drop_step, 1),
    (_repeat_step, 2),
    (_drop_wait, 3),
    (_set_tb, 2),
    (_set_head, 2),
)


def mutate_text(text: str, dice: random.Random) -> str:
    """One or two random edits."""
    file = File(text)
    edits, weights = zip(*XML_EDITS, strict=True)
    for edit in dice.choices(edits, weights, k=dice.choice([1, 1, 2])):
        edit(file, dice)
    return file.text()


# --- programs -------------------------------------------------------------------------------------


def _other_slice(part: Slice, dice: random.Random) -> Slice:
    if dice.random() < 0.3:
        return Slice(dice.choice(list(Buffer)), part.offset)
    return Slice(part.buffer, max(0, part.offset + dice.choice([-1, 1, 2])))


def _mutate_instr(instr: Instr, rank: RankProgram, dice: random.Random) -> Instr:
    def somewhere() -> tuple[int, int]:
        block = dice.randrange(len(rank.blocks))
        return block, dice.randrange(max(1, len(rank.blocks[block].code)))

    match dice.randrange(7):
        case 0:
            return replace(instr, op=dice.choice(list(Op)))
        case 1:
            return replace(instr, src=_other_slice(instr.src, dice))
        case 2:
            return replace(instr, dst=_other_slice(instr.dst, dice))
        case 3:
            return replace(instr, count=max(1, instr.count + dice.choice([-1, 1])))
        case 4 | 5 if instr.waits:
            gone = dice.choice(instr.waits)
            return replace(instr, waits=tuple(w for w in instr.waits if w != gone))
        case _:
            return replace(instr, waits=tuple(sorted({*instr.waits, somewhere()})))


def _mutate_block(block: Block, rank: RankProgram, ranks: int, dice: random.Random) -> Block:
    code = list(block.code)
    choice = dice.randrange(8)
    if not code or choice == 7:
        key = dice.choice(["send", "recv", "channel"])
        value = block.channel + 1 if key == "channel" else dice.choice([None, *range(ranks)])
        return replace(block, **{key: value})
    at = dice.randrange(len(code))
    if choice == 6:  # waits name positions, so nothing may shift: swapped in place
        other = dice.randrange(len(code))
        code[at], code[other] = code[other], code[at]
    elif choice == 5:
        code[at] = replace(code[at], op=Op.NOP)
    else:
        code[at] = _mutate_instr(code[at], rank, dice)
    return replace(block, code=tuple(code))


def mutate_program(program: Program, dice: random.Random) -> Program:
    """One or two random edits."""
    for _ in range(dice.choice([1, 1, 2])):
        if dice.random() < 0.05:
            other = dice.choice(list(Protocol))
            program = replace(program, protocol=other, in_place=dice.random() < 0.5)
            continue
        r = dice.randrange(len(program.ranks))
        rank = program.ranks[r]
        b = dice.randrange(len(rank.blocks))
        block = _mutate_block(rank.blocks[b], rank, len(program.ranks), dice)
        blocks = (*rank.blocks[:b], block, *rank.blocks[b + 1 :])
        ranks = (*program.ranks[:r], replace(rank, blocks=blocks), *program.ranks[r + 1 :])
        program = program.with_ranks(ranks)
    return program


# --- what must be true ----------------------------------------------------------------------------

PROVABLE = frozenset(
    {
        "result",
        "deadlock",
        "wait",
        "wait-nowhere",
        "message-number",
        "message-count",
        "offset-beyond",
        "shared",
        "peer-beyond",
    }
)
"""Kinds of errors that every execution shows."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: a word for the table, and whether checker and execution agree."""

    word: str
    agrees: bool
    detail: str = ""
    subject: object = None
    findings: tuple[Finding, ...] = ()


def judge_text(text: str, interleavings: int, seed: int) -> Verdict:
    """Check a file, and execute it if it is accepted, or if every execution must go wrong."""
    try:
        algo = read_msccl_xml(text, "mutant")
    except UserError:
        return Verdict("unreadable", True)

    def execute(number: int) -> tuple[bool, str]:
        done = run_algo(
            algo, dtypes=("int32",), elements_per_chunk=2, interleavings=number, seed=seed
        )
        return done.ok, done.detail

    return _judge(errors(check_xml(algo)), execute, interleavings, text)


def judge_program(program: Program, interleavings: int, seed: int) -> Verdict:
    """As :func:`judge_text`."""

    def execute(number: int) -> tuple[bool, str]:
        done = run_program(
            program, dtypes=("int32",), elements_per_chunk=2, interleavings=number, seed=seed
        )
        return done.ok, done.detail

    return _judge(errors(check_program(program)), execute, interleavings, program)


def _judge(
    wrong: tuple[Finding, ...],
    execute: Callable[[int], tuple[bool, str]],
    number: int,
    subject: object,
) -> Verdict:
    if not wrong:
        ok, detail = execute(number)
        return Verdict("right" if ok else "ACCEPTED AND WRONG", ok, detail, subject)
    kinds = {f.kind for f in wrong}
    if kinds & PROVABLE:
        try:
            ok, detail = execute(2)
        except UserError as error:
            ok, detail = False, error.message
        word = "FALSE ALARM" if ok else "wrong, seen"
        return Verdict(word, not ok, f"{wrong[0]} / {detail}", subject, wrong)
    if "race" in kinds:
        ok, detail = execute(min(number, 100))
        word, agrees = ("race, seen", True) if not ok else _unseen(subject)
        return Verdict(word, agrees, f"{wrong[0]} / {detail}", subject, wrong)
    return Verdict("refused", True, str(wrong[0]), subject, wrong)


def _unseen(subject: object) -> tuple[str, bool]:
    """A race that random orders did not show: force the racing pairs, or find them harmless."""
    shown = exhibits(subject)
    possible = all(s.possible == s.pairs for s in shown)
    if any(s.different for s in shown):
        return "race, seen in a forced order", possible
    if any(s.overlapping for s in shown):
        return "race, seen when both overlap", possible
    return "race of equal values", possible


def mutants(first: int, number: int, interleavings: int) -> Iterator[Verdict]:
    """Verdicts on mutants ``first …``, by turns of XML and of programs; each by its own seed."""
    for seed in range(first, first + number):
        dice = random.Random(seed)
        if seed % 2:
            yield judge_text(mutate_text(dice.choice(texts()), dice), interleavings, seed)
        else:
            mutant = mutate_program(dice.choice(programs()), dice)
            yield judge_program(mutant, interleavings, seed)
