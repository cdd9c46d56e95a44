"""Packings become programs by the command line: XML, plans, programs by offsets, proved and run."""

import json
from pathlib import Path
from typing import Any

import pytest

from weft.backends.cli import main
from weft.backends.formats.msccl.emit import emit
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice
from weft.dsl.nouns.runtime import MSCCL


class Shell:
    """Command lines in a folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *arguments: object) -> dict[str, Any]:
        """Run one that must succeed; what it reports."""
        self.capsys.readouterr()
        code = main([*map(str, arguments), "--json"])
        ran = self.capsys.readouterr()
        assert code == 0, ran.err
        found = json.loads(ran.out)
        assert isinstance(found, dict)
        return found

    def packed(self, topology: str, collective: str, engine: str = "packing") -> Path:
        """The schedule of a packing, made in a few seconds."""
        path = self.folder / "schedule.json"
        self(
            "synth",
            "-t",
            topology,
            "-c",
            collective,
            "-e",
            engine,
            "--objective",
            "time",
            "--size",
            "1GB",
            "--effort",
            "2",
            "-o",
            path,
        )
        return path

    def emitted(self, schedule: Path, to: str = "msccl-xml") -> dict[str, Any]:
        """Compile, check and run it; what compiling reports."""
        out = self.folder / "out"
        facts = self("compile", schedule, "--to", to, "--no-run", "-o", out)
        self("check", out)
        done = self("run", out, "--interleavings", 2)
        assert done["status"] == "ok"
        return facts


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


@pytest.mark.parametrize(
    ("topology", "collective", "engine"), [("ring:4,dead=3-0", "allreduce", "packing")]
)
def test_packings_as_xml(shell: Shell, topology: str, collective: str, engine: str) -> None:
    facts = shell.emitted(shell.packed(topology, collective, engine))
    assert facts["collective"] == collective


def test_too_many_peers_are_refused_with_a_way_to_have_fewer() -> None:
    place = Slice(Buffer.OUTPUT, 0)
    source = Slice(Buffer.INPUT, 0)
    code = [Instr(Op.COPY, source, place, 1, (((b + 1) % 150, 0),)) for b in range(150)]
    blocks = tuple(Block(0, None, None, (one,)) for one in code)
    program = Program.of("p", make("allgather", 1), (RankProgram(blocks, 1, 1, 0),), 1)
    with pytest.raises(UserError) as caught:
        emit(program, MSCCL)
    assert "packing{peers=32}" in caught.value.hint
