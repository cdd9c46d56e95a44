"""The file form of a program: round trips, and refusals in words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, Protocol, RankProgram, Slice
from weft.dsl.nouns.program_json import dump, load


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

    return Program("pair", make("allgather", 2), (rank(0), rank(1)), 2, True, Protocol.LL128)


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
        (lambda d: d["collective"].update(kind="allreduce"), "no allreduce"),
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
