"""Compiled files, run on a runtime written for the tests, do what the collective means."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import patterns
import pytest
import xml_runtime as runtime
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends.compile.compile import CompileOptions, lower_algorithm, lower_schedule
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.formats.msccl.emit import emit
from weft.dsl.author.builder import Builder
from weft.dsl.author.standard import Broadcast
from weft.dsl.base.errors import CheckFailed, UnknownName, UserError
from weft.dsl.nouns.collective import Collective, Kind, make
from weft.dsl.nouns.program import Instr, Op, Program, Protocol
from weft.dsl.nouns.runtime import EXECUTOR, MSCCL, RCCL
from weft.dsl.nouns.schedule import Schedule

ALL = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re")
LIMITS = {
    "msccl": {"steps": 256, "tbs": 216, "depid": 127, "ops": ALL},
    "rccl": {"steps": 64, "tbs": 64, "depid": 63, "ops": ("s", "r", "cpy", "re")},
    "executor": {"steps": 64, "tbs": 1024, "depid": 127, "ops": ALL},
}

DGX1 = patterns.both(patterns.DGX1)
RING = patterns.both(patterns.ring(5))
HUB = patterns.hub(5)

SCHEDULES = {
    "ring allgather": lambda: patterns.ring_allgather(4, 1),
    "ring allgather 3": lambda: patterns.ring_allgather(4, 3),
    "ring reduce_scatter": lambda: patterns.ring_reduce_scatter(4, 1),
    "ring reduce_scatter 3": lambda: patterns.ring_reduce_scatter(3, 3),
    "ring allreduce": lambda: patterns.ring_allreduce(4, 1),
    "ring allreduce 4": lambda: patterns.ring_allreduce(3, 4),
    "doubling allgather": lambda: patterns.doubling_allgather(8, 2),
    "doubling allreduce": lambda: patterns.doubling_allreduce(4, 1),
    "doubling allreduce 7": lambda: patterns.doubling_allreduce(8, 7),
    "halving doubling": lambda: patterns.halving_doubling_allreduce(8, 2),
    "tree broadcast": lambda: patterns.tree_broadcast(8, DGX1, 5, root=2),
    "hub broadcast": lambda: patterns.tree_broadcast(5, HUB, 2, root=3),
    "tree reduce": lambda: patterns.tree_reduce(8, DGX1, 3, root=1),
    "hub reduce": lambda: patterns.tree_reduce(5, HUB, 3),
    "trees allgather": lambda: patterns.trees_allgather(8, DGX1, 2),
    "hub allgather": lambda: patterns.trees_allgather(5, HUB, 2),
    "trees allreduce": lambda: patterns.trees_allreduce(8, DGX1, 1),
    "hub allreduce": lambda: patterns.trees_allreduce(5, HUB, 2),
    "alltoall": lambda: patterns.direct_alltoall(4, 3),
    "relayed alltoall": lambda: patterns.routed("alltoall", 5, RING, 2),
    "hub alltoall": lambda: patterns.routed("alltoall", 5, HUB, 1),
    "one shot": lambda: patterns.one_shot(4, 2),
    "one shot ring": lambda: patterns.one_shot_ring(5, 3),
    "random allreduce": lambda: patterns.random_allreduce(5, 6, 1),
    "random allreduce 2": lambda: patterns.random_allreduce(6, 9, 2),
}

MSCCL_ONLY = {
    "gather": lambda: patterns.routed("gather", 5, RING, 2, roots=[1]),
    "scatter": lambda: patterns.routed("scatter", 5, RING, 2, roots=[1]),
    "alltonext": lambda: patterns.routed("alltonext", 5, RING, 2),
    "multiroot broadcast": lambda: patterns.routed("multiroot_broadcast", 5, HUB, 2, roots=[1, 3]),
    "rotation": lambda: patterns.rotation(4),
}


def build(schedule: Schedule, **options: object) -> tuple[Program, runtime.Machine]:
    program = lower_schedule(schedule, CompileOptions(**options))
    target = options.get("target", MSCCL)
    m = runtime.read(emit(program, target, max_bytes=1 << 20))
    runtime.check_shape(m, LIMITS[target.name])
    return program, m


def judge(program: Program, m: runtime.Machine, runs: int) -> None:
    """No races, no deadlock, the right result, the input left alone where it must be."""
    c = program.collective
    kind = str(c.kind)
    check_sizes(c, m)
    runtime.check_races(m, kind)
    n, dice = c.ranks, random.Random(1)
    for seed in range(runs):
        x = [[dice.getrandbits(60) for _ in range(c.message_chunks)] for _ in range(n)]
        memory = []
        for r in range(n):
            sizes = {b: int(m.gpus[r][f"{b}_chunks"]) for b in "ios"}
            memory.append({(b, k): dice.getrandbits(60) for b in "ios" for k in range(sizes[b])})
            memory[r].update(
                {runtime.alias(m, kind, r, "i", k): x[r][k] for k in range(sizes["i"])}
            )
        before = [dict(each) for each in memory]
        runtime.run(m, kind, memory, seed)
        for r, offset, value in expected(c, x):
            assert memory[r]["o", offset] == value, (r, offset)
        for r in range(n):
            kept = {key: v for key, v in before[r].items() if key[0] == "i"}
            assert kept.items() <= memory[r].items(), "the input was written"


def check_sizes(c: Collective, m: runtime.Machine) -> None:
    """Buffer sizes by the table of the format's documentation."""
    chunks, n = int(m.algo["nchunksperloop"]), c.ranks
    share = {"allgather": (n, 1), "reduce_scatter": (1, n)}.get(str(c.kind), (1, 1))
    for g in m.gpus:
        assert int(g["i_chunks"]) * share[0] == chunks
        assert int(g["o_chunks"]) * share[1] == chunks


def expected(c: Collective, x: list[list[int]]) -> Iterator[tuple[int, int, int]]:
    """(rank, output offset, value), from the definition where there is one."""
    n, size = c.ranks, c.message_chunks
    total = [sum(column) for column in zip(*x, strict=True)]
    block = size // n
    rules = {
        Kind.ALLREDUCE: lambda r: total,
        Kind.ALLGATHER: lambda r: [x[q][j] for q in range(n) for j in range(block)],
        Kind.REDUCE_SCATTER: lambda r: total[r * block : (r + 1) * block],
        Kind.ALLTOALL: lambda r: [x[q][r * block + j] for q in range(n) for j in range(block)],
        Kind.BROADCAST: lambda r: x[c.roots[0]],
        Kind.REDUCE: lambda r: total if r == c.roots[0] else [],
    }
    if c.kind in rules:
        for r in range(n):
            yield from ((r, k, value) for k, value in enumerate(rules[c.kind](r)))
        return
    held = {chunk: x[r][offset] for r, chunk, _, offset in c.pre.rows().tolist()}
    yield from ((r, offset, held[chunk]) for r, chunk, _, offset in c.post.rows().tolist())


IN_PLACE = (Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLREDUCE, Kind.BROADCAST, Kind.REDUCE)


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize(("number", "name"), list(enumerate(SCHEDULES)))
def test_standard_collectives(number: int, name: str, instances: int) -> None:
    """Each schedule for both targets, by turns with one instance and with three."""
    schedule = SCHEDULES[name]()
    target = (MSCCL, RCCL)[(number + instances // 2) % 2]
    for in_place in (False, True):
        if in_place and schedule.collective.kind not in IN_PLACE:
            continue
        program, m = build(schedule, target=target, in_place=in_place, instances=instances)
        assert m.algo["inplace"] == str(int(in_place)) != m.algo["outofplace"]
        judge(program, m, runs=3 if instances == 1 else 1)


@pytest.mark.parametrize("name", MSCCL_ONLY)
def test_custom_collectives(name: str) -> None:
    schedule = MSCCL_ONLY[name]()
    program, m = build(schedule, instances=2)
    assert m.algo["coll"] == "custom"
    judge(program, m, runs=2)
    for target in (RCCL, EXECUTOR):
        with pytest.raises(UserError, match="expected a collective of"):
            build(schedule, target=target)


def test_custom_collective_in_place_saves_what_it_overwrites() -> None:
    program, m = build(patterns.rotation(3), in_place=True)
    judge(program, m, runs=5)


@pytest.mark.parametrize(
    "options",
    [
        {"lanes": 3},
        {"count": 1},
        {"protocol": Protocol.LL},
        {"protocol": Protocol.LL128},
        {"passes": ()},
        {"target": EXECUTOR, "instances": 2, "lanes": 2},
    ],
    ids=lambda options: "-".join(options) + str(next(iter(options.values())))[:8],
)
@pytest.mark.parametrize(
    "name",
    [
        "ring allreduce 4",
        "doubling allreduce 7",
        "trees allreduce",
        "random allreduce",
        "one shot ring",
    ],
)
def test_options(name: str, options: dict[str, object]) -> None:
    program, m = build(SCHEDULES[name](), **options)
    judge(program, m, runs=2)


@pytest.mark.parametrize("name", ["ring allreduce", "one shot", "trees allreduce", "alltoall"])
def test_the_judge_notices_lost_waits_and_wrong_slots(name: str) -> None:
    """A test that cannot fail proves nothing: broken programs must be found."""
    program, _ = build(SCHEDULES[name](), target=RCCL)
    for broken in broken_programs(program):
        with pytest.raises(AssertionError):
            judge(broken, runtime.read(emit(broken, RCCL)), runs=3)


def broken_programs(program: Program) -> Iterator[Program]:
    """Rank 0 with one wait less, up to its first receive, which comes one slot too low."""
    rank = program.ranks[0]
    for b, block in enumerate(rank):
        for i, instr in enumerate(block.code):
            if instr.waits:
                yield with_code(program, b, {i: replace(instr, waits=())})
            if instr.op is Op.RECV and instr.dst.offset:
                moved = replace(instr.dst, offset=instr.dst.offset - 1)
                yield with_code(program, b, {i: replace(instr, dst=moved)})
                return


def with_code(program: Program, block: int, changes: dict[int, Instr]) -> Program:
    rank = program.ranks[0]
    code = tuple(changes.get(i, x) for i, x in enumerate(rank.blocks[block].code))
    blocks = list(rank.blocks)
    blocks[block] = replace(blocks[block], code=code)
    return program.with_ranks((replace(rank, blocks=tuple(blocks)), *program.ranks[1:]))


def test_fusion_in_a_ring_leaves_one_instruction_per_hop() -> None:
    """(N-1) receives and sends of each phase become N-2 fused ones, at any number of chunks."""
    for k in (1, 4):
        program, _ = build(patterns.ring_allreduce(4, k))
        ops = Counter(i.op for rank in program.ranks for b in rank for i in b.code)
        per = 4 * k
        assert ops == {
            Op.SEND: per,
            Op.RECV_REDUCE_SEND: 2 * per,
            Op.RECV_REDUCE_COPY_SEND: per,
            Op.RECV_COPY_SEND: 2 * per,
            Op.RECV: per,
        }
        assert all(rank.scratch_chunks == 0 for rank in program.ranks)


def test_a_full_exchange_of_many_chunks_cannot_hang() -> None:
    """Both ends send eight chunks before they receive: more than a Simple FIFO holds."""
    for c in (patterns.doubling_allgather(2, 8), patterns.doubling_allreduce(2, 8)):
        for count in (0, 1, 8):
            program, m = build(c, count=count)
            judge(program, m, runs=4)


def test_neighbouring_chunks_travel_together() -> None:
    program, _ = build(patterns.doubling_allgather(8, 2), in_place=True)
    counts = [i.count for rank in program.ranks for b in rank for i in b.code]
    assert sorted(counts) == [2] * 16 + [4] * 16 + [8] * 16  # one send, one receive a step


def test_long_blocks_are_spread_over_channels() -> None:
    schedule = patterns.ring_allreduce(8, 12)
    for target, lanes in ((RCCL, 0), (EXECUTOR, 1)):
        program, m = build(schedule, target=target, lanes=lanes, count=1)
        assert program.channels > 1
        judge(program, m, runs=1)


def test_more_peers_than_a_channel_takes() -> None:
    program, m = build(patterns.direct_alltoall(35, 1))
    assert program.channels == 2
    assert max(len(rank.blocks) for rank in program.ranks) == 34 + 1
    # Each end for itself would be more than RCCL has; there they are paired whatever is asked.
    for target, blocks in ((MSCCL, 2 * 34 + 1), (RCCL, 34 + 1)):
        program, m = build(patterns.direct_alltoall(35, 1), target=target, pairing=Pairing.FORWARD)
        assert max(len(rank.blocks) for rank in program.ranks) == blocks
        judge(program, m, runs=1)


def test_what_cannot_fit_is_refused_in_words() -> None:
    wide = patterns.direct_alltoall(70, 1)
    with pytest.raises(UserError, match="70 thread blocks on one rank; rccl takes 64"):
        build(wide, target=RCCL)
    with pytest.raises(UserError, match="rccl has 32"):
        build(patterns.ring_allgather(4, 1), target=RCCL, instances=64)
    program, _ = build(patterns.direct_alltoall(3, 1), target=EXECUTOR, in_place=True)
    with pytest.raises(UserError, match="refuses alltoall in place"):
        emit(program, MSCCL)
    with pytest.raises(UserError, match="instances"):
        build(patterns.ring_allgather(3, 1), instances=0)
    with pytest.raises(UserError, match="lane"):
        build(patterns.ring_allgather(3, 1), lanes=-1)


def test_wrong_schedules_are_refused() -> None:
    edges, c = patterns.ring(3), make("allgather", 3)
    early = patterns.schedule(3, edges, c, [(0, 1, 2, 0)])
    with pytest.raises(CheckFailed, match="step 0: rank 1 sends chunk 0 before it holds it"):
        build(early)
    with pytest.raises(CheckFailed, match="rank 0 never gets chunk 1"):
        build(patterns.schedule(3, edges, c, [(0, 0, 1, 0)]))
    both = [(0, 0, 1, 0, 1), (0, 2, 1, 0, 0)]
    with pytest.raises(CheckFailed, match="both stores and adds"):
        build(patterns.schedule(3, patterns.full(3), make("allreduce", 3), both))
    twice = [(0, 0, 1, 0, 1), (0, 0, 1, 0, 1)]
    with pytest.raises(CheckFailed, match="adds the same transfer twice"):
        build(patterns.schedule(3, patterns.full(3), make("allreduce", 3), twice))


def test_a_pass_that_breaks_the_program_is_named() -> None:
    def refuse(program: Program) -> None:
        if any(i.op is Op.RECV_COPY_SEND for rank in program.ranks for b in rank for i in b.code):
            raise CheckFailed("no fused instructions here")

    with pytest.raises(CheckFailed, match="after the pass fuse: no fused"):
        build(patterns.ring_allgather(3, 1), verify=refuse)


def test_compiling_twice_gives_the_same_text() -> None:
    texts = {emit(build(SCHEDULES["random allreduce"](), instances=2)[0], MSCCL) for _ in range(2)}
    assert len(texts) == 1


@settings(max_examples=examples(30, 60))
@given(data=st.data())
def test_random_schedules(data: st.DataObject) -> None:
    """Random trees, steps and options: always right, never racing, never stuck."""
    schedule = patterns.random_allreduce(
        data.draw(st.integers(2, 6)), data.draw(st.integers(1, 6)), data.draw(st.integers(0, 10**6))
    )
    program, m = build(
        schedule,
        target=data.draw(st.sampled_from([MSCCL, RCCL, EXECUTOR])),
        instances=data.draw(st.integers(1, 3)),
        in_place=data.draw(st.booleans()),
        lanes=data.draw(st.integers(0, 2)),
        count=data.draw(st.integers(0, 3)),
    )
    judge(program, m, runs=1)


def test_targets_and_protocols_go_by_name() -> None:
    p = Builder(Broadcast(2))
    p.chunk(0, 0).copy_to(rank=1)
    named = CompileOptions(target="rccl", protocol="LL")  # type: ignore[arg-type]
    assert named == CompileOptions(target=RCCL, protocol=Protocol.LL)
    program = lower_algorithm(p.algorithm(), named)
    assert emit(program, "rccl") == emit(program, RCCL)
    with pytest.raises(UnknownName, match="unknown target 'rcl'"):
        CompileOptions(target="rcl")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="unknown protocol 'll'"):
        CompileOptions(protocol="ll")  # type: ignore[arg-type]
