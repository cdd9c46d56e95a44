"""The interpreter: right files give the collective's result, wrong ones do not."""

from collections.abc import Callable

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
    exchange,
    pairs_allreduce,
    ring_allgather,
    ring_allreduce,
)
from networks import networks
from work import calls_of

from weft.backends.execute.execute import (
    POLICIES,
    BufferMemory,
    Traces,
    execute,
    interleave,
    run_program,
)
from weft.backends.execute.layout import data, layout, unfit
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.formats.msccl.read.collective import collective_of
from weft.backends.formats.msccl.read.columns import code_of
from weft.backends.formats.msccl.run import run_xml
from weft.backends.judge.events import MessageShape, assemble
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Collective, make, one_shot_allreduce
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, RankProgram, Slice

# --- what must come out: against the definitions, written once more ---------------------------

Inputs = np.ndarray  # shape (ranks, chunks)


def defined(kind: str, x: Inputs, n: int, k: int) -> dict[int, np.ndarray]:
    """MPI's definitions on whole buffers: rank to its output; k chunks per unit."""
    everyone = range(n)
    match kind:
        case "allreduce":
            return {r: x.sum(0) for r in everyone}
        case "allgather":
            return {r: x.reshape(-1) for r in everyone}
        case "reduce_scatter":
            return {r: x.sum(0)[r * k : (r + 1) * k] for r in everyone}
        case "alltoall":
            return {r: x[:, r * k : (r + 1) * k].reshape(-1) for r in everyone}
        case "broadcast":
            return dict.fromkeys(everyone, x[1])
        case "reduce":
            return {1: x.sum(0)}
        case "gather":
            return {1: x.reshape(-1)}
        case "scatter":
            return {r: x[1, r * k : (r + 1) * k] for r in everyone}
        case _:
            return {r + 1: x[r] for r in range(n - 1)}


ROOTED = ("broadcast", "reduce", "gather", "scatter")
KINDS = (*ROOTED, "allreduce", "allgather", "reduce_scatter", "alltoall", "alltonext")


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_expected_results_are_those_of_the_definition(kind: str, in_place: bool) -> None:
    n, k = 4, 3
    c = make(kind, n, chunks=k, roots=(1,) if kind in ROOTED else ())
    place = layout(c, [2] * n, in_place=in_place)
    values = data(place, np.dtype("int64"), 1, np.random.default_rng(5))
    x = np.stack([values.before[b : b + c.input_chunks, 0] for b in place.base[:, 0]])
    wanted = defined(kind, x, n, k)
    got = dict(zip(values.rows.tolist(), values.expected[:, 0].tolist(), strict=True))
    assert len(got) == sum(map(len, wanted.values()))
    for rank, output in wanted.items():
        base = int(place.base[rank, 1])
        assert [got[base + j] for j in range(len(output))] == output.tolist()


def test_a_local_reduce_group_is_summed() -> None:
    c = one_shot_allreduce(3, chunks=2)
    place = layout(c, [0] * 3, in_place=False)
    values = data(place, np.dtype("float32"), 4, np.random.default_rng(0))
    x = np.stack([values.before[b : b + 2] for b in place.base[:, 0]])
    assert np.array_equal(values.expected, np.tile(x.sum(0), (3, 1)))


def test_aliasing_in_place() -> None:
    """Allgather: i[j] is o[rank·C/n + j]; reduce_scatter: o[j] is i[rank·C/n + j]."""
    gather = layout(make("allgather", 3, chunks=2), [1, 0, 4], in_place=True)
    assert (gather.base[:, 0] - gather.base[:, 1]).tolist() == [0, 2, 4]
    scatter = layout(make("reduce_scatter", 3, chunks=2), [0] * 3, in_place=True)
    assert (scatter.base[:, 1] - scatter.base[:, 0]).tolist() == [0, 2, 4]
    assert gather.rows == 3 * 6 + 5
    assert scatter.rows == 3 * 6


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EACH)
def test_samples_compute_their_collective(name: str) -> None:
    result = run_xml(SAMPLES[name], name, interleavings=24)
    assert result.ok, result.detail
    assert result.interleavings == 24


@pytest.mark.parametrize("proto", ["Simple", "LL", "LL128"])
@pytest.mark.parametrize(
    "make_text",
    [
        exchange,
        lambda **k: ring_allgather(5, **k),
        lambda **k: ring_allreduce(4, **k),
        lambda **k: pairs_allreduce(4, **k),
    ],
)
def test_right_files_run(make_text: Callable[..., str], proto: str) -> None:
    result = run_xml(make_text(proto=proto), "right", interleavings=30)
    assert result.ok, result.detail


def test_both_placements_are_run() -> None:
    result = run_xml(exchange(inplace=1), "both", interleavings=10)
    assert result.ok
    assert result.interleavings == 20
    only_in_place = ring_allgather(3, outofplace=1)  # the own chunk is never copied i → o
    result = run_xml(only_in_place, "claims too much")
    assert not result.ok
    assert "out of place" in result.detail
    assert "was never written" in result.detail


def test_kinds_that_the_format_does_not_know_need_the_collective() -> None:
    """A gather as a custom file: root 0 receives every block."""
    n = 3
    root = [Tb(-1, r, 0).step("r", "i0", f"o{r}") for r in range(1, n)]
    gpus = [Gpu(n, n, 0, [*root, Tb().step("cpy", "i0", "o0")])]
    gpus += [Gpu(n, n, 0, [Tb(0, -1, 0).step("s", "i0", f"o{r}")]) for r in range(1, n)]
    text = algo(gpus, "custom", n)
    with pytest.raises(UserError, match="does not say what"):
        run_xml(text, "gather")
    assert run_xml(text, "gather", make("gather", n)).ok
    wrong = run_xml(text, "gather", make("gather", n, roots=(1,)))
    assert not wrong.ok
    with pytest.raises(UserError, match="4 ranks"):
        run_xml(text, "gather", make("gather", 4))


def test_the_root_of_a_broadcast_is_found() -> None:
    def star(root: int) -> str:
        gpus = []
        for rank in range(3):
            if rank != root:
                gpus.append(Gpu(1, 1, 0, [Tb(-1, root).step("r", "i0", "o0")]))
                continue
            tbs = [Tb(r, -1).step("s", "i0", "o0") for r in range(3) if r != root]
            gpus.append(Gpu(1, 1, 0, [*tbs, Tb().step("cpy", "i0", "o0")]))
        return algo(gpus, "broadcast", 1)

    for root in range(3):
        assert collective_of(read_msccl_xml(star(root))).roots == (root,)
        assert run_xml(star(root), "star", interleavings=6).ok
        assert not run_xml(star(root), "star", make("broadcast", 3, roots=((root + 1) % 3,))).ok


# --- what goes wrong --------------------------------------------------------------------------


def overwriting() -> str:
    """The exchange, whose ranks keep what they received in their input as well."""
    gpus = []
    for rank in range(2):
        own, other = f"o{rank}", f"o{1 - rank}"
        tb = Tb(1 - rank, 1 - rank).step("cpy", "i0", own).step("s", "i0", own)
        gpus.append(Gpu(1, 2, 0, [tb.step("r", "i0", other).step("cpy", other, "i0")]))
    return algo(gpus, "allgather", 2)


PAIRS = pairs_allreduce(3)
RACE = PAIRS.replace('depid="1" deps="1"', 'depid="0" deps="1"')
WRONG = {
    "wrong source": (
        exchange().replace('srcbuf="i" srcoff="0"', 'srcbuf="o" srcoff="1"', 1),
        "was never written",
    ),
    "swapped outputs": (
        exchange()
        .replace('dstoff="1"', 'dstoff="9"')
        .replace('dstoff="0"', 'dstoff="1"')
        .replace('dstoff="9"', 'dstoff="0"'),
        "expected",
    ),
    "input overwritten": (overwriting(), "the input must not change"),
    "out of bounds": (exchange().replace('dstoff="1"', 'dstoff="2"'), "addresses o[2 … 2]"),
    "unequal counts": (ring_allgather(3).replace('cnt="1"', 'cnt="2"', 1), "for the receiver"),
    "a receive too many": (exchange().replace('type="s"', 'type="cpy"', 1), "deadlock"),
    "a send too many": (exchange().replace('type="r"', 'type="cpy"', 1), "never received"),
    "no hasdep": (PAIRS.replace('hasdep="1"', 'hasdep="0"', 1), "waits for a flag of rank 0 tb 0"),
    "no such block": (PAIRS.replace('depid="0"', 'depid="6"', 1), "does not exist"),
    "no dependence: a race": (RACE, "expected"),
    "summed twice": (
        PAIRS.replace('type="re" srcbuf="s" srcoff="1"', 'type="re" srcbuf="s" srcoff="0"', 1),
        "expected",
    ),
    "a shared connection": (
        exchange().replace('tb id="1" send="-1"', 'tb id="1" send="1"', 1),
        "share a connection",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_fail(name: str) -> None:
    text, reason = WRONG[name]
    result = run_xml(text, name, interleavings=60)
    assert not result.ok
    assert reason in result.detail


def test_stale_scratch_and_lost_updates_are_seen() -> None:
    """Reduction into a chunk that was never received: poison reaches the output in all types."""
    text = PAIRS.replace('type="r"', 'type="nop"', 1)
    for dtype in ("float32", "int32", "float64", "int64"):
        assert not run_xml(text, "x", dtypes=(dtype,)).ok
    with pytest.raises(UserError, match="not a number type"):
        run_xml(exchange(), "x", dtypes=("text",))


def test_a_deadlock_names_the_waits() -> None:
    gpus = [
        Gpu(6, 6, 0, [Tb(1 - r, 1 - r).step("s", "i0", "o0", 3).step("r", "i0", "o0", 3)])
        for r in range(2)
    ]
    result = run_xml(algo(gpus, "alltoall", 6), "hang")
    assert not result.ok
    first = "rank 0 tb 0 step 0 (s) waits for a free slot (message 2) to rank 1 on channel 0"
    assert first in result.detail
    assert "rank 1 tb 0 step 0 (s) is next" in result.detail


def test_a_slow_receiver_holds_the_sender_back() -> None:
    """In no order is a sender more operations ahead than the FIFO has places."""
    for proto, depth in (("Simple", 2), ("LL", 8)):
        gpus = [
            Gpu(24, 24, 0, [Tb(1, -1).step("s", "i0", "o0", 24)]),
            Gpu(24, 24, 0, [Tb(-1, 0).step("r", "i0", "o0", 24)]),
        ]
        machine = assemble(
            code_of(read_msccl_xml(algo(gpus, "custom", 24, proto=proto))), MessageShape()
        )
        most = 0
        for number, policy in enumerate(POLICIES * 3):
            ahead = 0
            for i in interleave(machine, policy, number).order:
                ahead += 1 if i < machine.end[0] else -1
                assert 0 <= ahead <= depth
                most = max(most, ahead)
        assert most == depth


def test_a_fused_re_reads_all_sources_before_it_writes() -> None:
    """o[0] ⊕= o[1] ⊕ o[0] fused: the second source is o[0] as it was before."""
    tb = Tb().step("cpy", "i0", "o1").step("cpy", "i0", "o0")
    text = algo([Gpu(2, 2, 0, [tb.step("re", "o1", "o0").step("re", "o0", "o0")])], "custom", 2)
    listing = code_of(read_msccl_xml(text))
    c = make("allreduce", 1, chunks=2)
    result = execute(listing, c, dtypes=("int64",), interleavings=1)
    # o0 = x + x + x (fused): with x read before the write; sequentially it would be 4x.
    assert not result.ok
    got, want = result.detail.split(" is ")[1].split("; expected ")
    assert int(got) == 3 * int(want.split()[0])


# --- loops, shapes, speed ---------------------------------------------------------------------


@settings(max_examples=examples(15, 30), deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.sampled_from([2, 3, 5]))
def test_any_cut_of_the_message_is_right(elements: int, payload: int, merge: int, n: int) -> None:
    shape = MessageShape(elements, payload, merge)
    c: Collective = make("allreduce", n, chunks=n)
    for text in (ring_allreduce(n), pairs_allreduce(n) if n > 2 else ring_allreduce(n)):
        listing = code_of(read_msccl_xml(text))
        result = execute(listing, c, in_place=True, shape=shape, interleavings=6)
        assert result.ok, result.detail
        steps = listing.instructions * shape.iterations
        assert result.operations == 6 * steps


def test_seeds_decide() -> None:
    machine = assemble(code_of(read_msccl_xml(pairs_allreduce(4))), MessageShape())
    for policy in POLICIES:
        orders = [interleave(machine, policy, s).order.tolist() for s in (1, 1, 2)]
        assert orders[0] == orders[1]
        assert (orders[0] != orders[2]) == (policy not in ("latest", "earliest"))


def test_two_hundred_interleavings_are_quick() -> None:
    text = ring_allgather(16, proto="LL")
    result, calls = calls_of(lambda: run_xml(text, "ring", interleavings=200))
    assert result.ok
    assert result.operations > 60_000
    assert calls < 20 * result.operations


# --- programs ---------------------------------------------------------------------------------


def test_a_program_runs_like_a_file() -> None:
    def two(offset: int) -> Program:
        ranks = []
        for rank in range(2):
            peer = 1 - rank
            own, other = Slice(Buffer.OUTPUT, rank), Slice(Buffer.OUTPUT, peer)
            source = Slice(Buffer.INPUT, 0)
            code = (
                Instr(Op.COPY, source, own),
                Instr(Op.SEND, source, own),
                Instr(Op.RECV, other, Slice(Buffer.OUTPUT, (peer + offset) % 2)),
            )
            ranks.append(RankProgram((Block(0, peer, peer, code),), 1, 2, 0))
        return Program.of("two", make("allgather", 2), tuple(ranks), 2)

    assert run_program(two(0), interleavings=12).ok
    assert not run_program(two(1), interleavings=12).ok


@settings(max_examples=examples(60), deadline=None)
@given(networks(), st.integers(1, 2), st.sampled_from([1, 2, 71]))
def test_orders_of_one_trace_give_one_memory(text: str, iterations: int, merge: int) -> None:
    """And there is one trace where the memory never differs by itself: races make more."""
    listing = code_of(read_msccl_xml(text))
    c = make("allreduce", listing.rank_count, chunks=8)
    place = layout(c, listing.chunks[:, 2], in_place=False)
    if unfit(listing, place) is not None:
        return
    machine = assemble(listing, MessageShape(iterations, 1, merge))
    before = np.arange(place.rows * iterations, dtype=np.int32).reshape(-1, iterations) * 1000003
    memory, traces, results = BufferMemory(machine, place, before), Traces(machine, place), set()
    for number in range(24):
        run = interleave(machine, POLICIES[number % len(POLICIES)], number)
        if run.stuck:
            return
        memory.reset()
        memory.replay(run.order)
        if traces.fresh(run.order):
            results.add(memory.rows.tobytes())
        assert memory.rows.tobytes() in results
