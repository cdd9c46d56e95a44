"""Scripts of all kinds of inputs: proved, read back as they were written, and run right."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_moves import random_algorithm

from weft.backends.compile.passes.trace import Trace
from weft.backends.formats.p2p.check import check_script
from weft.backends.formats.p2p.compile import compile_script, script_of
from weft.backends.formats.p2p.execute import execute
from weft.backends.formats.p2p.format import CupyNcclFile, JaxFile, MpiFile, TorchFile
from weft.backends.formats.p2p.judge import for_threads
from weft.backends.formats.p2p.model import Script
from weft.backends.formats.p2p.read import read_script
from weft.backends.formats.p2p.text import parse, write
from weft.dsl.catalogue import topology
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.collective import custom, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.runtime import P2P
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.slots import NONE, OUTPUT, SCRATCH
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.engines.classic.text import named_algorithm

CLASSICS = (
    "ring{collective=allreduce,ranks=8} ring{collective=allgather,ranks=5} "
    "ring{collective=reduce_scatter,ranks=4} bruck{collective=allgather,ranks=5} "
    "one_shot{ranks=5} two_step{on=dgx-a100:nodes=2}"
).split()


def right(script: Script) -> str:
    """Prove it, write it, read it, run it; the text of the file."""
    assert check_script(script) == []
    text = MpiFile().write(script)
    assert read_script(text, "file") == script
    done = execute(text, script.collective, lengths=(0, 1, 7))
    assert done.ok, done.detail
    return text


@pytest.mark.parametrize("name", CLASSICS)
def test_classic_algorithms_become_files_that_run(name):
    right(compile_script(named_algorithm(f"classic:{name}").algorithm))


@cache
def synthesized(machine: str, kind: str, size: int) -> Schedule:
    place = topology(machine)
    problem = Problem(place, make(kind, place.ranks), bytes=size, objective=Objective.TIME)
    return synthesize(problem, "packing", Budget(effort=0.5)).points[0].schedule


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "kind", "allgather allreduce reduce_scatter alltoall broadcast reduce gather scatter".split()
)
def test_every_collective_of_a_small_machine(kind, in_place):
    schedule = synthesized("ring:4", kind, 1 << 10)
    for segments in (1, 3):
        right(compile_script(schedule, in_place=in_place, segments=segments))


@pytest.mark.parametrize("runtime", [MpiFile, TorchFile, CupyNcclFile, JaxFile])
@pytest.mark.parametrize("sizes", [(1, 2), (3, 1), (4, 0)])
def test_ranks_may_give_less_than_the_buffer_holds(runtime, sizes):
    """An alltoallv: what a rank does not give is filled with NaN, before and after."""
    chunks = [(r, k) for r in (0, 1) for k in range(sizes[r])]
    pre = [(r, number, [r], k) for number, (r, k) in enumerate(chunks)]
    post = [(1 - r, number, [r], k) for number, (r, k) in enumerate(chunks)]
    hub = topology("hub:2")
    link = {(x.src, x.dst): i for i, x in enumerate(hub.links)}
    moves = [Transfer(k, r, 1 - r, (link[r, 2], link[2, 1 - r])) for r, k, _, _ in pre]
    schedule = Schedule.of(hub, custom("alltoallv", 2, pre, post), moves)
    text = runtime().write(compile_script(schedule))
    assert MpiFile().findings(text, "file") == []
    text = for_threads(text, "file")
    for dtype in ("float32", "float16", "int64", "bfloat16"):
        done = execute(text, schedule.collective, lengths=(1, 5), dtypes=(dtype,))
        assert done.ok, done.detail


def test_segments_follow_each_other_like_a_pipeline():
    schedule = synthesized("line:4", "broadcast", 1 << 10)
    whole, cut = (compile_script(schedule, segments=n) for n in (1, 4))
    # The last of n pieces starts n - 1 rounds after the first, on as many hops.
    assert cut.rounds == whole.rounds + 3
    for own in cut.ranks:
        assert all(m.part.count == 1 for one in own for m in (*one.sends, *one.recvs))


def test_the_ring_is_what_one_would_write():
    script = compile_script(named_algorithm("classic:ring{collective=allreduce,ranks=4}").algorithm)
    assert [write(one) for one in script.ranks[1]] == [
        "i[0] > 2, o[3] < 0; o[3] = o[3] + i[3]",
        "o[3] > 2, o[2] < 0; o[2] = o[2] + i[2]",
        "o[2] > 2, o[1] < 0; o[1] = o[1] + i[1]",
        "o[1] > 2, o[0] < 0",
        "o[0] > 2, o[3] < 0",
        "o[3] > 2, o[2] < 0",
    ]


def test_what_comes_where_something_is_sent_waits_in_scratch_memory():
    rows = [  # chunk, rank, slot, rank, slot, operand, channel and blocks
        (1, 1, OUTPUT, 0, SCRATCH, NONE, NONE, NONE, NONE),
        (0, 0, OUTPUT + 1, 1, OUTPUT, NONE, NONE, NONE, NONE),
        (1, 0, SCRATCH, 0, OUTPUT + 1, NONE, NONE, NONE, NONE),
    ]
    swap = Algorithm("swap", make("alltoall", 2), Moves.of(rows), [1, 0], in_place=True)
    flow = Trace().apply(swap, P2P)
    at_once = replace(flow.messages, step=np.zeros(2, np.int64))
    work = replace(flow.local, step=np.zeros(1, np.int64))
    script = script_of(replace(flow, messages=at_once, local=work), "swap")
    assert [write(one) for one in script.ranks[0]] == ["o[1] > 1, s[0] < 1; o[1] = s[0]"]
    assert [write(one) for one in script.ranks[1]] == ["o[0] > 0, s[0] < 0; o[0] = s[0]"]
    right(script)


@pytest.mark.parametrize("seed", [11, 247, 407, 560])
def test_copies_of_neighbours_that_shift_stay_apart(seed):
    """o[1] = o[0] and then o[2] = o[1] is not o[1:3] = o[0:2], which libraries do as they like."""
    rng = random.Random(seed)
    noun = random_algorithm(
        seed,
        ranks=rng.randint(2, 6),
        chunks=rng.randint(1, 4),
        moves=rng.randint(4, 24),
        in_place=bool(seed % 2),
    )
    right(compile_script(noun))


def test_scratch_memory_is_used_again():
    a = named_algorithm("classic:ring{collective=allreduce,ranks=8}").algorithm
    script = compile_script(a)
    assert max(script.scratch) == 0
    reduce_scatter = compile_script(
        named_algorithm("classic:ring{collective=reduce_scatter,ranks=8}").algorithm
    )
    assert max(reduce_scatter.scratch) <= 2


@settings(
    max_examples=examples(100, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.data())
def test_lines_are_read_as_they_were_written(data):
    part = st.tuples(st.sampled_from("ios"), st.integers(0, 99), st.integers(1, 9)).map(
        lambda x: f"{x[0]}[{x[1]}]" if x[2] == 1 else f"{x[0]}[{x[1]}:{x[1] + x[2]}]"
    )
    talk = data.draw(st.lists(st.tuples(part, st.sampled_from("><"), st.integers(0, 20))))
    talk.sort(key=lambda x: x[1] == "<")
    work = data.draw(st.lists(st.tuples(part, st.lists(part, min_size=1, max_size=2))))
    line = ", ".join(f"{a} {way} {b}" for a, way, b in talk)
    if work:
        line += "; " + ", ".join(f"{a} = {' + '.join(terms)}" for a, terms in work)
    assert write(parse(line)) == line
