"""Files that were edited, and calls that make no sense, do not pass in silence."""

from types import ModuleType

import numpy as np
import pytest

from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.embedded.threads import Hub, Threads
from weft.backends.formats.p2p.emit import emit
from weft.backends.formats.p2p.execute import loaded
from weft.backends.formats.p2p.judge import judge
from weft.backends.formats.p2p.read import read_script
from weft.dsl.base.errors import BadFile
from weft.synth.engines.classic.text import named_algorithm


def file(name: str, in_place: bool = False) -> str:
    made = named_algorithm(f"classic:{name}", in_place=in_place).algorithm
    return emit(compile_script(made), "mpi")


RING = file("ring{collective=allreduce,ranks=4}")
CODE = "CODE = tuple(tuple(code(rank)) for rank in range(4))\n"


@pytest.mark.parametrize(
    "line",
    [
        "CODE = tuple(tuple(code(0)) for rank in range(4))\n",
        "CODE = ()\n",
        "CODE = tuple(tuple(code(3 - rank)) for rank in range(4))\n",
        f"code = lambda r: []\n{CODE}",
        f"{CODE}CODE, _ = (CODE[::-1], 0)\n",
        f"{CODE}CODE += ()\n",
        f"{CODE}for _c in (0,):\n    CODE = CODE[1:] + CODE[:1]\n",
    ],
)
def test_what_is_read_is_what_is_run(line: str):
    assert CODE in RING
    with pytest.raises(BadFile):
        read_script(RING.replace(CODE, line), "file")


def test_a_file_that_python_does_not_compile_is_refused():
    """``from __future__`` after a statement parses, and does not compile."""
    with pytest.raises(BadFile, match="must occur at the beginning"):
        read_script("x = 1\n" + RING, "file")


def test_a_header_with_an_integer_that_cannot_be_printed_is_refused():
    edited = RING.replace('"schema": 1', f'"schema": 0x{"9" * 5000}').replace(
        "'schema': 1", f"'schema': 0x{'9' * 5000}"
    )
    assert edited != RING
    with pytest.raises(BadFile, match="beyond 64 bits"):
        read_script(edited, "file")


def test_code_that_fails_while_it_is_loaded_is_a_bad_file():
    text = RING.replace(CODE, CODE + "EDITED = 1 / 0\n")
    with pytest.raises(BadFile, match="ends with ZeroDivisionError: division by zero") as caught:
        loaded(text)
    line = text.splitlines().index("EDITED = 1 / 0") + 1
    assert caught.value.where == f"line {line}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('yield "x" * 99999999999', "contains"),
        ('yield f"{1:99999999999}"', "contains"),
        ("for a in range(9**99):\n        9", "contains"),
        ("for a in range(999999999999):\n        9", "turns of loops"),
    ],
)
def test_formulas_do_not_grow_or_run_without_end(line: str, words: str):
    at = RING.index("    for step in range")
    with pytest.raises(BadFile, match=words):
        read_script(f"{RING[:at]}    {line}\n{RING[at:]}", "file")


@pytest.mark.parametrize("value", ["4.0", "True"])
def test_numbers_of_chunks_are_whole(value: str):
    with pytest.raises(BadFile, match="SHAPE does not fit the collective: input"):
        read_script(RING.replace("input=4", f"input={value}"), "file")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("np.add", "np.subtract"),
        ("if len(terms) > 1", "if len(terms) > 2"),
        ("SHAPE, CODE,", "SHAPE, CODE[::-1],"),
    ],
)
def test_code_that_is_not_ours_is_not_called_proved(old: str, new: str):
    assert old in RING
    _, clean = judge(RING, "file")
    _, found = judge(RING.replace(old, new), "file")
    assert clean == []
    assert [f.check for f in found] == ["code"]


def called(program: ModuleType, ranks: int, arguments, op: str = "sum") -> list:
    """What all ranks hold after a call with ``arguments(rank)``."""
    held: list = [None] * ranks

    def main(wire: Threads) -> None:
        send, recv = held[wire.rank] = arguments(wire.rank)
        program.call(wire, program.SHAPE, program.CODE, send, recv, op)

    Hub(ranks, timeout=2).run(main)
    return held


def test_a_rank_with_input_must_pass_a_send_buffer():
    program = loaded(RING)
    with pytest.raises(ValueError, match=r"send is None on rank \d; every rank needs one"):
        called(program, 4, lambda rank: (None, np.zeros(8)))
    broadcast = loaded(file("binomial{collective=broadcast,ranks=4}"))
    data = np.ones(4)
    with pytest.raises(ValueError, match="send is None on rank 0; rank 0 needs one"):
        called(broadcast, 4, lambda rank: (data if rank == 1 else None, np.zeros(4)))


def test_a_rank_with_output_must_pass_a_receive_buffer():
    gather = loaded(file("binomial{collective=gather,ranks=4}"))
    with pytest.raises(ValueError, match="recv is None on rank 0; rank 0 needs one"):
        called(gather, 4, lambda rank: (np.ones(2), np.zeros(8) if rank == 1 else None))


def test_an_unknown_operation_is_named():
    with pytest.raises(ValueError, match="op is 'avg'; there are sum, prod, max, min"):
        called(loaded(RING), 4, lambda rank: (np.ones(8), np.zeros(8)), "avg")


def test_arrays_of_several_dimensions_are_taken_as_they_lie():
    held = called(loaded(RING), 4, lambda rank: (np.full((3, 5), rank), np.zeros((3, 5), np.int64)))
    assert all((recv == 6).all() for _, recv in held)


def test_a_reduce_scatter_in_place_leaves_an_input_alone_that_is_not_its_own():
    program = loaded(file("ring{collective=reduce_scatter,ranks=4}", in_place=True))

    def woven(rank: int):
        memory = np.zeros(102)
        memory[1:17] = np.arange(16)
        return memory[1:17], memory[0:102:30]  # no element is shared, but the spans overlap

    for rank, (send, recv) in enumerate(called(program, 4, woven)):
        assert (send == np.arange(16)).all()
        assert (recv == 4 * np.arange(16)[4 * rank : 4 * rank + 4]).all()
