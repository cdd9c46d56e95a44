"""What the proof says: shipped files, sizes, results, consequences for each runtime."""

from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_files import EACH, SAMPLES, Gpu, Tb, algo, both_send_first, exchange, pairs_allreduce
from networks import networks
from right import RIGHT
from wrong import mistakes

from weft.backends.check.checker import report_program
from weft.backends.check.findings import FATES, Severity, errors
from weft.backends.check.graph import expand, find_cycle, hang, waits
from weft.backends.cli import main
from weft.backends.formats.msccl.check import check_xml, report_xml
from weft.backends.formats.msccl.emit import emit
from weft.backends.formats.msccl.read import collective_of, program_of, read_msccl_xml
from weft.backends.formats.msccl.read.columns import code_of
from weft.backends.formats.msccl.run import run_xml
from weft.backends.judge.events import MessageShape
from weft.dsl.base.layers import Successors, layers
from weft.dsl.nouns.collective import make, one_shot_allreduce
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice
from weft.dsl.nouns.runtime import EXECUTOR, MAX_COUNT, MSCCL, PORTABLE, RCCL, RUNTIMES

FAMILIES = {"bounds", "connections", "waits", "deadlock", "races", "result"}


def says(text: str, target: str | None = "msccl") -> list[str]:
    return [str(f) for f in report_xml(read_msccl_xml(text), target).findings]


# --- samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EACH)
def test_samples_are_proved_at_every_size(name: str) -> None:
    got = read_msccl_xml(SAMPLES[name], name)
    for target in ("msccl", "executor", None):
        report = report_xml(got, target)
        assert report.ok
        assert {p.check for p in report.proofs} == FAMILIES
        (fifo,) = [p.detail for p in report.proofs if p.check == "deadlock"]
        assert "messages of any size" in fifo
    program = program_of(got, collective_of(got))
    assert {p.check for p in report_program(program).proofs} == FAMILIES


@pytest.mark.parametrize("name", EACH)
def test_samples_come_back_equal(name: str) -> None:
    """Import, emit, import; and for every runtime that has the instructions the file is right."""
    got = read_msccl_xml(SAMPLES[name], name)
    program = program_of(got, collective_of(got))
    used = {i.op for r in program.ranks for b in r for i in b.code}
    for target in (MSCCL, EXECUTOR, RCCL, PORTABLE):
        if not used <= target.ops:
            continue
        text = emit(program, target, min_bytes=got.min_bytes or 0, max_bytes=got.max_bytes or 1)
        again = read_msccl_xml(text)
        assert again.remarks == ()
        assert program_of(again, program.collective) == program
        assert errors(check_xml(again, target.name)) == ()


# --- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("proto", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize("cnt", [3, 5, 17, 40, 71])
def test_the_size_up_to_which_a_file_is_right(cnt: int, proto: str) -> None:
    """By the runtimes' own formula, for messages around the size that is told."""
    got = read_msccl_xml(both_send_first(cnt, proto=proto, maxBytes=0))
    depth = got.protocol.fifo_operations
    for name, runtime in RUNTIMES.items():
        if name == "msccl":
            continue  # no limit is no size at all there
        found = errors(check_xml(got, name))
        if cnt <= depth:
            assert found == ()
            continue
        (told,) = [f.message for f in found if f.check == "deadlock"]
        limit = int(told.split("messages up to ")[1].split(" bytes")[0])

        def operations(message: int, payload: int = runtime.payload[got.protocol]) -> int:
            together = max(1, min(payload // (message // (2 * cnt)), MAX_COUNT))
            return -(-cnt // together)

        assert operations(limit) <= depth < operations(limit + 2 * cnt)


@pytest.mark.parametrize("runtime", ["rccl", "executor"])
def test_max_bytes_saves_a_file(runtime: str) -> None:
    """As it saves RCCL's all-pairs file: right up to a size, and never used above it."""
    text = both_send_first(3, maxBytes=6291456)
    (told,) = [f for f in check_xml(read_msccl_xml(text), runtime) if f.check == "deadlock"]
    assert told.severity is Severity.WARNING
    assert f"Right for messages up to 6291456 bytes on {runtime}" in told.message
    assert "used up to 6291456 bytes only" in told.message
    above = both_send_first(3, maxBytes=6291457)
    (told,) = errors(check_xml(read_msccl_xml(above), runtime))
    assert told.fate == f"{runtime}: accepted, then hangs"
    # msccl excludes maxBytes itself.
    assert errors(check_xml(read_msccl_xml(above), "msccl")) == ()


def test_a_file_that_hangs_above_its_sizes_runs() -> None:
    """And one that hangs within them does not."""
    right = run_xml(both_send_first(4, maxBytes=8 << 20), "small")
    assert right.ok
    assert "hangs only above maxBytes, with 1 chunks per operation" in right.detail
    assert not run_xml(both_send_first(4, maxBytes=16 << 20), "large").ok
    assert not run_xml(both_send_first(4, maxBytes=0), "unlimited").ok
    (always,) = [m.text for m in mistakes() if m.name == "receives before it sends"]
    assert not run_xml(always.replace('"1073741824"', '"64"'), "always").ok


def test_a_quarter_of_the_payload_for_rooted_collectives() -> None:
    def wrong(coll: str) -> str:
        return " ".join(says(both_send_first(3).replace('"alltoall"', f'"{coll}"')))

    assert "up to 6291456 bytes on msccl" in wrong("allreduce")
    assert "up to 1572864 bytes on msccl" in wrong("broadcast")


@settings(max_examples=examples(75, 150), deadline=None)
@given(networks())
def test_what_hangs_at_some_size_hangs_at_all_larger_ones(text: str) -> None:
    listing = code_of(read_msccl_xml(text))
    plain = expand(listing)
    if waits(listing, plain):
        return
    longest = int(listing.count.max(initial=1))
    hangs = [
        find_cycle(expand(listing, MessageShape(n, 1, m))) is not None
        for m in range(1, longest + 1)
        for n in (1, 10)
    ]
    stop = hang(listing, plain)
    assert hangs == sorted(hangs, reverse=True)
    assert sum(hangs) == 2 * (stop.merge if stop else 0)


# --- results ----------------------------------------------------------------------------------


def test_a_wrong_result_says_what_is_there_and_what_is_wanted() -> None:
    text = pairs_allreduce(3).replace(
        'type="re" srcbuf="s" srcoff="1"', 'type="re" srcbuf="s" srcoff="0"', 1
    )
    (first, *_) = errors(check_xml(read_msccl_xml(text)))
    assert first.where == "rank 0 tb 2 step 1"
    assert first.message == (
        "o[0] holds rank 0's i[0] + 2·rank 1's i[0]; "
        "wanted is rank 0's i[0] + rank 1's i[0] + rank 2's i[0], in place"
    )


def test_the_root_is_found_and_noted() -> None:
    text = RIGHT["broadcast"]
    report = report_xml(read_msccl_xml(text))
    (result,) = [p.detail for p in report.proofs if p.check == "result"]
    assert "broadcast root 1 on 4 ranks" in result
    assert any("caller's is ignored" in line for line in says(text))
    assert check_xml(read_msccl_xml(text), "msccl") == ()  # a note is no finding
    other = make("broadcast", 4, roots=(2,))
    (wrong, *_) = errors(check_xml(read_msccl_xml(text), None, other))
    assert "wanted is rank 2's i[0]" in wrong.message


GATHER = algo(
    [
        Gpu(2, 2, 0, [Tb(-1, 1).step("r", "i0", "o1"), Tb().step("cpy", "i0", "o0")]),
        Gpu(2, 2, 0, [Tb(0, -1).step("s", "i0", "o1")]),
    ],
    "custom",
    2,
)


def test_custom_files_are_judged_against_what_is_named() -> None:
    got = read_msccl_xml(GATHER)
    assert "result" not in {p.check for p in report_xml(got, "msccl").proofs}
    assert any("the result is not judged" in line for line in says(GATHER))
    assert report_xml(got, "msccl", make("gather", 2)).ok
    assert not report_xml(got, "msccl", make("gather", 2, roots=(1,))).ok


def test_sums_over_several_chunks() -> None:
    """One-shot allreduce: the outputs sum chunks of different numbers."""
    c = one_shot_allreduce(2)
    out, own, other = (Slice(b, 0) for b in (Buffer.OUTPUT, Buffer.INPUT, Buffer.SCRATCH))
    block = [
        Block(
            0,
            1 - r,
            1 - r,
            (
                Instr(Op.SEND, own, other),
                Instr(Op.RECV, other, other),
                Instr(Op.COPY, own, out),
                Instr(Op.REDUCE, other, out),
            ),
        )
        for r in range(2)
    ]
    program = Program.of("one", c, tuple(RankProgram((b,), 1, 1, 1) for b in block), 1)
    assert report_program(program).ok
    missing = tuple(RankProgram((Block(0, b.send, b.recv, b.code[:3]),), 1, 1, 1) for b in block)
    (first, *_) = report_program(Program.of("one", c, missing, 1)).findings
    assert "holds rank 0's i[0]; wanted is rank 0's i[0] + rank 1's i[0]" in first.message


# --- consequences -----------------------------------------------------------------------------


def test_a_finding_says_what_each_runtime_does() -> None:
    (told,) = [
        f
        for f in check_xml(read_msccl_xml(exchange().replace('send="1"', 'send="9"')))
        if f.kind == "peer-beyond"
    ]
    assert told.fate == "msccl: rejected; rccl, executor: accepted, then crashes"
    assert str(told).endswith(f"[{told.fate}]")
    (told,) = errors(check_xml(read_msccl_xml(exchange(nchannels=40)), "msccl"))
    assert told.fate == "msccl: accepted with a warning, then crashes"


def test_every_mistake_has_a_consequence_for_its_target() -> None:
    kinds = set()
    for mistake in mistakes():
        found = errors(check_xml(read_msccl_xml(mistake.text), mistake.target))
        assert all(f.fate.startswith(f"{mistake.target}: ") for f in found), (mistake.name, found)
        kinds |= {f.kind for f in found}
    assert kinds <= set(FATES)
    assert len(kinds) >= 20


def test_what_rccl_does_not_acquire_is_a_warning() -> None:
    """Its waits order memory only if the waiting step reads o and the flag's step wrote no s."""

    def relaxed(letter: str) -> bool:
        first = Tb().step("cpy", "i0", "o0", hasdep=1)
        second = Tb(1, -1).step("s", f"{letter}0", "o0", dep=(0, 0))
        gpus = [Gpu(1, 1, 0, [first, second]), Gpu(1, 1, 0, [Tb(-1, 0).step("r", "o0", "o0")])]
        text = algo(gpus, "broadcast", 1, inplace=int(letter == "i"), outofplace=1)
        found = check_xml(read_msccl_xml(text), "rccl")
        assert errors(found) == ()
        return any("acquires nothing on rccl" in f.message for f in found)

    assert not relaxed("o")
    pairs = check_xml(read_msccl_xml(pairs_allreduce(3)), "rccl")  # re into i, then s from i
    assert any(f.kind == "relaxed" and f.severity is Severity.WARNING for f in pairs)


def test_notes_of_use() -> None:
    assert any("16-byte" in line for line in says(pairs_allreduce(3), "rccl"))
    assert not any("16-byte" in line for line in says(pairs_allreduce(3), "msccl"))
    assert any("out-of-place calls do not" in line for line in says(exchange(inplace=1)))
    huge = pairs_allreduce(3, maxBytes=1 << 40)
    assert any("GiB of scratch" in line for line in says(huge))


# --- the command ------------------------------------------------------------------------------


def test_the_command_says_what_was_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pairs.xml"
    file.write_text(pairs_allreduce(3))
    assert main(["check", str(file), "--target", "portable"]) == 0
    out = capsys.readouterr().out
    assert "proved: every output chunk holds what allreduce on 3 ranks, 3 chunks wants" in out
    assert "proved: none, with FIFOs of 2 operations (Simple), for messages of any size" in out
    file.write_text(both_send_first(3))
    assert main(["check", str(file)]) == 1
    out = capsys.readouterr().out
    assert "Right for messages up to 6291456 bytes on msccl, 6291456 bytes on rccl" in out
    assert "msccl, rccl, executor: accepted, then hangs" in out


def test_the_command_is_told_what_a_custom_file_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gather.xml"
    file.write_text(GATHER)
    assert main(["check", str(file)]) == 0
    assert "the result is not judged" in capsys.readouterr().out
    assert main(["check", str(file), "-c", "gather"]) == 0
    assert "proved: every output chunk holds what gather root 0" in capsys.readouterr().out
    assert main(["check", str(file), "-c", "gather", "--root", "1"]) == 1
    assert "o[0] is never written" in capsys.readouterr().out
    other = tmp_path / "topology.txt"
    other.write_text("# edges\n")
    assert main(["check", str(other), "-c", "gather"]) == 2


# --- layers -----------------------------------------------------------------------------------


@given(st.integers(1, 60), st.data())
def test_layers_are_longest_paths(size: int, data: st.DataObject) -> None:
    """Of random graphs, wide and narrow; parallel edges too; cycles are left out."""
    ends = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    edges = data.draw(st.lists(ends, max_size=120))
    if data.draw(st.booleans()):
        edges = [(min(e), max(e)) for e in edges if e[0] != e[1]]
    source, target = (np.array([e[k] for e in edges], np.int64) for k in (0, 1))
    found = [layer.tolist() for layer in layers(Successors.of(size, source, target))]
    depth = dict.fromkeys(range(size), 0)
    for _ in range(size + 1):
        for a, b in edges:
            depth[b] = min(size + 1, max(depth[b], depth[a] + 1))
    wanted = {v: d for v, d in depth.items() if d <= size - 1}
    assert {v: d for d, layer in enumerate(found) for v in layer} == wanted
    assert sum(map(len, found)) == len(wanted)
