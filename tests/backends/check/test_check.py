"""The checker finds what goes wrong silently, and nothing in what is right."""

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_files import (
    EACH,
    SAMPLES,
    Gpu,
    Tb,
    algo,
    both_send_first,
    exchange,
    pairs_allreduce,
    ring_allgather,
    ring_allreduce,
)
from networks import networks
from operations import topological_order

from weft.backends.check.bounds import CallerBuffers
from weft.backends.check.checker import check_program
from weft.backends.check.findings import Finding, errors
from weft.backends.check.graph import Edge, expand, find_cycle, hang, waits
from weft.backends.check.races import levels, races
from weft.backends.execute.execute import POLICIES, BufferMemory, interleave
from weft.backends.execute.layout import layout
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.formats.msccl.read.columns import code_of
from weft.backends.judge.events import MessageShape, assemble
from weft.dsl.base.errors import UnknownName
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import OPS, Block, Buffer, Instr, Op, Program, RankProgram, Slice
from weft.dsl.nouns.runtime import TARGETS

FULL = ("msccl", "executor")


def found(text: str, target: str | None = "msccl") -> tuple[Finding, ...]:
    return check_xml(read_msccl_xml(text, "x.xml"), target)


def wrong(text: str, target: str | None = "msccl") -> str:
    return "\n".join(map(str, errors(found(text, target))))


def unsafe(text: str, target: str | None = "msccl") -> str:
    """What is wrong with a file that need not compute its collective."""
    return "\n".join(str(f) for f in errors(found(text, target)) if f.check != "result")


# --- right files ------------------------------------------------------------------------------

RIGHT = {
    "exchange": exchange(),
    "exchange, both placements": exchange(inplace=1),
    "ring allgather": ring_allgather(5),
    "ring allreduce": ring_allreduce(4),
    "ring allreduce LL": ring_allreduce(4, proto="LL"),
    "pairs": pairs_allreduce(4),
}


@pytest.mark.parametrize("target", FULL)
@pytest.mark.parametrize("name", RIGHT)
def test_right_files_have_no_finding(name: str, target: str) -> None:
    assert found(RIGHT[name], target) == ()


@pytest.mark.parametrize("name", EACH)
def test_samples_are_right(name: str) -> None:
    text = SAMPLES[name]
    for target in FULL:
        assert found(text, target) == ()
    fused = [k for k in ("rcs", "rrs", "rrc", "rrcs") if f'type="{k}"' in text]
    assert sum("refuses" in f.message for f in found(text, "rccl")) == len(fused)
    assert bool(errors(found(text, "rccl"))) == bool(fused)


def test_without_a_target_a_refusal_of_one_is_a_warning() -> None:
    assert errors(found(ring_allgather(3), None)) == ()
    assert any("rccl refuses rcs" in f.message for f in found(ring_allgather(3), None))
    nobody = ring_allgather(3, nchannels=500)
    assert "nchannels" in wrong(nobody, None)


@pytest.mark.parametrize("target", ["msccl", "rccl", "executor"])
def test_every_runtime_refuses_a_negative_scratch_buffer(target: str) -> None:
    text = ring_allgather(3).replace('s_chunks="0"', 's_chunks="-1"')
    assert "rank 0: s_chunks: expected 0 or more" in wrong(text, target)


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown target 'nccl'"):
        found(exchange(), "nccl")


# --- what is accepted silently by the parsers and goes wrong; single mistakes are in test_wrong ---

PAIRS = pairs_allreduce(3)


def test_steps_blocks_and_fusion_are_limited_by_target() -> None:
    def steps(number: int, **changes: object) -> str:
        tb = Tb()
        for k in range(number):
            tb.step("cpy", "i0", "o0", s=min(k, 60))
        return algo([Gpu(1, 1, 0, [tb])], "allreduce", 1, **changes)

    assert "65 steps; rccl has at most 64" in wrong(steps(65), "rccl")
    assert wrong(steps(65)) == ""
    assert "257 steps" in wrong(steps(257))
    # The parsers test the number that a step bears: repeated numbers pass, and overflow the table.
    repeated = wrong(steps(257))
    assert "msccl: accepted; steps beyond the table overwrite memory" in repeated
    assert "rejected" not in repeated

    copies = [Tb().step("cpy", "i0", "s0")] + [Tb() for _ in range(64)]
    blocks = algo([Gpu(1, 1, 1, copies)], "allreduce", 1)
    assert "65 thread blocks" in wrong(blocks, "rccl")
    assert unsafe(blocks, "executor") == ""

    def fused(number: int, proto: str) -> str:
        tb = Tb()
        for k in range(number):
            tb.step("re", f"s{k}", "i0")
        return algo([Gpu(1, 1, number, [tb])], "allreduce", 1, proto=proto)

    assert unsafe(fused(15, "Simple")) == unsafe(fused(16, "LL")) == ""
    assert "16 fused re under Simple" in wrong(fused(16, "Simple"))
    assert unsafe(fused(16, "Simple"), "rccl") == ""


# --- deadlock with bounded FIFOs --------------------------------------------------------------


@pytest.mark.parametrize(("proto", "depth"), [("Simple", 2), ("LL", 8), ("LL128", 8)])
def test_the_fifo_depth_decides(proto: str, depth: int) -> None:
    """A real failure: works while a chunk shares an operation with others, then hangs."""
    assert "deadlock" not in wrong(both_send_first(depth, proto=proto))
    text = wrong(both_send_first(depth + 1, proto=proto))
    assert "deadlock with at most 1 chunks" in text
    assert "waits for a free slot" in text
    assert "rank 0 tb 0 step 0 (s)" in text
    assert "rank 1 tb 0 step 1 (r)" in text


def test_the_sizes_of_the_file_decide() -> None:
    """Where maxBytes keeps chunks small enough to share operations it is a warning only."""
    small = both_send_first(4, maxBytes=8 << 20)  # chunks of at most 1 MiB, two per operation
    assert unsafe(small) == ""
    assert any(f.check == "deadlock" and f.severity == "warning" for f in found(small))
    assert "deadlock" in wrong(both_send_first(4, maxBytes=16 << 20))


@settings(max_examples=examples(150, 300), deadline=None)
@given(networks(), st.sampled_from([1, 2, 71]), st.integers(1, 3), st.sampled_from(POLICIES))
def test_no_cycle_if_and_only_if_execution_never_hangs(
    text: str, merge: int, iterations: int, policy: str
) -> None:
    listing = code_of(read_msccl_xml(text))
    graph = expand(listing, MessageShape(iterations, 1, merge))
    hangs = find_cycle(graph) is not None or bool(len(graph.unmet))
    machine = assemble(listing, MessageShape(iterations, 1, merge))
    assert graph.size == len(machine.operations)
    run = interleave(machine, policy, 1)
    assert run.stuck == hangs
    if not hangs:
        assert sorted(run.order) == list(range(graph.size))
        ordered = topological_order(graph, credit=True)
        position = np.empty(graph.size, np.int64)
        for order in (np.array(run.order, np.int64), ordered):
            position[order] = np.arange(graph.size)
            assert (position[graph.source] < position[graph.target]).all()
    plain = expand(listing)
    if waits(listing, plain):
        return
    stop = hang(listing, plain)  # from one iteration, for every size and number of them
    longest = int(listing.count.max(initial=1))
    assert hangs == (stop is not None and min(merge, longest) <= stop.merge)


# --- races ------------------------------------------------------------------------------------


@settings(max_examples=examples(100, 200), deadline=None)
@given(networks())
def test_without_a_race_every_order_gives_the_same_memory(text: str) -> None:
    findings = found(text, None)
    if any(f.check in ("deadlock", "waits", "bounds") for f in findings):
        return
    racing = any(f.check == "races" and f.severity == "error" for f in findings)
    listing = code_of(read_msccl_xml(text))
    place = layout(
        make("allreduce", listing.rank_count, chunks=8), listing.chunks[:, 2], in_place=False
    )
    before = np.arange(place.rows, dtype=np.int32).reshape(-1, 1) * 1000003
    machine = assemble(listing, MessageShape())
    memory = BufferMemory(machine, place, before)
    results = set()
    for number in range(24):
        run = interleave(machine, POLICIES[number % len(POLICIES)], number)
        memory.reset()
        memory.replay(run.order)
        results.add(memory.rows.tobytes())
    assert racing or len(results) == 1


@settings(max_examples=examples(100, 200), deadline=None)
@given(networks(), st.booleans())
def test_races_are_those_of_the_definition(text: str, in_place: bool) -> None:
    """Brute force: the transitive closure, and every pair of accesses to one chunk."""
    listing = code_of(read_msccl_xml(text))
    graph = expand(listing)
    if len(graph.unmet) or len(topological_order(graph)) < graph.size:
        return
    n = graph.size
    reach = np.eye(n, dtype=bool)
    keep = graph.kind != Edge.CREDIT
    reach[graph.source[keep], graph.target[keep]] = True
    for _ in range(max(1, n).bit_length()):
        reach = (reach.astype(np.int64) @ reach) > 0
    cells: dict[tuple[object, ...], list[tuple[int, bool]]] = {}
    for k in range(n):
        t, piece = int(graph.transfer[k]), int(graph.operations.first[k])
        rank, op = int(listing.block_rank[graph.block()[k]]), OPS[listing.op[t]]
        sides = (
            (op.reads_src, listing.src_buffer[t], listing.src_offset[t], False),
            (op.writes_dst, listing.dst_buffer[t], listing.dst_offset[t], True),
        )
        for used, buffer, offset, writes in sides:
            if used and listing.count[t]:
                name = "io" if in_place and buffer < 2 else int(buffer)
                cells.setdefault((rank, name, int(offset) + piece), []).append((k, writes))
    racing = any(
        (a_writes or b_writes) and not reach[a, b] and not reach[b, a]
        for cell in cells.values()
        for a, a_writes in cell
        for b, b_writes in cell
    )
    buffers = CallerBuffers(
        np.full((listing.rank_count, 3), 8), np.zeros(listing.rank_count, np.int64)
    )
    assert bool(races(graph, levels(graph), buffers, in_place=in_place)) == racing


def test_races_are_found_where_execution_shows_them() -> None:
    """Of 24 orders of a small program, those that differ come only from programs with a finding."""
    racy = PAIRS.replace(
        'type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="1" deps="1"',
        'type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="0" deps="1"',
    )
    assert racy != PAIRS
    assert "s[1] is unordered with" in wrong(racy)


def test_a_write_into_what_is_still_sent_is_a_race() -> None:
    """Out of place it is fine; in place the same file overwrites what is still to be sent."""

    def file(**changes: object) -> str:
        gpus = []
        for rank in range(2):
            send = Tb(1 - rank, -1, 0).step("s", "i1", "o0")
            receive = Tb(-1, 1 - rank, 0).step("r", "i1", "o1")
            gpus.append(Gpu(2, 2, 0, [send, receive]))
        return algo(gpus, "alltoall", 2, **changes)

    assert unsafe(file()) == ""
    both = wrong(file(inplace=1), "executor")
    assert "rank 1 tb 1 step 0: o[1] is unordered with rank 1 tb 0 step 0 (s), in place" in both


def test_a_copy_onto_itself_is_no_write() -> None:
    assert wrong(exchange(inplace=1)) == ""
    lost = exchange(inplace=1).replace('dstbuf="o" dstoff="1"', 'dstbuf="o" dstoff="0"')
    assert "unordered" in wrong(lost)


def test_rccl_under_ll_may_reuse_a_sent_chunk_too_early() -> None:
    """The flag after a plain send: safe elsewhere, and on rccl under Simple."""

    def file(proto: str) -> str:
        gpus = []
        for rank in range(2):
            send = Tb(1 - rank, 1 - rank).step("s", "i0", "o0", hasdep=1).step("r", "i0", "o1")
            gpus.append(Gpu(2, 2, 0, [send, Tb().step("cpy", "i1", "i0", dep=(0, 0))]))
        return algo(gpus, "alltoall", 2, proto=proto)

    def overtakes(proto: str, target: str) -> bool:
        assert unsafe(file(proto), target) == ""
        return any("overtake" in f.message for f in found(file(proto), target))

    assert overtakes("LL", "rccl")
    assert not overtakes("Simple", "rccl")
    assert not overtakes("LL", "msccl")


# --- programs ---------------------------------------------------------------------------------


def program(*, wait: bool = True, count: int = 1, send: int = 1) -> Program:
    """Allgather of two ranks; the own chunk is copied by a second block."""
    ranks = []
    for rank in range(2):
        peer = 1 - rank
        own, other = Slice(Buffer.OUTPUT, rank), Slice(Buffer.OUTPUT, peer)
        copy = Block(0, None, None, (Instr(Op.COPY, Slice(Buffer.INPUT, 0), own),))
        waits = ((0, 0),) if wait else ()
        move = Block(
            0,
            peer if rank else send,
            peer,
            (Instr(Op.SEND, own, own, count, waits), Instr(Op.RECV, other, other)),
        )
        ranks.append(RankProgram((copy, move), 1, 2, 0))
    return Program.of("two", make("allgather", 2), tuple(ranks), 2)


def test_a_right_program_has_no_finding() -> None:
    assert check_program(program()) == ()
    for target in TARGETS:
        assert check_program(program(), target) == ()


def test_wrong_programs_are_found() -> None:
    def says(p: Program, target: str | None = None) -> str:
        return "\n".join(map(str, errors(check_program(p, target))))

    assert "o[0] is unordered" in says(program(wait=False))
    assert "takes 1 chunks" in says(program(count=2))
    assert "send peer 0 is not another rank" in says(program(send=0))
    assert "expected a multiple" in says(replace(program(), message_chunks=3))
    short = program().with_ranks(program().ranks[:1])
    assert "1 ranks for 2" in says(short)
    backward = Instr(Op.COPY, Slice(Buffer.INPUT, 0), Slice(Buffer.OUTPUT, 0), 1, ((0, 1),))
    block = Block(0, None, None, (backward, replace(backward, waits=())))
    one = RankProgram((block,), 1, 1, 0)
    assert "deadlock" in says(Program.of("late", make("allgather", 1), (one,), 1))
    missing = replace(block, code=(replace(backward, waits=((3, 0),)),))
    one = RankProgram((missing,), 1, 1, 0)
    assert "does not exist" in says(Program.of("none", make("allgather", 1), (one,), 1))
    reduce = replace(backward, op=Op.RECV_REDUCE_COPY, waits=())
    assert "rccl refuses rrc" in says(
        Program.of(
            "rrc",
            make("allgather", 1),
            (RankProgram((replace(block, code=(reduce,)),), 1, 1, 0),),
            1,
        ),
        "rccl",
    )


def test_a_long_program_is_checked_in_time() -> None:
    """Near-linear: a ring of 64 ranks, 8 channels, 500 thousand operations in two iterations."""
    n, channels = 64, 8
    ranks = []
    for rank in range(n):
        blocks = []
        for channel in range(channels):
            at = [Slice(Buffer.OUTPUT, ((rank - k) % n) * channels + channel) for k in range(n)]
            code = [Instr(Op.SEND, at[0], at[0])]
            code += [Instr(Op.RECV_COPY_SEND, a, a) for a in at[1:-1]]
            code.append(Instr(Op.RECV, at[-1], at[-1]))
            blocks.append(Block(channel, (rank + 1) % n, (rank - 1) % n, tuple(code)))
        ranks.append(RankProgram(tuple(blocks), channels, n * channels, 0))
    ring = Program.of(
        "ring", make("allgather", n, chunks=channels), tuple(ranks), n * channels, True
    )
    assert errors(check_program(ring)) == ()
