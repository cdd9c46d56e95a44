"""Streams of allgathers: right, near the bound, and judged by somebody who cannot be fooled."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.catalogue import topology
from weft.synth.engines.greedy.check import StreamCheck
from weft.synth.engines.greedy.plan import TransferBlock, TransferPlan, plan_of
from weft.synth.engines.greedy.stream import Stream, ingress_bound_us, read, run, stream

CHUNK = 50 * (1 << 20) * 1024 // 1000
"""Bytes such that a chunk takes about 1 ms at 50 GB/s."""


@pytest.mark.parametrize(
    ("machine", "pieces", "steps"),
    [
        # the corner must receive N - 1 chunks over two links, each rank of a torus over four or six
        ("mesh:5x5", 1, 12),
        ("mesh:10x10", 1, 50),
        ("mesh:7x12", 1, 42),
        ("mesh:3x4x5", 1, 20),
        ("torus:3x3x3", 1, 5),
        ("torus:3x3x3", 4, 18),
        ("torus:3x4x5", 1, 11),  # one more: 10 take other seeds
        ("torus:4x4", 4, 15),
        ("torus:8x8", 1, 17),  # one more than the bound
        ("torus:10x10x10", 1, 168),  # one more
    ],
)
def test_steps_are_those_of_the_corner(machine: str, pieces: int, steps: int) -> None:
    where = topology(f"{machine},alpha=0us")
    source = stream(where, where.ranks * CHUNK, pieces=pieces, seed=1)
    hold = int(source.machine.hold[0])
    report = run(source)
    assert report.verified, report.problem
    assert report.transfers == where.ranks * (where.ranks - 1) * pieces
    assert round(report.time_us * source.machine.unit / hold) <= steps
    assert report.time_us >= report.bound_us * (1 - 1e-9)


@pytest.mark.parametrize(
    "machine", ["torus:8x8", "torus:6x10", "mesh:8x8", "torus:4x4x4", "mesh:4x5x3", "torus:16x16"]
)
def test_time_is_within_two_percent_of_the_bound(machine: str) -> None:
    where = topology(machine)
    report = run(stream(where, where.ranks << 24, pieces=16, seed=1))
    assert report.verified
    assert 1 - 1e-9 <= report.of_bound <= 1.02


@settings(max_examples=examples(6, 30), deadline=None)
@given(topologies(switches=False), st.integers(1, 3), st.integers(0, 3), st.integers(1, 1 << 20))
def test_random_machines(where: object, pieces: int, seed: int, size: int) -> None:
    source = stream(where, size * where.ranks, pieces=pieces, seed=seed, block=16)
    report = run(source) if _few_under_way(source) else None
    if report is not None:
        assert report.verified, report.problem
        assert report.time_us >= ingress_bound_us(where, size * where.ranks) * (1 - 1e-9)


def _few_under_way(source: Stream) -> bool:
    m = source.machine
    return bool((m.arrives // m.hold[m.first[:-1]]).max() < 60)


@pytest.mark.parametrize("machine", ["torus:4x4", "mesh:3x4", "ring:7"])
def test_the_same_seed_gives_the_same_stream(machine: str) -> None:
    a, b, c = (_plan(machine, seed)[1] for seed in (5, 5, 6))
    assert np.array_equal(a.hop, b.hop)
    assert np.array_equal(a.chunk, b.chunk)
    assert not (np.array_equal(a.hop, c.hop) and np.array_equal(a.chunk, c.chunk))


# --- the judge ------------------------------------------------------------------------------------


def _plan(machine: str, seed: int = 1) -> tuple[Stream, TransferPlan]:
    where = topology(machine)
    source = stream(where, where.ranks << 20, pieces=2, seed=seed)
    return source, plan_of(source.machine, source.blocks)


def _judged(source: Stream, plan: TransferPlan) -> str:
    judge = StreamCheck(source.topology, source.pieces, source.chunk_bytes, source.machine.unit)
    cuts = np.flatnonzero(np.diff(plan.start, prepend=-1))
    counts = np.diff(cuts, append=len(plan.start))
    judge.feed(TransferBlock(plan.start[cuts], counts, plan.hop, plan.chunk))
    verdict = judge.finish()
    assert verdict.ok == (not verdict.problem)
    return verdict.problem


def _without(plan: TransferPlan, i: int) -> TransferPlan:
    keep = np.arange(len(plan.hop)) != i
    return replace(plan, hop=plan.hop[keep], chunk=plan.chunk[keep], start=plan.start[keep])


def _again(plan: TransferPlan, i: int) -> TransferPlan:
    late = plan.start[-1] + 10 * plan.machine.arrives.max()
    return replace(
        plan,
        hop=np.append(plan.hop, plan.hop[i]),
        chunk=np.append(plan.chunk, plan.chunk[i]),
        start=np.append(plan.start, late),
    )


def _moved(plan: TransferPlan, i: int, ticks: int) -> TransferPlan:
    start = plan.start.copy()
    start[i:] += ticks
    return replace(plan, start=start)


def _changed(plan: TransferPlan, name: str, i: int, value: int) -> TransferPlan:
    column = getattr(plan, name).copy()
    column[i] = value
    return replace(plan, **{name: column})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p, ""),
        (lambda p: _without(p, len(p.hop) - 1), "missing"),
        (lambda p: _again(p, 3), "has the chunk already"),
        (lambda p: _changed(p, "hop", 3, 999), "unknown link"),
        (lambda p: _changed(p, "hop", 3, -1), "unknown link"),
        (lambda p: _changed(p, "chunk", 3, 999), "unknown chunk"),
        (lambda p: _changed(p, "chunk", 3, -1), "unknown chunk"),
        (lambda p: _changed(p, "start", 3, -(1 << 40)), "starts before"),
        (lambda p: _changed(p, "hop", 1, int(p.hop[0])), "busy"),
        (lambda p: _moved(p, int(np.argmax(p.start > 0)), 1), ""),  # late is allowed
    ],
)
def test_the_judge_says_what_is_wrong(
    change: Callable[[TransferPlan], TransferPlan], said: str
) -> None:
    source, plan = _plan("torus:3x4")
    problem = _judged(source, change(plan))
    assert said in problem
    assert bool(problem) == bool(said)


def test_the_judge_sees_what_is_sent_before_it_came() -> None:
    where = topology("ring:3,alpha=1us")  # links 0 -> 1 -> 2 -> 0 among others
    ends = {tuple(e): i for i, e in enumerate(where.link_ends().tolist())}
    size = Fraction(50_000)
    for early, said in ((0, ""), (1, "does not hold")):
        judge = StreamCheck(where, 1, size, 1000)
        hold = int(judge._resources[2][0])
        starts = np.array([0, hold + 1000 - early])  # busy for hold, then α
        hops = np.array([ends[0, 1], ends[1, 2]])
        judge.feed(TransferBlock(starts, np.array([1, 1]), hops, np.array([0, 0])))
        assert said in (judge.finish().problem if early else judge._problem)


def test_the_judge_sees_a_resource_that_is_busy() -> None:
    source, plan = _plan("ring:4")
    from weft.dsl.nouns.topology import Resource

    shared = replace(
        source.topology, resources=(Resource("r", (0, 1, 2), source.topology.links[0].bandwidth),)
    )
    assert "busy" in _judged(replace(source, topology=shared), plan)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["torus:4x4", "mesh:3x3"])
def test_a_stream_on_disk_is_the_same(machine: str, tmp_path: Path) -> None:
    where = topology(machine)
    report = run(stream(where, where.ranks << 20, pieces=3, block=64), tmp_path / "s")
    assert report.verified
    judge, blocks = read(tmp_path / "s", block=100)
    assert all(map(judge.feed, blocks))
    verdict = judge.finish()
    assert verdict.ok
    assert verdict.transfers == report.transfers
    with pytest.raises(BadFile):
        run(stream(where, where.ranks << 20), tmp_path / "s")


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    where = topology("ring:4")
    run(stream(where, 4 << 20), tmp_path / "s")
    (tmp_path / "s" / "links.u4").write_bytes(b"")
    with pytest.raises(BadFile, match="different lengths"):
        read(tmp_path / "s")
    with pytest.raises(BadFile, match="no such file"):
        read(tmp_path)


def test_what_is_refused_is_refused_in_words() -> None:
    with pytest.raises(UserError, match=r"need 1\.\d\d GiB, 1\.00 GiB are allowed"):
        stream(topology("torus:40x40"), 1 << 30, pieces=1000, memory=1 << 30)
    with pytest.raises(UserError, match="only forward"):
        stream(topology("hub:4"), 1 << 20)
    with pytest.raises(UserError, match="nothing has to move"):
        stream(topology("ring:4"), 0)
