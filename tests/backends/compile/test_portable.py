"""The portable subset: one file that every runtime reads, executes and gets right."""

from pathlib import Path

import patterns
import pytest
from msccl_files import EACH, SAMPLES, algo, exchange, pairs_allreduce, ring_allgather

from weft.backends.check.findings import errors
from weft.backends.cli import main
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.formats.msccl.check import check_xml, report_xml
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.formats.msccl.run import run_xml
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Op, Program, Protocol
from weft.dsl.nouns.runtime import PORTABLE, RUNTIMES
from weft.dsl.nouns.schedule import Schedule

SOURCES = {
    "ring allgather": patterns.ring_allgather(4, 2),
    "ring allreduce": patterns.ring_allreduce(4, 1),
    "doubling allreduce": patterns.doubling_allreduce(4, 2),
    "halving doubling": patterns.halving_doubling_allreduce(4, 1),
    "tree broadcast": patterns.tree_broadcast(5, patterns.hub(5), 2),
    "tree reduce": patterns.tree_reduce(5, patterns.hub(5), 2),
    "alltoall": patterns.direct_alltoall(3, 2),
}


def waits_for_sends(program: Program) -> bool:
    return any(
        rank.blocks[b].code[i].op.sends
        for rank in program.ranks
        for block in rank
        for instr in block.code
        for b, i in instr.waits
    )


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("name", SOURCES)
def test_every_runtime_accepts_the_file(name: str, protocol: Protocol, in_place: bool) -> None:
    options = CompileOptions(PORTABLE, in_place=in_place, protocol=protocol)
    program = lower_schedule(SOURCES[name], options)
    if in_place and name == "alltoall":
        with pytest.raises(UserError, match="refuses alltoall in place"):
            emit(program, PORTABLE)
        return
    assert protocol is Protocol.SIMPLE or not waits_for_sends(program)  # RCCL is late with those
    text = emit(program, PORTABLE)
    got = read_msccl_xml(text)
    assert got.remarks == ()
    for target in (*RUNTIMES, "portable", None):
        assert errors(check_xml(got, target)) == (), target
    assert {p.check for p in report_xml(got, "portable").proofs} >= {"deadlock", "races", "result"}
    assert all(t.op in PORTABLE.ops for r in got.ranks for b in r.blocks for t in b.transfers)
    assert run_xml(text, name, interleavings=6).ok


def test_reduce_scatter_has_two_spellings() -> None:
    schedule: Schedule = patterns.ring_reduce_scatter(3, 1)
    program = lower_schedule(schedule, CompileOptions(PORTABLE))
    with pytest.raises(UserError, match="reduce_scatter, rccl and executor reducescatter") as told:
        emit(program, PORTABLE)
    assert "two files" in told.value.hint
    for spelled in ("reduce_scatter", "reducescatter"):
        text = exchange().replace('coll="allgather"', f'coll="{spelled}"')
        assert any("spells it" in line for line in wrong(text))


def wrong(text: str, target: str = "portable") -> list[str]:
    return [str(f) for f in errors(check_xml(read_msccl_xml(text), target))]


def test_right_files_of_the_subset() -> None:
    assert wrong(exchange()) == wrong(pairs_allreduce(4)) == []


NOT_PORTABLE = {
    "fused steps": (ring_allgather(4), "rccl refuses rcs at launch (8 steps) [rccl: refused"),
    "more channels": (exchange(nchannels=33), "nchannels is 33"),
    "no name": (exchange(name=None), "'name' of <algo> is missing"),
    "no outofplace": (exchange(outofplace=None), "'outofplace' of <algo> is missing"),
    "no size": (exchange(maxBytes=None), "'maxBytes' of <algo> is missing"),
    "unlimited": (exchange(maxBytes=0), "maxBytes 0 means no limit"),
    "one size": (exchange(minBytes=64, maxBytes=64), "below maxBytes"),
    "custom": (exchange().replace('"allgather"', '"custom"'), "'custom' is unknown there"),
    "peer that one rejects": (
        exchange().replace('send="1"', 'send="7"', 1),
        "rccl, executor: accepted, then crashes",
    ),
    "nothing moved": (
        exchange().replace(
            "</tb>",
            '<step s="1" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" '
            'dstoff="0" cnt="0" depid="-1" deps="-1" hasdep="0"/></tb>',
            2,
        ),
        "cnt 0 writes",
    ),
}


@pytest.mark.parametrize("name", NOT_PORTABLE)
def test_what_one_runtime_does_not_take_is_an_error(name: str) -> None:
    text, reason = NOT_PORTABLE[name]
    assert any(reason in line for line in wrong(text)), wrong(text)


def test_a_late_flag_of_one_runtime_is_an_error() -> None:
    from msccl_files import Gpu, Tb

    def file(proto: str) -> str:
        gpus = []
        for rank in range(2):
            send = Tb(1 - rank, 1 - rank).step("s", "i0", "o0", hasdep=1).step("r", "i0", "o1")
            gpus.append(Gpu(2, 2, 0, [send, Tb().step("cpy", "i1", "i0", dep=(0, 0))]))
        return algo(gpus, "allreduce", 2, proto=proto)

    assert any("overtake" in line for line in wrong(file("LL")))
    assert not any("overtake" in line for line in wrong(file("Simple")))


def test_the_subset_is_the_least_of_all_limits() -> None:
    assert Op.RECV_COPY_SEND not in PORTABLE.ops
    assert (PORTABLE.max_steps, PORTABLE.max_blocks, PORTABLE.max_channels) == (64, 64, 32)
    assert PORTABLE.max_dependence == 63


@pytest.mark.parametrize("name", EACH)
def test_samples_are_written_again_for_every_runtime(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fused steps taken apart; proved for all runtimes, and executed."""
    path, out = tmp_path / "sample.xml", tmp_path / "portable.xml"
    path.write_text(SAMPLES[name])
    flags = ["--to", "msccl-xml", "--target", "portable", "--protocol", "Simple", "-o", str(out)]
    assert main(["compile", str(path), *flags]) == 0, capsys.readouterr().err
    text = out.read_text()
    got, before = read_msccl_xml(text), read_msccl_xml(SAMPLES[name])
    assert (got.coll, got.ngpus, got.placements) == (before.coll, before.ngpus, before.placements)
    for target in (*RUNTIMES, "portable"):
        assert errors(check_xml(got, target)) == (), target
    assert {p.check for p in report_xml(got, "portable").proofs} >= {"deadlock", "races", "result"}
    assert run_xml(text, name, interleavings=6).ok
