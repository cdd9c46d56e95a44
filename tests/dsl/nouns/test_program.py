"""A program: its columns against slow ones, its views; the file form, with refusals in words."""

import copy
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import BadFile, CheckFailed, UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import (
    Block,
    Buffer,
    Instr,
    Op,
    Program,
    Protocol,
    RankProgram,
    Slice,
    dump,
    load,
)


def slow_columns(ranks: Sequence[RankProgram]) -> dict[str, list[int]]:
    """What :class:`weft.dsl.nouns.program.Program` holds and derives, by name, from views alone.

    Offsets count through all ranks; a wait for what is not there has row -1.
    """
    found: dict[str, list[int]] = defaultdict(list)
    blocks = [(r, b) for r, rank in enumerate(ranks) for b in range(len(rank.blocks))]
    rows = [(r, b, i) for r, b in blocks for i in range(len(ranks[r].blocks[b].code))]
    for r, rank in enumerate(ranks):
        found["chunks"] += [rank.input_chunks, rank.output_chunks, rank.scratch_chunks]
        found["first_block"].append(_begin(blocks, (r, 0)))
    found["first_block"].append(len(blocks))
    for r, b in blocks:
        block = ranks[r].blocks[b]
        found["block_rank"].append(r)
        found["block_index"].append(b)
        found["block_channel"].append(block.channel)
        found["block_send"].append(-1 if block.send is None else block.send)
        found["block_recv"].append(-1 if block.recv is None else block.recv)
        found["block_start"].append(_begin(rows, (r, b)))
        found["lengths"].append(len(block.code))
    found["block_start"].append(len(rows))
    for at, (r, b, i) in enumerate(rows):
        x = ranks[r].blocks[b].code[i]
        found["rank"].append(r)
        found["block"].append(blocks.index((r, b)))
        found["index"].append(i)
        found["op"].append("s r rcs rrs rrc rrcs cpy re nop".split().index(x.op))
        for side, part in (("src", x.src), ("dst", x.dst)):
            found[f"{side}_buffer"].append("ios".index(part.buffer))
            found[f"{side}_offset"].append(part.offset)
        found["count"].append(x.count)
        found["wait_start"].append(len(found["wait_id"]))
        for block, index in x.waits:
            found["waiting"].append(at)
            found["wait_id"].append(block)
            found["wait_flag"].append(index)
            named = (r, block)
            found["wait_block"].append(blocks.index(named) if named in blocks else -1)
            there = (r, block, index)
            found["wait"].append(rows.index(there) if there in rows else -1)
    found["wait_start"].append(len(found["wait_id"]))
    return found


def _begin(places: list[tuple[int, ...]], least: tuple[int, ...]) -> int:
    """The number of places before ``least``; places ascend."""
    return sum(place < least for place in places)


def pair() -> Program:
    def at(buffer: Buffer, offset: int) -> Slice:
        return Slice(buffer, offset)

    def rank(me: int) -> RankProgram:
        other = 1 - me
        both = (
            Instr(Op.SEND, at(Buffer.INPUT, 0), at(Buffer.OUTPUT, me)),
            Instr(Op.RECV, at(Buffer.INPUT, 0), at(Buffer.OUTPUT, other), 1, ((1, 0),)),
        )
        own = (Instr(Op.COPY, at(Buffer.INPUT, 0), at(Buffer.OUTPUT, me)),)
        blocks = (Block(3, other, other, both), Block(0, None, None, own))
        return RankProgram(blocks, 1, 2, 4)

    return Program.of("pair", make("allgather", 2), (rank(0), rank(1)), 2, True, Protocol.LL128)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[RankProgram, ...]:
    """Ranks with any code at all, waits for what is not there included."""
    number = st.integers(0, 3)
    slices = st.builds(Slice, st.sampled_from(Buffer), number)
    waits = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=2).map(tuple)
    instr = st.builds(Instr, st.sampled_from(Op), slices, slices, number, waits)
    peers = st.none() | number
    block = st.builds(Block, number, peers, peers, st.lists(instr, max_size=4).map(tuple))
    rank = st.builds(RankProgram, st.lists(block, max_size=3).map(tuple), number, number, number)
    return tuple(draw(st.lists(rank, min_size=1, max_size=3)))


@settings(max_examples=examples(20))
@given(drawn())
def test_columns_are_those_of_the_slow_constructor(ranks: tuple[RankProgram, ...]) -> None:
    made = Program.of("drawn", make("allgather", len(ranks)), ranks, len(ranks))
    slow = slow_columns(ranks)
    missing = -1 in slow["wait"]
    for name, column in slow.items():
        if name == "wait" and missing:
            with pytest.raises(CheckFailed, match="which does not exist"):
                _ = made.wait
        else:
            assert getattr(made, name).reshape(-1).tolist() == column, name
    assert np.array_equal(made.publishes, made.index)
    assert np.array_equal(made.label, made.index)
    assert np.array_equal(made.block_id, made.block_index)
    assert made.ranks == ranks
    assert made.channels == 1 + max((b.channel for rank in ranks for b in rank), default=0)


@settings(max_examples=examples(20))
@given(drawn())
def test_views_rows_and_files_are_the_same_program(ranks: tuple[RankProgram, ...]) -> None:
    made = Program.of("drawn", make("allgather", len(ranks)), ranks, len(ranks), True)
    assert made.with_ranks(made.ranks) == made
    if all(min(w) >= 0 for x in made.instrs for w in x.waits):
        assert load(json.loads(json.dumps(dump(made)))) == made
    rows = np.arange(made.instructions)
    kept = made.take(rows, made.lengths)
    assert kept.instrs == [Instr(x.op, x.src, x.dst, x.count) for x in made.instrs]
    if -1 not in slow_columns(ranks)["wait"]:
        assert kept.with_waits(made.waiting, made.wait) == made


def test_columns_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        pair().op[0] = 1


def test_equal_instructions_are_one_object() -> None:
    code = pair().ranks[0].blocks[0].code
    many = pair().with_ranks(
        [RankProgram((Block(0, None, None, (*code, *code)),), 1, 1, 1), *pair().ranks[1:]]
    )
    assert len(set(map(id, many.ranks[0].blocks[0].code))) == 2


def test_a_file_reads_back_as_the_same_program() -> None:
    assert load(json.loads(json.dumps(dump(pair())))) == pair()


Change = Callable[[dict[str, Any]], object]
CODE: Callable[[dict[str, Any]], Any] = lambda d: d["ranks"][0]["blocks"][0]["code"]  # noqa: E731


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(weft="algorithm"), "a program is expected, not an algorithm"),
        (lambda d: d.update(protocol="LL64"), "unknown protocol 'LL64'"),
        (lambda d: d.update(colour=1), "unknown key 'colour'"),
        (lambda d: d.update(message_chunks=-2), "message_chunks is -2, outside 0 …"),
        (lambda d: d.update(in_place=1), "'in_place' must be bool"),
        (lambda d: d.pop("ranks"), "the key 'ranks' is missing"),
        (lambda d: d["ranks"].__setitem__(1, []), "an object is expected, not a list"),
        (lambda d: d["ranks"][0].update(scratch_chunks=1 << 40), "scratch_chunks is 1099"),
        (lambda d: d["ranks"][0]["blocks"][0].update(send=-1), "send is -1, outside"),
        (lambda d: d["ranks"][0]["blocks"][0].update(send="1"), "'send' must be int"),
        (lambda d: CODE(d).__setitem__(0, ["s", "i", 0]), "an instruction is"),
        (lambda d: CODE(d)[0].__setitem__(0, "rsc"), "unknown operation 'rsc'"),
        (lambda d: CODE(d)[0].__setitem__(1, "x"), "unknown buffer 'x'"),
        (lambda d: CODE(d)[0].__setitem__(2, True), "an instruction is"),
        (lambda d: CODE(d)[1].__setitem__(6, [[1]]), "a wait is"),
        (lambda d: CODE(d)[1].__setitem__(6, [[1, -1]]), "a wait is -1, outside"),
        (lambda d: d["collective"].update(kind="allreduce"), "not an allreduce"),
    ],
)
def test_what_is_no_program(change: Change, says: str) -> None:
    data = copy.deepcopy(dump(pair()))
    change(data)
    with pytest.raises(UserError, match=says) as caught:
        load(data, "p.json")
    assert str(caught.value.where).startswith("p.json")


def test_the_place_of_a_wrong_instruction_is_told() -> None:
    data = dump(pair())
    CODE(data)[1][0] = "q"
    with pytest.raises(UserError) as caught:
        load(data, "p.json")
    assert str(caught.value.where) == "p.json: rank 0 block 0 instruction 1"
    with pytest.raises(BadFile):
        load({"weft": "program"})
