"""Programs of textbook schedules, machines and sizes, for property tests of the simulation."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import patterns
from hypothesis import strategies as st
from strategies import schedules

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.dsl.catalogue import topology
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.runtime_model import MSCCL

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
