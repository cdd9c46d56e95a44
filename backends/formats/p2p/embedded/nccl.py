"""NCCL, through CuPy or nccl4py, on CuPy arrays and whatever can be seen as one."""

from __future__ import annotations

from .machine import Shape, stages

# --- in every file for NCCL from here on ---
import sys  # isort: skip
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Ends = Sequence[tuple[Any, int]]
Item = tuple[str, Any, Any, Any]
"""Work that waits for its launch: an operation or "" for a copy, where to, one or two terms."""

KEPT = 4
"""Sizes whose scratch memory a connection keeps."""

FUSED = 8
"""Statements of one kernel, at most."""

OPERATIONS = {
    "": "{a}",
    "sum": "{a} + {b}",
    "prod": "{a} * {b}",
    "max": "({a} > {b} || {a} != {a}) ? {a} : {b}",  # what is not a number stays so
    "min": "({a} < {b} || {a} != {a}) ? {a} : {b}",
}

BFLOAT16 = """
__device__ inline float wide(unsigned short x) {
    return __uint_as_float((unsigned int)x << 16);
}
__device__ inline unsigned short narrow(float x) {  // to the nearest, ties to even
    unsigned int bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
"""
"""CuPy knows no bfloat16: its numbers are handled as uint16 and summed by these."""


class CupyComm:
    """A communicator of CuPy. Messages are bytes: NCCL does not look into them."""

    def __init__(self, comm: Any) -> None:
        from cupy.cuda import nccl

        self.nccl, self.comm = nccl, comm
        self.rank, self.ranks = int(comm.rank_id()), int(comm.size())

    def start(self) -> None:
        """Open a group: what is posted in it begins at once when it ends."""
        self.nccl.groupStart()

    def end(self) -> None:
        """End the group."""
        self.nccl.groupEnd()

    def send(self, array: Any, peer: int, stream: Any) -> None:
        """Post a message."""
        self.comm.send(array.data.ptr, array.nbytes, self.nccl.NCCL_UINT8, peer, stream.ptr)

    def recv(self, array: Any, peer: int, stream: Any) -> None:
        """Post a receive."""
        self.comm.recv(array.data.ptr, array.nbytes, self.nccl.NCCL_UINT8, peer, stream.ptr)


class Nccl4pyComm:
    """A communicator of nccl4py."""

    def __init__(self, comm: Any) -> None:
        from nccl import core

        self.core, self.comm = core, comm
        self.rank, self.ranks = int(comm.rank), int(comm.nranks)

    def start(self) -> None:
        """Open a group."""
        self.core.group_start()

    def end(self) -> None:
        """End the group."""
        self.core.group_end()

    def send(self, array: Any, peer: int, stream: Any) -> None:
        """Post a message."""
        self.comm.send(array.view("uint8"), peer, stream=stream.ptr)

    def recv(self, array: Any, peer: int, stream: Any) -> None:
        """Post a receive."""
        self.comm.recv(array.view("uint8"), peer, stream=stream.ptr)


@dataclass(eq=False)
class Connection:
    """A communicator, the scratch memory of calls by stream, type and size, and streams."""

    link: Any
    rooms: OrderedDict[tuple[int, str, int], list[Any]] = field(default_factory=OrderedDict)
    lanes: list[Any] = field(default_factory=list)

    def room(self, *key: Any) -> list[Any]:
        """The scratch memory of such a call; that of the oldest size goes."""
        found = self.rooms.setdefault(key, [])
        self.rooms.move_to_end(key)
        while len(self.rooms) > KEPT * max(1, len(self.lanes)):
            self.rooms.popitem(last=False)
        return found

    def lane(self, number: int) -> Any:
        """A stream of its own, the same at every call."""
        import cupy

        while len(self.lanes) <= number:
            self.lanes.append(cupy.cuda.Stream(non_blocking=True))
        return self.lanes[number]


class Nccl:
    """The wire of one call. Nothing waits: all is put on ``stream``, in order.

    Sums are launched together before the next messages. Messages go on ``post``, which may be
    another stream than that of sums.
    """

    def __init__(self, connection: Connection, stream: Any, numbers: str, post: Any = None) -> None:
        import cupy

        self.cupy, self.link = cupy, connection.link
        self.rank, self.ranks = self.link.rank, self.link.ranks
        self.stream, self.post, self.numbers = stream, post or stream, numbers
        self.connection = connection
        self.kept: list[Any] | None = None
        self.free: list[Any] = []
        self.waiting: list[Item] = []

    def agree(self, call: str) -> None:
        """NCCL looks at no message: all ranks are taken to make the same call."""

    def exchange(self, number: int, sends: Ends, recvs: Ends) -> None:
        """Post a round as one group, behind the work that came before it."""
        self.flush()
        if self.post is not self.stream:
            self.post.wait_event(self.stream.record())
        self.link.start()
        try:
            for array, peer in sends:
                self.link.send(array, peer, self.post)
            for array, peer in recvs:
                self.link.recv(array, peer, self.post)
        finally:  # after an error as well: NCCL then forgets the group and raises the error
            self.link.end()
        if self.post is not self.stream:
            self.stream.wait_event(self.post.record())

    def combine(self, op: str, out: Any, a: Any, b: Any) -> None:
        """``out = a op b``, launched later, in order."""
        self.waiting.append((op, out, a, b))

    def copy(self, out: Any, a: Any) -> None:
        """``out = a``, later if both are in one piece."""
        if out.ndim == 1:
            self.waiting.append(("", out, a, None))
        else:
            self.flush()
            out[...] = a

    def flush(self) -> None:
        """Launch the work that waits."""
        for batch in batches(self.waiting, self.span):
            launch(batch, self.numbers, self.span)
        self.waiting.clear()

    def empty(self, count: int, like: Any) -> Any:
        """Memory of an earlier call of this size, or new."""
        if self.kept is None:
            self.kept = self.connection.room(int(self.stream.ptr), self.numbers, int(like.size))
            self.free = list(self.kept)
        for place, array in enumerate(self.free):
            if array.size == count:
                return self.free.pop(place)
        made = self.cupy.empty(count, like.dtype)
        self.kept.append(made)
        return made

    def flat(self, array: Any) -> Any:
        """The array in one dimension, if it is contiguous."""
        return array.reshape(-1) if array.flags.c_contiguous else None

    def span(self, array: Any) -> tuple[int, int]:
        """The bytes it spans."""
        if array.flags.c_contiguous:
            return array.data.ptr, array.data.ptr + array.nbytes
        first, end = self.cupy.byte_bounds(array)
        return int(first), int(end)

    def barrier(self) -> None:
        """Wait for all ranks: everybody sends a byte to everybody."""
        with self.stream:
            marks = self.cupy.zeros(self.ranks, "uint8")
            others = [r for r in range(self.ranks) if r != self.rank]
            own = marks[self.rank : self.rank + 1]
            self.exchange(0, [(own, r) for r in others], [(marks[r : r + 1], r) for r in others])
        self.stream.synchronize()

    def clock(self) -> float:
        """Seconds, when all that was begun is done."""
        self.stream.synchronize()
        return time.perf_counter()


def batches(items: Iterable[Item], span: Callable[[Any], tuple[int, int]]) -> Iterator[list[Item]]:
    """Neighbouring work that one kernel can do, each of its threads one element of every item.

    That is right if any two arrays are of one length, and the same memory or apart.
    """
    batch: list[Item] = []
    places: set[tuple[int, int]] = set()
    for item in items:
        own = {span(array) for array in item[1:] if array is not None}
        fits = all(a == b or a[1] <= b[0] or b[1] <= a[0] for a in places for b in own)
        if batch and (len(batch) == FUSED or len(item[1]) != len(batch[0][1]) or not fits):
            yield batch
            batch, places = [], set()
        batch.append(item)
        places |= own
    if batch:
        yield batch


def launch(batch: list[Item], numbers: str, span: Callable[[Any], tuple[int, int]]) -> None:
    """Do the work of a batch in one kernel, in order; what it writes, it can read again."""
    written = {span(out) for _, out, _, _ in batch}
    arrays: dict[tuple[int, int], Any] = {}
    for _, *parts in batch:
        arrays |= {span(part): part for part in parts if part is not None}
    reads = [place for place in arrays if place not in written]
    writes = [place for place in arrays if place in written]
    names = {place: f"i{k}" for k, place in enumerate(reads)}
    names |= {place: f"o{k}" for k, place in enumerate(writes)}
    steps = tuple(
        (op, *(names[span(part)] for part in parts if part is not None)) for op, *parts in batch
    )
    run = kernel(steps, len(reads), len(writes), numbers)
    run(*(arrays[place] for place in (*reads, *writes)))


@cache
def kernel(steps: tuple[tuple[str, ...], ...], reads: int, writes: int, numbers: str) -> Any:
    """The kernel of some steps, such as ``("sum", "o0", "o0", "i0")``."""
    import cupy

    small = numbers == "bfloat16"
    lines = []
    for op, out, *terms in steps:
        seen = [f"wide({term})" for term in terms] if small and op else terms
        value = OPERATIONS[op].format(a=seen[0], b=seen[-1])
        lines.append(f"{out} = narrow({value});" if small and op else f"{out} = {value};")
    return cupy.ElementwiseKernel(
        ", ".join(f"T i{k}" for k in range(reads)),
        ", ".join(f"T o{k}" for k in range(writes)),
        "\n".join(lines),
        "weft_work",
        preamble=BFLOAT16 if small else "",
    )


@dataclass(frozen=True)
class _Handle:
    """A CUDA stream of another library, for CuPy."""

    ptr: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def on_stream(stream: Any, *arrays: Any) -> Any:
    """A stream as CuPy's; None is the current one of torch for its tensors, else of CuPy."""
    import cupy

    if stream is None and any(_of_torch(array) for array in arrays):
        stream = sys.modules["torch"].cuda.current_stream()
    if stream is None:
        return cupy.cuda.get_current_stream()
    if hasattr(stream, "wait_event") and hasattr(stream, "ptr"):
        return stream
    ptr = getattr(stream, "cuda_stream", stream)
    if not isinstance(ptr, int):
        ptr = stream.__cuda_stream__()[1]
    wrap = getattr(cupy.cuda.Stream, "from_external", None)
    return wrap(_Handle(ptr)) if wrap else cupy.cuda.ExternalStream(ptr)


def on_device(array: Any, name: str) -> tuple[Any, str]:
    """An array as CuPy's, nothing copied, and the type of its numbers.

    Raises:
        TypeError: it is not on a GPU.
    """
    import cupy

    if array is None:
        return None, ""
    numbers = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if _of_torch(array):
        array = array.detach()
        array = array.view(sys.modules["torch"].int16) if numbers == "bfloat16" else array
    if not hasattr(array, "__cuda_array_interface__"):
        raise TypeError(f"{name}: an array on a GPU is needed, not {type(array).__name__}")
    made = cupy.asarray(array)
    return (made.view("uint16") if numbers == "bfloat16" else made), numbers


def _of_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def on_comm(comm: Any) -> Connection:
    """The connection of a communicator (None: of all the job's processes), made on first use."""
    if isinstance(comm, Connection):
        return comm
    key = None if comm is None else id(comm)
    if key not in CONNECTIONS:
        CONNECTIONS[key] = connect() if comm is None else Connection(_link(comm))
    return CONNECTIONS[key]


def _link(comm: Any) -> Any:
    if hasattr(comm, "rank_id"):
        return CupyComm(comm)
    return comm if hasattr(comm, "start") else Nccl4pyComm(comm)


CONNECTIONS: dict[int | None, Connection] = {}
"""By communicator, each of which is kept here until it is forgotten."""


def forget(comm: Any = None) -> None:
    """Let go of a communicator and its scratch memory; of the default one without an argument."""
    CONNECTIONS.pop(None if comm is None else id(comm), None)


def joined(ranks: int, numbers: Sequence[int], rank: int) -> Any:
    """Join a communicator by the numbers of its name: CuPy 14 takes bytes, before a tuple."""
    import cupy

    name = bytes if int(cupy.__version__.split(".")[0]) >= 14 else tuple
    return cupy.cuda.nccl.NcclCommunicator(ranks, name(numbers), rank)


def connect(job: Any = None, rank: int | None = None, ranks: int | None = None) -> Connection:
    """A new communicator of a job's processes, each on its current GPU; all must call this.

    ``job``: a communicator of mpi4py, a group of torch.distributed, or a store with ``set`` and
    ``get`` (such as torch's TCPStore, unused so far), with this rank and how many ranks there are.
    Default: all of torch.distributed, if that is begun, else all of MPI.
    """
    from cupy.cuda import nccl

    def name() -> str:
        return ",".join(map(str, nccl.get_unique_id()))

    torch: Any = sys.modules.get("torch.distributed")
    if hasattr(job, "set") and hasattr(job, "get"):
        if rank is None or ranks is None:
            raise TypeError("with a store, rank and ranks are needed")
        if rank == 0:
            job.set("weft-nccl", name())
        told = job.get("weft-nccl")  # waits for rank 0
        told = told.decode() if isinstance(told, bytes) else told
    elif hasattr(job, "bcast") or not (torch and torch.is_available() and torch.is_initialized()):
        if job is None:
            from mpi4py import MPI

            job = MPI.COMM_WORLD
        rank, ranks = job.Get_rank(), job.Get_size()
        told = job.bcast(name() if rank == 0 else None, root=0)
    else:
        rank, ranks = torch.get_rank(job), torch.get_world_size(job)
        box = [name() if rank == 0 else None]
        torch.broadcast_object_list(box, torch.get_global_rank(job, 0) if job else 0, group=job)
        told = box[0]
    return Connection(CupyComm(joined(ranks, [int(x) for x in told.split(",")], rank)))


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a rank, as CuPy sees them, and the stream that the caller works on."""

    send: Any
    recv: Any
    numbers: str
    stream: Any
    device: Any

    @staticmethod
    def of(send: Any, recv: Any, stream: Any) -> Arrays:
        """Look at the caller's arrays.

        Raises:
            TypeError: not on a GPU, or of different types.
        """
        (given, a), (result, b) = on_device(send, "send"), on_device(recv, "recv")
        if a and b and a != b:
            raise TypeError(f"send has {a} and recv {b}: one type is needed")
        if not (a or b):
            raise ValueError("send or recv is needed")
        device = (result if given is None else given).device
        with device:
            return Arrays(given, result, a or b, on_stream(stream, send, recv), device)

    def part(self, number: int, parts: int) -> Arrays:
        """The number-th of some parts of about the same length."""

        def cut(array: Any) -> Any:
            if array is None:
                return None
            return array[len(array) * number // parts : len(array) * (number + 1) // parts]

        return Arrays(cut(self.send), cut(self.recv), self.numbers, self.stream, self.device)


def perform(
    shape: Shape,
    code: Sequence[Sequence[str]],
    send: Any,
    recv: Any,
    op: str,
    comm: Any,
    stream: Any,
    parts: int = 1,
) -> None:
    """Put the collective on the stream; in parts, each of which sums on a stream of its own.

    All messages are on the one stream, and all ranks post those of all parts in one order.
    """
    arrays, connection = Arrays.of(send, recv, stream), on_comm(comm)
    if parts == 1:
        wire = Nccl(connection, arrays.stream, arrays.numbers)
        together(shape, code, op, [(wire, arrays)])
        return
    with arrays.device:
        lanes = [connection.lane(k) for k in range(parts)]
    wires = [Nccl(connection, lane, arrays.numbers, post=arrays.stream) for lane in lanes]
    together(shape, code, op, [(w, arrays.part(k, parts)) for k, w in enumerate(wires)])


def perform_all(
    shape: Shape,
    code: Sequence[Sequence[str]],
    sends: Sequence[Any],
    recvs: Sequence[Any],
    op: str,
    comms: Sequence[Any],
) -> None:
    """The collective of ranks that are all in this process, each on a stream of its own.

    A round is one group of all ranks, so that none waits for what this process has yet to post.
    """
    ranks = []
    for send, recv, comm in zip(sends, recvs, comms, strict=True):
        arrays, connection = Arrays.of(send, recv, None), on_comm(comm)
        with arrays.device:
            ranks.append((Nccl(connection, connection.lane(0), arrays.numbers), arrays))
    together(shape, code, op, ranks, ranks[0][0].link)


def together(
    shape: Shape,
    code: Sequence[Sequence[str]],
    op: str,
    runs: Sequence[tuple[Nccl, Arrays]],
    link: Any = None,
) -> None:
    """Carry out some calls, round by round side by side; each round as one group of ``link``.

    Streams of their own start behind the callers' streams, which go on behind their end.
    """
    for wire, arrays in runs:
        if wire.stream is not arrays.stream:
            with arrays.device:
                wire.stream.wait_event(arrays.stream.record())
    going = [(w, a, stages(w, shape, code, a.send, a.recv, op)) for w, a in runs]
    while going:
        if link:
            link.start()
        try:
            going = [run for run in going if _goes_on(*run)]
        finally:
            if link:
                link.end()
    for wire, arrays in runs:
        if wire.stream is not arrays.stream:
            with arrays.device:
                arrays.stream.wait_event(wire.stream.record())


def _goes_on(wire: Nccl, arrays: Arrays, rounds: Iterator[int]) -> bool:
    """Whether there was another round."""
    with arrays.device, wire.stream:
        if next(rounds, None) is not None:
            return True
        wire.flush()
        return False


@dataclass(frozen=True, eq=False)
class Captured:
    """A call as a CUDA graph; calling it does that again with what its arrays then hold."""

    graph: Any
    kept: tuple[Any, ...]

    def __call__(self, stream: Any = None) -> None:
        """Put the graph on a stream."""
        self.graph.launch(on_stream(stream, *self.kept))


def captured(collective: Any, send: Any, recv: Any, comm: Any = None, **options: Any) -> Captured:
    """Record a call of a collective of this file, for these very arrays; nothing is carried out.

    Call the collective itself once before: then kernels are compiled, and ranks are connected.
    """
    import cupy

    own = Connection(on_comm(comm).link)  # with scratch memory that no other call uses
    with Arrays.of(send, recv, None).device:
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        try:
            collective(send, recv, comm=own, stream=stream, **options)
        finally:
            graph = stream.end_capture()
    return Captured(graph, (send, recv, own))
