"""The quick reader of canonical blocks reads what the reader of single elements reads."""

import re
from random import Random

import patterns
import pytest

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.formats.msccl.read.model import XmlAlgo
from weft.backends.formats.msccl.read.msccl_xml import PlainBlocks
from weft.dsl.base.errors import BadFile
from weft.dsl.nouns.runtime import MSCCL, RCCL, Target

EDITS = {
    "cnt": ["0", "71", "72", "300"],
    "depid": ["-1", "0", "127", "128", "00"],
    "deps": ["-1", "3", "32767", "32768", "7x"],
    "hasdep": ["0", "1", "2"],
    "s": ["0", "1", "9", "-1", "0x1"],
    "srcoff": ["-1", "0", "32767", "40000", "08"],
    "dstoff": ["-1", "5", "65536"],
    "type": ["s", "nop", "re", "rrc", "ra", "zz"],
    "srcbuf": ["i", "s", "x"],
}


def texts(target: Target) -> list[str]:
    made = [patterns.ring_allreduce(4, 2), patterns.one_shot(4, 1), patterns.ring_allgather(3, 2)]
    options = CompileOptions(target=target, pairing=Pairing.NONE)
    return [emit(lower_schedule(s, options), target) for s in made]


def slowly(text: str, monkeypatch: pytest.MonkeyPatch) -> XmlAlgo | str:
    with monkeypatch.context() as patch:
        patch.setattr(PlainBlocks, "read", lambda *_: None)
        return read(text)


def read(text: str) -> XmlAlgo | str:
    try:
        return read_msccl_xml(text)
    except BadFile as error:
        return str(error)


@pytest.mark.parametrize("target", [MSCCL, RCCL], ids=lambda t: t.name)
def test_as_the_other_reader(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(7)
    for text in texts(target):
        assert read(text) == slowly(text, monkeypatch)
        for key, values in EDITS.items():
            for value in values:
                places = [m.span(1) for m in re.finditer(rf'<step[^>]* {key}="([^"]*)"', text)]
                start, end = dice.choice(places)
                changed = text[:start] + value + text[end:]
                assert read(changed) == slowly(changed, monkeypatch), (key, value)


def test_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    usual = PlainBlocks.read

    def watched(self: PlainBlocks, at: int, head: tuple[int, int, int, int]) -> object:
        block = usual(self, at, head)
        found.append(block is not None)
        return block

    monkeypatch.setattr(PlainBlocks, "read", watched)
    read_msccl_xml(texts(MSCCL)[0])
    assert found
    assert all(found)
