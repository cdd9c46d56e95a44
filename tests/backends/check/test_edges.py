"""Mutants of the checker: without one kind of its edges, a known verdict turns round."""

from dataclasses import replace

import patterns
import pytest

from weft.backends.check.bounds import buffers_of_program
from weft.backends.check.graph import Edge, Graph, expand, find_cycle
from weft.backends.check.races import levels, races
from weft.backends.compile.compile import lower_schedule
from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.formats.msccl.read.columns import code_of

HEAD = (
    'name="x" proto="Simple" nchannels="1" nchunksperloop="9" ngpus="2" coll="custom" '
    'inplace="0" outofplace="1" minBytes="0" maxBytes="1"'
)
STEP = (
    '<step s="{}" type="{}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{}" '
    'cnt="1" depid="-1" deps="-1" hasdep="0"/>'
)


def without(graph: Graph, kind: Edge) -> Graph:
    keep = graph.kind != kind
    columns = {name: getattr(graph, name)[keep] for name in ("source", "target", "kind")}
    return replace(graph, **columns)


@pytest.mark.parametrize("kind", [Edge.PROGRAM, Edge.WAIT])
def test_a_right_program_has_races_without_one_kind_of_edges(kind: Edge) -> None:
    program = lower_schedule(patterns.random_allreduce(3, 2, 7))
    graph, buffers = expand(program), buffers_of_program(program)
    assert not races(graph, levels(graph), buffers, in_place=program.in_place)
    spoiled = without(graph, kind)
    assert races(spoiled, levels(spoiled), buffers, in_place=program.in_place)


@pytest.mark.parametrize(("kind", "order"), [(Edge.CREDIT, "sr"), (Edge.MESSAGE, "rs")])
def test_a_deadlock_is_not_seen_without_one_kind_of_edges(kind: Edge, order: str) -> None:
    """Both ranks send more messages than the FIFO holds before they receive, or receive first."""
    steps = "".join(STEP.format(k, order[k // 9], k % 9) for k in range(18))
    gpus = "".join(
        f'<gpu id="{r}" i_chunks="9" o_chunks="9" s_chunks="0">'
        f'<tb id="0" send="{1 - r}" recv="{1 - r}" chan="0">{steps}</tb></gpu>'
        for r in range(2)
    )
    graph = expand(code_of(read_msccl_xml(f"<algo {HEAD}>{gpus}</algo>")))
    assert find_cycle(graph) is not None
    assert find_cycle(without(graph, kind)) is None
