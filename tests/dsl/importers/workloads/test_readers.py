"""Workloads of other tools: read unedited, and refused where they are damaged or incomplete."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.importers.chakra_et import (
    COLL,
    COMP,
    RECV,
    SEND,
    ExecutionTrace,
    TraceNode,
    encoded,
    framed,
    put_bytes,
    put_integer,
    put_packed,
)
from weft.dsl.importers.workloads.read import WorkloadSource, read_workload
from weft.dsl.nouns.workload import Workload


def read(path: Path | str, **more: Any) -> Workload:
    return read_workload(WorkloadSource(str(path), **more))


def collective(number: int, kind: int, size: int, *needs: int, **more: Any) -> TraceNode:
    attributes = {"is_cpu_op": 0, "comm_type": kind, "comm_size": size, **more}
    return TraceNode(number, COLL, f"coll{number}", data_deps=needs, attributes=attributes)


def traces(folder: Path, nodes: list[list[TraceNode]], name: str = "step") -> Path:
    for rank, mine in enumerate(nodes):
        (folder / f"{name}.{rank}.et").write_bytes(encoded(ExecutionTrace({}, tuple(mine))))
    return folder


# --- Chakra ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "kind", "name"), [(4, 6, "alltoall"), (8, 0, "allreduce")])
def test_the_simplest_trace_is_one_collective_of_all(
    tmp_path: Path, ranks: int, kind: int, name: str
) -> None:
    traces(tmp_path, [[collective(0, kind, 1 << 20)] for _ in range(ranks)])
    for path in (tmp_path, tmp_path / "step.0.et", tmp_path / "step"):
        found = read(path)
        (one,) = found.operations
        assert (one.kind, one.group, one.bytes) == (name, tuple(range(ranks)), 1 << 20)
        assert any("of all ranks" in note for note in found.notes)


def test_bytes_that_another_writer_lays_out_differently_read_alike(tmp_path: Path) -> None:
    """Unpacked dependencies, unknown fields, a 64-bit value: as any protobuf writer may do."""
    kind = put_bytes(1, b"comm_type") + put_integer(9, 0)
    size = put_bytes(1, b"comm_size") + put_integer(9, 4096)
    node = put_bytes(2, b"sum") + put_integer(3, COLL) + put_integer(1, 7)
    node += put_integer(5, 3) + put_bytes(10, kind) + put_bytes(10, size)
    node += put_bytes(12, b"later") + bytes([13 << 3 | 1]) + bytes(8)
    work = put_integer(1, 3) + put_integer(3, COMP) + put_integer(7, 50) + put_packed(5, ())
    data = framed(iter([put_bytes(1, b"0.0.4"), work, node]))
    for rank in range(2):
        (tmp_path / f"a.{rank}.et").write_bytes(data)
    found = read(tmp_path)
    assert [one.kind for one in found.operations] == ["compute", "allreduce"]
    assert found.operations[0].us == Fraction(50)
    assert found.predecessors == ((), (0,))


def test_groups_come_from_the_side_file_or_the_trace(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    mine = [[collective(0, 0, 64, pg_name=str(rank // 2))] for rank in range(4)]
    traces(folder, mine)
    with pytest.raises(BadFile, match="process group '0'"):
        read(folder)
    side = tmp_path / "groups.json"
    side.write_text('{"0": [0, 1], "1": [2, 3]}')
    assert [x.group for x in read(folder, groups=str(side)).operations] == [(0, 1), (2, 3)]
    table = [{"pg_name": str(i), "ranks": [2 * i, 2 * i + 1]} for i in range(2)]
    init = put_integer(1, 9) + put_bytes(2, b"## process_group:init ##") + put_integer(3, 1)
    init += put_bytes(8, put_bytes(1, json.dumps(table).encode()))
    for rank in range(4):
        first = encoded(ExecutionTrace({}, tuple(mine[rank])))
        (folder / f"step.{rank}.et").write_bytes(first + framed(iter([init])))
    assert [x.group for x in read(folder).operations] == [(0, 1), (2, 3)]


def test_messages_are_paired_and_computations_that_are_equal_are_one(tmp_path: Path) -> None:
    def work(number: int, *needs: int) -> TraceNode:
        return TraceNode(number, COMP, f"work{number}", data_deps=needs, duration_us=10)

    send = TraceNode(1, SEND, "send", (), (0,), attributes={"comm_dst": 1, "comm_size": 99})
    receive = TraceNode(1, RECV, "recv", (), (0,), attributes={"comm_src": 0, "comm_size": 99})
    alike = [replace(work(0), id=number) for number in range(2)]  # as Chakra numbers them
    traces(tmp_path, [[one, replace(one, id=one.id + 2, data_deps=(one.id,))] for one in alike])
    assert [one.ranks for one in read(tmp_path).operations] == [(0, 1), (0, 1)]
    traces(tmp_path, [[work(0), send, work(2, 1)], [work(0), receive, work(2, 1)]])
    found = read(tmp_path)
    by = {one.kind: one for one in found.operations}
    assert (by["transfer"].group, by["transfer"].bytes) == ((0, 1), 99)
    last = [one for one in found.operations if one.name.startswith("work2")]
    assert all(by["transfer"].name in one.after for one in last)


def test_the_json_variant_reads_as_the_binary_one(tmp_path: Path) -> None:
    nodes = [
        {"Id": 0, "Name": "work", "NodeType": 4, "runtime": 30, "is_cpu_op": False},
        {"Id": 1, "NodeType": 7, "data_deps": [0], "comm_type": 0, "comm_size": 512},
    ]
    for rank in range(2):
        (tmp_path / f"t.{rank}.json").write_text(json.dumps({"workload_graph": nodes}))
    found = read(tmp_path)
    assert [one.kind for one in found.operations] == ["compute", "allreduce"]
    assert found.operations[0].ranks == (0, 1)
    assert found.predecessors == ((), (0,))


def test_damaged_or_incomplete_traces_have_one_message(tmp_path: Path) -> None:
    traces(tmp_path, [[collective(0, 0, 64)] for _ in range(4)])
    file = tmp_path / "step.1.et"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(BadFile, match="cut off") as caught:
        read(tmp_path)
    assert str(caught.value.where).endswith("step.1.et")
    file.unlink()
    with pytest.raises(BadFile, match="ranks 1 are missing"):
        read(tmp_path)
    file.write_bytes(encoded(ExecutionTrace({}, (collective(0, 6, 64),))))
    with pytest.raises(BadFile, match="alltoall"):
        read(tmp_path)
    file.write_bytes(encoded(ExecutionTrace({}, ())))
    with pytest.raises(BadFile, match="rank 1 takes no part"):
        read(tmp_path)
    alone = TraceNode(0, SEND, "s", attributes={"comm_dst": 1, "comm_size": 8})
    traces(tmp_path, [[alone], [], [], []])
    with pytest.raises(BadFile, match="never received"):
        read(tmp_path)


def message(number: int, end: str, peer: int, *needs: int, **more: Any) -> TraceNode:
    attributes = {f"comm_{end}": peer, "comm_size": 64, "comm_tag": 0, **more}
    kind = SEND if end == "dst" else RECV
    return TraceNode(number, kind, f"m{number}", data_deps=needs, attributes=attributes)


@pytest.mark.parametrize(("kind", "times"), [(0, 1), (2, 4), (3, 4), (6, 1), (7, 1), (8, 1)])
def test_comm_size_is_what_one_rank_puts_in(tmp_path: Path, kind: int, times: int) -> None:
    traces(tmp_path, [[collective(0, kind, 1 << 20)] for _ in range(4)])
    assert read(tmp_path).operations[0].bytes == times << 20


def test_a_message_waits_for_its_sender_and_what_follows_it_for_both(tmp_path: Path) -> None:
    """A ring of two rounds with one tag: each rank sends, then receives, then sends on."""
    ring = [
        [
            message(0, "dst", (rank + 1) % 3),
            message(1, "src", (rank - 1) % 3, 0),
            message(2, "dst", (rank + 1) % 3, 1),
            message(3, "src", (rank - 1) % 3, 2),
            TraceNode(4, COMP, "work", data_deps=(3,), duration_us=1),
        ]
        for rank in range(3)
    ]
    traces(tmp_path, ring)
    found = read(tmp_path)
    by = {one.name: one for one in found.operations}
    moved = [one for one in found.operations if one.kind == "transfer"]
    assert len(moved) == 6
    first = {one.group: one.name for one in moved if not one.after}
    assert sorted(first) == [(0, 1), (1, 2), (2, 0)]
    second = {one.group: one for one in moved if one.after}
    assert set(second[0, 1].after) == {first[0, 1], first[2, 0]}
    assert set(by["work"].after) >= {one.name for one in second.values()}


def test_dependencies_on_callers_that_are_not_there_are_passed_over(tmp_path: Path) -> None:
    host = TraceNode(5, COLL, "c10d::allreduce_", attributes={"is_cpu_op": 1})
    work = TraceNode(6, COMP, "gemm", (3,), (5,), 50, {"is_cpu_op": 0, "stream": 7})
    summed = collective(9, 0, 64, stream=7)
    traces(tmp_path, [[host, work, summed]] * 2)
    found = read(tmp_path)
    assert [one.kind for one in found.operations] == ["compute", "allreduce"]
    assert found.predecessors == ((), (0,))  # of one stream
    assert any("ctrl_deps" in note for note in found.notes)
    traces(tmp_path, [[replace(work, data_deps=(4,)), summed]] * 2)
    with pytest.raises(BadFile, match="waits for node 4"):
        read(tmp_path)
    gpu = TraceNode(5, COLL, "ncclKernel", attributes={"is_cpu_op": 0})
    traces(tmp_path, [[gpu]] * 2)
    with pytest.raises(BadFile, match="comm_type is missing"):
        read(tmp_path)
    traces(tmp_path, [[message(0, "dst", 1, comm_tag="x")], [message(0, "src", 0)]])
    with pytest.raises(BadFile, match="comm_tag is missing, or not a count"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("groups", "ends", "pairs"),
    [
        ({"p": [0, 1]}, ["send recv", "recv send"], [(0, 1), (1, 0)]),
        ({"p": [0, 1, 2]}, ["send", "", "recv"], [(0, 2)]),
        ({"p": [0, 1, 2]}, ["send", "recv", "recv"], None),
    ],
)
def test_messages_that_name_only_their_group_are_paired_if_one_way_is_possible(
    tmp_path: Path,
    groups: dict[str, list[int]],
    ends: list[str],
    pairs: list[tuple[int, int]] | None,
) -> None:
    def node(number: int, end: str) -> TraceNode:
        kind = SEND if end == "send" else RECV
        return TraceNode(number, kind, end, attributes={"comm_size": 64, "pg_name": "p"})

    folder = tmp_path / "x"
    folder.mkdir()
    traces(folder, [[node(*one) for one in enumerate(text.split())] for text in ends])
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    side = str(tmp_path / "groups.json")
    if pairs is None:
        with pytest.raises(BadFile, match="to which of 3 ranks"):
            read(folder, groups=side)
    else:
        assert sorted(one.group for one in read(folder, groups=side).operations) == pairs


def test_nodes_stand_in_any_order_and_only_their_dependencies_count(tmp_path: Path) -> None:
    """Matched as Chakra's feeder issues them: the least id of those that may start."""
    one, two = collective(1, 0, 64), collective(2, 0, 128, 1)
    late = replace(collective(0, 0, 256, 2), name="late")
    traces(tmp_path, [[one, two, late], [late, two, one]])
    found = read(tmp_path)
    assert [x.bytes for x in found.operations] == [64, 128, 256]
    assert found.predecessors == ((), (0,), (1,))
    traces(tmp_path, [[replace(one, data_deps=(2,)), two]] * 2)
    with pytest.raises(BadFile, match="wait for each other, node 1 for node 2"):
        read(tmp_path)


def test_nothing_sent_only_orders_and_both_ends_of_a_message_agree(tmp_path: Path) -> None:
    """Zero bytes, a message to itself, and sizes that differ."""
    mine = [collective(0, 0, 0), message(1, "dst", 0), message(2, "src", 0)]
    summed = collective(3, 0, 64, 0)
    other = [replace(summed, data_deps=()), message(4, "src", 0)]
    traces(tmp_path, [[*mine, summed, message(4, "dst", 1)], other])
    found = read(tmp_path)
    assert [(x.kind, x.bytes) for x in found.operations] == [("allreduce", 64), ("transfer", 64)]
    assert any("0 bytes" in note for note in found.notes)
    traces(tmp_path, [[message(4, "dst", 1)], [message(4, "src", 0, comm_size=8)]])
    with pytest.raises(BadFile, match="from rank 0 to rank 1, got 8 and 64 bytes"):
        read(tmp_path)


def test_numbers_in_json_may_have_a_fraction(tmp_path: Path) -> None:
    work = {"Id": 0, "Name": "w", "NodeType": COMP, "runtime": 0.25, "is_cpu_op": False}
    summed = {"Id": 1, "NodeType": COLL, "data_deps": [0], "comm_type": 0, "comm_size": 64.0}
    for rank in range(2):
        text = json.dumps({"workload_graph": [work, summed]})
        (tmp_path / f"a.{rank}.json").write_text(text)
    found = read(tmp_path).operations
    assert [(x.us, x.bytes) for x in found] == [(Fraction(1, 4), 0), (None, 64)]


# --- PyTorch --------------------------------------------------------------------------------------


def comm(number: int, name: str, elements: int, group: Any, splits: Any = ()) -> dict[str, Any]:
    tensor = [1, 2, 0, elements, 4, "cuda:0"]
    values = [tensor, 5, group, 0, name, list(splits), [], 0, 0, 1]
    return {
        "id": number,
        "name": "record_param_comms",
        "inputs": {"values": values, "types": ["Tensor(float)"]},
        "outputs": {"values": [tensor], "types": ["Tensor(float)"]},
    }


def test_pytorch_traces_as_param_reads_them(tmp_path: Path) -> None:
    table = [{"pg_name": "0", "ranks": [], "group_size": 2, "group_count": 1}]
    init = {"id": 1, "name": "## process_group:init ##", "inputs": {"values": [json.dumps(table)]}}
    for rank in range(2):
        nodes = [
            init,
            comm(2, "allreduce", 100, ["0", "default_pg"]),
            comm(3, "all_to_allv", 30, ["0", "default_pg"], [10 + rank, 20 - rank]),
            {"id": 4, "name": "aten::add", "inputs": {"values": []}, "outputs": {"values": []}},
        ]
        text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes})
        (tmp_path / f"et_{rank}.json").write_text(text)
    found = read(tmp_path)
    sums, vector = found.operations
    assert (sums.kind, sums.group, sums.bytes) == ("allreduce", (0, 1), 400)
    assert vector.matrix == ((40, 80), (44, 76))
    assert found.predecessors == ((), (0,))


@pytest.mark.parametrize(
    ("name", "splits", "elements", "matrix"),
    [
        ("all_to_allv", [1, 2], 48, ((64, 128),) * 2),  # rows of 16 elements of 4 bytes
        ("all_to_allv", [0, 0], 0, ((0, 0),) * 2),
        ("all_to_allv", [], 48, ((96, 96),) * 2),
        ("all_to_all", [10, 20], 30, ((40, 80),) * 2),
        ("all_to_all", [15, 15], 30, ()),
        ("all_to_allv", [1, 2], 40, None),
        ("all_to_allv", [1, 2, 3], 48, None),
        ("all_to_allv", [-1, 2], 48, None),
    ],
)
def test_splits_count_rows_of_a_tensor(
    tmp_path: Path, name: str, splits: list[int], elements: int, matrix: Any
) -> None:
    calls(tmp_path, [[comm(2, name, elements, "0", splits)]] * 2, "1.1.1")
    if matrix is None:
        with pytest.raises(BadFile, match=r"expected (2 )?splits .*, got"):
            read(tmp_path)
        return
    (one,) = read(tmp_path).operations
    assert one.matrix == matrix
    assert one.kind == ("alltoallv" if matrix else "alltoall")
    assert one.bytes == (0 if matrix else elements * 4)


def test_coalesced_tensors_have_their_own_types_and_nodes_any_order(tmp_path: Path) -> None:
    both = comm(2, "allreduce_coalesced", 0, "0")
    both["inputs"]["values"][0] = [[1, 2, 0, 8, 4, "cuda:0"], [3, 4, 0, 16, 2, "cuda:0"]]
    calls(
        tmp_path, [[both, comm(3, "allreduce", 5, "0")], [comm(3, "allreduce", 5, "0"), both]], "1"
    )
    assert [one.bytes for one in read(tmp_path).operations] == [64, 20]


def calls(folder: Path, nodes: list[list[dict[str, Any]]], schema: str) -> Path:
    for rank, mine in enumerate(nodes):
        text = json.dumps({"schema": schema, "pid": 1, "nodes": mine})
        (folder / f"et_{rank}.json").write_text(text)
    return folder


def test_groups_of_pytorch_by_back_end_or_by_start_and_stride(tmp_path: Path) -> None:
    table = [{"pg_name": "0", "backend_id": 7001, "ranks": [], "group_size": 2}]
    init = {"id": 1, "name": "## process_group:init ##", "inputs": {"values": [json.dumps(table)]}}
    calls(tmp_path, [[init, comm(2, "allreduce", 8, 7001)]] * 2, "1.0.2-chakra.0.0.4")
    assert read(tmp_path).operations[0].group == (0, 1)
    init["inputs"] = {"values": [json.dumps(table)[:20]]}
    calls(tmp_path, [[init, comm(2, "allreduce", 8, "0")]] * 2, "1.0.3-chakra.0.0.4")
    with pytest.raises(BadFile, match="cut off"):
        read(tmp_path)
    stated = {"global_rank_start": 0, "global_rank_stride": 2, "pg_size": 2}
    attrs = [{"name": key, "type": "uint64", "value": value} for key, value in stated.items()]
    mine = [init, {**comm(2, "allreduce", 8, "0"), "attrs": attrs}]
    calls(tmp_path, [mine, [init], mine], "1.1.0-chakra.0.0.4")
    assert read(tmp_path).operations[0].group == (0, 2)


def test_messages_of_pytorch_go_at_once_until_the_host_waits(tmp_path: Path) -> None:
    def one(number: int, name: str, peer: int) -> dict[str, Any]:
        node = comm(number, name, 4, "0")
        node["inputs"]["values"][3] = peer
        return node

    wait = {"id": 3, "name": "record_param_comms"}
    wait |= {"inputs": {"values": [5, "0", 0, "wait", [], []]}}
    both = [[one(1, "recv", 1 - rank), one(2, "send", 1 - rank)] for rank in range(2)]
    calls(
        tmp_path,
        [[*x, wait, one(4, "send", 1), one(5, "recv", 1)][: 5 - 2 * i] for i, x in enumerate(both)],
        "1.1.1",
    )
    with pytest.raises(BadFile, match="never received"):
        read(tmp_path)
    calls(
        tmp_path,
        [[*both[0], wait, one(4, "send", 1)], [*both[1], wait, one(4, "recv", 0)]],
        "1.1.1",
    )
    found = read(tmp_path)
    assert [len(x) for x in found.predecessors] == [0, 0, 2]


def test_pytorch_nodes_that_are_no_objects_are_counted(tmp_path: Path) -> None:
    """Which trace, how many of how many, and where the first one stands."""
    for rank, torn in enumerate(([], ["cut", None])):
        nodes = [comm(2, "allreduce", 100, ["0", "default_pg"]), *torn]
        text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes})
        (tmp_path / f"et_{rank}.json").write_text(text)
    found = read(tmp_path)
    assert [one.kind for one in found.operations] == ["allreduce"]
    said = [note for note in found.notes if "not JSON objects" in note]
    assert len(said) == 1
    assert "2 of 3 nodes" in said[0]
    assert "et_1.json" in said[0]
    assert "nodes[1]" in said[0]


# --- ASTRA-sim's texts ----------------------------------------------------------------------------

TEXT = """HYBRID_TRANSFORMER\tmodel_parallel_NPU_group: 4
2
one\t-1\t300\tALLGATHER\t8388608\t10\tNONE\t0\t20\tALLREDUCE\t1000\t5
two\t-1\t400\tNONE\t0\t30\tALLREDUCE\t2000\t40\tALLREDUCE\t3000\t5
"""


def test_text_workloads_of_astra_sim(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text(TEXT)
    with pytest.raises(BadFile, match="how many ranks"):
        read(path)
    found = read(path, ranks=8)
    by = {one.name: one for one in found.operations}
    gather = by["one allgather forward"]
    assert (gather.group, gather.bytes) == ((0, 1, 2, 3), 4 * 8388608)
    assert gather.of_class == "model: allgather"
    assert by["two forward"].after == ("one allgather forward", "one allgather forward (2)")
    assert by["two allreduce weight gradients"].group == (0, 4)
    assert by["one input gradients"].after[0] == "two weight gradients"
    for old, new, ranks, told in (
        ("\n2\n", "\n3\n", 8, "3 layers, there are 2"),
        ("300", "soon", 8, "not a time"),
        ("300", "300", 6, "not a multiple"),
    ):
        path.write_text(TEXT.replace(old, new))
        with pytest.raises(BadFile, match=told):
            read(path, ranks=ranks)


LAYER = "{name} -1 10 {forward} 20 {inputs} 30 {weights} 5"


def text_of(head: str, *layers: tuple[str, str, str], more: tuple[str, ...] = ()) -> str:
    rows = [
        LAYER.format(name=f"l{i}", forward=f, inputs=g, weights=w) + (f" {more[i]}" if more else "")
        for i, (f, g, w) in enumerate(layers)
    ]
    return "\n".join([head, str(len(layers)), *rows]) + "\n"


NONE, SUM, GATHER, SWAP = "NONE 0", "ALLREDUCE 80", "ALLGATHER 80", "ALLTOALL 80"


def after(found: Workload, name: str) -> list[str]:
    return sorted({one.name: one for one in found.operations}[name].after)


def test_recommendation_models_exchange_embeddings_beside_the_bottom(tmp_path: Path) -> None:
    path = tmp_path / "dlrm.txt"
    layers = ((SWAP, SWAP, NONE), (GATHER, GATHER, SUM), (NONE, NONE, SUM))
    path.write_text(text_of("HYBRID_DLRM 1", *layers))
    found = read(path, ranks=8)
    sent = [one for one in found.operations if one.communicates]
    assert sorted(one.kind for one in sent) == ["allreduce", "allreduce", "alltoall", "alltoall"]
    assert all(one.group == tuple(range(8)) for one in sent)
    assert after(found, "l1 forward") == ["l0 forward"]
    assert after(found, "l2 forward") == ["l0 alltoall forward", "l1 forward"]
    assert after(found, "l0 alltoall input gradients") == ["l2 input gradients"]
    assert after(found, "l0 weight gradients") == [
        "l0 alltoall input gradients",
        "l1 input gradients",
    ]
    path.write_text(text_of("HYBRID_DLRM_ENHANCED DLRM_LAST_BOTTOM_LAYER: 1", *layers))
    assert after(read(path, ranks=8), "l0 weight gradients") == ["l1 input gradients"]


def test_kinds_of_parallelism_have_the_groups_of_astra_sim(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    layer = (GATHER, SUM, SUM)

    def groups(head: str, more: tuple[str, ...] = ()) -> dict[str, tuple[tuple[int, ...], int]]:
        path.write_text(text_of(head, layer, layer, more=more))
        sent = [one for one in read(path, ranks=8).operations if one.communicates]
        return {one.name: (one.group, one.bytes) for one in sent if "(" not in one.name}

    everybody = tuple(range(8))
    assert groups("DISTRIBUTED_INFERENCE")["l0 allgather forward"] == (everybody, 640)
    assert "l0 allreduce weight gradients" not in groups("MODEL")
    inner = groups("HYBRID_DATA_MODEL")
    assert inner["l0 allgather forward"] == ((0, 1), 160)
    assert inner["l0 allreduce weight gradients"] == ((0, 2, 4, 6), 80)
    assert "l0 allreduce input gradients" not in inner
    outer = groups("HYBRID_MODEL_DATA")
    assert outer["l0 allgather forward"][0] == (0, 4)
    assert outer["l0 allreduce weight gradients"][0] == (0, 1, 2, 3)
    mixed = groups("HYBRID_CUSTOMIZED", ("MODEL", "HYBRID_MODEL_DATA"))
    assert mixed["l0 allgather forward"][0] == everybody
    assert mixed["l1 allreduce weight gradients"][0] == (0, 1)
    assert "l0 allreduce input gradients" in groups(
        "HYBRID_TRANSFORMER model_parallel_NPU_group: 4"
    )


def test_layers_without_a_checkpoint_are_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    kind = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4"
    head = kind + " checkpoints: {} checkpoint_initiates: {}"
    layers = [(SUM, NONE, SUM)] * 4
    path.write_text(text_of(head.format("1 1", "1 3"), *layers))
    found = read(path, ranks=8)
    assert after(found, "l1 forward (2)") == [f"l3 allreduce forward{x}" for x in ("", " (2)")]
    assert after(found, "l3 input gradients") == [f"l2 allreduce forward ({x})" for x in (3, 4)]
    for wrong, told in ((("1 2", "1 1"), "no checkpoint"), (("3 0", "0"), "not layers")):
        path.write_text(text_of(head.format(*wrong), *layers))
        with pytest.raises(BadFile, match=told):
            read(path, ranks=8)


# --- OptCCL ---------------------------------------------------------------------------------------


def test_optccl_workloads(tmp_path: Path) -> None:
    def gpu(host: int, k: int) -> list[Any]:
        return [host, ["g", k]]

    def one(name: str, kind: str, demand: float, **ends: Any) -> dict[str, Any]:
        return {"name": name, "type": kind, "group": "aa", "demand": demand, **ends}

    spec: dict[str, Any] = {
        "format": "optccl-workload-spec",
        "topology": "topologies/a100_multi_nv.json",
        "num_nodes": 2,
        "collectives": [
            one("a2a", "all_to_all", 8, participants=[gpu(0, k) for k in range(1, 9)]),
            one("x", "point_to_point", 16, source=gpu(0, 1), sink=gpu(1, 3)),
            one("ag", "all_gather", 0.5, participants=[gpu(0, 1), gpu(1, 1)]),
        ],
    }
    path = tmp_path / "w.json"
    path.write_text(json.dumps(spec))
    found = read(path)
    a2a, x, ag = found.operations
    assert (a2a.kind, a2a.group, a2a.bytes) == ("alltoall", tuple(range(8)), 64 * 10**9)
    assert (x.group, x.bytes) == ((0, 10), 16 * 10**9)
    assert (ag.group, ag.bytes) == ((0, 8), 10**9)
    assert found.ranks == 16
    spec["collectives"][0]["type"] = "all_to_some"
    path.write_text(json.dumps(spec))
    with pytest.raises(BadFile, match="unknown type"):
        read(path)


# --- settings -------------------------------------------------------------------------------------

SETTINGS = """[parallel]
tp = 2
pp = 2
dp = 4
ep = 2
[model]
layers = 4
hidden = 8
sequence = 16
experts = 4
moe_layers = 2
top_k = 2
[step]
micro_batches = 3
"""


def test_settings_become_volumes_by_the_formulas(tmp_path: Path) -> None:
    path = tmp_path / "megatron.toml"
    path.write_text(SETTINGS)
    found = read(path)
    assert found.axes == (("tp", 2), ("cp", 1), ("ep", 2), ("dp", 2), ("pp", 2))
    assert found.ranks == 16
    activation = 16 * 8 * 2
    by = {one.name: one for one in found.operations}
    assert by["tp[0]"].bytes == 4 * 2 * 3 * activation
    assert by["tp[0]"].group == (0, 1)
    assert by["dp[0]"].group == (0, 2, 4, 6)
    attention, norms, router, mlp = 4 * 64, 2 * 8, 8 * 4, 2 * 8 * 32
    assert by["dp[0]"].bytes == (2 * (attention + norms) + mlp + router) // 2 * 4
    assert by["expert dp[0]"].group == (0, 4)
    assert by["expert dp[0]"].bytes == 2 * 4 * 2 * 8 * 32 // 2 // 4 * 4
    assert by["ep[0]"].group == (0, 2)
    assert by["ep[0]"].bytes == 4 * 1 * 3 * activation * 2
    assert by["pp forward[0.0]"].group == (0, 8)
    assert by["pp forward[0.0]"].bytes == 3 * activation
    path.write_text(SETTINGS.replace("ep = 2\n", 'ep = 2\norder = "tp-cp-ep-pp-dp"\n'))
    assert {one.name: one for one in read(path).operations}["pp forward[0.0]"].group == (0, 4)


def test_a_global_batch_counts_micro_batches_and_relays_are_those_of_all(tmp_path: Path) -> None:
    path = tmp_path / "megatron.toml"
    path.write_text(SETTINGS)
    one = read(path)
    more = 'global_batch_size = 24\nmicro_batch_size = 2\nrelays = "all"'
    path.write_text(SETTINGS.replace("micro_batches = 3", more))
    other = read(path)
    assert [2 * x.bytes for x in one.operations if x.of_class == "pp"] == [
        x.bytes for x in other.operations if x.of_class == "pp"
    ]
    assert {x.relays for x in one.operations} == {"none"}
    assert {x.relays for x in other.operations} == {"all"}


@pytest.mark.parametrize("home", ["parallel", "model", "step"])
def test_the_page_has_all_keys_of_settings_and_their_other_names(tmp_path: Path, home: str) -> None:
    """All names on the page are read, with a value that none has; and no key is left out."""
    page = (Path(__file__).parents[4] / "docs/whole-job.md").read_text()
    rows = [re.findall("`([^`]+)`", x) for x in page.splitlines() if x.startswith(f"| `[{home}]`")]
    path = tmp_path / "megatron.toml"

    def refused(key: str, name: str) -> BadFile:
        needed = [f"{x} = 8\n" for x in ("layers", "hidden", "sequence") if x != key]
        tables = {"parallel": "", "model": "".join(needed), "step": ""}
        tables[home] += f"{name} = []\n"
        path.write_text("".join(f"[{table}]\n{text}" for table, text in tables.items()))
        with pytest.raises(BadFile) as error:
            read(path)
        return error.value

    for _, key, *others in rows:
        for name in (key, *others):
            assert "unknown" not in refused(key, name).message
            assert f"{key!r}" in refused(key, name).message
    known = refused("", "zz").hint.split(";")[0].removeprefix("known: ").split(", ")
    assert sorted(key for _, key, *_ in rows) == known


@pytest.mark.parametrize(
    "text", ['{"architectures": ["L"], "hidden_size": 8}', '{"model_type": "gpt2"}']
)
def test_the_configuration_of_a_model_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadFile, match="configuration of a model") as error:
        read(path)
    assert "[model]" in error.value.hint


def settings(folder: Path, model: str, parallel: str = "tp = 2", step: str = "") -> Workload:
    path = folder / "job.toml"
    path.write_text(f"[parallel]\n{parallel}\n[model]\n{model}\n[step]\n{step}\n")
    return read(path)


def model_of(numbers: str, more: str = "") -> str:
    names = ("layers", "hidden", "heads", "kv_heads", "feed_forward", "vocabulary", "sequence")
    pairs = zip(names, numbers.split(), strict=True)
    return "\n".join(f"{name} = {number}" for name, number in pairs) + f"\n{more}"


GATED, GPT = "gated = true", "biases = true\ntied_embeddings = true"
MODELS = {
    "Llama 2 7B": ("32 4096 32 32 11008 32000 4096", GATED, 6_738_415_616),
    "Llama 2 70B": ("80 8192 64 8 28672 32000 4096", GATED, 68_976_648_192),
    "Llama 3 8B": ("32 4096 32 8 14336 128256 8192", GATED, 8_030_261_248),
    "Llama 3 70B": ("80 8192 64 8 28672 128256 8192", GATED, 70_553_706_496),
    "Llama 3 405B": ("126 16384 128 8 53248 128256 8192", GATED, 405_853_388_800),
    "Mixtral 8x7B": (
        "32 4096 32 8 14336 32000 4096",
        f"{GATED}\nexperts = 8\ntop_k = 2",
        46_702_792_704,
    ),
    "Nemotron-4 340B": ("96 18432 96 8 73728 256000 4096", "", 341_025_638_400),
    "GPT-3 175B": ("96 12288 96 96 49152 51200 2048", GPT, 174_615_846_912),
}
"""Published numbers of parameters."""


@pytest.mark.parametrize("name", MODELS)
def test_models_have_their_published_number_of_parameters(tmp_path: Path, name: str) -> None:
    numbers, more, parameters = MODELS[name]
    found = settings(tmp_path, model_of(numbers, more), "dp = 2")
    assert any(f"the model has {parameters:,} parameters" in note for note in found.notes)
    sizes = [one.bytes for one in found.operations if one.class_name in ("dp", "expert dp")]
    assert sum(sizes) == 4 * parameters


def test_gradients_of_stages_are_those_of_all_parameters_or_of_a_stated_number(
    tmp_path: Path,
) -> None:
    parallel = "tp = 4\npp = 4\ndp = 4"
    numbers, more, parameters = MODELS["Llama 3 70B"]
    counted = settings(tmp_path, model_of(numbers, more), parallel)
    stated = settings(
        tmp_path,
        "num_layers = 80\nhidden-size = 8192\nseq_length = 8192\nparameters = 70553706496.0",
        parallel,
    )
    assert any("70,553,706,496 parameters, as stated" in note for note in stated.notes)
    for found in (counted, stated):
        sizes = [one.bytes for one in found.operations if one.class_name == "dp"]
        assert sum(sizes) == 4 * parameters  # 16 groups: 17.64 GB on average
    by = {one.name: one.bytes for one in counted.operations}
    assert by["dp[0]"] - by["dp[4]"] == 128256 * 8192  # 4 bytes, a fourth on each tensor rank
    tied = settings(tmp_path, model_of(numbers, f"{more}\ntied_embeddings = true"), parallel)
    (ends,) = {one.bytes for one in tied.operations if one.class_name == "embedding"}
    assert ends == 128256 * 8192
    assert next(o for o in tied.operations if o.class_name == "embedding").group == (0, 48)


@pytest.mark.parametrize(
    ("layers", "parallel", "stages"),
    [
        (126, "pp = 16", [7, *[8] * 14, 7]),
        (61, "pp = 16", [3, *[4] * 13, 3, 3]),
        (7, "pp = 4", [2, 2, 2, 1]),
        (32, "pp = 4\nfirst_stage_layers = 5\nlast_stage_layers = 7", [5, 10, 10, 7]),
        (21, "pp = 4\nlast_stage_layers = 3", [6, 6, 6, 3]),
        (5, "pp = 1\nlast_stage_layers = 5", [5]),
    ],
)
def test_layers_that_do_not_divide_make_unequal_stages(
    tmp_path: Path, layers: int, parallel: str, stages: list[int]
) -> None:
    shape = f"hidden = 64\nsequence = 32\nlayers = {layers}"
    found = settings(tmp_path, shape, f"tp = 2\n{parallel}")
    sizes = [one.bytes for one in found.operations if one.class_name == "tp"]
    assert sizes == [4 * number * 64 * 32 * 2 for number in stages]
    told = any(note.startswith("layers of stages: ") for note in found.notes)
    assert told == (len(set(stages)) > 1)


def test_sequence_parallelism_divides_the_tokens_of_experts(tmp_path: Path) -> None:
    shape = "layers = 4\nhidden = 6144\nsequence = 4096\nexperts = 8\ntop_k = 2"
    step = "micro_batches = 8\nsequence_parallel = true"
    found = settings(tmp_path, shape, "tp = 8\nep = 4\ndp = 4", step)
    sizes = {one.bytes for one in found.operations if one.class_name == "ep"}
    assert sizes == {4 * 4 * 8 * 12_582_912}
    whole = settings(tmp_path, shape, "tp = 8\nep = 4\ndp = 4", "micro_batches = 8")
    assert {one.bytes for one in whole.operations if one.class_name == "ep"} == {12 << 30}


def test_gradients_of_experts_are_summed_over_context_parallel_ranks_too(tmp_path: Path) -> None:
    shape = "layers = 2\nhidden = 8\nsequence = 64\nexperts = 4"
    found = settings(tmp_path, shape, "cp = 2\nep = 2\ndp = 4")
    groups = {one.group for one in found.operations if one.class_name == "expert dp"}
    assert groups == {(0, 1, 4, 5), (2, 3, 6, 7)}  # of the same experts: all that ep does not split
    plain = settings(tmp_path, "layers = 2\nhidden = 8\nsequence = 64", "ep = 2\ndp = 4")
    assert any(note.startswith("ep = 2 sends nothing") for note in plain.notes)


def test_what_is_no_workload_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    with pytest.raises(BadFile, match="not a workload"):
        read(path)
    with pytest.raises(BadFile, match="no such file"):
        read(tmp_path / "none.json")
    with pytest.raises(BadFile, match="no such file") as told:
        read("tp=8,pp=4")
    assert "[parallel]" in told.value.hint
    cut = tmp_path / "cut.toml"
    cut.write_text("[parallel\n")
    with pytest.raises(BadFile, match="not TOML"):
        read(cut)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadFile, match="without traces"):
        read(empty)
    with pytest.raises(UserError, match="only Chakra"):
        read(path, format="csv", groups="g.json")


@pytest.mark.parametrize("wrong", [[None], [[]], [{}], ["x"], 3, None])
def test_predecessors_in_json_that_are_not_ids_are_refused(tmp_path: Path, wrong: Any) -> None:
    node = {"Id": 0, "NodeType": 4, "runtime": 30, "data_deps": wrong}
    (tmp_path / "t.0.json").write_text(json.dumps({"workload_graph": [node]}))
    with pytest.raises(BadFile, match="data_deps a list of ids"):
        read(tmp_path)


@pytest.mark.parametrize("key", ["inputs", "outputs"])
@pytest.mark.parametrize("wrong", [5, -1.5, "x", {"values": 7}])
def test_values_of_pytorch_that_are_no_lists_are_refused(
    tmp_path: Path, key: str, wrong: Any
) -> None:
    node = {**comm(2, "allreduce", 100, "0"), key: wrong}
    (tmp_path / "et_0.json").write_text(json.dumps({"schema": "1.1.1", "nodes": [node]}))
    with pytest.raises(BadFile, match=f"the values of {key}") as caught:
        read(tmp_path)
    assert "node 2" in str(caught.value.where)


def test_a_table_is_called_as_its_file(tmp_path: Path) -> None:
    path = tmp_path / "step.csv"
    path.write_text("name,kind,group,size\na,transfer,0 1,5\n")
    assert read(path).name == "step"


def test_a_peer_beyond_all_ranks_needs_no_memory(tmp_path: Path) -> None:
    traces(tmp_path, [[message(0, "dst", 2**31 - 1)]])
    with pytest.raises(
        BadFile, match=r"ranks 1, 2, 3, 4, 5, 6, 7, 8, … are missing: 1 of 2147483648"
    ):
        read(tmp_path)
