"""Workloads: their values, their files, and what is wrong with bad ones."""

from fractions import Fraction
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.workload import (
    Forwarders,
    Workload,
    WorkloadOperation,
    axis_groups,
    kind_named,
    topological,
)
from weft.dsl.nouns.workload_file import load, load_csv


def file(*operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"weft": "workload", "schema": 1, "operations": list(operations), **more}


ISSUE = file(
    {
        "name": "tp0",
        "class": "tp",
        "kind": "allreduce",
        "group": [0, 1, 2, 3],
        "bytes": 96000000,
        "relays": "none",
        "after": ["attn0"],
        "priority": 0,
    },
    {"name": "attn0", "kind": "compute", "ranks": [0, 1, 2, 3], "us": 700},
    {"name": "g", "kind": "load", "us": {"nic": 960}, "after": []},
)


def test_the_fixed_spelling_reads_and_comes_back() -> None:
    found = load(ISSUE, "step.json")
    tp, attn, g = found.operations
    assert (tp.of_class, tp.group, tp.bytes, tp.priority) == ("tp", (0, 1, 2, 3), 96000000, 0)
    assert tp.relays is Forwarders.NONE
    assert attn.us == 700
    assert g.loads == (("nic", Fraction(960)),)
    assert found.predecessors == ((1,), (), ())
    assert found.classes == {"tp": (0,), "g": (2,)}
    assert load(found.to_json(), "again") == found
    assert load(found.to_json(), "again").digest() == found.digest()


def test_demands_read_and_come_back() -> None:
    found = load(
        file(
            {"name": "v", "kind": "alltoallv", "group": [2, 5], "matrix": [[1, 2], [3, 4]]},
            {"name": "t", "kind": "transfer", "src": 3, "dst": 1, "bytes": "4KB", "relays": "all"},
            {
                "name": "m",
                "kind": "multicast",
                "shards": [{"holders": [0, 1], "receivers": [6, 7], "bytes": 10}],
            },
            {"name": "b", "kind": "broadcast", "group": [4, 2], "root": 2, "bytes": 5.0},
            period="31/2",
            resources={"nic": 12.5},
            ranks=9,
        ),
        "d.json",
    )
    v, t, m, b = found.operations
    assert v.total_bytes == 5  # off the diagonal
    assert (t.group, t.bytes) == ((3, 1), 4000)
    assert m.members == (0, 1, 6, 7)
    assert m.total_bytes == 20
    assert b.root == 2
    assert (found.ranks, found.period) == (9, Fraction(31, 2))
    assert load(found.to_json(), "again") == found


def test_an_axis_stands_for_its_groups() -> None:
    found = load(
        file(
            {"name": "sum", "kind": "allreduce", "group": "tp", "bytes": 8},
            {"name": "grad", "kind": "allreduce", "group": ["dp"], "bytes": 8, "after": "sum"},
            {"name": "all", "kind": "alltoall", "group": "tp dp", "bytes": 8, "after": ["grad"]},
            axes={"tp": 2, "dp": 3},
        ),
        "axes.json",
    )
    by = {one.name: one for one in found.operations}
    assert [by[f"sum[{i}]"].group for i in range(3)] == [(0, 1), (2, 3), (4, 5)]
    assert by["grad[1]"].group == (1, 3, 5)
    assert by["grad[1]"].after == ("sum[0]", "sum[1]", "sum[2]")
    assert by["all[0]"].group == tuple(range(6))
    assert found.classes == {"sum": (0, 1, 2), "grad": (3, 4), "all": (5,)}


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_groups_of_axes_are_a_partition_that_meets_the_others_once(
    sizes: list[int], data: st.DataObject
) -> None:
    axes = [(f"a{i}", size) for i, size in enumerate(sizes)]
    names = [name for name, _ in axes]
    over = data.draw(st.sets(st.sampled_from(names)))
    groups = axis_groups(axes, over)
    others = axis_groups(axes, set(names) - over)
    ranks = sorted(rank for group in groups for rank in group)
    assert ranks == list(range(len(ranks)))
    assert all(len(set(a) & set(b)) == 1 for a in groups for b in others)


CSV = """# a step
name,class,kind,group,size,after,duration,priority
tp,,axis,,2
dp,,axis,,2

attn,,compute,,,,700us
sum,,all-reduce,tp,96MB,attn,,3
more,ep,alltoall,0..3,1000,sum
hop,,transfer,0 3,5KB
l,,load,,,hop,nic=960 nv=1.5us
"""


def test_a_table_reads_as_the_json_does() -> None:
    found = load_csv(CSV, "s.csv")
    by = {one.name: one for one in found.operations}
    assert by["sum[1]"].group == (2, 3)
    assert by["sum[1]"].priority == 3
    assert by["more"].after == ("sum[0]", "sum[1]")
    assert by["hop"].group == (0, 3)
    assert by["l"].loads == (("nic", Fraction(960)), ("nv", Fraction(3, 2)))
    assert by["attn"].us == 700
    assert load(found.to_json(), "again") == found


def test_a_cycle_behind_others_is_named_alone() -> None:
    def compute(name: str, *after: str) -> WorkloadOperation:
        return WorkloadOperation(name, "compute", us=Fraction(1), after=after)

    ring = (compute("a", "b"), compute("b", "c"), compute("c", "a"))
    with pytest.raises(UserError) as caught:
        Workload("x", (compute("z"), compute("y", "a", "z"), *ring))
    assert "a after b after c after a" in caught.value.message
    assert topological([(), (0,), (1, 0)]) == [0, 1, 2]


def test_kinds_by_any_spelling() -> None:
    assert [kind_named(x) for x in ("All_Reduce", "reduce-scatter", "ALLTOALLV")] == [
        "allreduce",
        "reduce_scatter",
        "alltoallv",
    ]
