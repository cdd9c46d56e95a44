"""Program simulation against sums done by hand, a slow simulator that reads like the rule, and
bounds."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import patterns
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_program import Slow
from strategies import schedules
from timed_programs import (
    all_pairs,
    binomial_broadcast,
    chain_broadcast,
    instr,
    program,
    ring_allgather,
    ring_allreduce,
    stream,
)

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.dsl.base.errors import BadTopology, CheckFailed, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.program import Block, Instr, Program, Protocol
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Link, Resource, Topology, both_ways, gpu
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.time import program_kernel
from weft.synth.time import program_time as module
from weft.synth.time.program_machine import Activity, Machine
from weft.synth.time.program_time import ProgramClock, ProgramSimulation, simulate_program
from weft.synth.time.runtime_model import MSCCL, RCCL, ProtocolModel, RuntimeModel

MODELS = (MSCCL, replace(MSCCL, overhead_us=Fraction(1, 2), local_GBps=200))


@st.composite
def cases(draw: st.DrawFn, most_turns: int) -> tuple[Program, Topology, int]:
    """Programs of textbook schedules on machines of mixed speed, for some iterations."""
    n, k = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    seed = draw(st.integers(0, 99))
    schedule: Schedule = draw(
        st.sampled_from(
            (
                lambda: patterns.ring_allreduce(n, k),
                lambda: patterns.random_allreduce(n, k, seed),
                lambda: patterns.direct_alltoall(n, k),
                lambda: patterns.tree_broadcast(n, patterns.full(n), k),
                lambda: patterns.one_shot(n, k),
                lambda: draw(schedules(max_ranks=4)),
            )
        )
    )()
    options = CompileOptions(
        instances=draw(st.integers(1, 2)), protocol=draw(st.sampled_from(Protocol))
    )
    machine = schedule.topology
    if not machine.resources and draw(st.booleans()):
        machine = topology(f"hub:{machine.ranks},bw={draw(st.sampled_from([7, 25]))}GB/s")
    compiled = lower_schedule(schedule, options)
    payload = MSCCL.protocols[compiled.protocol].payload
    eighths = 8 * draw(st.integers(0, most_turns - 1)) + draw(st.integers(1, 8))
    size = eighths * payload // 8 * compiled.message_chunks + draw(st.integers(-1, 1))
    return compiled, machine, size


@dataclass
class Draft:
    """A thread block that is being written."""

    send: int | None
    recv: int | None
    channel: int
    code: list[Instr] = field(default_factory=list)


def random_program(dice: random.Random) -> Program:
    """Two to five ranks; single messages, forwarded ones, local work and waits in any order.

    Instructions are written in an order in which they could be done one after the other, so the
    program ends whatever the FIFOs hold.
    """
    ranks, chunks = dice.randint(2, 5), 6
    blocks: list[list[Draft]] = [[] for _ in range(ranks)]
    paths = [_path(dice, blocks, channel) for channel in range(dice.randint(1, 4))]
    for _ in range(dice.randint(1, 12)):
        if dice.random() < 0.25:
            rank = dice.randrange(ranks)
            if blocks[rank]:
                block = dice.randrange(len(blocks[rank]))
                _write(dice, blocks[rank], block, dice.choice(("cpy", "re", "nop")), chunks, 1)
        else:
            count, path = dice.choice((1, 1, 2, 3)), dice.choice(paths)
            for place, (rank, block) in enumerate(path):
                last = place == len(path) - 1
                op = "s" if not place else "r" if last else dice.choice(("rcs", "rrcs", "rrs"))
                _write(dice, blocks[rank], block, op, chunks, count)
    bodies = [[Block(b.channel, b.send, b.recv, tuple(b.code)) for b in rank] for rank in blocks]
    return program(dice.choice(("allreduce", "broadcast")), bodies, ranks * chunks)


def _path(dice: random.Random, blocks: list[list[Draft]], channel: int) -> list[tuple[int, int]]:
    """Neighbours on a line through some ranks, by new blocks: (rank, block) of each."""
    most, first = len(blocks), dice.randrange(len(blocks))
    length = dice.randint(2, most)
    through = [(first + k) % most for k in range(length)]
    if dice.random() < 0.5:
        through.reverse()
    path = []
    for place, rank in enumerate(through):
        send = through[place + 1] if place < length - 1 else None
        path.append((rank, len(blocks[rank])))
        blocks[rank].append(Draft(send, through[place - 1] if place else None, channel))
    return path


def _write(
    dice: random.Random, rank: list[Draft], block: int, op: str, chunks: int, count: int
) -> None:
    """An instruction that waits for some of those before it on its rank."""
    waits = []
    for other, draft in enumerate(rank):
        if other != block and draft.code and dice.random() < 0.4:
            waits.append((other, dice.randrange(len(draft.code))))
    place = f"o{dice.randrange(chunks - count + 1)}"
    rank[block].code.append(instr(op, place, 0 if op == "nop" else count, tuple(waits)))


MB = 1_000_000  # 40 µs on a cable of 25 GB/s
ALPHA = 0.7


def us(p: Program, machine: str | Topology, size: int, **options: object) -> float:
    where = topology(machine) if isinstance(machine, str) else machine
    return simulate_program(p, where, size, **{"model": MSCCL, **options}).time_us


def pair(bandwidth: str = "1", alpha: str = "5", cables: int = 1) -> Topology:
    links = both_ways(0, 1, bandwidth, alpha) * cables
    return Topology("pair", (gpu(0), gpu(1)), links)


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "share"), [("Simple", 1), ("LL", 1 / 2), ("LL128", 15 / 16)])
def test_one_message(protocol: str, share: float) -> None:
    time = us(stream(1), "line:2", 10_000, protocol=Protocol(protocol))
    assert time == pytest.approx(ALPHA + 10_000 / (25_000 * share), rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 8, 17])
def test_ring_allgather(n: int) -> None:
    run = simulate_program(ring_allgather(n), topology(f"ring:{n}"), MB * n, MSCCL)
    assert run.cut.iterations == 1
    assert run.time_us == pytest.approx((n - 1) * (ALPHA + 40), rel=1e-12)
    assert run.algbw_GBps == pytest.approx(n * 1000 / run.time_us)
    assert run.busbw_GBps == pytest.approx((n - 1) * 1000 / run.time_us)
    assert sorted(run.busy_us)[-n:] == pytest.approx([(n - 1) * 40] * n)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_ring_allreduce(n: int) -> None:
    time = us(ring_allreduce(n), f"ring:{n}", MB * n)
    assert time == pytest.approx(2 * (n - 1) * (ALPHA + 40), rel=1e-12)


@pytest.mark.parametrize("n", range(2, 18))
def test_all_pairs_wait_for_ports_only(n: int) -> None:
    """Whatever the order of the blocks: they are served as rotations."""
    dice = random.Random(n)
    shuffled = [dice.sample([p for p in range(n) if p != r], n - 1) for r in range(n)]
    expected = pytest.approx(ALPHA + (n - 1) * 40, rel=1e-12)
    assert us(all_pairs(n), f"hub:{n}", MB * n) == expected
    assert us(all_pairs(n, shuffled), f"hub:{n}", MB * n) == expected


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_binomial_broadcast_serves_the_largest_subtree_first(n: int) -> None:
    steps = n.bit_length() - 1
    time = us(binomial_broadcast(n), f"hub:{n}", MB)
    assert time == pytest.approx(steps * (ALPHA + 40), rel=1e-12)


@pytest.mark.parametrize(("n", "chunks"), [(2, 1), (3, 5), (6, 8)])
def test_chain_broadcast_is_pipelined(n: int, chunks: int) -> None:
    time = us(chain_broadcast(n, chunks), f"line:{n}", chunks * MB)
    assert time == pytest.approx((n - 1) * ALPHA + (n - 2 + chunks) * 40, rel=1e-12)


def test_a_full_fifo_holds_the_sender_back() -> None:
    """Messages of 1 µs, α = 5: two leave, the third when the first one was received, at 6 …"""
    p = stream(1, pieces=6)
    run = simulate_program(p, pair(), 6000, MSCCL)
    assert run.time_us == pytest.approx(12 + 2 + 5)
    sender = run.spent_us[0]
    assert sender[Activity.SENDING] == pytest.approx(6)
    assert sender[Activity.SLOT] == pytest.approx(8)
    assert run.spent_us[1][Activity.MESSAGE] == pytest.approx(19)
    # Eight slots: they follow each other, at half the bandwidth.
    assert us(p, pair(), 6000, protocol=Protocol.LL) == pytest.approx(6 * 2 + 5)


def test_two_blocks_share_a_link() -> None:
    ranks = [
        [Block(c, 1, None, (instr("s", f"o{c}"),)) for c in range(2)],
        [Block(c, None, 0, (instr("r", f"o{c}"),)) for c in range(2)],
    ]
    p = program("broadcast", ranks, 2)
    run = simulate_program(p, pair("25"), 2 * MB, MSCCL)
    assert run.time_us == pytest.approx(85)
    assert sorted(run.spent_us[:, Activity.LINK]) == pytest.approx([0, 0, 0, 40])
    assert us(p, pair("25", cables=2), 2 * MB) == pytest.approx(45)  # a cable for each channel


def test_a_shared_resource_is_occupied_at_its_own_speed() -> None:
    """0 -> 1 and 2 -> 3 through one NIC of 20 GB/s: 50 µs each, and it is free between."""
    nodes = tuple(map(gpu, range(4)))
    links = (*both_ways(0, 1, 25), *both_ways(2, 3, 50))
    machine = Topology("nic", nodes, links, (Resource("nic", (0, 2), Fraction(20)),))
    ranks = [
        [Block(0, r + 1, None, (instr("s", "o0"),))]
        if r % 2 == 0
        else [Block(0, None, r - 1, (instr("r", "o0"),))]
        for r in range(4)
    ]
    run = simulate_program(program("broadcast", ranks, 1), machine, MB, MSCCL)
    assert run.time_us == pytest.approx(100)
    assert run.busy_us == pytest.approx([40, 0, 20, 0, 100])


def test_what_an_instruction_waits_for() -> None:
    """The second block sends what the first has received; a copy of 1 MB takes 10 µs."""
    code = [
        [Block(0, 1, None, (instr("s", "o0"),))],
        [
            Block(0, None, 0, (instr("r", "o0"), instr("cpy", "o0"))),
            Block(0, 2, None, (instr("s", "o0", 1, ((0, 1),)),)),
        ],
        [Block(0, None, 1, (instr("r", "o0"),))],
    ]
    p = program("broadcast", code, 1)
    assert us(p, "line:3", MB) == pytest.approx(81.4)
    run = simulate_program(p, topology("line:3"), MB, replace(MSCCL, local_GBps=100))
    assert run.time_us == pytest.approx(91.4)
    assert run.spent_us[1][Activity.LOCAL] == pytest.approx(10)
    assert run.spent_us[2][Activity.BLOCK] == pytest.approx(50.7)


def test_overhead_of_every_operation() -> None:
    """Send, forward, receive: each waits 2 µs before it sends, or is done."""
    time = us(chain_broadcast(3, 1), "line:3", MB, model=replace(MSCCL, overhead_us=2))
    assert time == pytest.approx(81.4 + 3 * 2)


def test_how_a_message_is_cut() -> None:
    p = stream(5)
    cut = MSCCL.cut(replace(p, collective=ring_allgather(2).collective), 5 << 20)
    assert (cut.iterations, cut.merge, cut.piece) == (1, 2, 1 << 20)
    assert MSCCL.cut(p, 5 << 20).merge == 1  # a broadcast is merged within 512 KiB
    cut = MSCCL.cut(p, 25 << 20)
    assert (cut.iterations, cut.merge, cut.piece, cut.last) == (3, 1, 2 << 20, 1 << 20)
    ll = replace(p, protocol=Protocol.LL)
    assert MSCCL.cut(ll, 5 << 20).iterations == 32
    assert RCCL.cut(ll, 5 << 20).iterations == 64
    assert MSCCL.cut(ll, 5).merge == 71
    assert MSCCL.cut(p, 7).chunk == Fraction(7, 5)


def test_chunks_of_one_instruction_travel_together_while_they_fit() -> None:
    """4 chunks through 2 hops: one message of 4, or 4 that follow each other."""
    code = [
        [Block(0, 1, None, (instr("s", "o0", 4),))],
        [Block(0, 2, 0, (instr("rcs", "o0", 4),))],
        [Block(0, None, 1, (instr("r", "o0", 4),))],
    ]
    p = program("broadcast", code, 4)
    assert us(p, "line:3", 400_000) == pytest.approx(2 * (ALPHA + 16))
    assert us(p, "line:3", 4 * MB) == pytest.approx(2 * ALPHA + 5 * 40)


def test_iterations_follow_each_other() -> None:
    """A chunk of 5 MiB is three messages of a stream; a ring pays its α in every iteration."""
    assert us(stream(1), "line:2", 5 << 20) == pytest.approx(ALPHA + (5 << 20) / 25e3)
    run = simulate_program(ring_allgather(4), topology("ring:4"), 4 * (5 << 20), MSCCL)
    assert run.cut.iterations == 3
    assert run.time_us == pytest.approx(3 * (3 * ALPHA + (5 << 20) / 25e3))


def test_a_chain_hides_its_latency_behind_other_iterations() -> None:
    size = 64 << 20
    time = us(chain_broadcast(4, 1), "line:4", size)
    assert time == pytest.approx(3 * ALPHA + (size + 2 * (2 << 20)) / 25e3)


def test_latency_of_a_protocol() -> None:
    quick = replace(MSCCL.protocols[Protocol.LL], alpha=Fraction(1, 7))
    model = replace(MSCCL, protocols={Protocol.LL: quick})
    time = us(stream(1), "line:2", 1000, model=model, protocol=Protocol.LL)
    assert time == pytest.approx(0.1 + 0.08)


# --- what cannot be simulated ---------------------------------------------------------------------


def test_a_deadlock_names_what_is_stuck() -> None:
    """Both send three, receive after that: under Simple two fit the FIFO."""
    code = tuple(instr("s", f"o{i}") for i in range(3)) + tuple(
        instr("r", f"o{i}") for i in range(3, 6)
    )
    ranks = [[Block(0, 1 - r, 1 - r, code)] for r in range(2)]
    p = program("allreduce", ranks, 6)
    with pytest.raises(
        CheckFailed,
        match=(r"rank 0 tb 0 step 2 \(s\) waits for a free slot to rank 1; rank 1 tb 0 step 2"),
    ):
        us(p, "line:2", 600)
    assert us(p, "line:2", 600, protocol=Protocol.LL) > 0


def test_other_reasons_never_to_end() -> None:
    lonely = program("broadcast", [[Block(0, 1, 1, (instr("r", "o0"),))], []], 1)
    with pytest.raises(CheckFailed, match=r"step 0 \(r\) waits for a message from rank 1"):
        us(lonely, "line:2", 100)
    circle = [Block(0, None, None, (instr("nop", "o0", 0, ((1 - b, 0),)),)) for b in range(2)]
    with pytest.raises(CheckFailed, match=r"rank 0 tb 0 step 0 \(nop\) waits for step 0 of tb 1"):
        us(program("broadcast", [circle, []], 1), "line:2", 100)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([Block(0, 1, None, ()), Block(0, 1, None, ())], "tb 1 uses the connection from rank 0"),
        ([Block(0, None, None, (instr("s", "o0"),))], r"step 0 \(s\) sends: expected a send peer"),
        ([Block(0, 1, None, (instr("rcs", "o0"),))], r"\(rcs\) receives: expected a receive peer"),
        ([Block(0, 1, None, (instr("s", "o0", 1, ((4, 0),)),))], "tb 4, which does not exist"),
    ],
)
def test_malformed_programs(blocks: list[Block], message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        us(program("broadcast", [blocks, []], 1), "line:2", 100)


def test_a_machine_that_does_not_fit() -> None:
    with pytest.raises(BadTopology, match=r"rank 0 sends to rank 2, and no link .* 5 more"):
        us(all_pairs(4), "line:4", 100)
    with pytest.raises(BadTopology, match="for 4 ranks, and line:5 has 5"):
        us(all_pairs(4), "line:5", 100)


def test_numbers_that_make_no_sense() -> None:
    with pytest.raises(UserError, match="0 bytes"):
        us(stream(1), "line:2", 0)
    for wrong in ({"overhead_us": -1}, {"local_GBps": 0}):
        with pytest.raises(UserError, match="makes no sense"):
            replace(MSCCL, **wrong)
    with pytest.raises(UserError, match="efficiency of 2"):
        ProtocolModel(1, 1, Fraction(2))
    with pytest.raises(UserError, match="got LL"):
        us(stream(1), "line:2", 1, model=replace(MSCCL, protocols={}), protocol=Protocol.LL)


# --- against the slow one, and against the whole run ----------------------------------------------


@settings(max_examples=examples(12, 40), deadline=None)
@given(cases(4), st.sampled_from(MODELS))
def test_equal_to_the_slow_simulator(
    case: tuple[Program, Topology, int], model: RuntimeModel
) -> None:
    compiled, machine, size = case
    found = simulate_program(compiled, machine, size, model)
    assert found.time_us == pytest.approx(float(Slow(compiled, machine, size, model).time))


@settings(max_examples=examples(12, 60), deadline=None)
@given(cases(40), st.sampled_from(MODELS))
def test_skipped_iterations_change_nothing(
    case: tuple[Program, Topology, int], model: RuntimeModel
) -> None:
    compiled, machine, size = case
    assert_skipping_is_exact(compiled, machine, size, model)


def assert_skipping_is_exact(
    p: Program, machine: Topology, size: int, model: RuntimeModel = MSCCL
) -> ProgramSimulation:
    quick = simulate_program(p, machine, size, model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_TURNS", 1 << 30)
        whole = simulate_program(p, machine, size, model)
    assert whole.simulated == whole.operations
    assert quick.time_us == whole.time_us
    assert np.array_equal(quick.busy_us, whole.busy_us)
    assert np.array_equal(quick.finish_us, whole.finish_us)
    assert quick.spent_us == pytest.approx(whole.spent_us)
    return quick


def test_a_thousand_iterations_cost_a_few() -> None:
    run = simulate_program(ring_allreduce(8), topology("ring:8"), 8 << 30, MSCCL)
    assert run.cut.iterations == 512
    assert run.operations == 512 * 8 * 15
    assert run.simulated < 10 * 8 * 15


def test_blocks_that_run_ahead() -> None:
    """A fast link feeds a slow one, within rank 1: the lead of one block grows all the time."""
    code = [
        [Block(0, 1, None, (instr("s", "o0"),))],
        [
            Block(0, None, 0, (instr("r", "o0"),)),
            Block(0, 2, None, (instr("s", "o0", 1, ((0, 0),)),)),
        ],
        [Block(0, None, 1, (instr("r", "o0"),))],
    ]
    p = program("broadcast", code, 1)
    links = (*both_ways(0, 1, 50, 1), *both_ways(1, 2, "12.5", 1))
    machine = Topology("two speeds", tuple(map(gpu, range(3))), links)
    size = 1000 << 20
    run = simulate_program(p, machine, size, MSCCL)
    assert run.time_us == pytest.approx(2 + (2 << 20) / 50e3 + size / 12.5e3)
    assert run.simulated < run.operations / 2
    assert run.finish_us[1] == pytest.approx(1 + size / 50e3)


@pytest.mark.parametrize("slow", ["5", "3.9", "4.7", "3.2"])
def test_a_block_that_catches_up_with_one_it_waits_for(slow: str) -> None:
    """Block 1 shares a link with block 0 until that is done; then it is faster than block 2."""
    code = [
        [
            Block(0, 1, None, (instr("s", "o0"),)),
            Block(1, 1, None, (instr("s", "o0", 4, ((2, 0),)),)),
            Block(0, 2, None, (instr("s", "o0"),)),
        ],
        [Block(0, None, 0, (instr("r", "o0"),)), Block(1, None, 0, (instr("r", "o0", 4),))],
        [Block(0, None, 0, (instr("r", "o0"),))],
    ]
    links = (*both_ways(0, 1, 25, 1), *both_ways(0, 2, slow, 1))
    machine = Topology("catch", tuple(map(gpu, range(3))), links)
    run = assert_skipping_is_exact(program("broadcast", code, 4), machine, 1601 * (1 << 22))
    assert run.cut.iterations == 801
    assert run.simulated < run.operations


def test_where_no_state_returns_in_time_the_rest_is_extrapolated() -> None:
    """Three links whose speeds have no small common period."""
    ranks = [
        [Block(0, r + 1, None, (instr("s", "o0"),))]
        if r % 2 == 0
        else [Block(0, None, r - 1, (instr("r", "o0"),))]
        for r in range(6)
    ]
    speeds = ("25", "24.97", "24.93")
    links = [x for i, bw in enumerate(speeds) for x in both_ways(2 * i, 2 * i + 1, bw)]
    machine = Topology("three", tuple(map(gpu, range(6))), tuple(links))
    p = program("broadcast", ranks, 1)
    run = simulate_program(p, machine, 1 << 30, MSCCL, most_operations=600)
    assert not run.exact
    assert run.simulated <= 2 * 600
    assert run.time_us == pytest.approx((1 << 30) / 24.93e3)
    assert run.busy_us[0] == pytest.approx((1 << 30) / 25e3)
    assert simulate_program(p, machine, 1 << 30, MSCCL).exact


# --- laws -----------------------------------------------------------------------------------------


@settings(max_examples=examples(9, 60), deadline=None)
@given(schedules(max_ranks=5), st.integers(1, 1 << 26))
def test_never_below_the_bound(schedule: Schedule, size: int) -> None:
    try:
        compiled = lower_schedule(schedule)
    except UserError:  # what the target cannot express
        return
    found = simulate_program(compiled, schedule.topology, size, MSCCL)
    least = lower_bound_us(bounds(schedule.topology, schedule.collective), size)
    assert found.time_us >= float(least) * (1 - 1e-12)


@settings(max_examples=examples(20, 40), deadline=None)
@given(
    st.integers(2, 6), st.integers(1, 1 << 26), st.integers(1, 1 << 22), st.sampled_from(Protocol)
)
def test_more_bytes_take_longer(n: int, size: int, more: int, protocol: Protocol) -> None:
    """Where nothing competes for a link and instructions have one chunk."""
    for p in (ring_allgather(n), ring_allreduce(n), chain_broadcast(n, 3)):
        shorter, longer = (us(p, f"full:{n}", s, protocol=protocol) for s in (size, size + more))
        assert shorter < longer


# --- compiled -------------------------------------------------------------------------------------


@contextmanager
def ticks_that_do_not_fit() -> Iterator[None]:
    """All runs are of the plain kernel, as if exact ticks did not fit 64 bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module._Runs, "_exact", lambda self, turns: False)
        yield


def assert_same(
    p: Program,
    machine: Topology,
    size: int,
    model: RuntimeModel = MSCCL,
    protocol: Protocol | None = None,
    most: int = 100_000,
) -> ProgramSimulation:
    """Both machines, in every number; and no run is below the load of its busiest resource."""
    with ticks_that_do_not_fit():
        slow = ProgramClock(p, machine, model).simulate(size, protocol, most_operations=most)
    quick = ProgramClock(p, machine, model).simulate(size, protocol, most_operations=most)
    assert quick.time_us == slow.time_us
    assert quick.busy_us.tolist() == slow.busy_us.tolist()
    assert quick.finish_us.tolist() == slow.finish_us.tolist()
    assert quick.spent_us.tolist() == slow.spent_us.tolist()
    assert (quick.exact, quick.simulated, quick.operations, quick.cut) == (
        slow.exact,
        slow.simulated,
        slow.operations,
        slow.cut,
    )
    least = ProgramClock(p, machine, model).least_us(size, protocol or p.protocol)
    assert not quick.exact or least <= quick.time_us * (1 + 1e-9)
    return quick


@pytest.fixture(autouse=True)
def compiled_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that ran, one after the other."""
    ran: list[str] = []
    run = module.run_to_end

    def note(machine: Machine, most: float) -> object:
        ran.append("plain" if machine.kernel is program_kernel else "compiled")
        return run(machine, most)

    monkeypatch.setattr(module, "run_to_end", note)
    return ran


# --- the same, in every number --------------------------------------------------------------------

WRITTEN = [
    (stream(3, 4), "line:2"),
    (ring_allgather(5), "ring:5"),
    (ring_allreduce(6), "ring:6"),
    (ring_allreduce(4), "hub:4"),
    (chain_broadcast(4, 3), "line:4"),
    (all_pairs(6), "hub:6"),
    (all_pairs(5), "full:5"),
    (binomial_broadcast(8), "hub:8"),
]


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize(("p", "machine"), WRITTEN)
def test_programs_written_by_hand(p: Program, machine: str, protocol: Protocol) -> None:
    for size in (1, 999, 1_000_003, 70_000_001):
        assert_same(p, topology(machine), size, protocol=protocol)


@settings(max_examples=examples(17, 60), deadline=None)
@given(cases(40), st.sampled_from(MODELS), st.sampled_from(Protocol))
def test_compiled_schedules(
    case: tuple[Program, Topology, int], model: RuntimeModel, protocol: Protocol
) -> None:
    """Under another protocol than its own a program may wait for slots for ever: told by both."""
    p, machine, size = case
    try:
        assert_same(p, machine, size, model, protocol)
    except CheckFailed:
        assert protocol is not p.protocol
        with ticks_that_do_not_fit():
            slow = hang(p, machine, size, model, protocol)
        assert slow == hang(p, machine, size, model, protocol) != ""


def hang(p: Program, machine: Topology, size: int, model: RuntimeModel, protocol: Protocol) -> str:
    """Return the error of a program that never ends, else an empty text."""
    clock = ProgramClock(p, machine, model)
    try:
        clock.simulate(size, protocol, most_operations=100_000)
    except CheckFailed as error:
        return str(error)
    return ""


@settings(max_examples=examples(35, 150), deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 1 << 24),
    st.sampled_from(MODELS),
    st.sampled_from(Protocol),
)
def test_random_programs(
    dice: random.Random, size: int, model: RuntimeModel, protocol: Protocol
) -> None:
    """Messages, waits and counts at random, on links of few speeds: many ties."""
    p = random_program(dice)
    machine = topology(f"{dice.choice(['hub', 'full', 'ring'])}:{len(p.ranks)}")
    if dice.random() < 0.7:
        links = [replace(x, bandwidth=Fraction(dice.choice((10, 20, 25)))) for x in machine.links]
        machine = replace(machine, links=tuple(links))
    if dice.random() < 0.5:
        links = [replace(x, latency=Fraction(dice.choice((0, 1, 2)))) for x in machine.links]
        machine = replace(machine, links=tuple(links))
    assert_same(p, machine, size, model, protocol, most=4000)


def test_no_programs_are_left_to_python(compiled_runs: list[str]) -> None:
    assert_same(ring_allreduce(6), topology("ring:6"), 1 << 26)
    assert compiled_runs == ["plain", "compiled"]


# --- at the edges ---------------------------------------------------------------------------------


def test_a_deadlock_says_the_same() -> None:
    """Where the FIFO of two slots is full, in whichever machine."""
    code = tuple(instr("s", f"o{i}") for i in range(3)) + tuple(
        instr("r", f"o{i}") for i in range(3, 6)
    )
    p = program("allreduce", [[Block(0, 1 - r, 1 - r, code)] for r in range(2)], 6)
    with pytest.raises(CheckFailed) as slow:
        simulate_program(p, topology("line:2"), 600, MSCCL)
    clock = ProgramClock(p, topology("line:2"), MSCCL)
    for ask in (clock.simulate, clock.time_us):
        with pytest.raises(CheckFailed) as quick:
            ask(600)
        assert str(quick.value) == str(slow.value)
    assert clock.time_us(600, Protocol.LL) > 0


SPEEDS = tuple(Fraction(p, 10_007) for p in (100_003, 100_019, 100_043, 100_049))
"""Their common unit is beyond 64 bits."""


def awkward() -> Topology:
    links = [
        replace(x, bandwidth=SPEEDS[i % 4], latency=Fraction(1, 997 + i))
        for i, x in enumerate(topology("ring:6").links)
    ]
    return Topology("awkward", tuple(map(gpu, range(6))), tuple(links))


def test_ticks_that_do_not_fit(compiled_runs: list[str]) -> None:
    """The simulation is exact, in Python; the clock rounds to 2^-n µs."""
    p, machine = ring_allreduce(6), awkward()
    for size in (6_000_003, 80_000_033):
        exact = simulate_program(p, machine, size, MSCCL)
        assert compiled_runs.pop() == "plain"
        assert ProgramClock(p, machine, MSCCL).time_us(size) == pytest.approx(
            exact.time_us, rel=1e-9
        )
        assert compiled_runs.pop() == "compiled"


def test_a_long_run_in_which_no_state_comes_back(compiled_runs: list[str]) -> None:
    ranks = [
        [Block(0, r + 1, None, (instr("s", "o0"),))]
        if r % 2 == 0
        else [Block(0, None, r - 1, (instr("r", "o0"),))]
        for r in range(6)
    ]
    speeds = ("25", "24.97", "24.93")
    links: list[Link] = [x for i, bw in enumerate(speeds) for x in both_ways(2 * i, 2 * i + 1, bw)]
    machine = Topology("three", tuple(map(gpu, range(6))), tuple(links))
    p = program("broadcast", ranks, 1)
    size = 6001 << 21
    run = simulate_program(p, machine, size, MSCCL)
    assert compiled_runs == ["compiled"]
    assert run.exact
    assert run.time_us == pytest.approx(size / 24.93e3)
    assert_same(p, machine, size, most=300)
    assert not assert_same(p, machine, size, most=300).exact


def test_programs_that_do_nothing() -> None:
    empty = program("broadcast", [[], []], 1)
    assert assert_same(empty, topology("line:2"), 100).time_us == 0
    idle = program("broadcast", [[Block(0, None, None, (instr("nop", "o0", 0),))], []], 1)
    assert assert_same(idle, topology("line:2"), 100).time_us == 0


# --- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [None, *Protocol])
def test_a_clock_tells_what_each_simulation_does(protocol: Protocol | None) -> None:
    """Whatever it was asked before: sizes merge chunks differently."""
    p, machine = stream(7, 3), topology("line:2")
    clock = ProgramClock(p, machine, MSCCL)
    for size in (1, 21, 5_000, 400_000, 3 << 20, 30 << 20, 1 << 28, 21):
        run = simulate_program(p, machine, size, MSCCL, protocol=protocol)
        assert clock.time_us(size, protocol) == run.time_us
        again = clock.simulate(size, protocol)
        assert np.array_equal(again.spent_us, run.spent_us)
        assert (again.cut, again.simulated) == (run.cut, run.simulated)


@pytest.mark.parametrize("protocol", Protocol)
def test_a_large_message_takes_hardly_more_than_its_bytes_hold_a_link(protocol: Protocol) -> None:
    clock = ProgramClock(ring_allreduce(6), topology("ring:6"), MSCCL)
    taken, least = (ask(1 << 30, protocol) for ask in (clock.time_us, clock.least_us))
    assert least <= taken <= 1.3 * least


def test_a_clock_refuses_as_the_simulation_does() -> None:
    with pytest.raises(BadTopology, match="for 2 ranks, and line:5 has 5"):
        ProgramClock(stream(1), topology("line:5"), MSCCL)
    with pytest.raises(UserError, match="0 bytes"):
        ProgramClock(stream(1), topology("line:2"), MSCCL).time_us(0)
    with pytest.raises(BadTopology, match=r"rank 0 sends to rank 2"):
        ProgramClock(all_pairs(4), topology("line:4"), MSCCL).time_us(100)


@pytest.mark.parametrize("size", [1 << 10, 1 << 20, 1 << 26])
def test_a_run_is_given_up_just_beyond_its_limit(size: int) -> None:
    """In one turn of the loop, in some, and where turns that repeat are passed at once."""
    clock = ProgramClock(ring_allreduce(4), topology("ring:4"), MSCCL)
    us = clock.time_us(size)
    assert clock.time_us(size, limit=us) == us
    assert clock.time_us(size, limit=2 * us) == us
    for share in (0.01, 0.5, 0.999):
        assert clock.time_us(size, limit=share * us) == float("inf")
    assert clock.time_us(size) == us
