"""Random mutations: what the checker accepts runs right in any order, what it rejects goes wrong.

``make mutants`` does this for ten thousand mutants and a thousand orders each.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from exhibit import exhibits
from mutants import mutants, programs, texts
from xml_edit import File

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.dsl.nouns.program import Block, Instr, Program, Protocol, RankProgram, Slice


def test_a_sample_of_mutants() -> None:
    seen: Counter[str] = Counter()
    shown = []
    for verdict in mutants(1_000_000, 200, 100):
        assert verdict.agrees, f"{verdict.word}: {verdict.detail}\n{verdict.subject}"
        seen[verdict.word] += 1
        if verdict.word.startswith("race"):
            shown += exhibits(verdict.subject)
    # Enough of each: the checker neither accepts all nor rejects all.
    assert seen["right"] > 40
    assert seen["wrong, seen"] > 40
    assert sum(s.pairs for s in shown) > 8
    assert all(s.possible == s.pairs for s in shown), "an unordered pair that is ordered"
    # Two blocks that write the same value are called a race too.
    assert seen["race of equal values"] <= seen.total() // 100


# --- the other direction: what keeps the meaning is not rejected ------------------------------

Change = Callable[[Program, random.Random], Program]


def each_rank(change: Callable[[RankProgram, random.Random], RankProgram]) -> Change:
    return lambda p, dice: p.with_ranks([change(r, dice) for r in p.ranks])


def renumbered(rank: RankProgram, dice: random.Random) -> RankProgram:
    """The blocks in another order; waits follow."""
    order = dice.sample(range(len(rank.blocks)), len(rank.blocks))
    place = {old: new for new, old in enumerate(order)}

    def moved(i: Instr) -> Instr:
        return replace(i, waits=tuple((place[b], k) for b, k in i.waits))

    blocks = (replace(b, code=tuple(map(moved, b.code))) for b in (rank.blocks[o] for o in order))
    return replace(rank, blocks=tuple(blocks))


def more_waits(rank: RankProgram, _: random.Random) -> RankProgram:
    """Waits that are implied: for what those waited for waited for, and for the own past."""

    def waits(b: int, at: int, i: Instr) -> tuple[tuple[int, int], ...]:
        far = {w for x, k in i.waits for w in rank.blocks[x].code[k].waits}
        before = {(x, k - 1) for x, k in i.waits if k} | ({(b, at - 1)} if at else set())
        return tuple(sorted({*i.waits, *far, *before}))

    return replace(
        rank,
        blocks=tuple(
            replace(
                block,
                code=tuple(replace(i, waits=waits(b, at, i)) for at, i in enumerate(block.code)),
            )
            for b, block in enumerate(rank.blocks)
        ),
    )


def split(rank: RankProgram, _: random.Random) -> RankProgram:
    """Every instruction of many chunks as many of one."""
    last = [
        [sum(max(1, i.count) for i in b.code[: k + 1]) - 1 for k in range(len(b.code))]
        for b in rank.blocks
    ]

    def pieces(i: Instr) -> tuple[Instr, ...]:
        waits = tuple((b, last[b][k]) for b, k in i.waits)
        return tuple(
            Instr(
                i.op,
                Slice(i.src.buffer, i.src.offset + k),
                Slice(i.dst.buffer, i.dst.offset + k),
                min(1, i.count),
                waits if not k else (),
            )
            for k in range(max(1, i.count))
        )

    return replace(
        rank,
        blocks=tuple(
            replace(b, code=tuple(piece for i in b.code for piece in pieces(i)))
            for b in rank.blocks
        ),
    )


def other_channels(p: Program, dice: random.Random) -> Program:
    """Channels renamed, the same way on all ranks."""
    names = dice.sample(range(p.channels), p.channels)

    def renamed(b: Block) -> Block:
        return replace(b, channel=names[b.channel])

    return p.with_ranks([replace(r, blocks=tuple(map(renamed, r))) for r in p.ranks])


def moved_scratch(rank: RankProgram, _: random.Random) -> RankProgram:
    """Scratch turned around, and more of it than needed."""
    size = rank.scratch_chunks

    def at(part: Slice) -> Slice:
        return Slice(part.buffer, part.offset + 3) if part.buffer.value == "s" else part

    def moved(i: Instr) -> Instr:
        return replace(i, src=at(i.src), dst=at(i.dst))

    blocks = tuple(replace(b, code=tuple(map(moved, b.code))) for b in rank.blocks)
    return replace(rank, blocks=blocks, scratch_chunks=size + 7)


def swapped(rank: RankProgram, dice: random.Random) -> RankProgram:
    """Neighbours that neither wait nor are waited for, nor move messages or touch one slot."""
    named = {w for b in rank for i in b.code for w in i.waits}

    def free(b: int, k: int) -> bool:
        i = rank.blocks[b].code[k]
        return not (i.waits or i.op.sends or i.op.receives or (b, k) in named)

    blocks = []
    for b, block in enumerate(rank.blocks):
        code, k = list(block.code), 0
        while k + 1 < len(code):
            apart = code[k].dst != code[k + 1].dst and code[k].dst != code[k + 1].src
            if free(b, k) and free(b, k + 1) and apart and code[k + 1].dst != code[k].src:
                code[k], code[k + 1] = code[k + 1], code[k]
                k += 1
            k += 1
        blocks.append(replace(block, code=tuple(code)))
    return replace(rank, blocks=tuple(blocks))


HARMLESS: dict[str, Change] = {
    "blocks renumbered": each_rank(renumbered),
    "more waits": each_rank(more_waits),
    "counts split": each_rank(split),
    "other channels": other_channels,
    "scratch moved": each_rank(moved_scratch),
    "neighbours swapped": each_rank(lambda r, dice: swapped(split(r, dice), dice)),
    "deeper FIFOs": lambda p, _: replace(p, protocol=Protocol.LL),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_keeps_the_meaning_is_accepted(name: str) -> None:
    changed = 0
    for number, program in enumerate(programs()):
        assert errors(check_program(program)) == ()
        other = HARMLESS[name](program, random.Random(number))
        changed += other != program
        assert errors(check_program(other)) == (), name
    assert changed >= 4


def test_files_whose_form_changes_are_accepted() -> None:
    """Blocks in another order in the document, flags that nobody needs, more scratch."""
    dice = random.Random(3)
    for text in texts():
        file = File(text)
        for gpu in file.root:
            blocks = dice.sample(list(gpu), len(gpu))
            gpu[:] = blocks
            gpu.set("s_chunks", str(int(gpu.get("s_chunks", "0")) + 5))
            for step in gpu.iter("step"):
                if step.get("type") != "nop":
                    step.set("hasdep", "1")
        changed = file.text()
        assert changed != text
        assert errors(check_xml(read_msccl_xml(changed))) == ()


def test_of_two_writers_one_must_be_last() -> None:
    """Known and kept: two blocks that write the same value unordered are called a race."""
    program = programs()[0]
    rank = program.ranks[0]
    again = Block(
        0,
        None,
        None,
        tuple(replace(i, waits=()) for i in rank.blocks[0].code if i.op.value == "cpy"),
    )
    if again.code:
        both = replace(rank, blocks=(*rank.blocks, again))
        found = errors(check_program(program.with_ranks((both, *program.ranks[1:]))))
        assert {f.check for f in found} == {"races"}
