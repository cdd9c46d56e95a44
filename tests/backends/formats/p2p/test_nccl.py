"""The code of files for NCCL, run on a machine that enforces the rules of streams and of NCCL."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from standin_gpu import Deadlock, Violation
from standin_nccl import Standin, installed

from weft.backends.formats.p2p.check import check_script
from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.data import Exam, type_named, units_of
from weft.backends.formats.p2p.emit import function_of
from weft.backends.formats.p2p.execute import arguments, loaded
from weft.backends.formats.p2p.format import CupyNcclFile
from weft.backends.formats.p2p.model import Script
from weft.backends.formats.p2p.read import read_script
from weft.backends.ranks.nccl import on_gpu
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.engines.classic.text import named_algorithm

RING = "classic:ring{collective=allreduce,ranks=4}"


@pytest.fixture
def gpu(request) -> Iterator[Standin]:
    with installed(getattr(request, "param", 0)) as made:
        yield made


def written(script: Script) -> str:
    assert check_script(script) == []
    text = CupyNcclFile().write(script)
    assert read_script(text, "file") == script
    return text


def classic(name: str) -> Script:
    return compile_script(named_algorithm(name).algorithm)


def right(
    program: types.ModuleType,
    script: Script,
    gpu: Standin,
    length: int,
    dtype: str = "float32",
    in_place: bool = False,
    **options: Any,
) -> None:
    """One call on all ranks, each a thread with a stream; all results are right."""
    import cupy

    collective = getattr(program, function_of(script.collective))
    exam = Exam(units_of(script.collective), length, type_named(dtype))
    ranks = script.collective.ranks
    name = cupy.cuda.nccl.get_unique_id()

    def main(rank: int) -> None:
        comm = cupy.cuda.nccl.NcclCommunicator(ranks, name, rank)
        with cupy.cuda.Stream(non_blocking=True):
            send, recv = on_gpu(*arguments(exam, rank, in_place))
            before = None if send is None or in_place else send.get()
            for _ in range(1 if in_place else 2):
                collective(send, recv, comm=comm, **options)
            assert not exam.wrong(rank, None if recv is None else recv.get())
            if before is not None:
                np.testing.assert_array_equal(send.get(), before)
        program.forget(comm)

    gpu.machine.run(ranks, main)
    assert not gpu.nccl.left()


CLASSICS = [
    RING,
    "classic:ring{collective=allgather,ranks=5}",
    "classic:ring{collective=reduce_scatter,ranks=4}",
    "classic:double_tree{collective=allreduce,ranks=6}",
    "classic:one_shot{ranks=5}",
    "classic:two_shot{collective=allreduce,ranks=6}",
    "classic:two_level{collective=allreduce,ranks=6,shape=3+2}",
    "classic:two_step{on=dgx-a100:nodes=2}",
]


@pytest.mark.parametrize("name", CLASSICS)
def test_classic_algorithms(name, gpu):
    script = classic(name)
    program = loaded(written(script))
    for length, in_place in ((0, False), (1, True), (13, False), (13, True)):
        right(program, script, gpu, length, in_place=in_place)


@cache
def synthesized(kind):
    machine = topology("torus:2x3")
    problem = Problem(machine, make(kind, 6), bytes=1 << 10, objective=Objective.TIME)
    return synthesize(problem, "packing", Budget(effort=0.3)).points[0].schedule


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "kind", ["allgather", "reduce_scatter", "allreduce", "alltoall", "broadcast", "reduce"]
)
def test_synthesized_schedules(kind, in_place, gpu):
    script = compile_script(synthesized(kind), in_place=in_place, segments=2)
    program = loaded(written(script))
    for length, place in ((1, False), (7, True)):
        right(program, script, gpu, length, in_place=place)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int64", "uint16"])
@pytest.mark.parametrize("seed", [0, 1])
def test_types(dtype, seed):
    with installed(seed) as gpu:
        script = classic(RING)
        right(loaded(written(script)), script, gpu, 9, dtype, in_place=bool(seed))


@pytest.mark.parametrize("op", ["prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operations(op, dtype, gpu):
    program = loaded(written(classic(RING)))
    given = np.array([[1, 2, -3], [2, np.nan, 1], [0.5, 8, 2], [4, 4, 4]])
    wanted = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}[op].reduce(given)
    _each(
        gpu,
        4,
        lambda rank, comm, cupy: _same(
            program.allreduce, cupy.asarray(given[rank].astype(type_named(dtype))), wanted, comm, op
        ),
    )


def _same(collective, array, wanted, comm, op) -> None:
    collective(array, array, op, comm=comm)
    np.testing.assert_array_equal(array.get().astype(float), wanted)


def _each(gpu: Standin, ranks: int, main: Any) -> None:
    """``main(rank, comm, cupy)`` on a thread and a stream of each rank."""
    import cupy

    name = cupy.cuda.nccl.get_unique_id()

    def body(rank: int) -> None:
        with cupy.cuda.Stream(non_blocking=True):
            main(rank, cupy.cuda.nccl.NcclCommunicator(ranks, name, rank), cupy)

    gpu.machine.run(ranks, body)


@pytest.mark.parametrize("gpu", range(6), indirect=True)
def test_parts_on_streams_of_their_own(gpu):
    script = classic(RING)
    program = loaded(written(script))
    for length, parts in ((1, 2), (11, 2), (40, 3)):
        right(program, script, gpu, length, streams=parts)
        right(program, script, gpu, length, in_place=True, streams=parts)


def test_all_ranks_in_one_process(gpu):
    import cupy

    script = classic("classic:ring{collective=allreduce,ranks=16}")
    program = loaded(written(script))
    exam = Exam(units_of(script.collective), 37, np.dtype("float32"))
    comms = cupy.cuda.nccl.NcclCommunicator.initAll([0] * 16)
    arrays = [on_gpu(*arguments(exam, rank, False)) for rank in range(16)]
    program.allreduce_of_all([a for a, _ in arrays], [b for _, b in arrays], comms)
    for rank, (_, recv) in enumerate(arrays):
        assert not exam.wrong(rank, recv.get())


def test_one_rank_after_the_other_in_one_process_would_hang(gpu):
    import cupy

    program = loaded(written(classic(RING)))
    comms = cupy.cuda.nccl.NcclCommunicator.initAll([0] * 4)
    array = cupy.zeros(8, "float32")
    with pytest.raises(Deadlock, match="in groupEnd"):
        program.allreduce(array, array, comm=comms[0])


def test_a_graph_does_it_again_with_what_the_arrays_then_hold(gpu):
    program = loaded(written(classic(RING)))

    def main(rank: int, comm: Any, cupy: Any) -> None:
        send, recv = cupy.zeros(10, "float32"), cupy.zeros(10, "float32")
        program.allreduce(send, recv, comm=comm)
        for parts in (1, 2):
            graph = program.captured(program.allreduce, send, recv, comm, streams=parts)
            for turn in range(3):
                send[...] = np.arange(10) + rank * turn
                graph()
                assert (recv.get() == 4 * np.arange(10) + 6 * turn).all()
                program.allreduce(recv, recv, comm=comm)  # whose scratch memory is another
                assert (recv.get() == 16 * np.arange(10) + 24 * turn).all()

    _each(gpu, 4, main)


def test_calls_of_a_size_use_the_same_scratch_memory(gpu):
    program = loaded(written(classic(RING)))

    def main(rank: int, comm: Any, cupy: Any) -> None:
        array = cupy.zeros(11, "int32")
        program.allreduce(array, array, comm=comm)
        array.get()
        meet.wait()
        made.append(gpu.machine.allocated)
        meet.wait()
        for _ in range(5):
            program.allreduce(array, array, comm=comm)
        array.get()

    made: list[int] = []
    meet = threading.Barrier(4)
    _each(gpu, 4, main)
    assert set(made) == {gpu.machine.allocated}
    assert gpu.machine.allocated > 4  # 11 elements in 4 chunks need room for padding


def test_sums_of_a_round_are_one_kernel(gpu):
    """One-shot allreduce of 5: what each rank keeps is copied, then four sums in one launch."""
    script = classic("classic:one_shot{ranks=5}")
    right(loaded(written(script)), script, gpu, 3)
    assert sorted(gpu.machine.kernels) == [1] * 10 + [4] * 10  # of two calls


def test_work_shares_a_kernel_only_if_its_arrays_are_the_same_or_apart(gpu):
    import cupy

    program = loaded(written(classic(RING)))
    a, b = cupy.zeros(8, "int32"), cupy.zeros(8, "int32")
    some = [("", a[0:2], b[0:2], None), ("sum", a[0:2], a[0:2], b[4:6]), ("", b[0:2], b[2:4], None)]
    more = [("", a[1:3], b[4:6], None), ("", b[5:8], a[5:8], None)]
    wire = program.Nccl(program.Connection(types.SimpleNamespace(rank=0, ranks=1)), None, "int32")
    assert list(program.batches([*some, *more], wire.span)) == [some, more[:1], more[1:]]
    many = [("", a[k : k + 1], b[k : k + 1], None) for k in range(8)]
    assert [len(x) for x in program.batches(many * 2, wire.span)] == [8, 8]


class Tensor:
    """As much of a torch tensor as the file looks at."""

    __module__ = "torch"

    def __init__(self, array: Any, dtype: str) -> None:
        self.array, self.dtype = array, f"torch.{dtype}"

    def detach(self) -> Tensor:
        return self

    def view(self, dtype: str) -> Tensor:
        assert dtype == "int16"
        return Tensor(self.array.view("int16"), "int16")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__


def test_tensors_of_torch_on_its_current_stream(gpu, monkeypatch):
    program = loaded(written(classic(RING)))
    own = {}
    current = types.SimpleNamespace(current_stream=lambda: own["stream"][gpu.machine.stream])
    fake = types.SimpleNamespace(int16="int16", cuda=current)
    monkeypatch.setitem(sys.modules, "torch", fake)
    own["stream"] = {}

    def main(rank: int, comm: Any, cupy: Any) -> None:
        stream = gpu.machine.stream
        own["stream"][stream] = types.SimpleNamespace(cuda_stream=stream.ptr)
        array = cupy.asarray(np.full(5, 1.5 + rank, type_named("bfloat16")))
        tensor = Tensor(array, "bfloat16")
        with gpu.machine.null:  # CuPy's current stream is another
            own["stream"][gpu.machine.null] = own["stream"][stream]
            program.allreduce(tensor, tensor, comm=comm, stream=own["stream"][stream])
        assert (array.get().astype(float) == 12).all()

    _each(gpu, 4, main)


def test_arrays_with_gaps_are_used_as_they_are(gpu):
    program = loaded(written(classic(RING)))

    def main(rank: int, comm: Any, cupy: Any) -> None:
        array = cupy.asarray(np.arange(20, dtype="f4") * (rank + 1))
        program.allreduce(array[::2], array[1::2], comm=comm)
        wanted = np.arange(20, dtype="f4")
        assert (array.get()[::2] == (rank + 1) * wanted[::2]).all()
        assert (array.get()[1::2] == 10 * wanted[::2]).all()

    _each(gpu, 4, main)


@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reduce_scatter"])
def test_a_file_tries_itself(kind, gpu):
    program = loaded(written(classic(f"classic:ring{{collective={kind},ranks=4}}")))
    verdicts: list[bool] = []

    def main(rank: int, comm: Any, cupy: Any) -> None:
        wire = program.Nccl(program.on_comm(comm), gpu.machine.stream, "uint8")
        collective = partial(getattr(program, kind), comm=comm)
        units = program.SHAPE.input // program.SHAPE.unit
        right, seconds = program.attempt(
            wire, collective, cupy.asarray, cupy.asnumpy, kind, 0, units, 7
        )
        assert seconds > 0
        verdicts.append(right)

    _each(gpu, 4, main)
    assert verdicts == [True] * 4


def test_scratch_memory_of_old_sizes_goes(gpu):
    program = loaded(written(classic(RING)))

    def main(rank: int, comm: Any, cupy: Any) -> None:
        for length in (*range(1, 12), 5):
            array = cupy.zeros(length, "int32")
            program.allreduce(array, array, comm=comm)
        assert len(program.on_comm(comm).rooms) <= program.KEPT
        array.get()

    _each(gpu, 4, main)


def test_communicators_of_nccl4py(gpu):
    from nccl.core import Communicator

    program = loaded(written(classic(RING)))

    def main(rank: int, comm: Any, cupy: Any) -> None:
        array = cupy.asarray(np.full(6, rank + 1, np.float16))
        program.allreduce(array, array, comm=Communicator(comm))
        assert (array.get() == 10).all()

    _each(gpu, 4, main)


@pytest.mark.parametrize("major", [13, 14])
def test_ranks_meet_through_a_store(major):
    """The name of a communicator is a tuple in CuPy 13, and bytes from 14 on."""
    with installed(major=major) as gpu:
        _meet_through_a_store(gpu)


def _meet_through_a_store(gpu):
    program = loaded(written(classic(RING)))
    store: dict[str, bytes] = {}
    there = threading.Event()

    class Store:
        def set(self, key: str, value: str) -> None:
            store[key] = value.encode()
            there.set()

        def get(self, key: str) -> bytes:
            there.wait(10)
            return store[key]

    def main(rank: int, _: Any, cupy: Any) -> None:
        connection = program.connect(Store(), rank, 4)
        array = cupy.asarray(np.full(6, rank, np.int32))
        program.allreduce(array, array, comm=connection)
        assert (array.get() == 6).all()
        wire = program.Nccl(connection, gpu.machine.stream, "uint8")
        wire.barrier()

    _each(gpu, 4, main)


MISTAKES = [
    (lambda cupy: (np.zeros(4, "f4"), np.zeros(4, "f4")), TypeError, "send: an array on a GPU"),
    (lambda cupy: (cupy.zeros(4, "f4"), cupy.zeros(4, "f8")), TypeError, "one type is needed"),
    (lambda cupy: (cupy.zeros(4, "f4"), cupy.zeros(5, "f4")), ValueError, "recv must have 1"),
    (lambda cupy: (None, None), ValueError, "send or recv is needed"),
]


@pytest.mark.parametrize(("arrays", "error", "words"), MISTAKES)
def test_mistakes_are_told_before_anything_is_posted(arrays, error, words, gpu):
    import cupy

    program = loaded(written(classic(RING)))
    comm = cupy.cuda.nccl.NcclCommunicator(4, cupy.cuda.nccl.get_unique_id(), 0)
    with pytest.raises(error, match=words):
        program.allreduce(*arrays(cupy), comm=comm)
    assert not gpu.nccl.groups


WRONGS = [
    ("no group", "self.link.start()", "pass", "self.link.end()", "pass", Deadlock, "in groupEnd"),
    (
        "messages on another stream",
        ", post or stream, numbers",
        ", self.cupy.cuda.Stream.null, numbers",
        "if self.post is not self.stream",
        "if False",
        Exception,
        "",
    ),
    (
        "sums of a part are not waited for",
        "self.post.wait_event(self.stream.record())",
        "pass",
        "",
        "",
        Exception,
        "",
    ),
    (
        "messages of a part are not waited for",
        "self.stream.wait_event(self.post.record())",
        "pass",
        "",
        "",
        Exception,
        "",
    ),
    (
        "parts do not wait for the caller",
        "wire.stream.wait_event(arrays.stream.record())",
        "pass",
        "",
        "",
        Exception,
        "",
    ),
    (
        "the caller's stream does not wait",
        "arrays.stream.wait_event(wire.stream.record())",
        "pass",
        "",
        "",
        Exception,
        "",
    ),
    (
        "work comes too late",
        "        self.flush()\n        if self.post",
        "        if self.post",
        "",
        "",
        AssertionError,
        "",
    ),
    (
        "bytes for elements",
        "array.nbytes, self.nccl.NCCL_UINT8, peer",
        "array.size, self.nccl.NCCL_UINT8, peer",
        "",
        "",
        AssertionError,
        "",
    ),
]


@pytest.mark.parametrize("wrong", WRONGS, ids=lambda w: w[0])
def test_a_wire_with_a_mistake_is_caught(wrong):
    """Each of them is right on some runs of a real GPU; here it goes wrong for one of few seeds."""
    _, old, new, more_old, more_new, error, words = wrong
    script = classic("classic:ring{collective=allreduce,ranks=3}")
    text = written(script)
    assert old in text
    assert more_old in text
    text = text.replace(old, new).replace(more_old or "\0", more_new)
    caught = []
    for seed in range(8):
        with installed(seed) as gpu:
            program = loaded(text)
            try:
                right(program, script, gpu, 13, in_place=True, streams=2)
            except (error, Violation, AssertionError) as found:
                caught.append(str(found))
    assert caught
    assert words in caught[0]
