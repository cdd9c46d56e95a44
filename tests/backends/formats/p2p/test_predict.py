"""Predicted times of scripts: by hand, and against the simulator where both must agree."""

from fractions import Fraction

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.model import ChunkRange, LocalOperation, Message, Round, Script
from weft.backends.formats.p2p.predict import predict
from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Buffer
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Link, Resource, Topology, gpu
from weft.synth.engines.classic.text import named_algorithm
from weft.synth.time.schedule_tables import CostModel
from weft.synth.time.schedule_time import simulate

I, O, S = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH  # noqa: E741


def full(ranks: int, alpha, GBps, *shared: tuple[str, list[tuple[int, int]], int]) -> Topology:
    ends = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    links = tuple(Link(a, b, Fraction(GBps), Fraction(alpha)) for a, b in ends)
    resources = tuple(
        Resource(name, tuple(map(ends.index, flows)), Fraction(rate))
        for name, flows, rate in shared
    )
    return Topology("full", tuple(map(gpu, range(ranks))), links, resources)


def ring_allgather(machine: Topology) -> Schedule:
    n = machine.ranks
    link = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    return Schedule.of(
        machine,
        make("allgather", n),
        [
            Transfer((r - step) % n, r, (r + 1) % n, (link[r, (r + 1) % n],), step)
            for step in range(n - 1)
            for r in range(n)
        ],
    )


@settings(deadline=None, max_examples=examples(20, 40))
@given(
    ranks=st.integers(2, 7),
    alpha=st.fractions(0, 20, max_denominator=7),
    GBps=st.fractions(Fraction(1, 3), 100, max_denominator=9),
    size=st.integers(1, 1 << 24),
)
def test_a_ring_takes_what_the_simulator_says(ranks, alpha, GBps, size):
    schedule = ring_allgather(full(ranks, alpha, GBps))
    found = predict(compile_script(schedule), schedule.topology, size)
    assert found.time_us == pytest.approx(simulate(schedule, size).time_us, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("rate", [1, 3, 7, 10])
def test_a_ring_through_a_shared_memory(rate):
    everybody = [(a, b) for a in range(4) for b in range(4) if a != b]
    schedule = ring_allgather(full(4, 0, 10, ("memory", everybody, rate)))
    found = predict(compile_script(schedule), schedule.topology, 1 << 20)
    assert found.time_us == pytest.approx(simulate(schedule, 1 << 20).time_us, rel=1e-5)


@pytest.mark.parametrize("name", ["dgx1", "ring:5", "torus:4x4"])
def test_all_at_once_takes_what_the_simulator_says(name):
    """One step of everything that a rank can send to its neighbours."""
    machine = topology(name)
    link = {(x.src, x.dst): i for i, x in enumerate(machine.links) if x.dst < machine.ranks}
    ranks = sorted({rank for ends in link for rank in ends if rank < machine.ranks})
    pairs = [ends for ends in link if ends[0] < machine.ranks]
    schedule = Schedule.of(
        machine,
        make("allgather", machine.ranks),
        [Transfer(a, a, b, (link[a, b],)) for a, b in pairs],
    )
    rounds = [
        (
            Round(
                tuple(Message(ChunkRange(I, 0, 1), b) for a, b in pairs if a == r),
                tuple(Message(ChunkRange(O, a, 1), a) for a, b in pairs if b == r),
            ),
        )
        for r in ranks
    ]
    script = Script("x", schedule.collective, False, (0,) * len(ranks), tuple(rounds))
    assert predict(script, machine, 1 << 20).time_us == pytest.approx(
        simulate(schedule, 1 << 20).time_us, rel=1e-5
    )


def script_of(ranks: int, rounds: list[list[tuple[int, int, int]]], work: int = 0) -> Script:
    """Rounds of messages (source, target, chunks); each received chunk is summed ``work`` times."""
    own = []
    for rank in range(ranks):
        own.append(
            tuple(
                Round(
                    tuple(Message(ChunkRange(I, 0, n), b) for a, b, n in some if a == rank),
                    tuple(Message(ChunkRange(S, 0, n), a) for a, b, n in some if b == rank),
                    tuple(
                        LocalOperation(
                            ChunkRange(S, 0, n), (ChunkRange(S, 0, n), ChunkRange(I, 0, n))
                        )
                        for a, b, n in some
                        if b == rank
                        for _ in range(work)
                    ),
                )
                for some in rounds
            )
        )
    return Script("x", make("allreduce", ranks).split(4), False, (4,) * ranks, tuple(own))


CHUNK = 10_000  # bytes: 1 µs at 10 GB/s


def test_two_messages_of_a_pair_queue_and_their_latencies_overlap():
    found = predict(script_of(2, [[(0, 1, 1), (0, 1, 2)]]), full(2, 5, 10), 4 * CHUNK)
    assert found.rank_us == (3.0, 8.0)


def test_a_message_waits_for_both_ends():
    """Rank 1 receives from rank 0 for 8 µs; only then it takes what rank 2 has had for long."""
    found = predict(script_of(3, [[(0, 1, 3)], [(2, 1, 1)]]), full(3, 5, 10), 4 * CHUNK)
    assert found.rank_us == (3.0, 14.0, 9.0)


def test_a_waiting_message_does_not_delay_others():
    machine = full(4, 0, 10, ("port", [(0, 1), (0, 2)], 10))
    found = predict(script_of(4, [[(0, 1, 4), (0, 2, 1), (3, 2, 1)]]), machine, 4 * CHUNK)
    assert found.rank_us == (5.0, 4.0, 5.0, 1.0)


def test_a_shared_resource_has_its_own_bandwidth():
    machine = full(3, 1, 10, ("slow", [(0, 1), (2, 1)], 5))
    found = predict(script_of(3, [[(0, 1, 1), (2, 1, 1)]]), machine, 4 * CHUNK)
    assert found.rank_us == (2.0, 5.0, 4.0)


def test_sums_cost_their_bytes():
    script = script_of(2, [[(0, 1, 2)], [(1, 0, 1)]], work=3)
    assert predict(script, full(2, 1, 10), 4 * CHUNK).rank_us == (5.0, 4.0)
    # 2 chunks three times at 20 GB/s: 3 µs before the second round begins, 1.5 µs after it.
    assert predict(script, full(2, 1, 10), 4 * CHUNK, sum_GBps=20).rank_us == (9.5, 8.0 - 1)


def test_an_overhead_occupies_what_is_shared():
    """Four messages at once through one machine: each holds it 3 µs longer."""
    everybody = [(a, b) for a in range(4) for b in range(4) if a != b]
    script = script_of(4, [[(r, (r + 1) % 4, 1) for r in range(4)]])
    machine = full(4, 2, 10, ("cores", everybody, 10))
    assert predict(script, machine, 4 * CHUNK).time_us == 4 + 2
    assert predict(script, machine, 4 * CHUNK, overhead_us=3).time_us == 4 * (1 + 3) + 2


@pytest.mark.parametrize("overhead", [0, Fraction(7, 2), 40])
def test_a_ring_with_overhead_takes_what_the_simulator_says(overhead):
    everybody = [(a, b) for a in range(4) for b in range(4) if a != b]
    schedule = ring_allgather(full(4, 0, 10, ("cores", everybody, 10)))
    found = predict(compile_script(schedule), schedule.topology, 1 << 16, overhead_us=overhead)
    wanted = simulate(schedule, 1 << 16, CostModel(overhead_us=overhead))
    assert found.time_us == pytest.approx(wanted.time_us, rel=1e-5)


def test_a_machine_with_other_ranks():
    with pytest.raises(BadTopology, match="3 ranks"):
        predict(script_of(3, []), full(2, 1, 1), 1)


@pytest.mark.parametrize("text", ["ring{collective=allreduce,ranks=64}", "one_shot{ranks=16}"])
def test_long_scripts(text):
    script = compile_script(named_algorithm(f"classic:{text}").algorithm)
    n = script.collective.ranks
    found = predict(script, full(n, 2, 10), n * CHUNK).time_us
    if text.startswith("ring"):
        assert found == pytest.approx(2 * (n - 1) * 3.0)
    else:
        assert found == pytest.approx(2 + n)
