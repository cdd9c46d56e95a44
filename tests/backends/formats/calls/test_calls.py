"""Allreduces by library calls: what is written, proved and refused, and a run on gloo."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from casts import NVLS, star, two_level, two_shot

from weft.backends.compile.prepare import artefact
from weft.backends.formats.calls.format import TorchCalls
from weft.backends.formats.calls.judge import executed, findings
from weft.backends.formats.calls.program import CallProgram, LibraryCall, program_of
from weft.backends.formats.format import ExecutionRequest
from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule

TWO = program_of(two_level(2))


def test_boxes_scatter_rails_sum_and_boxes_gather() -> None:
    assert [call.to_list() for call in TWO.calls] == [
        ["reduce_scatter", [[0, 1], [2, 3]]],
        ["all_reduce", [[0, 2], [1, 3]]],
        ["all_gather", [[0, 1], [2, 3]]],
    ]
    assert program_of(two_shot(3)).calls == (LibraryCall("all_reduce", ((0, 1, 2),)),)
    assert executed(TWO, 1, ("int32", "float32")).ok


def test_the_file_is_read_back_proved_and_executed() -> None:
    text, format = artefact(two_level(3), "torch-calls").text, TorchCalls()
    assert format.recognizes(text, None)
    assert not format.findings(text, "x.py", None)
    assert format.execute(text, "x.py", ExecutionRequest()).ok
    assert format.collective(text, "x.py").ranks == 6
    assert "3  all_gather in 2 groups of 3" in format.show(text, "x.py")[0]
    for old in ("window.copy_(own)", "CALLS"):
        with pytest.raises(BadFile, match=r"as weft wrote it|make no sense"):
            format.read(text.replace(old, "pass", 1), "x.py")
    assert format.findings(text.replace("[0, 1, 2]", "[0, 2, 1]", 1), "x.py", None)


WRONG = [
    (TWO.calls[:2], "does not end with the sum"),
    (TWO.calls[1:], "pieces that do not follow"),
    ((*TWO.calls[:2], TWO.calls[1], TWO.calls[2]), "adds a contribution twice"),
    ((TWO.calls[0], TWO.calls[0], *TWO.calls[1:]), "windows that are not the same|1 pieces"),
    ((LibraryCall("reduce_scatter", ((0, 1), (2,))), *TWO.calls[1:]), "not one known call"),
    ((TWO.calls[0], LibraryCall("all_reduce", ((0, 3), (1, 2))), TWO.calls[2]), "not the same"),
    ((*TWO.calls[:2], LibraryCall("all_gather", ((1, 0), (2, 3)))), "pieces that do not follow"),
]


@pytest.mark.parametrize(("calls", "says"), WRONG)
def test_wrong_calls_are_found(calls: tuple[LibraryCall, ...], says: str) -> None:
    wrong = replace(TWO, calls=calls)
    found = findings(wrong)
    assert any(part in found[0].message for part in says.split("|")), found
    assert not executed(wrong, 1, ("int64",)).ok


def test_what_makes_no_groups_is_refused_in_words() -> None:
    uneven = two_level(2).topology.restricted_to((0, 1, 2))
    with pytest.raises(UserError, match="of the same place"):
        program_of(Schedule.of(uneven, make("allreduce", 3), []))
    gather = Schedule.of(star(3, NVLS), make("allgather", 3), [])
    with pytest.raises(UserError, match="for allreduce, not allgather"):
        program_of(gather)


JOB = """
import os, sys, torch, torch.distributed as dist
torch.set_num_threads(1)
calls = {"__name__": "calls"}
exec(compile(open(sys.argv[1]).read(), "calls", "exec"), calls)

def rank(r):
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=r, world_size=4)
    good = True
    for length in (1, 10):
        for recv in (None, torch.zeros(length, dtype=torch.int64)):
            send = torch.arange(length) * 3 + r
            recv = send if recv is None else recv
            calls["allreduce"](send, recv)
            good = good and torch.equal(recv, 12 * torch.arange(length) + 6)
    calls["forget"]()
    dist.destroy_process_group()
    return good

others = []
for r in range(4):
    child = os.fork()
    if not child:
        os._exit(0 if rank(r) else 1)
    others.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in others]))
"""


def test_ranks_of_gloo_sum_in_place_and_out_of_place(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "calls.py"
    file.write_text(artefact(two_level(2), "torch-calls").text)
    command = [sys.executable, "-W", "ignore", "-c", JOB, str(file), str(tmp_path / "store")]
    subprocess.run(command, check=True, timeout=300, env=dict(os.environ))


def test_a_program_knows_its_pieces() -> None:
    assert (TWO.pieces, CallProgram("x", 2, ()).pieces) == (2, 1)
