"""Resharding, halo exchange and sparse sums: what they stand for, and what is refused."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.reshard import TensorLayout, reshard_collective, reshard_workload, resharding
from weft.dsl.nouns.workload import Forwarders
from weft.dsl.nouns.workload_file import load, load_csv


def workload(**row):
    return load({"weft": "workload", "schema": 1, "operations": [{"name": "x", **row}]}, "here")


LAYOUTS = st.sampled_from(["0..7/1", "0..7/2", "0..7/8", "0..7/2x4", "0..7/4x2", "0..7/2x1"])


def tiles(text):
    """The cells of an 8 × 8 tensor that each rank has, written out."""
    layout = TensorLayout.of(text)
    rows, columns = (*layout.grid, 1)[:2]
    copies = len(layout.ranks) // (rows * columns)
    return {
        rank: {
            (i, j)
            for i in range(8)
            for j in range(8)
            if i * rows // 8 * columns + j * columns // 8 == at // copies
        }
        for at, rank in enumerate(layout.ranks)
    }


@given(LAYOUTS, LAYOUTS)
def test_each_rank_gets_its_tiles_from_all_that_have_them(source, target):
    target = target.replace("0..7", "8..15")
    before, after = tiles(source), tiles(target)
    shards = resharding(source, target, 64)
    for rank, cells in after.items():
        found, wanted = Counter(), Counter()
        for shard in shards:
            if rank in shard.receivers:
                found[frozenset(shard.holders)] += shard.bytes
        for cell in cells:
            wanted[frozenset(v for v, held in before.items() if cell in held)] += 1
        assert found == wanted


def test_the_forms_of_a_resharding():
    (one,) = reshard_workload("reshard:0/1,8..11/1,800MB,all").operations
    assert (one.kind, one.relays, len(one.shards)) == ("multicast", Forwarders.ALL, 1)
    by_file = workload(kind="reshard", **{"from": "0/1", "to": "8..11/1"}, bytes="800MB")
    assert by_file.operations[0].shards == one.shards
    table = load_csv("name,kind,group,size\nx,reshard,0/1 8..11/1,800MB\n", "here")
    assert table.operations[0].shards == one.shards
    c = reshard_collective("reshard:0..1/1,2..3/2", range(4))
    assert (c.ranks, c.chunks, c.input_chunks, c.output_chunks) == (4, 2, 2, 1)


WRONG = (
    "reshard:0..7/3,8..15/8,8MB reshard:0..7,8..15/0,8MB reshard:tp,8..15,8MB "
    "reshard:0..7,8..15 reshard:0..7 reshard:0..7,8..15,8MB,some reshard:0..6,8..15,5 "
    "reshard:0+0,8..15,8MB"
).split()


@pytest.mark.parametrize("text", WRONG)
def test_wrong_reshardings_are_told(text):
    with pytest.raises(UserError) as told:
        reshard_workload(text)
    assert told.value.message


def test_a_rank_outside_the_group_is_told():
    with pytest.raises(UserError, match="rank 8 is not in the group"):
        reshard_collective("reshard:0..7/1,8..15/8", range(8))


def test_neighbours_of_a_grid():
    (one,) = workload(kind="neighbours", group="0..5", grid=[2, 3], bytes=10).operations
    assert one.kind == "alltoallv"
    assert one.matrix[0] == (0, 10, 0, 10, 0, 0)
    assert one.total_bytes == 10 * 2 * (3 + 4)
    (ring,) = workload(kind="neighbours", group="0..3", wrap=True, bytes=10).operations
    assert ring.matrix[0] == (0, 10, 0, 10)


def test_sparse_sums_take_the_form_that_moves_the_least():
    common = {"kind": "sparse_allreduce", "group": "0..7", "bytes": 8 << 20}
    (few,) = workload(**common, density=0.0001).operations
    assert (few.kind, few.bytes, len(few.shards)) == ("multicast", 0, 8)
    sent, summed = workload(**common, density=0.1).operations
    assert (sent.kind, summed.kind, summed.after) == ("alltoallv", "multicast", (sent.name,))
    assert summed.name == "x"
    # A tenth of 2 Mi elements of 8 bytes with their index, an eighth for each.
    assert sent.matrix[0][1] == pytest.approx((8 << 20) / 4 * 0.1 * 8 / 8, rel=1e-5)
    assert summed.shards[0].bytes == pytest.approx((1 - 0.9**8) * (2 << 20), rel=1e-5)
    (dense,) = workload(**common, density=0.9).operations
    assert (dense.kind, dense.bytes) == ("allreduce", 8 << 20)


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "neighbours", "group": "0..5", "grid": [2, 2], "bytes": 1},
        {"kind": "neighbours", "group": "tp", "bytes": 1},
        {"kind": "neighbours", "group": "0..3", "bytes": 0},
        {"kind": "sparse_allreduce", "group": "0..3", "bytes": 8, "density": 2},
        {"kind": "sparse_allreduce", "group": "0..3", "bytes": 8},
        {"kind": "sparse_allreduce", "group": "0..3", "bytes": 8, "density": 1, "form": "x"},
        {"kind": "reshard", "from": "0..3", "bytes": 8},
        {"kind": "reshard", "from": "0..3", "to": "4..7", "bytes": 8, "group": [0]},
    ],
)
def test_wrong_composites_name_their_operation(row):
    with pytest.raises(BadFile) as told:
        workload(**row)
    assert "operations[0] 'x'" in json.dumps(told.value.to_json())
