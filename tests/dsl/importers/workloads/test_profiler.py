"""Traces of PyTorch's profiler and of PARAM, compressed files, and files that are not read."""

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from weft.dsl.base.errors import BadFile
from weft.dsl.importers.workloads.read import WorkloadSource, read_workload
from weft.dsl.nouns.workload import Workload


def read(path: Path | str, **more: Any) -> Workload:
    return read_workload(WorkloadSource(str(path), **more))


def said(name: str, sent: int, received: int, **more: Any) -> dict[str, Any]:
    """Arguments of a call in a group of eight, of elements of two bytes."""
    return {
        "Collective name": name,
        "In msg nelems": sent,
        "Out msg nelems": received,
        "Group size": 8,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
        **more,
    }


def kernel(begin: float, us: float, name: str = "gemm", stream: int = 7, **args: Any) -> Any:
    where = {"pid": 0, "tid": stream, "ts": begin, "dur": us}
    return {"ph": "X", "cat": "kernel", "name": name, **where, "args": {"stream": stream, **args}}


def nccl(begin: float, us: float, held: dict[str, Any], stream: int = 20) -> Any:
    return kernel(begin, us, "ncclDevKernel_x", stream, **held)


def host(begin: float, held: dict[str, Any], name: str = "record_param_comms", **more: Any) -> Any:
    times = {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": begin, "dur": 4}
    return {**times, **more, "args": held}


def trace(file: Path, events: list[Any], rank: int | None = 0, **more: Any) -> Path:
    about = {} if rank is None else {"rank": rank, "world_size": 8, "backend": "nccl"}
    text = json.dumps(
        {"schemaVersion": 1, "distributedInfo": {**about, **more}, "traceEvents": events}
    )
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


def only(path: Path, **more: Any) -> Any:
    (one,) = read(path, **more).operations
    return one


@pytest.mark.parametrize(
    ("name", "sent", "received", "kind", "size"),
    [
        ("allreduce", 1000, 1000, "allreduce", 2000),
        ("_allgather_base", 1024, 8192, "allgather", 16384),
        ("allgather_into_tensor_coalesced", 1024, 8192, "allgather", 16384),
        ("_reduce_scatter_base", 8192, 1024, "reduce_scatter", 16384),
        ("all_to_all", 800, 800, "alltoall", 1600),
        ("all_to_allv", 700, 900, "alltoall", 1800),  # one rank's splits do not make a matrix
        ("broadcast", 50, 50, "broadcast", 100),
        ("gather", 10, 0, "gather", 160),
    ],
)
def test_sizes_are_the_larger_of_both_sides(
    tmp_path: Path, name: str, sent: int, received: int, kind: str, size: int
) -> None:
    """One rank's trace is enough: the others of the group do the same."""
    one = only(trace(tmp_path / "t.json", [nccl(5, 2, said(name, sent, received))]))
    assert (one.kind, one.group, one.bytes) == (kind, tuple(range(8)), size)


def test_splits_are_rows_and_names_have_prefixes(tmp_path: Path) -> None:
    held = said("nccl:all_to_allv", 48, 48, **{"In split size": "[1, 2]", "Group size": 2})
    held |= {"Process Group Ranks": "[0, 1]", "In msg nelems": "48"}
    for rank in range(2):
        trace(tmp_path / f"t.{rank}.json", [nccl(5, 2, held)], rank, world_size=2)
    assert only(tmp_path).matrix == ((32, 64), (32, 64))


CUT = "[" + ", ".join(str(2 * i) for i in range(29)) + ", ...]"


@pytest.mark.parametrize(
    ("held", "config", "group"),
    [
        ({"Process Group Ranks": [0, 3], "Group size": 2}, [], (0, 3)),
        ({"Process Group Ranks": "", "Group size": 8}, [], tuple(range(8))),
        ({"Global rank start": 0, "Global rank stride": 2}, [], tuple(range(0, 128, 2))),
        ({}, [{"pg_name": "0", "ranks": [*range(0, 126, 2), 127]}], (*range(0, 126, 2), 127)),
        ({}, [{"pg_name": "1", "ranks": [0, 1]}], None),
        ({"Global rank start": 0, "Global rank stride": -1}, [], None),
        ({"Process Group Ranks": "[0, 3]", "Group size": 3}, [], None),
        ({"Process Group Ranks": "[0, 1, ...]", "Group size": 8}, [], tuple(range(8))),
        ({"Process Group Ranks": "[0, 3, ...]", "Group size": 8}, [], None),
        ({"Global rank start": "0", "Global rank stride": "2"}, [], tuple(range(0, 128, 2))),
    ],
)
def test_groups_are_listed_or_follow_from_the_rest(
    tmp_path: Path, held: dict[str, Any], config: list[Any], group: tuple[int, ...] | None
) -> None:
    args = {**said("allreduce", 4, 4), "Process Group Ranks": CUT, "Group size": 64, **held}
    path = trace(tmp_path / "t.json", [nccl(5, 2, args)], pg_config=config)
    if group is None:
        with pytest.raises(BadFile, match=r"which ranks are in the group, which has \d+"):
            read(path)
    else:
        assert only(path).group == group
    if held == {}:
        side = tmp_path / "groups.json"
        side.write_text(json.dumps({"0": [*range(64)]}))
        assert only(path, groups=str(side)).group == tuple(range(64))


def test_computations_lie_between_the_calls_that_wait_for_them(tmp_path: Path) -> None:
    events = [
        kernel(0, 40),
        kernel(45, 10),
        nccl(56, 30, said("allreduce", 1, 1)),
        kernel(57, 13),
        kernel(90, 20.5),
        nccl(111, 5, said("allreduce", 2, 2)),
        nccl(112, 5, said("allreduce", 3, 3), stream=21),
    ]
    found = read(trace(tmp_path / "t.json", events))
    waits = {
        (one.us or one.bytes): sorted(
            found.operations[x].us or found.operations[x].bytes for x in w
        )
        for one, w in zip(found.operations, found.predecessors, strict=True)
    }
    late = Fraction("20.5")
    assert waits == {50: [], 13: [50], late: [2, 13], 2: [50], 4: [2, late], 6: [late]}


def test_calls_of_the_host_get_the_times_of_the_kernels_they_launch(tmp_path: Path) -> None:
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "dur": 1}
    events = [
        host(10, said("allreduce", 1, 1)),
        {**launch, "ts": 12, "args": {"correlation": 5}},
        host(15, {"Collective name": "wait"}),
        host(20, said("send", 7, 7, **{"Dst Rank": 3})),
        host(25, said("recv", 7, 7, **{"Src Rank": 3})),
        {**launch, "ts": 31, "args": {"correlation": 6}},
        kernel(30, 20),
        kernel(60, 5, "ncclDevKernel_AllReduce", 20, correlation=5),
        kernel(70, 5, "ncclDevKernel_SendRecv", 20, correlation=6),
    ]
    found = read(trace(tmp_path / "t.json", events))
    by = {one.name: set(one.after) for one in found.operations}
    assert by["allreduce"] == {"compute"}
    assert by["send"] == by["recv"] == {"compute", "allreduce"}  # coalesced: at once
    groups = {one.group for one in found.operations if one.kind == "transfer"}
    assert groups == {(0, 3), (3, 0)}


def test_ranks_are_matched_by_number_or_by_order(tmp_path: Path) -> None:
    """Kernels of two streams may begin in another order; groups are told apart by their names."""
    two = {"Group size": 2, "Process Group Ranks": "[0, 1]"}

    def one(at: int, size: int, name: str, **seq: int) -> Any:
        args = said("allreduce", size, size, **two, **seq, **{"Process Group Name": name})
        return nccl(at, 1, args, stream=size)

    first = [one(1, 10, "0", Seq=4), one(2, 20, "0", Seq=5), one(3, 30, "1")]
    last = [one(1, 30, "1"), one(2, 20, "0", Seq=5), one(3, 10, "0", Seq=4)]
    trace(tmp_path / "a.json.gz", first, 0)
    trace(tmp_path / "b.json.gz", last, 1)
    assert sorted(one.bytes for one in read(tmp_path).operations) == [20, 40, 60]
    trace(tmp_path / "b.json.gz", [*last[1:], one(1, 31, "1")], 1)
    with pytest.raises(BadFile, match="rank 1 has allreduce of 62"):
        read(tmp_path)
    trace(tmp_path / "b.json.gz", last[:2], 1)
    with pytest.raises(BadFile, match="rank 1 takes no part"):
        read(tmp_path)
    trace(tmp_path / "b.json.gz", [], 0)
    with pytest.raises(BadFile, match="a second trace of rank 0"):
        read(tmp_path)


def test_ranks_come_from_names_where_traces_do_not_say_them(tmp_path: Path) -> None:
    for rank in range(2):
        held = said("allreduce", 4, 4, **{"Group size": 2, "Process Group Ranks": "[0, 1]"})
        trace(tmp_path / f"step_rank{rank}.json", [nccl(1, 1, held)], None)
    found = read(tmp_path / "step_rank1.json")
    assert (len(found.operations), found.ranks) == (1, 2)


@pytest.mark.parametrize(("rank", "kind", "pair"), [(2, "send", (2, 5)), (5, "recv", (2, 5))])
def test_the_other_rank_of_a_pair_is_the_peer(
    tmp_path: Path, rank: int, kind: str, pair: tuple[int, int]
) -> None:
    held = said(kind, 4, 4, **{"Group size": 2, "Process Group Ranks": "[2, 5]"})
    path = trace(tmp_path / "t.json", [nccl(1, 1, held)], rank)
    assert only(path).group == pair


@pytest.mark.parametrize(("size", "assumed"), [({"world_size": 8}, False), ({}, True)])
def test_one_trace_is_of_one_rank_and_a_number_that_is_guessed_is_said(
    tmp_path: Path, size: dict[str, int], assumed: bool
) -> None:
    path = trace(tmp_path / "t.0.json", [nccl(1, 1, said("allreduce", 4, 4))], None, **size)
    notes = read(path).notes
    assert any(note.startswith("the trace of rank 0 of 8: ") for note in notes), notes
    assert any(note.startswith("8 ranks: the highest") for note in notes) == assumed


def test_old_traces_have_the_shapes_of_inputs(tmp_path: Path) -> None:
    def one(at: int, name: str, dims: Any, kind: str) -> Any:
        args = {"Input Dims": dims, "Input type": [kind]}
        return host(at, args, name, cat="user_annotation")

    events = [
        host(10, {"Input Dims": [[], []]}),
        one(10, "nccl:all_reduce", [[100, 3]], "float"),
        one(20, "nccl:all_gather", [[[10], [20]]], "c10::BFloat16"),
        one(30, "nccl:send 0->3", [[5]], "long int"),
        kernel(40, 5, "ncclKernel_AllReduce", 20),
    ]
    path = trace(tmp_path / "t.json", events)
    found = [(one.kind, one.group[-1], one.bytes) for one in read(path).operations]
    assert found == [("allreduce", 7, 1200), ("allgather", 7, 480), ("transfer", 3, 40)]
    trace(path, [kernel(40, 5, "ncclKernel_AllReduce", 20)])
    with pytest.raises(BadFile, match="neither names nor sizes") as caught:
        read(path)
    assert "PyTorch 2.4" in caught.value.hint


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ({"dtype": "Int3"}, "type of elements 'Int3'"),
        ({"Collective name": "allfoo"}, "unknown collective 'allfoo'"),
        ({"In msg nelems": "many"}, "not counts"),
        ({"Collective name": "send"}, "does not say the other rank"),
        ({"Process Group Ranks": "[0, 0, 1, 2, 3, 4, 5, 6]"}, "rank 0 twice"),
    ],
)
def test_damaged_calls_have_one_message(tmp_path: Path, held: dict[str, Any], told: str) -> None:
    path = trace(tmp_path / "t.json", [nccl(5, 2, {**said("allreduce", 4, 4), **held})])
    with pytest.raises(BadFile, match=told):
        read(path)


# --- PARAM ----------------------------------------------------------------------------------------


def test_traces_of_param(tmp_path: Path) -> None:
    def one(name: str, sent: int, received: int, **more: Any) -> dict[str, Any]:
        sizes = {"in_msg_size": sent, "out_msg_size": received, "dtype": "Float", "world_size": 4}
        return {"comms": name, **sizes, **more}

    for rank in range(4):
        rows = [
            {"comms": "init", "pg_id": 1, "global_ranks": [0, 2] if rank % 2 == 0 else [1, 3]},
            one("all_gather", 10, 40),
            {"compute": "gemm", "mm_dim": 100, "dtype": "float"},
            one("all_reduce", 5, 5, pg_id=1, world_size=2),
            one("all_to_allv", 6, 6, in_split=[0, 1, 2, 3]),
            one("broadcast", 3, 3, root=2),
        ]
        (tmp_path / f"{rank}.json").write_text(json.dumps(rows))
    gather, first, swap, cast, second = read(tmp_path / "0.json").operations
    assert (gather.kind, gather.bytes) == ("allgather", 160)
    assert (first.group, second.group) == ((0, 2), (1, 3))
    assert swap.matrix == ((0, 4, 8, 12),) * 4
    assert (cast.root, cast.after) == (2, (swap.name,))
    (tmp_path / "3.json").write_text(json.dumps([{"comms": "all_reduce"}, {"else": 1}]))
    with pytest.raises(BadFile, match=r"3.json: entry"):
        read(tmp_path / "0.json")


# --- compressed files, and those that are not read ------------------------------------------------


def test_compressed_traces_are_unpacked_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trace(tmp_path / "t.pt.trace.json.gz", [nccl(5, 2, said("allreduce", 4, 4))])
    assert only(path).bytes == 8
    packed = path.read_bytes()
    path.write_bytes(packed[:-9])
    with pytest.raises(BadFile, match="not a whole file of gzip"):
        read(path)
    path.write_bytes(gzip.compress(bytes(5 << 20)))
    monkeypatch.setenv("WEFT_READ_LIMIT", "1MiB")
    with pytest.raises(BadFile, match="larger than 1MiB"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.sqlite", b"SQLite format 3\0\x10", "a database, as nsys exports"),
        ("a.nsys-rep", b"\x01\x02", "a report of Nsight Systems"),
        (
            "a.log",
            b"Comm. Op            Message Size        Count\nall_reduce\n",
            "DeepSpeed's table",
        ),
        ("a.txt", b"HloModule jit_step, entry\n", "a module of XLA"),
        (
            "a.txt",
            b"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1\n1\n",
            "SimAI",
        ),
        ("a.log", b"node1:12:34 [0] NCCL INFO Bootstrap : Using eth0\n", "a log of NCCL_DEBUG"),
        ("a.log", b"#       out-of-place       in-place\n", "a measurement of nccl-tests"),
        ("a.json", b'{"entries": [{"profiling_name": "nccl:all_reduce"}]}', "flight recorder"),
        ("a.pkl", b"\x80\x04\x95", "a pickle"),
        ("a.tgz", gzip.compress(bytes(257) + b"ustar\0", mtime=0), "an archive"),
        ("a.xplane.pb", b"\x0a\x05", "a profile of XLA"),
    ],
)
def test_files_of_others_are_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadFile, match=told) as caught:
        read(path)
    assert "weft" in caught.value.hint or told == "an archive"
